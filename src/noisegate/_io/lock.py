"""A lock on a folder, which the operating system releases when the process ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from noisegate.errors import BusyError, InputError

_NAME = ".lock"


@contextlib.contextmanager
def locked(folder: Path, doing: str) -> Iterator[None]:
    """Hold the lock of `folder`; raise BusyError at once if another process or thread holds it.

    Parameters
    ----------
    folder : Path
        It is made if it does not exist.
    doing : str
        What the lock is for, for the message: "another process is {doing} in {folder}".

    Raises
    ------
    InputError
        If the file system cannot lock files.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"expected a folder at {folder}, found a file") from None
    lock = FileLock(folder / _NAME, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyError(
            f"another process is {doing} in {folder}; wait for it, or choose another folder"
        ) from None
    except (NotImplementedError, OSError) as error:
        raise InputError(
            f"the file system of {folder} cannot lock files ({error}); choose another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()


def is_locked(folder: Path) -> bool:
    """Whether somebody holds the lock of `folder`.

    A folder without a lock, or that may not be written, is free.
    """
    path = Path(folder) / _NAME
    if not path.exists():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except (NotImplementedError, OSError):
        return False
