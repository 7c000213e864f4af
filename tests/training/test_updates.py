"""Several updates a step, each with an optimiser of its own."""

import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.training.phase import Phase, PhaseModule, Update
from noisegate.training.phase_run import PhaseRun


class Both(PhaseModule):
    """One number pulled to -1 by a large loss and to 1 by a small one."""

    def __init__(self, apart):
        super().__init__()
        self.apart, self.seen = apart, []
        self.own = nn.Linear(1, 1, bias=False)
        self.other = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.own.weight)

    def large(self, batch):
        self.seen.append(self.own.weight.item())
        return 1e3 * (self.own.weight + 1).abs().sum()

    def small(self, batch):
        self.seen.append(self.own.weight.item())
        return 1e-3 * (self.own.weight - 1).abs().sum() + 1e-3 * self.other.weight.square().sum()

    def updates(self):
        return (Update(self.own, self.large), Update(self, self.small)) if self.apart else super().updates()

    def forward(self, batch):
        return self.large(batch) + self.small(batch)

    def predictor(self):
        return self, None  # nobody is validated


@pytest.fixture
def begun(data, job_for):
    def make(apart, **changes):
        recipe = ng.Recipe(**{"epochs": 1, "batch_size": 10, "lr": 0.1, **changes})
        torch.manual_seed(0)
        module = Both(apart)
        run = PhaseRun(Phase(module, recipe), job_for(data, recipe), 0, None, 0)
        run.step.order.copy_(torch.arange(run.step.order.numel()).view_as(run.step.order))
        return module, run

    return make


def test_each_loss_moves_by_a_full_step_of_adam(begun):
    module, run = begun(apart=True)
    for _ in range(4):
        run.step()
    # The small loss undoes what the large one has done; in one sum it would have no say.
    assert module.seen == pytest.approx([0.0, -0.1] * 4, abs=1e-3)
    module, run = begun(apart=False)
    for _ in range(4):
        run.step()
    assert module.own.weight.item() == pytest.approx(-0.4, abs=1e-3)


def test_the_loss_of_the_history_is_the_sum(begun):
    module, run = begun(apart=True)
    other = module.other.weight.item()
    run.step()
    assert run.step.loss_sum.item() == pytest.approx(1e3 + 1e-3 * 1.1 + 1e-3 * other**2)


def test_only_what_an_update_trains_is_clipped_and_moved(begun):
    module, run = begun(apart=True, optimizer="sgd", momentum=0.0, lr=1.0, clip_norm=0.5)
    before = module.other.weight.item()
    run.step.on(run.step.order[0])
    # -0.5 from the large loss; the small one's gradient, 1e-3 each, is below the limit.
    assert module.own.weight.item() == pytest.approx(-0.5 + 1e-3)
    assert module.other.weight.item() == pytest.approx(before * (1 - 2e-3))


def test_all_optimisers_are_stored_and_go_on(begun):
    module, run = begun(apart=True)
    for _ in range(3):
        run.step()
    state = {name: value for name, value in run.state().items() if name != "best"}
    assert len(state["optimizer"]) == 3  # one parameter in the first update, two in the second
    copied = {
        **state,
        "module": {k: v.clone() for k, v in state["module"].items()},
        "optimizer": [{k: v.clone() for k, v in each.items()} for each in state["optimizer"]],
        "step": state["step"].clone(),
        "best": None,
    }
    run.step()
    resumed, again = begun(apart=True)
    again.load(copied)
    again.step()
    for mine, theirs in zip(resumed.parameters(), module.parameters(), strict=True):
        assert torch.equal(mine, theirs)
