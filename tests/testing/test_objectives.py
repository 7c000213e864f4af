"""A broken objective is told what it breaks."""

import pytest
import torch

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives import OBJECTIVES
from noisegate.testing import check_objective


@pytest.fixture(autouse=True)
def _leave_no_classes():
    before = dict(OBJECTIVES)
    yield
    for name in set(OBJECTIVES) - set(before):
        del OBJECTIVES[name]


def test_an_objective_with_parameters_is_checked_with_them():
    with pytest.raises(
        InputError, match=r"ForwardCorrection needs its transition: check_objective\(cls, trans"
    ):
        check_objective(ng.ForwardCorrection)
    check_objective(ng.ForwardCorrection, 3, transition=torch.full((3, 3), 0.1) + 0.7 * torch.eye(3))
    check_objective(ng.Bootstrap, kind="soft", detached=True)
    with pytest.raises(AssertionError, match="Bootstrap: gradients: "):
        check_objective(ng.Bootstrap, kind="soft")


def test_the_random_state_of_the_caller_stays_as_it_is():
    before = torch.get_rng_state()
    check_objective(ng.CrossEntropy)
    assert torch.equal(torch.get_rng_state(), before)


def broken(promise):
    """An objective that breaks one promise."""

    class Broken(ng.CrossEntropy):
        def log_probs(self, outputs):
            if promise == "half precision":
                return torch.log_softmax(outputs, 1)
            return super().log_probs(outputs)

        def costs(self, outputs):
            costs = super().costs(outputs)
            if promise == "extreme outputs":
                return -costs.neg().exp().log()
            if promise == "gradients":
                return costs.detach() + 0 * outputs.sum()
            if promise == "capture":
                return costs * (1 + 0 * costs.max().item())
            return costs

        def label_costs(self, outputs, targets):
            costs = super().label_costs(outputs, targets)
            return 2 * costs if promise == "the cost of a label" else costs

        def settings(self):
            settings = super().settings()
            return settings | {"ignore_index": 3} if promise == "copies and settings" else settings

    return Broken


@pytest.mark.parametrize(
    "promise",
    [
        "the cost of a label",
        "extreme outputs",
        "gradients",
        "half precision",
        "copies and settings",
        "capture",
    ],
)
def test_the_broken_promise_is_named(promise):
    with pytest.raises(AssertionError, match=f"^Broken: {promise}: "):
        check_objective(broken(promise))
