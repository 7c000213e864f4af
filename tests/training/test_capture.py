"""The whole step of every method is free of what a CUDA graph cannot hold; checked on the CPU."""

import contextlib

import pytest
import torch

import noisegate as ng
from noisegate.evaluation.passes import Passes, read_given
from noisegate.training.phase import Phase, PhaseModule
from noisegate.training.phase_run import PhaseRun


def steps_under_guard(phase, job, capture_guard, steps=3):
    """Run some steps; the operations of each must be the same, shape for shape."""
    run = PhaseRun(phase, job, 0, None, 0)
    run.module.train()
    run.module.begin_epoch(0, job)
    order = torch.arange(len(job.train))
    index = next(iter(job.train.batches(order, run.batch_size)))[0]
    run.step.on(index, None)  # buffers that the optimiser makes on its first step are made before a capture
    traces = []
    for shift in range(steps):
        with capture_guard() as guard:
            run.step.on((index + shift) % len(order), None)
        traces.append(guard.seen)
    return traces


RECIPES = {
    "adam": ng.Recipe(epochs=3, batch_size=10, schedule="cosine"),
    "nesterov": ng.Recipe(epochs=3, batch_size=10, optimizer="nesterov", weight_decay=1e-3, clip_norm=1.0),
    "lars": ng.Recipe(epochs=3, batch_size=10, optimizer="lars", decay_norm_and_bias=False, ema=0.9),
    "bf16": ng.Recipe(epochs=3, batch_size=10, optimizer="adamw", precision="bf16"),
}


@pytest.mark.parametrize("method", sorted(ng.methods.METHODS))
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_step_of_every_method_is_capture_safe(data, job_for, capture_guard, method, recipe):
    job = job_for(data, RECIPES[recipe])
    phases = ng.methods.get(method).phases(job)
    history = None
    with contextlib.suppress(StopIteration):
        while True:
            phase = phases.send(history)
            traces = steps_under_guard(phase, job, capture_guard)
            assert len(traces[0]) > 20
            assert traces[0] == traces[1] == traces[2]
            history = [{"validation_accuracy": 0.5, "validation_log_likelihood": -1.0}]
    assert history is not None


def test_augmentation_is_part_of_the_step_and_capture_safe(job_for, capture_guard):
    data = ng.data.load("digits", as_images=True)
    job = job_for(data, ng.Recipe(epochs=1, batch_size=16, crop=1, flip=True), network="lenet5")
    traces = steps_under_guard(next(ng.methods.get("ln").phases(job)), job, capture_guard)
    assert {"gather", "where", "flip"} <= {name for name, _ in traces[0]}
    assert traces[0] == traces[1]


@pytest.mark.parametrize("method", ["ce", "het-tau", "gce"])
def test_steps_and_looks_on_maps_are_capture_safe(method, job_for, capture_guard):
    data = ng.data.load("scenes", n=12, n_test=4)
    params = {"n_samples": 4, "n_samples_eval": 4} if method == "het-tau" else {}
    recipe = ng.Recipe(epochs=1, batch_size=4, scales=(0.5, 1.0, 2.0), crop_to=32, flip=True, clip_norm=1.0)
    job = job_for(data, recipe, network="deeplab-resnet18-os32")
    phase = next(ng.methods.get(method, **params).phases(job))
    traces = steps_under_guard(phase, job, capture_guard)
    assert traces[0] == traces[1] == traces[2]
    passes = Passes(*phase.module.predictor())
    with passes.evaluating():
        for _ in range(2):  # what a pass makes on its first look is made before a capture
            with capture_guard() if passes.named else contextlib.nullcontext():
                passes("given", job.train, read_given(job.train.y))


@pytest.mark.parametrize(
    "offence",
    [
        lambda loss: loss * loss.item(),
        lambda loss: loss if loss > 0 else -loss,
        lambda loss: loss.view(1)[loss.view(1) > 0].sum(),
        lambda loss: loss * torch.nonzero(torch.ones(2)).sum(),
        lambda loss: loss * torch.nn.functional.one_hot(torch.tensor([1, 0])).sum(),
    ],
)
def test_the_guard_notices_what_it_is_there_for(data, job_for, capture_guard, offence):
    class Offending(PhaseModule):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, batch):
            return offence(self.module(batch))

        def predictor(self):
            return self.module.predictor()

    job = job_for(data)
    module = next(ng.methods.get("ce").phases(job)).module
    with pytest.raises(AssertionError, match="cannot be captured"):
        steps_under_guard(Phase(Offending(module), job.recipe), job, capture_guard)
