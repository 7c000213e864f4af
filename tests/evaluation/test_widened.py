import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.evaluation.passes import predictions
from noisegate.evaluation.widened import Widened


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def double(original, x):
    return copy.deepcopy(original).double().eval()(x)


def replace_a_weight(net):
    net[0].weight = nn.Parameter(torch.full((8, 4), 0.5))


def replace_a_layer(net):
    net[2] = nn.Sigmoid()


def write_past_the_version(net):
    net[3].weight.data.mul_(2)


def change_a_setting(net):
    net[1].eps = 0.5


@pytest.mark.parametrize(
    "change", [replace_a_weight, replace_a_layer, write_past_the_version, change_a_setting]
)
def test_every_change_of_the_network_is_seen(change):
    net, widened, x = network(), Widened(), torch.randn(5, 4, dtype=torch.float64)
    before = widened(net)(x)
    torch.testing.assert_close(before, double(net, x), rtol=0, atol=0)
    change(net)
    after = widened(net)(x)
    torch.testing.assert_close(after, double(net, x), rtol=0, atol=0)
    assert not torch.equal(before, after)


def test_the_copy_is_kept_and_the_network_stays_as_it_was():
    net, widened = network(), Widened()
    assert widened(net) is widened(net)
    assert net.training
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert pickle.loads(pickle.dumps(widened))._copy is None
    assert copy.deepcopy(widened)._copy is None


def test_batches_are_the_whole_and_sum_to_one():
    objective = ng.CrossEntropy(3)
    fitted = ng.Fitted(network().double().eval(), objective)
    x = np.random.default_rng(0).normal(size=(50, 4))
    whole = fitted.predict_proba(x)
    np.testing.assert_allclose(fitted.predict_proba(x, batch_size=7), whole, rtol=1e-12)
    np.testing.assert_allclose(whole.sum(1), 1, rtol=1e-15)


def test_a_part_in_training_mode_predicts_in_evaluation_mode():
    from noisegate.data.loader import Rows

    net, objective = network().eval(), ng.CrossEntropy(3)
    net[2].train()  # dropout
    rows = Rows(np.ones((6, 4), np.float32), None, torch.device("cpu"))
    first, second = (torch.cat(list(predictions(net, objective, rows))) for _ in range(2))
    assert torch.equal(first, second)
