import copy

import pytest
import torch
from sklearn.base import clone

import noisegate as ng
from noisegate.errors import InputError, UnknownNameError
from noisegate.methods import Batch, Direct, Plain
from noisegate.methods.base import Method


def test_the_loss_is_the_weighted_mean_of_the_costs():
    network, objective = torch.nn.Linear(2, 6), ng.LogisticNormal(3)
    x, y, weight = torch.randn(5, 2), torch.tensor([0, 1, 2, 1, 0]), torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0])
    batch = Batch(x, y, torch.arange(5), weight, torch.zeros((), dtype=torch.int64))
    each = objective(network(x), y, reduction="none")
    torch.testing.assert_close(Direct(network, objective)(batch), (weight * each).sum() / weight.sum())
    assert Direct(network, objective).predictor() == (network, objective)


def test_parameters_follow_the_objective():
    method = Plain(ng.LogisticNormal, temperature=0.5)
    assert method.get_params()["temperature"] == 0.5
    assert method.get_params()["min_scale"] == 0.5
    assert method.set_params(min_scale=0.1).get_params()["min_scale"] == 0.1
    assert repr(method) == "Plain(LogisticNormal, temperature=0.5, min_scale=0.1)"
    assert method.set_params(objective=ng.CrossEntropy).get_params() == {"objective": ng.CrossEntropy}


@pytest.mark.parametrize(
    "method",
    [
        Plain(ng.LogisticNormal, temperature=0.5),
        Plain(ng.LogisticNormal(3, min_scale=0.2)),
        Plain("CrossEntropy"),
    ],
)
def test_settings_and_clones_are_the_same_method(method):
    for other in (Method.from_settings(method.settings()), clone(method), copy.deepcopy(method)):
        assert other is not method
        assert other.settings() == method.settings()


def test_what_is_unknown_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="did you mean 'temperature'"):
        Plain(ng.LogisticNormal, temprature=1.0)
    with pytest.raises(UnknownNameError, match="did you mean 'temperature'"):
        ng.methods.get("ln").set_params(temprature=1.0)
    with pytest.raises(UnknownNameError, match="unknown parameter of method 'ce'"):
        ng.methods.get("ce", temperature=1.0)
    with pytest.raises(
        UnknownNameError, match="unknown objective 'LogisticNorml'; did you mean 'LogisticNormal'"
    ):
        Plain("LogisticNorml")
    with pytest.raises(UnknownNameError, match="unknown method class 'Magic'"):
        Method.from_settings({"class": "Magic"})
    with pytest.raises(UnknownNameError, match="did you mean"):
        ng.methods.get("cee")
    with pytest.raises(InputError, match="is built already"):
        Plain(ng.LogisticNormal(3), temperature=0.5)


def test_every_registered_method_builds_with_its_own_defaults():
    for name, entry in ng.methods.METHODS.items():
        method = ng.methods.get(name, **entry.defaults)
        assert isinstance(method, Method)
        assert entry.summary
        assert entry.paper
        assert entry.defaults.items() <= method.get_params().items()
