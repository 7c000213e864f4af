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


METHODS = {
    "plain": lambda objective: Plain(objective),
    "co-teaching": lambda objective: ng.methods.get(
        "co-teaching", objective=objective, noise_rate=0.4, gradual=1
    ),
    "decoupling": lambda objective: ng.methods.get("decoupling", objective=objective, warmup=0),
    "mentornet": lambda objective: ng.methods.get(
        "mentornet", objective=objective, noise_rate=0.4, burn_in=0
    ),
    "mixup": lambda objective: ng.methods.get("mixup", objective=objective, alpha=0.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_class_weights_are_divided_by_their_sum(name, noisy_digits, job_for, make_batch):
    job = job_for(noisy_digits, ng.Recipe(batch_size=64), "mlp-8")

    def loss(weight=None, ignore_index=-100, y=None, sample_weight=None):
        torch.manual_seed(0)
        objective = ng.CrossEntropy(10, weight=weight, ignore_index=ignore_index)
        module = next(METHODS[name](objective).phases(job)).module
        index = torch.arange(64)
        labels = job.train.y[index] if y is None else y
        batch = make_batch(job.train.gather(index), labels, index=index, weight=sample_weight, epoch=9)
        result = module(batch)
        return (result[0] if isinstance(result, tuple) else result).detach()

    torch.testing.assert_close(loss(torch.full((10,), 100.0)), loss())
    # What is ignored is no label of small loss, either: as if its row had no weight.
    y = job.train.y[:64]
    torch.testing.assert_close(loss(ignore_index=3), loss(sample_weight=(y != 3).float()))
    assert abs(loss(torch.arange(1.0, 11.0)) - loss()) > 1e-4


def test_the_mean_with_class_weights_is_torchs():
    network, weight = torch.nn.Linear(2, 3), torch.tensor([1.0, 10.0, 0.0])
    x, y = torch.randn(5, 2), torch.tensor([0, 1, 2, 1, 0])
    batch = Batch(x, y, torch.arange(5), torch.ones(5), torch.zeros((), dtype=torch.int64))
    torch.testing.assert_close(
        Direct(network, ng.CrossEntropy(3, weight=weight))(batch),
        torch.nn.functional.cross_entropy(network(x), y, weight=weight),
    )


def test_parameters_of_an_objective_that_is_built_can_be_changed():
    given = ng.LogisticNormal(3, min_scale=0.2, weight=torch.tensor([1.0, 2.0, 3.0]))
    method = Plain(given).set_params(temperature=0.1)
    assert given.temperature == 1.0
    assert (
        method.settings()
        == Plain(ng.LogisticNormal, temperature=0.1, min_scale=0.2, weight=[1, 2, 3]).settings()
    )
    assert method._build(3).temperature == 0.1
    assert method.set_params(objective="CrossEntropy").get_params() == {"objective": ng.CrossEntropy}
    with pytest.raises(UnknownNameError, match="did you mean 'CrossEntropy'"):
        method.set_params(objective="CrossEntropi")


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
