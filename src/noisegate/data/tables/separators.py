"""What stands between the values of a .csv or .tsv file, seen from its header."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from pathlib import Path

#: Letters of a file that are looked at: a header is shorter.
HEADER = 2**16
_OTHERS = ";\t|,"
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def separator_in(header: str, expected: str) -> str:
    """The separator of a header: the expected one unless another mark is there more often.

    >>> separator_in("size;colour", ","), separator_in('"a;b;c",label', ","), separator_in("label", ",")
    (';', ',', ',')
    """
    lines = _QUOTED.sub("", header).splitlines()
    first = next((line for line in lines if line.strip()), "")
    other = max(_OTHERS, key=first.count)
    return other if first.count(other) > first.count(expected) else expected


def separator_of(path: str | os.PathLike[str]) -> str:
    """The separator of a file; what its name says if it cannot be read."""
    path = Path(path)
    lower = path.name.lower()
    expected = "\t" if lower.endswith((".tsv", ".tsv.gz")) else ","
    try:
        with gzip.open(path) if lower.endswith(".gz") else open(path, "rb") as file:
            header = file.read(HEADER)
    except (OSError, EOFError, zlib.error):
        return expected
    return separator_in(header.decode("utf-8", "replace"), expected)
