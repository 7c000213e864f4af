"""Peak memory of a run, available memory, and processor cores."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: str) -> None:
    """Reset the peak-memory counter."""
    import torch

    from noisegate._device import resolve_device

    found = resolve_device(device)
    if found.type == "cuda":
        torch.cuda.reset_peak_memory_stats(found)
    # Linux: writing 5 to clear_refs resets the process's peak resident memory.
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


def peak(device: str) -> int:
    """Bytes since `reset_peak`: of the GPU for runs there, else of the process."""
    import torch

    from noisegate._device import resolve_device

    found = resolve_device(device)
    if found.type == "cuda":
        return int(torch.cuda.max_memory_allocated(found))
    try:
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def available() -> int:
    """Available main memory in bytes."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]) * 1024
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
