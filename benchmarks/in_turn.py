"""Time several calls in one process: each hot and alone, in turn, so that a busy machine is fair to all.

A call is made once, not timed, before it is timed: what the one before it left in the caches is gone.
Times are CPU seconds of this process, which other processes change less than wall seconds. A ratio is
the median of the turns' ratios.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

Call = Callable[[], object]
RESULTS = Path(__file__).parent / "results"


def block(call: Call, seconds: float, clock: Callable[[], float] = time.process_time) -> float:
    """The median time of a call that is repeated for `seconds`, at least three times."""
    call()
    times: list[float] = []
    ends = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < ends:
        started = clock()
        call()
        times.append(clock() - started)
    return statistics.median(times)


def in_turn(sides: Mapping[str, Call], turns: int = 9, seconds: float = 0.1) -> dict[str, list[float]]:
    """A time for each side and turn."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, call in sides.items():
            found[name].append(block(call, seconds))
    return found


def ratio(times: Mapping[str, list[float]], side: str, base: str) -> float:
    """The median of the turns' ratios of `side` to `base`."""
    return statistics.median(a / b for a, b in zip(times[side], times[base], strict=True))


def machine(*packages: str) -> str:
    """The hardware and versions, for the head of a table."""
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    cores = len(os.sched_getaffinity(0))
    return f"{processor()}, {cores} cores, Python {platform.python_version()}, {versions}"


def processor() -> str:
    """The processor's name, or the architecture where it is not known."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(name: str, lines: list[str]) -> None:
    """Write a table to results/NAME.md and print it."""
    text = "\n".join(lines) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)
