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
    """A way to execute a phase.

    Attributes
    ----------
    step : function (x) -> None
        One training step; `x` are its inputs on the host, or None for resident rows.
    captured : bool
        Whether steps are replayed, and draw no numbers from the process's random states.
    outdated : bool
        Whether the module has other tensors by now, so that another execution must take its place.
    """

    @property
    def step(self) -> Callable[[Tensor | None], None]: ...

    @property
    def captured(self) -> bool: ...

    @property
    def outdated(self) -> bool: ...

    def evaluate(self, full: bool) -> Reading:
        """Enqueue the numbers at the end of an epoch, with the evidence if `full`."""


class Eager:
    """Execute everything as it is written."""

    captured = outdated = False

    def __init__(self, step: Step, numbers: EpochNumbers) -> None:
        # The objects themselves: a call less in every step.
        self.step: Callable[[Tensor | None], None] = step
        self.evaluate = numbers.evaluate


def choose_execution(
    step: Step, numbers: EpochNumbers, stream: ExecutionStream | None, phase_name: str
) -> Execution:
    """The fastest way to execute a phase that works; where a faster one does not, a line says why."""
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
