"""Devices by name, and work that is queued on a GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from noisegate.errors import InputError

T = TypeVar("T")
#: The environment variable that says how many queues CUDA has for the work of different streams.
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device by name; "auto" is the GPU if there is one."""
    if device == "auto":
        device = "cuda" if _has_gpu() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise InputError(f"unknown device {device!r}; expected auto, cpu, cuda or cuda:N") from None
    if found.type == "cuda" and not _has_gpu():
        raise InputError("device 'cuda' was asked for, but torch sees no GPU; use device='cpu'")
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return found


def _has_gpu() -> bool:
    """Whether torch sees a GPU; if so, ask CUDA for enough queues before it starts."""
    known = CONNECTIONS in os.environ or torch.cuda.is_initialized()
    if not known:
        # CUDA reads this once, when a GPU is first used. With fewer connections, streams of runs
        # side by side would share a queue and wait for each other.
        os.environ[CONNECTIONS] = "32"
    found = torch.cuda.is_available()
    if not (found or known):
        del os.environ[CONNECTIONS]
    return found


class Pending:
    """Work queued on a GPU; only `wait` blocks the host."""

    def __init__(self, device: torch.device) -> None:
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record()

    @property
    def ready(self) -> bool:
        """Whether the work is done."""
        return self._event is None or self._event.query()

    def wait(self) -> None:
        """Block until the work is done."""
        if self._event is not None:
            self._event.synchronize()


class Reading(Pending):
    """Named numbers that are being copied from the device, in one transfer.

    Parameters
    ----------
    names : sequence of str
    vector : float64 tensor (len(names),)
    """

    def __init__(self, names: Sequence[str], vector: Tensor) -> None:
        self.names = tuple(names)
        if vector.is_cuda:
            self._host = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
            self._host.copy_(vector, non_blocking=True)
        else:
            self._host = vector
        super().__init__(vector.device)

    @classmethod
    def of(cls, numbers: Mapping[str, Tensor], device: torch.device) -> Reading:
        """Start copying 0-d tensors, given by name."""
        return cls(tuple(numbers), packed(numbers, device))

    def read(self) -> dict[str, float]:
        """Wait for the numbers and return them."""
        self.wait()
        return dict(zip(self.names, self._host.tolist(), strict=True))


def packed(numbers: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """Stack 0-d tensors of any type into one float64 vector."""
    if not numbers:
        return torch.zeros(0, dtype=torch.float64, device=device)
    return torch.stack([number.double() for number in numbers.values()])


def drain(
    chunks: Iterator[T | Pending | None], spend: Callable[[float], None] = lambda seconds: None
) -> Iterator[T]:
    """Run work that comes in chunks to its end, waiting for the GPU where a chunk asks for it.

    Parameters
    ----------
    chunks : iterator
        Each item is the outcome of a chunk: None if more work follows, a `Pending` to wait for, or a
        result.
    spend : function (seconds) -> None
        Called with the time of each step, without the time that the consumer of the results takes.

    Yields
    ------
    The results.
    """
    while True:
        started = time.perf_counter()
        try:
            item = next(chunks)
            if isinstance(item, Pending):
                item.wait()
        except StopIteration:
            return
        finally:
            spend(time.perf_counter() - started)
        if item is not None and not isinstance(item, Pending):
            yield item
