import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.training.optimizers import build_optimizer, parameter_groups

REFERENCES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, weight_decay=0.1, foreach=False),
    "nesterov": lambda p: torch.optim.SGD(
        p, lr=0.05, momentum=0.8, weight_decay=0.1, nesterov=True, foreach=False
    ),
    "adam": lambda p: torch.optim.Adam(
        p, lr=0.05, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, foreach=False
    ),
    "adamw": lambda p: torch.optim.AdamW(
        p, lr=0.05, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, foreach=False
    ),
    "lars": lambda p: PlainLars(p),
}


class PlainLars:
    """Equation (6) of You et al. (2017), one parameter after the other."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.velocity = [torch.zeros_like(p) for p in self.parameters]

    def step(self):
        for p, v in zip(self.parameters, self.velocity, strict=True):
            local = 1e-3 * p.data.norm() / (p.grad.norm() + 0.1 * p.data.norm()) if p.data.norm() > 0 else 1.0
            v.mul_(0.8).add_(0.05 * local * (p.grad + 0.1 * p.data))
            p.data.sub_(v)

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None


def small_network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))


def recipe_for(name, **more):
    return ng.Recipe(
        epochs=1, optimizer=name, lr=0.05, momentum=0.8, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, **more
    )


def losses(network, step):
    generator = torch.Generator().manual_seed(step)
    return network(torch.randn(8, 4, generator=generator)).square().sum()


@pytest.mark.parametrize("name", REFERENCES)
def test_each_optimizer_takes_the_steps_of_its_reference(name):
    ours, theirs = small_network(), small_network()
    optimizer = build_optimizer(ours, recipe_for(name), torch.tensor(0.05))
    reference = REFERENCES[name](theirs.parameters())
    for step in range(6):
        for network, o in ((ours, optimizer), (theirs, reference)):
            o.zero_grad()
            losses(network, step).backward()
            o.step()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("skipped", [{0}, {2, 3}])
def test_a_skipped_update_leaves_weights_moments_and_decay_untouched(name, skipped):
    marked, without = small_network(), small_network()
    first = build_optimizer(marked, recipe_for(name), torch.tensor(0.05))
    second = build_optimizer(without, recipe_for(name), torch.tensor(0.05))
    for step in range(5):
        first.zero_grad()
        losses(marked, step).backward()
        first.found_inf = torch.tensor(1.0 if step in skipped else 0.0)
        first.step()
        if step not in skipped:
            second.zero_grad()
            losses(without, step).backward()
            second.step()
    for p, q in zip(marked.parameters(), without.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_the_learning_rate_is_read_from_the_tensor():
    network, lr = small_network(), torch.tensor(0.0)
    optimizer = build_optimizer(network, ng.Recipe(optimizer="sgd"), lr)
    before = [p.detach().clone() for p in network.parameters()]
    losses(network, 0).backward()
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))
    lr.fill_(0.1)
    optimizer.step()
    assert not any(torch.equal(p, q) for p, q in zip(network[3].parameters(), before[4:], strict=True))


def test_norm_and_bias_can_be_spared_from_decay():
    network = small_network()
    network[0].weight.requires_grad_(False)
    groups = parameter_groups(network, recipe_for("sgd", decay_norm_and_bias=False))
    decayed, spared = ([id(p) for p in group["params"]] for group in groups)
    assert decayed == [id(network[3].weight)]
    assert set(spared) == {
        id(network[0].bias),
        id(network[1].weight),
        id(network[1].bias),
        id(network[3].bias),
    }
    assert groups[1]["weight_decay"] == 0.0
    (everything,) = parameter_groups(network, recipe_for("sgd"))
    assert len(everything["params"]) == 5
