"""CSV and TSV files as bytes: where each row and each cell begins and ends.

Rows are counted as by `noisegate.data.read_table`: blank lines do not count, and quoted cells may hold
separators and line ends. This way a cell can be shown or replaced without changing any other byte.
"""

from __future__ import annotations

import gzip
import mmap
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import check_room, regular_size
from noisegate.data.tables.reading import check_unpacked
from noisegate.data.tables.separators import HEADER, separator_in
from noisegate.errors import DamagedFileError, MissingDataError, shown

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 26
Offsets = npt.NDArray[np.int64]


def cell_pattern(separator: bytes) -> re.Pattern[bytes]:
    """One cell from where it begins: quoted (a doubled quote is a quote) or plain.

    A quote within a plain cell is a character like others, as pandas reads it.

    >>> cell_pattern(b",").match(b"'a, b").group()
    b"'a"
    """
    other = b"[^" + re.escape(separator) + rb"\r\n]*+"
    return re.compile(rb'"(?:[^"]++|"")*+(?:"' + other + rb")?|" + other)


def unquoted(cell: bytes) -> str:
    """The text of a cell.

    >>> unquoted(b'"say ""hi""!"'), unquoted(b"5'")
    ('say "hi"!', "5'")
    """
    if cell.startswith(b'"'):
        inner = re.match(rb'"((?:[^"]++|"")*+)"?(.*)', cell, re.DOTALL)
        if inner is not None:
            cell = inner[1].replace(b'""', b'"') + inner[2]
    return cell.decode("utf-8", "replace")


class CsvFile:
    """A .csv or .tsv file, also .gz, whose rows are found without reading their cells.

    Parameters
    ----------
    path : path
    rows : int, default=None
        Expected number of rows. If the quick search finds another number, the file is read cell by
        cell; if that does not give this number either, InputError is raised.

    Attributes
    ----------
    content : bytes or mmap
    header : list of str
    starts, ends : int64 arrays (N,)
        Each row's first byte, and the end of its last cell.
    """

    def __init__(self, path: str | os.PathLike[str], rows: int | None = None) -> None:
        self.path = Path(path)
        lower = self.path.name.lower()
        self.content = self._read(lower.endswith(".gz"))
        header = bytes(self.content[:HEADER]).decode("utf-8", "replace")
        expected = "\t" if lower.endswith((".tsv", ".tsv.gz")) else ","
        self.separator = separator_in(header, expected).encode()
        self._cell = cell_pattern(self.separator)
        found = None
        if rows is not None and re.search(rb"\r(?!\n)", self.content) is None:
            found = self._quick()
        if found is None or rows is None or len(found[0]) != rows + 1:
            found = self._exact()
        starts, ends = found
        if not len(starts) or (rows is not None and len(starts) != rows + 1):
            raise DamagedFileError(
                f"{self.path} has {max(len(starts) - 1, 0):,} rows, expected {rows or 1:,}; has it changed?"
            )
        self.header = [unquoted(cell) for cell in self._cells(int(starts[0]), int(ends[0]))]
        self.starts, self.ends = starts[1:], ends[1:]

    def __len__(self) -> int:
        return len(self.starts)

    def _read(self, packed: bool) -> bytes | mmap.mmap:
        check_room(regular_size(self.path, "a table"), self.path)
        try:
            if packed:
                check_unpacked(self.path, self.path.stat().st_size)
                with gzip.open(self.path) as file:
                    return file.read()
            with open(self.path, "rb") as file:
                if not os.fstat(file.fileno()).st_size:
                    return b""
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise MissingDataError(f"there is no file {self.path}") from None
        except (OSError, EOFError, zlib.error) as error:
            raise DamagedFileError(f"{self.path} cannot be read ({shown(error)})") from None

    @property
    def _begin(self) -> int:
        return len(_BOM) if self.content[: len(_BOM)] == _BOM else 0

    def _quick(self) -> tuple[Offsets, Offsets]:
        """Rows end at line feeds that an even number of quotes precedes.

        Wrong only where a plain cell holds quotes or a carriage return ends a line.
        """
        breaks, quotes = [], 0
        for start in range(0, len(self.content), _BLOCK):
            block = np.frombuffer(self.content[start : start + _BLOCK], np.uint8)
            lines = np.flatnonzero(block == 10)
            before = np.cumsum(block == 34, dtype=np.int64) if (block == 34).any() else None
            inside = (quotes + (0 if before is None else before[lines])) % 2
            breaks.append(start + lines[np.broadcast_to(inside == 0, lines.shape)])
            quotes += 0 if before is None else int(before[-1])
        ends = np.concatenate([*breaks, [len(self.content)]]).astype(np.int64)
        starts = np.concatenate([[self._begin], ends[:-1] + 1])
        return self._without_blank(starts, ends)

    def _without_blank(self, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """Cut off carriage returns and drop lines with nothing but blanks."""
        data = self.content
        returns = np.fromiter((e > s and data[e - 1] == 13 for s, e in zip(starts, ends, strict=True)), bool)
        ends = ends - returns
        blank = b" " if self.separator == b"\t" else b" \t"
        short = np.flatnonzero(ends - starts <= 64)
        keep = ends > starts
        for place in short[keep[short]]:
            keep[place] = bool(data[starts[place] : ends[place]].strip(blank))
        return starts[keep], ends[keep]

    def _exact(self) -> tuple[Offsets, Offsets]:
        """Find rows cell by cell: slower, but correct for every readable file."""
        data, starts, ends = self.content, [], []
        here, size = self._begin, len(self.content)
        while here < size:
            start = here
            while True:
                found = self._cell.match(data, here)
                here = here if found is None else found.end()
                if data[here : here + 1] != self.separator:
                    break
                here += 1
            starts.append(start)
            ends.append(here)
            here += 2 if data[here : here + 2] == b"\r\n" else 1
        first, last = np.array(starts, np.int64), np.array(ends, np.int64)
        # Rows here end before the carriage return, so it is not cut off twice.
        return self._without_blank(first, last)

    def _spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        here = start
        while here <= end:
            found = self._cell.match(self.content, here)
            stop = here if found is None else found.end()
            yield here, stop
            here = stop + 1

    def _cells(self, start: int, end: int) -> list[bytes]:
        return [bytes(self.content[a:b]) for a, b in self._spans(start, end)]

    def cells(self, row: int) -> list[str]:
        """The texts of one row's cells; those missing at the end of the line are empty."""
        found = [unquoted(cell) for cell in self._cells(int(self.starts[row]), int(self.ends[row]))]
        return found + [""] * (len(self.header) - len(found))

    def span(self, row: int, column: int) -> tuple[int, int]:
        """The first byte and the end of one cell."""
        for place, span in enumerate(self._spans(int(self.starts[row]), int(self.ends[row]))):
            if place == column:
                return span
        raise DamagedFileError(f"{self.path} has no column {column} in row {row}; has it changed?")
