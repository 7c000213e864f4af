"""Steps and evaluations as CUDA graphs.

At the sizes of the papers a step is a hundred small kernels, and launching them from Python takes
several times as long as running them. A CUDA graph is launched as one.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from noisegate._device import Reading, packed
from noisegate.errors import first_line
from noisegate.evaluation.passes import Passes
from noisegate.training.compiling import compiled_networks
from noisegate.training.epoch_numbers import EpochNumbers
from noisegate.training.randomness import RandomState
from noisegate.training.update import WARMUP_STEPS, Step

#: A warm-up leaves memory behind that a capture cannot use: beyond this share of the GPU's memory it is
#: given back before the capture.
CROWDED = 0.4

log = logging.getLogger("noisegate")


class CaptureError(RuntimeError):
    """A step cannot be captured; the message says why."""


class Graph:
    """A function captured as a CUDA graph on the current stream; calling it enqueues the work once more.

    Parameters
    ----------
    function : function () -> None
        Run before, so that nothing in it happens for the first time; it must read and write the same tensors each
        time, and whoever owns those keeps them alive.
    pool : memory pool
        Graphs that share it must not run at the same time.
    """

    def __init__(self, function: Callable[[], None], pool: Any) -> None:
        self._graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        # Collecting garbage may free memory or graphs of others, which a capture does not allow.
        gc.disable()
        try:
            self._graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                function()
            except BaseException:
                self._give_up(pool)
                raise
            self._graph.capture_end()
        finally:
            if collecting:
                gc.enable()

    def _give_up(self, pool: Any) -> None:
        """End a capture that failed. Torch then raises before it has let go of the memory pool."""
        try:
            self._graph.capture_end()
        except RuntimeError:
            device, torch_c = torch.cuda.current_device(), torch._C
            with contextlib.suppress(RuntimeError, AttributeError):
                # The second name is that of torch 2.6.
                end = getattr(torch_c, "_cuda_endAllocateToPool", None)
                (end or torch_c._cuda_endAllocateCurrentStreamToPool)(device, pool)  # type: ignore[attr-defined]
                torch_c._cuda_releasePool(device, pool)

    def __call__(self) -> None:
        self._graph.replay()


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, an operation that makes the host wait for the GPU is an error: no capture could hold it."""
    before = torch.cuda.get_sync_debug_mode()
    _set_debug_mode("error")
    try:
        yield
    finally:
        _set_debug_mode(before)


def _set_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        # torch says that the mode is new and does not find everything; what it finds is enough here.
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        torch.cuda.set_sync_debug_mode(mode)


def captured_step(
    step: Callable[[], None], tensors: Sequence[Tensor], random: RandomState, *, pool: Any
) -> Graph:
    """Capture a step after warm-up steps that leave no trace.

    Parameters
    ----------
    step : function () -> None
    tensors : sequence of tensors
        All that a step changes: weights, buffers, optimiser state, averages, counters.
    random : RandomState
        Active.
    pool : memory pool

    Raises
    ------
    CaptureError
        Saying why; everything is as it was before.
    """
    tensors = [t.detach() for t in tensors]
    before, drawn = [t.clone() for t in tensors], random.save()
    try:
        try:
            step()  # compiles, chooses algorithms and makes handles: it may wait
            with no_waiting():
                for _ in range(WARMUP_STEPS - 1):
                    step()
        finally:
            rolled_back(tensors, before)
            random.restore(drawn)
        _make_room(tensors[0].device)
        return Graph(step, pool)
    except Exception as error:
        # The state object may still believe that it is being captured.
        random.renew(drawn)
        rolled_back(tensors, before)
        raise CaptureError(first_line(error)) from error


@torch.no_grad()
def rolled_back(tensors: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Give tensors their former values."""
    for tensor, value in zip(tensors, before, strict=True):
        tensor.copy_(value)


def _make_room(device: torch.device) -> None:
    total = torch.cuda.get_device_properties(device).total_memory
    if torch.cuda.memory_reserved(device) > CROWDED * total:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


class Captured:
    """Execute a phase by CUDA graphs: one for the step, one for a batch of each pass, one for the numbers.

    Where the capture of an evaluation fails, everything runs eagerly from there on.

    Parameters
    ----------
    step : Step
        Its first epoch has begun.
    numbers : EpochNumbers
    random : RandomState
        Active, on the run's stream.
    compiled : bool
        Whether to compile the networks first.

    Raises
    ------
    CaptureError
        If the step cannot be captured; everything is as it was before.
    """

    def __init__(self, step: Step, numbers: EpochNumbers, random: RandomState, *, compiled: bool) -> None:
        self._step, self._numbers, self._random = step, numbers, random
        self._pool, rows = torch.cuda.graph_pool_handle(), step.job.train
        self._x: Tensor | None = None
        if not rows.resident:
            # Streamed inputs are copied to where the graph reads them.
            first = rows.read(step.order[0, :1].cpu())
            shape = (step.order.shape[1], *rows.shape)
            self._x = torch.zeros(shape, dtype=first.dtype, device=rows.device)
        with compiled_networks(step.module) if compiled else contextlib.nullcontext():
            self._graph: Graph | None = captured_step(
                lambda: step(self._x), step.changing(), random, pool=self._pool
            )
        self._evaluations: dict[bool, CapturedEvaluation | None] = {}
        self._addresses = self._read_addresses()

    def _read_addresses(self) -> list[int]:
        module = self._step.module
        return [t.data_ptr() for t in (*module.parameters(), *module.buffers())]

    @property
    def captured(self) -> bool:
        return self._graph is not None

    @property
    def outdated(self) -> bool:
        # A graph goes on reading the tensors that it was captured with.
        return self._graph is not None and self._read_addresses() != self._addresses

    def step(self, x: Tensor | None) -> None:
        if self._graph is None:
            self._step(x)
            return
        if x is not None and self._x is not None:
            self._x.copy_(x, non_blocking=True)
        self._graph()

    def evaluate(self, full: bool) -> Reading:
        if self._graph is not None and full not in self._evaluations:
            self._evaluations[full] = self._capture_evaluation(full)
        captured = self._evaluations.get(full)
        if self._graph is None or captured is None:
            return self._numbers.evaluate(full)
        return captured()

    def _capture_evaluation(self, full: bool) -> CapturedEvaluation | None:
        """The graphs of an evaluation, or None where it runs eagerly."""
        first, second = self._numbers.predictor(), self._numbers.predictor()
        if any(a is not b for a, b in zip(first, second, strict=True)):
            return None  # it makes a new one each time, and a graph would go on reading the old one
        if not self._numbers.resident(full):
            return None
        try:
            evaluation = CapturedEvaluation(self._numbers, full, Passes(*first, mode="once"))
        except Exception as error:
            log.warning("evaluating eagerly, because it cannot be captured (%s)", first_line(error))
            return None
        drawn = self._random.save()
        try:
            evaluation.capture(self._pool)
        except Exception as error:
            # The random state may still believe that it is being captured, and the step's graph draws
            # from it: neither can be used any more.
            self._random.renew(drawn)
            self._graph = None
            self._evaluations.clear()
            log.warning("training eagerly from here on, because capture failed (%s)", first_line(error))
            return None
        return evaluation


class CapturedEvaluation:
    """The numbers at the end of an epoch as graphs.

    Parameters
    ----------
    numbers : EpochNumbers
    full : bool
        With the evidence.
    passes : Passes
        Fresh, in mode "once". They are tried out here; `capture` comes next.
    """

    def __init__(self, numbers: EpochNumbers, full: bool, passes: Passes) -> None:
        self._numbers, self._full, self._passes = numbers, full, passes
        with passes.evaluating():
            self._names = tuple(numbers.compute(passes, full))
            with no_waiting():
                numbers.compute(passes, full)
        self._vector = torch.zeros(len(self._names), dtype=torch.float64, device=numbers.device)

    def capture(self, pool: Any) -> None:
        """Make the graphs, in this memory pool."""
        numbers, passes = self._numbers, self._passes
        with passes.evaluating():
            for each in passes.named.values():
                each.rewind()
                each.replay = Graph(each.batch, pool)
            passes.mode = "stored"
            self._reduce = Graph(lambda: self._store(numbers.compute(passes, self._full)), pool)

    def _store(self, found: dict[str, Tensor]) -> None:
        self._vector.copy_(packed(found, self._vector.device))

    def __call__(self) -> Reading:
        with self._numbers.shown():
            for each in self._passes.named.values():
                each.run()
            self._reduce()
        return Reading(self._names, self._vector)
