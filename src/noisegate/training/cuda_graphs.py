"""Steps and evaluations as CUDA graphs.

At the sizes used in the papers a step consists of about a hundred small kernels, and launching them
from Python takes several times as long as running them. A CUDA graph is one launch.
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

#: A capture cannot reuse memory that the warm-up has cached. If more than this share of the GPU's
#: memory is reserved, the cache is emptied before the capture.
CROWDED = 0.4

log = logging.getLogger("noisegate")


class CaptureError(RuntimeError):
    """A step cannot be captured; the message says why."""


class Graph:
    """A function captured as a CUDA graph on the current stream. A call replays it.

    Parameters
    ----------
    function : function () -> None
        It must have run before, so that nothing in it (compilation, handles) happens for the first
        time. It must read and write the same tensors each time; the caller keeps them alive.
    pool : memory pool
        Graphs that share a pool must not run at the same time.
    """

    def __init__(self, function: Callable[[], None], pool: Any) -> None:
        self._graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        # Garbage collection may free GPU memory or other graphs, which is forbidden during a
        # capture.
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
        """End a failed capture; release the memory pool, because torch raises before it does."""
        try:
            self._graph.capture_end()
        except RuntimeError:
            device, torch_c = torch.cuda.current_device(), torch._C
            with contextlib.suppress(RuntimeError, AttributeError):
                # torch 2.6 has the second name.
                end = getattr(torch_c, "_cuda_endAllocateToPool", None)
                (end or torch_c._cuda_endAllocateCurrentStreamToPool)(device, pool)  # type: ignore[attr-defined]
                torch_c._cuda_releasePool(device, pool)

    def __call__(self) -> None:
        self._graph.replay()


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, operations that make the host wait for the GPU raise: they cannot be captured."""
    before = torch.cuda.get_sync_debug_mode()
    _set_debug_mode("error")
    try:
        yield
    finally:
        _set_debug_mode(before)


def _set_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():
        # torch warns that this mode is new and incomplete; it finds enough for us.
        warnings.filterwarnings("ignore", message="Synchronization debug mode")
        torch.cuda.set_sync_debug_mode(mode)


def captured_step(
    step: Callable[[], None], tensors: Sequence[Tensor], random: RandomState, *, pool: Any
) -> Graph:
    """Capture a step, after warm-up steps whose effects are undone.

    Parameters
    ----------
    step : function () -> None
    tensors : sequence of tensors
        Everything that a step changes: weights, buffers, optimiser state, averages, counters.
    random : RandomState
        The random state of the run, which must be active.
    pool : memory pool
        See `Graph`.

    Raises
    ------
    CaptureError
        If the step cannot be captured. All tensors and random states are then as before.
    """
    tensors = [t.detach() for t in tensors]
    before, drawn = [t.clone() for t in tensors], random.save()
    try:
        try:
            step()  # compiles, chooses algorithms, makes handles: the host may wait
            with no_waiting():
                for _ in range(WARMUP_STEPS - 1):
                    step()
        finally:
            rolled_back(tensors, before)
            random.restore(drawn)
        _make_room(tensors[0].device)
        return Graph(step, pool)
    except Exception as error:
        # The generator may still be marked as being captured: replace it.
        random.renew(drawn)
        rolled_back(tensors, before)
        raise CaptureError(first_line(error)) from error


@torch.no_grad()
def rolled_back(tensors: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Restore the former values of tensors, in place."""
    for tensor, value in zip(tensors, before, strict=True):
        tensor.copy_(value)


def _make_room(device: torch.device) -> None:
    """Empty the memory cache if it is large; see `CROWDED`."""
    total = torch.cuda.get_device_properties(device).total_memory
    if torch.cuda.memory_reserved(device) > CROWDED * total:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


class Captured:
    """Executes a phase by CUDA graphs: of the step, of a batch of each pass, and of the numbers.

    If the capture of an evaluation fails, everything runs eagerly from then on.

    Parameters
    ----------
    step : Step
        `begin_epoch` must have been called.
    numbers : EpochNumbers
    random : RandomState
        The random state of the run, which must be active, on the run's stream.
    compiled : bool
        Whether to compile the networks first.

    Raises
    ------
    CaptureError
        If the step cannot be captured. Everything is then as before.
    """

    def __init__(self, step: Step, numbers: EpochNumbers, random: RandomState, *, compiled: bool) -> None:
        self._step, self._numbers, self._random = step, numbers, random
        self._pool, rows = torch.cuda.graph_pool_handle(), step.job.train
        self._x: Tensor | None = None
        if not rows.resident:
            # The graph reads streamed inputs from this fixed tensor; `step` copies them there.
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
        # A graph keeps using the addresses of the tensors that it was captured with.
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
        """Capture an evaluation; None if it must run eagerly."""
        first, second = self._numbers.predictor(), self._numbers.predictor()
        if any(a is not b for a, b in zip(first, second, strict=True)):
            return None  # the predictor is made anew each time; a graph would keep using the old one
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
            # The generator may still be marked as being captured. The graph of the step draws from
            # it, so neither can be used any more.
            self._random.renew(drawn)
            self._graph = None
            self._evaluations.clear()
            log.warning("training eagerly from here on, because capture failed (%s)", first_line(error))
            return None
        return evaluation


class CapturedEvaluation:
    """CUDA graphs that compute the numbers at the end of an epoch.

    The constructor tries the passes out; `capture` then makes the graphs.

    Parameters
    ----------
    numbers : EpochNumbers
    full : bool
        Whether to include the evidence.
    passes : Passes
        New passes in mode "once".
    """

    def __init__(self, numbers: EpochNumbers, full: bool, passes: Passes) -> None:
        self._numbers, self._full, self._passes = numbers, full, passes
        with passes.evaluating():
            self._names = tuple(numbers.compute(passes, full))
            with no_waiting():
                numbers.compute(passes, full)
        self._vector = torch.zeros(len(self._names), dtype=torch.float64, device=numbers.device)

    def capture(self, pool: Any) -> None:
        """Capture the graphs in a memory pool."""
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
