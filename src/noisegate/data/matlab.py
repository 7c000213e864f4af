"""Read arrays of numbers from MATLAB 5 files; a damaged file raises an error and does no harm.

A file is a header of 128 bytes and a list of elements: a tag (type, number of bytes) and the bytes,
padded to eight. An array of numbers is an element of elements: flags, dimensions, name, values;
most writers compress it as a whole. All sizes are checked against the size of the file before
memory is allocated.

References
----------
MathWorks, MAT-File Format, version 5.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import check_room, reading, regular_size

HEADER = 128
COMPRESSED, MATRIX = 15, 14
#: Types of stored values, and the classes of arrays that they fill.
VALUES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}
#: zlib cannot compress by more than this.
MOST_COMPRESSION = 1032


class UnreadableMatlabError(ValueError):
    """The reason why a file is refused; `reading` adds the file's name."""


def read_arrays(path: str | Path, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
    """Read numeric arrays by name; other arrays in the file are skipped.

    Parameters
    ----------
    path : str or Path
        A MATLAB 5 file, compressed or not.
    names : collection of str

    Returns
    -------
    dict of str to array
        Those of `names` that are in the file, each with the shape and type that MATLAB shows.
    """
    path = Path(path)
    check_room(2 * regular_size(path, "a .mat file"), path)
    with reading(path):
        content = memoryview(path.read_bytes())
        order = _byte_order(content)
        found: dict[str, npt.NDArray[Any]] = {}
        for kind, body in _elements(content[HEADER:], order):
            if kind == COMPRESSED:
                kind, body = _decompressed(body, order, path)
            if kind == MATRIX:
                array = _numeric(body, order, names, path)
                if array is not None:
                    found.setdefault(*array)
    return found


def _byte_order(content: memoryview) -> str:
    if bytes(content[:8]) == b"\x89HDF\r\n\x1a\n" or b"MATLAB 7.3" in bytes(content[:116]):
        raise UnreadableMatlabError("it is a MATLAB 7.3 file, which is HDF5: save it with -v7")
    order = {b"IM": "<", b"MI": ">"}.get(bytes(content[126:HEADER]))
    if order is None:
        raise UnreadableMatlabError("it is not a MATLAB 5 file")
    return order


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """The type and the bytes of each element; a short one has them in its tag."""
    place = 0
    while place < len(content):
        if len(content) - place < 8:
            raise UnreadableMatlabError("it ends within a tag")
        kind, size = struct.unpack_from(order + "II", content, place)
        if kind >> 16:
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise UnreadableMatlabError("a short element has more than four bytes")
            start, step = place + 4, 8
        else:
            start = place + 8
            # Compressed elements are not padded.
            step = 8 + (size if kind == COMPRESSED else -(-size // 8) * 8)
        if start + size > len(content):
            raise UnreadableMatlabError("an element is longer than the file")
        yield kind, content[start : start + size]
        place += step


def _decompressed(body: memoryview, order: str, path: Path) -> tuple[int, memoryview]:
    stream = zlib.decompressobj()
    head = stream.decompress(body, 8)
    if len(head) < 8:
        raise UnreadableMatlabError("a compressed element is empty")
    kind, size = struct.unpack(order + "II", head)
    if size > MOST_COMPRESSION * len(body):
        raise UnreadableMatlabError("a compressed element claims more than it can hold")
    check_room(size, path, "an array")
    inner = stream.decompress(stream.unconsumed_tail, size) if size else b""
    if len(inner) != size:
        raise UnreadableMatlabError("a compressed element is cut off")
    # Reading on to the end compares zlib's checksum.
    if stream.decompress(stream.unconsumed_tail, 1) or not stream.eof:
        raise UnreadableMatlabError("a compressed element does not end where it says")
    return kind, memoryview(inner)


def _numeric(
    body: memoryview, order: str, names: Collection[str], path: Path
) -> tuple[str, npt.NDArray[Any]] | None:
    """The name and the values of an array of real numbers.

    None for one that is not wanted or of another kind.
    """
    parts = _elements(body, order)
    flags = _values(*next(parts), order)
    shape = tuple(int(n) for n in _values(*next(parts), order))
    name = bytes(next(parts)[1]).decode("latin1")
    if name not in names:
        return None
    dtype, is_complex = CLASSES.get(int(flags[0]) & 0xFF), int(flags[0]) & 0x800
    if dtype is None or is_complex:
        return None
    if len(shape) < 2 or min(shape) < 0:
        raise UnreadableMatlabError(f"the array {name} has an impossible shape")
    values = _values(*next(parts), order)
    if values.size != math.prod(shape):
        raise UnreadableMatlabError(
            f"the array {name} has {values.size} values for a shape of {math.prod(shape)}"
        )
    check_room(values.size * np.dtype(dtype).itemsize, path, f"the array {name}")
    return name, values.astype(dtype).reshape(shape, order="F")


def _values(kind: int, body: memoryview, order: str) -> npt.NDArray[Any]:
    if kind not in VALUES:
        raise UnreadableMatlabError(f"an element of unknown type {kind} stands where numbers should")
    return np.frombuffer(body, np.dtype(order + VALUES[kind]))
