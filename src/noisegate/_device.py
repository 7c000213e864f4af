"""The device: by name, and the work it was given."""

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
    """The device by name; "auto" is the GPU where there is one."""
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
        # Read once, when a GPU is first used: streams of runs side by side that share a queue wait
        # for each other.
        os.environ[CONNECTIONS] = "32"
    found = torch.cuda.is_available()
    if not (found or known):
        del os.environ[CONNECTIONS]
    return found


class Pending:
    """Work that a GPU was given; nothing here makes the host wait unless it asks to."""

    def __init__(self, device: torch.device) -> None:
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record()

    @property
    def ready(self) -> bool:
        """Whether it is done."""
        return self._event is None or self._event.query()

    def wait(self) -> None:
        """Return when it is done."""
        if self._event is not None:
            self._event.synchronize()


class Reading(Pending):
    """Numbers on their way from the device: one transfer for all of them.

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
        """Of 0-d tensors by name."""
        return cls(tuple(numbers), packed(numbers, device))

    def read(self) -> dict[str, float]:
        """The numbers; waits for them."""
        self.wait()
        return dict(zip(self.names, self._host.tolist(), strict=True))


def packed(numbers: Mapping[str, Tensor], device: torch.device) -> Tensor:
    """0-d tensors of any type as one float64 vector."""
    if not numbers:
        return torch.zeros(0, dtype=torch.float64, device=device)
    return torch.stack([number.double() for number in numbers.values()])


def drain(
    chunks: Iterator[T | Pending | None], spend: Callable[[float], None] = lambda seconds: None
) -> Iterator[T]:
    """Go through work that is given in chunks, waiting wherever there is something to wait for.

    Parameters
    ----------
    chunks : iterator
        Each item says what came of a chunk: None, if there is more to do; what the work waits for;
        or a result.
    spend : function (seconds) -> None
        Called with the time that every step took; the time of whoever takes the results is not in
        it.

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
