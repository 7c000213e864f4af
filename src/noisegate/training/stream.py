"""The stream of a run: its CUDA stream, random state, choice of execution, and epoch clock."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator

import torch
from torch import nn

from noisegate.errors import UnknownNameError
from noisegate.training import distributed
from noisegate.training.compiling import compiling_pays
from noisegate.training.randomness import RandomState

EXECUTIONS = ("auto", "eager", "captured", "compiled")

log = logging.getLogger("noisegate")


class ExecutionStream:
    """The CUDA stream and the random state of one run, and the choice how its steps are executed.

    Parameters
    ----------
    device : torch.device
        Where the run is trained.
    execution : {"auto", "eager", "captured", "compiled"}, default="auto"
        "captured": each phase's step is one CUDA graph. "compiled": the networks go through
        `torch.compile` first. "auto": captured on a GPU; compiled first where that pays
        (`compiling_pays`). On a CPU, and in a run on several processes, steps are always eager.

    Attributes
    ----------
    random : RandomState
        The random state of the run.
    cuda : torch.cuda.Stream or None
        The stream of the run; None on a CPU.
    """

    def __init__(self, device: torch.device, execution: str = "auto") -> None:
        if execution not in EXECUTIONS:
            raise UnknownNameError("execution", execution, EXECUTIONS)
        self.device, self.execution = device, execution
        self.random = RandomState(device)
        self.cuda = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.cuda is None and execution in ("captured", "compiled"):
            log.warning("training eagerly, because CUDA graphs need a GPU and the device is %s", device)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside, random numbers come from this run's state and GPU work goes to its stream."""
        with self.random.active(), self.on_stream():
            yield

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """Inside, GPU work goes to this run's stream; the random states stay the caller's."""
        if self.cuda is None:
            yield
            return
        with torch.cuda.device(self.cuda.device), torch.cuda.stream(self.cuda):
            yield

    def open(self) -> None:
        """Make this run's stream wait for the caller's, e.g. for copies of the data."""
        if self.cuda is not None:
            self.cuda.wait_stream(torch.cuda.current_stream(self.cuda.device))

    def close(self) -> None:
        """Make the caller's stream wait for the work of this run."""
        if self.cuda is not None:
            torch.cuda.current_stream(self.cuda.device).wait_stream(self.cuda)

    def choices(self, module: nn.Module, images: int, precision: str) -> tuple[str, ...]:
        """Ways to execute the steps of a phase, in the order in which to try them.

        Parameters
        ----------
        module : nn.Module
            What is trained.
        images : int
            Number of steps times batch size.
        precision : {"fp32", "tf32", "bf16"}
        """
        if self.cuda is None or self.execution == "eager":
            return ("eager",)
        if distributed.world().several:
            if distributed.world().first:
                log.warning("training eagerly, because the run is spread over several processes")
            self.execution = "eager"
            return ("eager",)
        compiled = self.execution == "compiled" or (
            self.execution == "auto" and compiling_pays(images, precision, module)
        )
        return ("compiled", "captured", "eager") if compiled else ("captured", "eager")


class Clock:
    """Measures the seconds of an epoch and of the training in it, on a GPU by CUDA events."""

    def __init__(self, device: torch.device) -> None:
        self._started, self._trained = time.perf_counter(), 0.0
        self._events = (
            [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else []
        )
        if self._events:
            self._events[0].record()

    def mark(self) -> None:
        """Mark the end of training: the last update has been made, or queued on the GPU."""
        self._trained = time.perf_counter() - self._started
        if self._events:
            self._events[1].record()

    def read(self) -> dict[str, float]:
        """Return `train_seconds` and `seconds`; call it when the epoch's numbers were read."""
        trained = self._events[0].elapsed_time(self._events[1]) / 1e3 if self._events else self._trained
        return {"train_seconds": trained, "seconds": time.perf_counter() - self._started}
