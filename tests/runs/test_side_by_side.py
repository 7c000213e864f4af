"""Runs that take turns end exactly as they do alone."""

import gc
import time
import traceback
import weakref

import pytest
import torch

import noisegate as ng
from noisegate.errors import BusyError, DivergedError, InputError, UnknownNameError
from noisegate.methods.direct import Direct
from noisegate.runs.run import Run
from noisegate.runs.side_by_side import how_many_fit, side_by_side
from noisegate.training.phase import Phase
from noisegate.training.phase_run import PhaseRun
from noisegate.training.trainer import Epoch

RECIPE = {"epochs": 4, "batch_size": 10, "lr": 0.01}
KINDS = [
    ("forward", RECIPE),
    ("distillation", RECIPE),
    ("co-teaching", RECIPE),
    ("dividemix", RECIPE),
    ("nan", RECIPE | {"keep": "best", "patience": 3}),
    ("ln", RECIPE | {"ema": 0.9, "keep": "ema"}),
]


def maker(data, method, recipe, seed=0, **options):
    return lambda: Run(data, method, "mlp-8", recipe, seed, "cpu", **options)


def outcome(run):
    tensors = [*run.fitted.network.state_dict().values(), *run.fitted.extras.values()]
    timeless = [
        [{k: v for k, v in epoch.items() if not k.endswith("seconds")} for epoch in phase]
        for phase in run.fitted.history
    ]
    metrics = {k: v for k, v in run.fitted.metrics.items() if k != "seconds"}
    return [t.clone() for t in tensors if isinstance(t, torch.Tensor)], timeless, metrics


def alone(make):
    with make() as run:
        for _ in run:
            pass
    return outcome(run)


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True)) and one[1:] == other[1:]


def test_every_result_is_that_of_the_run_alone(data):
    makers = [maker(data, method, recipe, seed) for seed, (method, recipe) in enumerate(KINDS)]
    expected = [alone(make) for make in makers]
    told = list(side_by_side(makers, width=4))
    finished = {number: run for number, run, what in told if what is None}
    assert sorted(finished) == list(range(len(makers)))
    for number, run in finished.items():
        assert same(outcome(run), expected[number]), KINDS[number]
        epochs = [what for n, _, what in told if n == number and isinstance(what, Epoch)]
        assert len(epochs) == sum(len(phase) for phase in run.fitted.history)
    # They really took turns: the first run's epochs are not all before the second's.
    assert [number for number, _, _ in told[:8]] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_run_that_diverges_or_cannot_start_disturbs_nobody(data):
    diverging = {"epochs": 4, "optimizer": "sgd", "lr": 1e18}
    makers = [
        maker(data, "ln", RECIPE),
        maker(data, "ln", diverging),
        maker(data, "no-such-method", RECIPE),
        maker(data, "forward", RECIPE),
    ]
    ends = {n: (run, what) for n, run, what in side_by_side(makers, 3) if not isinstance(what, Epoch)}
    assert isinstance(ends[1][1], DivergedError)
    assert ends[2][0] is None
    assert isinstance(ends[2][1], UnknownNameError)
    for number in (0, 3):
        assert ends[number][1] is None
        assert same(outcome(ends[number][0]), alone(makers[number]))


def test_no_more_than_width_runs_are_open_and_each_is_closed(data, tmp_path):
    opened = []

    def make(number):
        opened.append(number)
        return maker(data, "ce", RECIPE, folder=tmp_path / str(number))()

    ended = []
    for number, _, what in side_by_side([lambda n=n: make(n) for n in range(5)], width=2):
        if what is None:
            ended.append(number)
            # Its folder is free again.
            with maker(data, "ce", RECIPE, folder=tmp_path / str(number))():
                pass
        assert len(opened) - len(ended) <= 2
    assert sorted(ended) == list(range(5))


def test_leaving_early_closes_the_runs_under_way(data, tmp_path):
    makers = [maker(data, "ce", RECIPE, seed, folder=tmp_path / str(seed)) for seed in range(2)]
    together = side_by_side(makers, 2)
    next(together)
    with pytest.raises(BusyError), makers[0]():
        pass
    together.close()
    for make in makers:
        with make() as run:
            assert len(list(run)) == RECIPE["epochs"]


def test_the_time_is_shared_and_the_callers_random_state_is_untouched(data):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    started = time.perf_counter()
    runs = {n: run for n, run, _ in side_by_side([maker(data, "ce", RECIPE, s) for s in range(3)], 3)}
    took = time.perf_counter() - started
    assert torch.equal(torch.rand(2), expected)
    seconds = [run.fitted.metrics["seconds"] for run in runs.values()]
    assert min(seconds) > 0
    assert sum(seconds) < took


def test_a_width_of_zero_is_refused(data):
    with pytest.raises(InputError, match="at least 1, got 0"):
        next(side_by_side([], 0))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this is about a machine without a GPU")
def test_one_run_at_a_time_is_what_fits_a_cpu(data):
    assert how_many_fit(maker(data, "ce", RECIPE)) == 1


def test_an_unknown_execution_is_refused_and_it_is_no_part_of_the_runs_identity(data, caplog):
    with pytest.raises(UnknownNameError, match="did you mean 'captured'"):
        ng.train(data, "ce", recipe=RECIPE, device="cpu", execution="capture")
    plain, captured = (
        ng.train(data, "ce", recipe=RECIPE, device="cpu", execution=e) for e in ("auto", "captured")
    )
    assert plain.record == captured.record
    assert ["training eagerly, because CUDA graphs need a GPU" in line for line in caplog.messages] == [True]


class Late(Direct):
    def begin_epoch(self, epoch, job):
        if epoch == 2:
            raise MemoryError("no room")


class FailsLate(ng.methods.Method):
    def settings(self):
        return {"class": "FailsLate"}

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        yield Phase(Late(network, objective), job.recipe)
        return ng.Fitted(network, objective)


def test_a_failed_run_keeps_nothing_while_its_error_is_looked_at(data, monkeypatch):
    phase_runs = []
    made = PhaseRun.__init__

    def remembered(self, *args, **kwargs):
        made(self, *args, **kwargs)
        phase_runs.append(weakref.ref(self))

    monkeypatch.setattr(PhaseRun, "__init__", remembered)
    gc.collect()
    gc.disable()
    try:
        errors = [what for _, _, what in side_by_side([maker(data, FailsLate(), RECIPE)], 1)]
        assert isinstance(errors[-1], MemoryError)
        assert "no room" in "".join(traceback.format_exception(errors[-1]))
        assert [ref() for ref in phase_runs] == [None]
    finally:
        gc.enable()
