"""Seeded damage of files, and what no reader may do with a damaged file: see test_readers.py."""

from __future__ import annotations

import os
import resource
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


@st.composite
def damages(draw: st.DrawFn, whole: bytes) -> bytes:
    """One to four changes of a file: cut, changed bytes, extreme numbers, parts left out, doubled or moved."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(content) - 1)))
        kind = draw(st.sampled_from(["bytes", "number", "cut", "leave out", "double", "text"]))
        if kind == "bytes":
            content[place : place + 1] = draw(st.binary(min_size=1, max_size=3))
        elif kind == "number":
            extreme = draw(st.sampled_from(EXTREMES))
            content[place : place + len(extreme)] = extreme
        elif kind == "cut":
            del content[place:]
        elif kind == "text":
            content[place:place] = draw(st.text(max_size=8)).encode("utf-8", "surrogatepass")
        else:
            end = min(len(content), place + draw(st.integers(1, 64)))
            if kind == "leave out":
                del content[place:end]
            else:
                content[end:end] = content[place:end]
    return bytes(content)


@pytest.fixture(autouse=True)
def _bounded_memory(monkeypatch):
    """Nothing may be read that needs more than a gigabyte, and nothing may take two."""
    monkeypatch.setenv("NOISEGATE_MAX_FILE_GIB", "1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 * 2**20  # in kilobytes


def _try_all(
    content: bytes, path: Path, read: Callable[[Path], object], pack: Callable[[bytes], bytes] = bytes
) -> None:
    @settings(
        max_examples=CASES,
        deadline=5000,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(damages(content))
    def damaged_files_are_errors(damaged: bytes) -> None:
        path.write_bytes(pack(damaged))
        try:
            read(path)
        except NoisegateError as error:
            message = str(error).replace(str(path), "")
            if len(message) > 300 or any(ord(c) < 32 and c != "\n" for c in message):
                raise ValueError(f"an unprintable or long message: {message!r}") from None

    damaged_files_are_errors()


@pytest.fixture(name="try_all")
def _trying():
    """`try_all(content, path, read, pack=bytes)`: read a file with many damages, one after the other."""
    return _try_all
