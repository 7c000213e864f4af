"""Random states: one per run, and seeding that leaves the caller's random states unchanged."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from noisegate._turns import TURN


def seed_of(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key.

    >>> seed_of(0, "phase", 1) != seed_of(0, "phase", 2)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big") >> 1


class RandomState:
    """The random state of one run: torch's on the host and on the GPU, numpy's and Python's.

    Inside `active` the global generators continue from this state; on exit they return to the
    caller's. On a GPU the default generator is pointed at a state object that belongs to the run. A
    CUDA graph captured inside draws from that very object whenever it is replayed, whatever the
    default generator points at by then.

    Parameters
    ----------
    device : torch.device, default=None
        None, or a CPU: the states of the host only.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self._cuda: torch.Generator | None = None
        if device is not None and device.type == "cuda":
            self._index = torch.cuda.current_device() if device.index is None else device.index
            self._cuda = torch.Generator(torch.device("cuda", self._index))
        self._host: tuple[Any, Any, Any] = _host_states()

    def seed(self, *key: int | str) -> None:
        """Reset the state to one that depends on the key alone. Do not call inside `active`."""
        seed = seed_of(*key)
        if self._cuda is not None:
            self._cuda.manual_seed(seed)
        self._host = (
            torch.Generator().manual_seed(seed).get_state(),
            np.random.RandomState(seed % 2**32).get_state(),
            random.Random(seed).getstate(),
        )

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Inside, this is the process's random state; other noisegate threads wait for their turn.

        On exit the state is kept, and the next `active` continues from there.
        """
        with TURN:
            callers, cuda = _host_states(), None
            _set_host_states(self._host)
            if self._cuda is not None:
                cuda = torch.cuda.default_generators[self._index].graphsafe_get_state()
                torch.cuda.default_generators[self._index].graphsafe_set_state(self._cuda)
            try:
                yield
            finally:
                self._host = _host_states()
                _set_host_states(callers)
                if cuda is not None:
                    torch.cuda.default_generators[self._index].graphsafe_set_state(cuda)

    def save(self) -> tuple[Any, ...]:
        """Return the current state, for `restore`. Call inside `active`."""
        return (*_host_states(), None if self._cuda is None else self._cuda.get_state())

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Return to a saved state. Call inside `active`."""
        _set_host_states(saved[:3])
        if self._cuda is not None:
            self._cuda.set_state(saved[3])

    def renew(self, saved: tuple[Any, ...]) -> None:
        """Like `restore`, with a new state object: a failed capture makes the old one unusable."""
        _set_host_states(saved[:3])
        if self._cuda is not None:
            self._cuda = torch.Generator(self._cuda.device)
            self._cuda.set_state(saved[3])
            torch.cuda.default_generators[self._index].graphsafe_set_state(self._cuda)


def _host_states() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002


def _set_host_states(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])  # noqa: NPY002
    random.setstate(states[2])


@contextlib.contextmanager
def seeded(*key: int | str, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch, numpy and random from the key inside the block; restore their states on exit.

    Parameters
    ----------
    *key : int or str
        See `seed_of`.
    device : torch.device, default=None
        A GPU whose generator is seeded too.
    """
    state = RandomState(device)
    state.seed(*key)
    with state.active():
        yield
