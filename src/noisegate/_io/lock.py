"""A lock on a folder, which the operating system releases when the process ends."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from noisegate.errors import BusyError, InputError


@contextlib.contextmanager
def locked(folder: Path, doing: str) -> Iterator[None]:
    """Hold the lock of `folder`, or raise BusyError at once if another process holds it.

    The operating system releases the lock when the process ends, however it ends. A file system that knows no
    locks is refused with InputError.
    """
    import fcntl

    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"expected a folder at {folder}, found a file") from None
    with open(folder / ".lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                raise InputError(
                    f"the file system of {folder} cannot lock files ({error.strerror}); choose another folder"
                ) from None
            raise BusyError(
                f"another process is {doing} in {folder}; wait for it, or choose another folder"
            ) from None
        yield


def is_locked(folder: Path) -> bool:
    """Whether some process holds the lock of `folder`; nothing is written, so a folder may be read-only."""
    import fcntl

    try:
        with open(Path(folder) / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return False
