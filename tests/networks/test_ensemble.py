"""Ensembles: the log of their members' mean probability, and the way back from a description."""

import json

import pytest
import torch
from torch import nn

from noisegate.errors import InputError
from noisegate.networks.bag import Bag
from noisegate.networks.ensemble import Ensemble, from_spec, needs_factory, title
from noisegate.networks.mlp import MLP
from noisegate.networks.shallow import LandmarkKernel, Linear
from noisegate.objectives import CrossEntropy


def members():
    made = [Linear(4, 3, 5), LandmarkKernel(4, 6, 2, 5), Bag(4, 3, 8, 5)]
    for each in made:
        for parameter in each.parameters():
            nn.init.normal_(parameter)
    nn.init.normal_(made[1].landmarks)
    return made


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(7, 4)


def test_it_is_the_weighted_mean_of_sharpened_probabilities(x):
    one, two, three = members()
    ensemble = Ensemble([one, two, three], [3, 2, 1])
    ensemble.weights.copy_(torch.tensor([0.1, 0.2, 0.1, 0.3, 0.2, 0.1]))
    ensemble.sharpnesses.copy_(torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0, 1.5]))
    logits = torch.cat([one(x), two(x), three(x)[:, None]], 1)
    each = torch.softmax(logits * ensemble.sharpnesses[:, None], 2)
    mean = (each * ensemble.weights[:, None]).sum(1)
    objective = CrossEntropy(5)
    torch.testing.assert_close(objective.probs(ensemble(x)), mean)
    y = torch.arange(7) % 5
    torch.testing.assert_close(objective(ensemble(x), y), -mean[torch.arange(7), y].log().mean())


def test_a_sharpness_of_the_whole_is_a_temperature(x):
    ensemble = Ensemble(members(), [3, 2, 1])
    before = ensemble(x).softmax(1)
    ensemble.sharpness.fill_(2.0)
    torch.testing.assert_close(ensemble(x).softmax(1), before**2 / (before**2).sum(1, keepdim=True))


def test_a_bag_is_the_mean_of_its_networks(x):
    bag = Bag(4, 3, 8, 5, dropout=0.5).eval()
    alone = []
    for m in range(3):
        hidden = bag.hidden[:, m * 8 : (m + 1) * 8], bag.hidden_bias[m * 8 : (m + 1) * 8]
        alone.append(torch.softmax(torch.relu(x @ hidden[0] + hidden[1]) @ bag.out[m] + bag.out_bias[m], 1))
    torch.testing.assert_close(bag(x).exp(), torch.stack(alone).mean(0))


def test_a_description_in_json_builds_the_same_network(x):
    first = Ensemble([*members(), MLP((4,), 5, [8])], [3, 2, 1, 1], [None, None, None, "mlp-8"])
    spec = json.loads(json.dumps(first.spec()))
    second = from_spec(spec, (4,), 5)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    assert title(spec) == "ensemble of a linear model, a kernel machine, a bag of networks, a mlp-8"


def test_a_users_own_member_needs_its_factory(x):
    def factory(shape, n_outputs):
        return nn.Linear(shape[0], n_outputs)

    first = Ensemble([factory((4,), 5), factory((4,), 5)], [1, 1])
    assert needs_factory(first.spec())
    assert not needs_factory(Ensemble(members(), [3, 2, 1]).spec())
    with pytest.raises(InputError, match="its factory"):
        from_spec(first.spec(), (4,), 5)
    second = from_spec(first.spec(), (4,), 5, factory)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))


def test_what_it_cannot_be_built_from_is_refused():
    with pytest.raises(InputError, match="at least one member"):
        Ensemble([], [])
    with pytest.raises(InputError, match="unknown kind of ensemble member 'tree'"):
        from_spec({"kind": "ensemble", "members": [{"kind": "tree"}], "heads": [1], "front": None}, (4,), 5)
