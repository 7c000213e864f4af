"""A GPU's way of working: one CUDA graph for a whole step, a stream for each run, numbers read once an epoch.

At the sizes of the papers a step is a hundred small kernels, and launching them from Python takes several times
as long as running them. A CUDA graph is launched as one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from noisegate._fusing import fusing
from noisegate.errors import UnknownNameError, first_line
from noisegate.networks._layers import Head
from noisegate.networks.prepare import Prepared
from noisegate.training import distributed
from noisegate.training.randomness import RandomState

EXECUTIONS = ("auto", "eager", "captured", "compiled")
#: "auto" compiles where at least so many images go through at least so many convolutions, not in fp32.
COMPILED_IMAGES = 4_000_000
COMPILED_CONVOLUTIONS = 10
WARMUP_STEPS = 3
# A warm-up leaves memory behind that a capture cannot use: beyond this share of the GPU's it is given back.
CROWDED = 0.4

log = logging.getLogger("noisegate")


class CaptureError(RuntimeError):
    """A step cannot be captured; the message says why."""


class Lane:
    """Where the work of one run goes: its stream, its random state, and how its steps are executed.

    Parameters
    ----------
    device : torch.device
    execution : {"auto", "eager", "captured", "compiled"}
        "captured": each phase's step is one CUDA graph. "compiled": the networks go through `torch.compile`
        first. "auto": captured on a GPU; compiled first where that pays (`compiling_pays`). A CPU is always eager,
        and so is a run on several processes.
    """

    def __init__(self, device: torch.device, execution: str = "auto") -> None:
        if execution not in EXECUTIONS:
            raise UnknownNameError("execution", execution, EXECUTIONS)
        self.device, self.execution = device, execution
        self.random = RandomState(device)
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        if self.stream is None and execution in ("captured", "compiled"):
            log.warning("training eagerly, because CUDA graphs need a GPU and the device is %s", device)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside, random numbers come from this run's state and GPU work goes to its stream."""
        with self.random.active(), self.on_stream():
            yield

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """Inside, GPU work goes to this run's stream; random numbers are the caller's business."""
        if self.stream is None:
            yield
            return
        with torch.cuda.device(self.stream.device), torch.cuda.stream(self.stream):
            yield

    def open(self) -> None:
        """What the caller's stream was given so far (the data, above all) comes before anything of this run."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))

    def close(self) -> None:
        """What the caller's stream is given from now on comes after everything of this run."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)

    def choices(self, module: nn.Module, images: int, precision: str) -> tuple[str, ...]:
        """The ways to execute a phase's steps, in the order in which they are tried."""
        if self.stream is None or self.execution == "eager":
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


def compiling_pays(images: int, precision: str, module: nn.Module | None = None) -> bool:
    """Whether `torch.compile` earns its half minute: bf16 or tf32, a long run, a deep convolutional network.

    On one H200 it makes a captured step of WRN-28-2 about a quarter faster, and a LeNet's an eighth. It depends on
    settings alone, never on a clock, so the same run is always executed the same way; and fp32 is left as it is,
    so that there captured and eager steps compute the same.

    Parameters
    ----------
    images : int
        Steps times batch size.
    precision : {"fp32", "tf32", "bf16"}
    module : nn.Module, optional
        What is trained. None: one of many runs of the same network in this process, which is compiled once, so
        that it need not be deep.
    """
    if precision == "fp32" or images < COMPILED_IMAGES or importlib.util.find_spec("triton") is None:
        return False
    if module is None:
        return True
    return sum(isinstance(layer, nn.Conv2d) for layer in module.modules()) >= COMPILED_CONVOLUTIONS


@contextlib.contextmanager
def compiled_networks(module: nn.Module) -> Iterator[None]:
    """Inside, the trained networks of a module run through `torch.compile`; their weights stay where they are.

    What is around a network (the loss, a selection) is left alone, but for functions marked `fused`: it may be
    anything that can be captured. So is its head, whose size depends on the method: methods beside each other share
    what is compiled once.
    """
    networks = [m.network for m in module.modules() if isinstance(m, Prepared)]
    trained = [_before_head(n) for n in networks if any(p.requires_grad for p in n.parameters())]
    config: Any = torch._dynamo.config
    limit = {"recompile_limit": 256} if hasattr(config, "recompile_limit") else {"cache_size_limit": 256}
    with config.patch(**limit), warnings.catch_warnings(), contextlib.ExitStack() as afterwards:
        # Of torch's own way to trace an autograd.Function: where warnings are errors it would stop the compiling.
        warnings.filterwarnings("ignore", message=".*should not be instantiated", category=DeprecationWarning)
        for network in trained:
            own = vars(network).get("forward")
            afterwards.callback(_put_back, network, own)
            if own is None:
                network.forward = functools.partial(torch.compile(_forward, dynamic=False), network)
            else:
                network.forward = torch.compile(own, dynamic=False)
        afterwards.enter_context(fusing())
        yield


def _forward(network: nn.Module, *args: Any) -> Any:
    """What a network's class does, in a frame of ours: what is compiled for one network serves all that are alike.

    A frame of torch's own, as nn.Sequential has, would not be compiled, and handed over by itself not be shared by
    torch 2.8 and before.
    """
    return type(network).forward(network, *args)


def _put_back(network: nn.Module, forward: Callable[..., Any] | None) -> None:
    """The `forward` that an object has of its own, or its class's."""
    vars(network).pop("forward", None)
    if forward is not None:
        network.forward = forward


def _before_head(network: nn.Module) -> nn.Module:
    """The part of one of our networks that does not depend on the number of outputs; a user's own as it is."""
    head, body = (getattr(network, name, None) for name in ("head", "body"))
    return body if isinstance(head, Head) and isinstance(body, nn.Module) else network


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


def on_host(tree: Any) -> Any:
    """A copy of a tree whose GPU tensors are on their way to pinned memory: valid once the stream got there."""
    if isinstance(tree, Tensor):
        if not tree.is_cuda:
            return tree.detach().clone()
        host = torch.empty(tree.shape, dtype=tree.dtype, pin_memory=True)
        return host.copy_(tree.detach(), non_blocking=True)
    if isinstance(tree, dict):
        return {key: on_host(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(on_host(value) for value in tree)
    return tree
