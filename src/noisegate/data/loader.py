"""Move rows to the device: all at once if they fit, else batch by batch, with one interface."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from noisegate._turns import TURN
from noisegate.data.dataset import Inputs, as_labels
from noisegate.errors import InputError

PREFETCH = 4


class Rows:
    """Inputs, observed labels and weights of some rows, as trainer and methods use them.

    It holds no clean labels, so that code that trains or selects a model cannot use them.

    Parameters
    ----------
    x : array or LazyInputs
    y : int64 array (N, ...), optional
        Observed labels; None for rows that are only predicted.
    weight : float array (N,), optional
    device : torch.device
    resident : bool, optional
        Hold all inputs on the device. Default: True for arrays that take at most half of its free
        memory.

    Attributes
    ----------
    y, weight : tensors on the device
        Labels are int64; maps of labels keep their type, usually one byte per pixel.
    resident : bool
    """

    def __init__(
        self,
        x: Inputs,
        y: npt.NDArray[Any] | None,
        device: torch.device,
        *,
        weight: npt.ArrayLike | None = None,
        resident: bool | None = None,
    ) -> None:
        self.device = device
        self.source = x
        if y is None:
            self.y = torch.zeros(len(x), dtype=torch.int64, device=device)
        else:
            self.y = torch.as_tensor(np.array(as_labels(y)), device=device)
        self.weight = _weights(weight, len(self.y)).to(device)
        self.resident = fits(x, device) if resident is None else resident
        if self.resident:
            array = x if isinstance(x, np.ndarray) else fetch(x, np.arange(len(x)))
            self._x = torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def maps(self) -> bool:
        """Whether there is a label for every pixel."""
        return self.y.dim() == 3

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.source.shape[1:] if isinstance(self.source, np.ndarray) else self.source.shape)

    def gather(self, index: Tensor) -> Tensor:
        """Gather the inputs of the rows `index` on the device.

        Capture-safe; for resident rows only.
        """
        return self._x[index]

    def batches(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Cut `order` into batches: (index, x), where x is None for resident rows.

        The step gathers it.
        """
        # One copy of all indices from pinned memory: copies from pageable memory would block.
        sent = order.pin_memory() if self.device.type == "cuda" and not order.is_cuda else order
        indices = sent.to(self.device, non_blocking=True).split(batch_size)
        if self.resident:
            yield from ((index, None) for index in indices)
            return
        for index, x in zip(indices, self.stream(order.split(batch_size)), strict=True):
            yield index, x.to(self.device, non_blocking=True)

    def stream(self, indices: Sequence[Tensor]) -> Iterator[Tensor]:
        """The inputs of batch after batch on the host, in pinned memory where the device is a GPU.

        Threads read a few batches ahead, in order; but the caller's thread reads inputs that are
        random (`fetch`).
        """
        if getattr(self.source, "random", False):
            yield from map(self.read, indices)
            return
        with ThreadPoolExecutor(max_workers=2) as pool:
            waiting: deque[Future[Tensor]] = deque()
            try:
                for ahead in range(len(indices) + PREFETCH):
                    if ahead < len(indices):
                        waiting.append(pool.submit(self.read, indices[ahead]))
                    done = ahead - PREFETCH + 1
                    if 0 <= done < len(indices):
                        yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def read(self, index: Tensor) -> Tensor:
        """The inputs of some rows on the host, pinned where the device is a GPU."""
        array = fetch(self.source, index.cpu().numpy())
        x = torch.from_numpy(np.require(array, requirements=["C", "W"]))
        return x.pin_memory() if self.device.type == "cuda" else x

    def inputs(self, batch_size: int) -> Iterator[Tensor]:
        """All inputs in their order, for prediction; the last batch may be smaller."""
        if self.resident:
            yield from self._x.split(batch_size)
            return
        for _, x in self.batches(torch.arange(len(self)), batch_size):
            yield x  # type: ignore[misc]


def _weights(weight: npt.ArrayLike | None, n: int) -> Tensor:
    if weight is None:
        return torch.ones(n)
    found = np.asarray(weight, dtype=np.float64)
    empty = n > 0 and not found.any()
    if found.shape != (n,) or not np.isfinite(found).all() or (found < 0).any() or empty:
        raise InputError("sample weights must be one finite number of at least 0 a row, and not all 0")
    return torch.as_tensor(found, dtype=torch.float32)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Set the process's random states of `random`, numpy and torch (on the host).

    Put them back afterwards.
    """
    with TURN:
        # numpy's legacy interface holds the global random state.
        states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
            torch.set_rng_state(states[2])


def fetch(x: Inputs, rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Read some rows of inputs, `(len(rows), *shape)`.

    Random inputs (a torch Dataset with random transforms) are read with the global random states of
    `random`, numpy and torch seeded by the row numbers, and restored afterwards. Since the order of an
    epoch follows from the run's seed, a batch is the same in every run with that seed, resumed or not,
    and the run's own random numbers are not disturbed. All threads share these states: call this from
    the training thread.
    """
    if isinstance(x, np.ndarray):
        return x[rows]
    if not getattr(x, "random", False):
        return x.fetch(rows)
    with seeded(zlib.crc32(np.ascontiguousarray(rows, np.int64).data)):
        return x.fetch(rows)


def fits(x: Inputs, device: torch.device) -> bool:
    """Whether to keep inputs on the device: arrays, on a GPU only if they take at most half its free memory."""
    if not isinstance(x, np.ndarray):
        return False
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return x.nbytes <= free // 2
