"""Keep the memory that CPU training steps free and allocate again."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

# Constants from glibc's <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
NEVER = -1
#: The largest mmap threshold that glibc allows. It sets the trim threshold to twice the mmap
#: threshold.
LARGEST = 32 * 2**20
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES")

_lock, _inside = threading.Lock(), 0


@contextlib.contextmanager
def memory_kept() -> Iterator[None]:
    """Inside, glibc's `malloc` returns no memory to the system; on exit it returns all free memory.

    A step frees its activations and allocates them again. By default the memory goes back to the
    system in between, which must map and zero every page anew: up to a quarter of the time of a
    LeNet-5's step, in some runs and not in others. Blocks over 32 MiB are still returned.

    The command line and its workers use this. `ng.train` does not, because it affects the whole
    process: inside, the process keeps as much memory as it used at its peak. On exit the thresholds
    are set to the values that glibc itself reaches once large blocks have been freed. If the
    environment sets malloc's thresholds (`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`, ...), and on
    systems without glibc, nothing happens. Calls may be nested, also in several threads.

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
    """The C library, or None if it has no `mallopt` and `malloc_trim` (any but glibc)."""
    try:
        libc = ctypes.CDLL(None)
        return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
    except (OSError, TypeError):
        return None
