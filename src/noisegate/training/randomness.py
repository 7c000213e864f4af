"""Seeding that its caller never notices."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np
import torch


def seed_of(*key: int | str) -> int:
    """A 63-bit seed that depends on every part of the key.

    >>> seed_of(0, "phase", 1) != seed_of(0, "phase", 2)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "big") >> 1


@contextlib.contextmanager
def seeded(*key: int | str, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch, numpy and random from the key inside the block; put their states back after it."""
    devices = [device] if device is not None and device.type == "cuda" else []
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    seed = seed_of(*key)
    with torch.random.fork_rng(devices=devices):
        try:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            random.seed(seed)
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)
