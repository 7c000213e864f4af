"""How the steps of a phase and the evaluation after an epoch are executed."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from noisegate._device import Reading
from noisegate.training.cuda_graphs import Captured, CaptureError
from noisegate.training.epoch_numbers import EpochNumbers
from noisegate.training.stream import ExecutionStream
from noisegate.training.update import Step

log = logging.getLogger("noisegate")


class Execution(Protocol):
    """How the steps of a phase are executed.

    Attributes
    ----------
    step : function (x) -> None
        One training step. `x` holds the inputs, on the host, or is None for resident rows.
    captured : bool
        Whether steps are replays of a CUDA graph, which draw nothing from the process's random
        states.
    outdated : bool
        Whether tensors of the module were replaced, so that a new execution must be made.
    """

    @property
    def step(self) -> Callable[[Tensor | None], None]: ...

    @property
    def captured(self) -> bool: ...

    @property
    def outdated(self) -> bool: ...

    def evaluate(self, full: bool) -> Reading:
        """Enqueue the computation of an epoch's numbers, with the evidence if `full`."""


class Eager:
    """Execute every operation from Python, one by one."""

    captured = outdated = False

    def __init__(self, step: Step, numbers: EpochNumbers) -> None:
        # Attributes instead of methods save one call per step.
        self.step: Callable[[Tensor | None], None] = step
        self.evaluate = numbers.evaluate


def choose_execution(
    step: Step, numbers: EpochNumbers, stream: ExecutionStream | None, phase_name: str
) -> Execution:
    """Choose the fastest execution that works; log why a faster one does not.

    Parameters
    ----------
    step : Step
    numbers : EpochNumbers
    stream : ExecutionStream or None
        None: eager execution.
    phase_name : str
        Name of the phase in the log.
    """
    if stream is None:
        return Eager(step, numbers)
    images = step.total * step.order.shape[1] * step.world.size
    ways = stream.choices(step.module, images, step.recipe.precision)
    for way, next_way in itertools.pairwise(ways):
        try:
            return Captured(step, numbers, stream.random, compiled=way == "compiled")
        except CaptureError as error:
            log.warning("phase %r runs %s, not %s, because %s", phase_name, next_way, way, error)
    return Eager(step, numbers)
