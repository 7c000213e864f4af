"""What makes a class a method."""

import pytest

import noisegate as ng
from noisegate.methods.base import Method
from noisegate.methods.direct import Direct
from noisegate.objectives import Objective
from noisegate.training.phase import Phase


class Simple(Method):
    """Without parameters."""

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        yield Phase(Direct(network, objective), job.recipe)
        return ng.Fitted(network, objective)


class Undeclared(Simple):
    def __init__(self, rate=0.1):
        self.rate = rate


class Undecorated(Simple):
    rate: float = 0.1


def test_a_method_without_parameters_may_be_a_plain_class(noisy_digits):
    assert Simple().settings() == {"class": "Simple"}
    assert ng.train(noisy_digits, Simple(), "mlp-4", {"epochs": 1}, device="cpu").history


@pytest.mark.parametrize("kind", [Undeclared, Undecorated])
def test_parameters_that_nobody_would_store_are_refused(kind, noisy_digits):
    with pytest.raises(ng.errors.InputError, match=f"{kind.__name__} must be fields of a dataclass"):
        ng.train(noisy_digits, kind(), "mlp-4", {"epochs": 1}, device="cpu")


@pytest.mark.parametrize(
    ("base", "name", "kind"), [(Method, "Forward", "method class"), (Objective, "GCE", "objective")]
)
def test_names_of_the_library_stay_its_own(base, name, kind):
    """Otherwise every stored model with one would come back as somebody else's."""
    before = base.classes[name]
    with pytest.raises(ng.errors.InputError, match=f"'{name}' is the name of noisegate's own {kind}"):
        type(name, (base,), {"__module__": "mine"})
    assert base.classes[name] is before


def test_a_class_may_be_written_once_more():
    first, second = (type("OfANotebook", (Simple,), {"__module__": "__main__"}) for _ in range(2))
    assert Method.classes["OfANotebook"] is second is not first
    del Method.classes["OfANotebook"]
