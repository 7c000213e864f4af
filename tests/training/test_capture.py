"""The whole step of every method is free of what a CUDA graph cannot hold; checked on the CPU."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import noisegate as ng
from noisegate.methods.base import Phase, PhaseModule
from noisegate.training.trainer import PhaseRun

# These read a tensor's values on the host, or make a shape depend on them.
REFUSED = {
    "_local_scalar_dense",
    "nonzero",
    "nonzero_static",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "histc",
    "repeat_interleave",
    "is_nonzero",
    "equal",
    "_assert_async",
}


class CaptureGuard(TorchDispatchMode):
    """Refuses operations that cannot be captured, and notes every operation with the shapes it gives."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        boolean_index = name in ("index", "index_put_", "index_put") and any(
            isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)
            for i in args[1]
            if i is not None
        )
        if name in REFUSED or boolean_index:
            raise AssertionError(f"{name} cannot be captured in a CUDA graph")
        result = function(*args, **(kwargs or {}))
        outputs = result if isinstance(result, tuple | list) else [result]
        self.seen.append((name, [tuple(o.shape) for o in outputs if isinstance(o, torch.Tensor)]))
        return result


def steps_under_guard(phase, job, steps=3):
    """Run some steps; the operations of each must be the same, shape for shape."""
    run = PhaseRun(phase, job, 0, None, 0)
    run.module.train()
    order = torch.arange(len(job.train))
    index = next(iter(job.train.batches(order, run.batch_size)))[0]
    run.step(index, None)  # buffers that the optimiser makes on its first step are made before a capture
    traces = []
    for shift in range(steps):
        with CaptureGuard() as guard:
            run.step((index + shift) % len(order), None)
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
def test_every_step_of_every_method_is_capture_safe(data, job_for, method, recipe):
    job = job_for(data, RECIPES[recipe])
    phase = next(ng.methods.get(method).phases(job))
    traces = steps_under_guard(phase, job)
    assert len(traces[0]) > 20
    assert traces[0] == traces[1] == traces[2]


def test_augmentation_is_part_of_the_step_and_capture_safe(job_for):
    data = ng.data.load("digits", as_images=True)
    job = job_for(data, ng.Recipe(epochs=1, batch_size=16, crop=1, flip=True), network="lenet5")
    traces = steps_under_guard(next(ng.methods.get("ln").phases(job)), job)
    assert {"gather", "where", "flip"} <= {name for name, _ in traces[0]}
    assert traces[0] == traces[1]


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
def test_the_guard_notices_what_it_is_there_for(data, job_for, offence):
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
        steps_under_guard(Phase(Offending(module), job.recipe), job)
