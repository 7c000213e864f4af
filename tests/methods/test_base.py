"""What makes a class a method."""

import pytest

import noisegate as ng
from noisegate.methods.base import Method, Phase
from noisegate.methods.direct import Direct


class Plain(Method):
    """Without parameters."""

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        yield Phase(Direct(network, objective), job.recipe)
        return ng.Fitted(network, objective)


class Undeclared(Plain):
    def __init__(self, rate=0.1):
        self.rate = rate


class Undecorated(Plain):
    rate: float = 0.1


def test_a_method_without_parameters_may_be_a_plain_class(noisy_digits):
    assert Plain().settings() == {"class": "Plain"}
    assert ng.train(noisy_digits, Plain(), "mlp-4", {"epochs": 1}, device="cpu").history


@pytest.mark.parametrize("kind", [Undeclared, Undecorated])
def test_parameters_that_nobody_would_store_are_refused(kind, noisy_digits):
    with pytest.raises(ng.errors.InputError, match=f"{kind.__name__} must be fields of a dataclass"):
        ng.train(noisy_digits, kind(), "mlp-4", {"epochs": 1}, device="cpu")
