"""Atomic writes: a file is either as it was before or complete."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.errors import DamagedFileError, InputError, shown


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; rename it over `path` once everything is on disk.

    If the block raises (a full disk, Ctrl-C) the temporary file is removed and `path` is as it was
    before.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.part"
    # os.open applies the umask. Reading it first would need os.umask, which changes it for all
    # threads.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def check_writable(folder: Path) -> None:
    """Raise InputError if `folder` cannot be created or written to. Nothing is left behind."""
    there = Path(folder).absolute()
    while not there.exists():
        there = there.parent
    trial = there / f".noisegate-{secrets.token_hex(6)}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError as error:
        raise InputError(f"{folder} cannot be written to ({error.strerror}); choose another place") from None


def write_bytes(path: Path, content: bytes) -> None:
    """Replace the content of `path` atomically."""
    with atomic(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Replace the content of `path` atomically, as UTF-8."""
    write_bytes(path, content.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: Any) -> None:
    """Replace `path` atomically by `content` as JSON. NaN and infinity raise ValueError."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False, default=plain) + "\n")


def plain(value: Any) -> Any:
    """Convert numpy scalars to Python numbers, for `json.dumps(default=...)`."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r} cannot be written as JSON")


def read_json(path: Path) -> Any:
    """Read a JSON file; raise an error with its name if it is missing or damaged."""
    check_room(4 * regular_size(path, "a JSON file"), path)
    with reading(path, "it may be damaged"):
        try:
            return json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DamagedFileError(
                f"{path} is not readable JSON ({shown(error)}); it may be damaged"
            ) from None


def remove_parts(folder: Path) -> None:
    """Delete temporary files of killed writers. The caller must hold the folder's lock."""
    for path in Path(folder).glob(".*.part"):
        path.unlink(missing_ok=True)
