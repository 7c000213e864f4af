"""Keep the memory that a step on a CPU frees and asks for again."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

# Of glibc's <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NEVER = -1
#: The most that glibc allows, and the twice of it from which on it then gives memory back.
LARGEST = 32 * 2**20
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

_lock, _inside = threading.Lock(), 0


@contextlib.contextmanager
def memory_kept() -> Iterator[None]:
    """Inside, glibc's `malloc` gives no memory back to the system; afterwards it gives back all that is free.

    A step frees its activations and asks for them again. By default memory goes back to the system in between, and
    every page of it is fetched, and zeroed, anew: up to a quarter of the time of a LeNet-5's step, in some runs and
    not in others. Blocks over 32 MiB still go back.

    The command line and its workers do so. `ng.train` does not by itself, because it concerns the whole process:
    inside, it holds as much memory as it had at its peak. Afterwards the thresholds
    are those that glibc comes to by itself once large blocks have been freed. Where the environment sets malloc's
    thresholds (`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`, ...), and on systems without glibc, nothing happens. It
    may be nested, and used by several threads.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("moons")
    >>> with memory_kept():
    ...     fitted = ng.train(data, "ce", "mlp-8", {"epochs": 1}, device="cpu")
    """
    global _inside
    libc = _libc()
    if libc is None or any(name in os.environ for name in SETTINGS):
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            libc.mallopt(M_MMAP_THRESHOLD, LARGEST)
            libc.mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                libc.mallopt(M_TRIM_THRESHOLD, 2 * LARGEST)
                libc.malloc_trim(0)


@functools.cache
def _libc() -> Any:
    """The C library, if it is one whose malloc can be told."""
    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
    except (OSError, TypeError):
        return None
