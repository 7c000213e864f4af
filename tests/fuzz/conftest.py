"""Seeded damage of files, and what no reader may do with a damaged file: see test_readers.py."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from noisegate.errors import NoisegateError

CASES = int(os.environ.get("FUZZ_CASES", "15"))
#: Numbers that stand for sizes, offsets and counts, where parsers believe them.
EXTREMES = [
    n.to_bytes(w, order) for n in (0, 2**31 - 1, 2**32 - 1) for w in (4, 8) for order in ("little", "big")
]


#: Bytes that describe one change of a file.
CHANGE = 13


def damaged(whole: bytes, changes: bytes) -> bytes:
    """A file after changes: cut, changed bytes, extreme numbers, parts left out, doubled, or text.

    Every 13 bytes of `changes` are one change. Drawing bytes and reading them here takes a quarter of the
    time of drawing each part by hypothesis, and shrinks as well.
    """
    content = bytearray(whole)
    for start in range(0, len(changes) - CHANGE + 1, CHANGE):
        kind, size, numbers = changes[start], changes[start + 1], changes[start + 2 : start + CHANGE]
        place = int.from_bytes(numbers[:5], "big") % max(1, len(content))
        end = place + 1 + size % 64
        if kind % 6 == 0:
            content[place : place + 1] = numbers[5 : 6 + size % 3]
        elif kind % 6 == 1:
            extreme = EXTREMES[size % len(EXTREMES)]
            content[place : place + len(extreme)] = extreme
        elif kind % 6 == 2:
            del content[place:]
        elif kind % 6 == 3:
            del content[place:end]
        elif kind % 6 == 4:
            content[end:end] = content[place:end]
        else:
            letters = (int.from_bytes(numbers[i : i + 3], "big") % (sys.maxunicode + 1) for i in (5, 8))
            content[place:place] = "".join(map(chr, letters)).encode("utf-8", "surrogatepass")
    return bytes(content)


#: Seconds of CPU time that a file may take. A busy machine can stretch them, but not to the seconds after which
#: the process ends, with a traceback.
SLOW, HUNG = 5.0, 120.0


def _peak_memory() -> int:
    """The most memory this process has had since `_forget_peak`, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.fixture(autouse=True)
def _bounded_memory(monkeypatch):
    """Nothing may be read that needs more than a gigabyte, and nothing may take two."""
    monkeypatch.setenv("NOISEGATE_MAX_FILE_GIB", "1")
    if not Path("/proc/self/clear_refs").exists():  # only Linux tells, and forgets
        yield
        return
    _forget_peak()
    before = _peak_memory()
    yield
    assert _peak_memory() - before < 2 * 2**30


@pytest.fixture(name="try_all")
def _trying(record_property):
    """`try_all(content, path, read, pack=bytes)`: read a file with many damages, one after the other.

    A reader fails if it raises an error that is not noisegate's, says something long or unprintable,
    or takes more than five seconds of CPU time. One that never returns ends the process, with its
    traceback; `path` then holds the file.
    """

    def try_all(
        content: bytes,
        path: Path,
        read: Callable[[Path], object],
        pack: Callable[[bytes], bytes] = bytes,
    ) -> None:
        cases, slowest = 0, 0.0

        @settings(
            max_examples=CASES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.binary(min_size=CHANGE, max_size=4 * CHANGE))
        def damaged_files_are_errors(changes: bytes) -> None:
            nonlocal cases, slowest
            path.write_bytes(pack(damaged(content, changes)))
            cases, began = cases + 1, time.process_time()
            faulthandler.dump_traceback_later(HUNG, exit=True)
            try:
                read(path)
            except NoisegateError as error:
                message = str(error).replace(str(path), "")
                if len(message) > 300 or any(ord(c) < 32 and c != "\n" for c in message):
                    raise ValueError(f"an unprintable or long message: {message!r}") from None
            finally:
                faulthandler.cancel_dump_traceback_later()
            took = time.process_time() - began
            slowest = max(slowest, took)
            assert took < SLOW

        began = time.process_time()
        damaged_files_are_errors()
        record_property("fuzz", (cases, time.process_time() - began, slowest))

    return try_all


def pytest_terminal_summary(terminalreporter):
    """One line a reader: what was tried, and what it took."""
    found = [
        (report.nodeid.partition("::")[2], value)
        for report in terminalreporter.stats.get("passed", [])
        for name, value in getattr(report, "user_properties", [])
        if name == "fuzz"
    ]
    if CASES < 1000 or not found:
        return
    terminalreporter.section("damaged files")
    for name, (cases, seconds, slowest) in found:
        terminalreporter.write_line(
            f"{name}: {cases} cases, {seconds:.0f} s of CPU time, the slowest {slowest:.2f} s"
        )
    cases, seconds = (sum(value[place] for _, value in found) for place in (0, 1))
    terminalreporter.write_line(f"together: {cases} cases, {seconds:.0f} s of CPU time")
