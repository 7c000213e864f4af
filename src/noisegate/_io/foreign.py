"""Files that others wrote: one door at which everything that is wrong with them becomes one kind of error."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from noisegate.errors import DamagedFileError, InputError, MissingDataError, NoisegateError, shown

#: The environment variable that raises the limit on what one file may need in memory, in GiB.
LIMIT_VARIABLE = "NOISEGATE_MAX_FILE_GIB"
#: Where the free memory is unknown, a file may need this much.
DEFAULT_LIMIT = 16 * 2**30
#: The share of the free memory that one file may take.
SHARE = 0.8
#: Maximum number of characters that a message says about a file, besides its name.
MOST_CHARACTERS = 300


def regular_size(path: str | os.PathLike[str], kind: str = "file") -> int:
    """Return the size of a regular file in bytes; refuse folders, pipes, sockets and devices.

    Opening a pipe waits for a writer that may never come, and a device may have no end.

    Parameters
    ----------
    path : str or Path
        Symbolic links are followed.
    kind : str, default="file"
        What the message calls the file: "an image", "a CSV file".
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise MissingDataError(f"there is no file {path}") from None
    except (NotADirectoryError, PermissionError, OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({shown(error)}); check the path and its permissions"
        ) from None
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"expected {kind} at {path}, found a folder")
    if not stat.S_ISREG(found.st_mode):
        raise InputError(
            f"expected {kind} at {path}, found a pipe, socket or device: copy its content into a regular file"
        )
    return found.st_size


def memory_limit() -> int:
    """Return how many bytes one file may need: $NOISEGATE_MAX_FILE_GIB, or 80 % of the free memory."""
    given = os.environ.get(LIMIT_VARIABLE)
    if given is not None:
        try:
            return int(float(given) * 2**30)
        except (ValueError, OverflowError):
            raise InputError(f"${LIMIT_VARIABLE} must be a number of GiB, got {given!r}") from None
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(SHARE * int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass  # not Linux
    return DEFAULT_LIMIT


def check_room(
    n_bytes: int, path: str | os.PathLike[str], what: str = "its content", limit: int | None = None
) -> None:
    """Refuse a file whose content would not fit in memory, before anything is read.

    Parameters
    ----------
    n_bytes : int
        What the file's own header says that the content needs.
    path : str or Path
    what : str, default="its content"
        What needs the memory, for the message.
    limit : int, default=None
        None: `memory_limit()`. Whoever reads on and on asks for the limit once, at the start: what was
        read already is no longer free.
    """
    limit = memory_limit() if limit is None else limit
    if n_bytes > limit:
        raise InputError(
            f"{path}: {what} would need {n_bytes / 2**30:,.1f} GiB of memory and the limit is "
            f"{limit / 2**30:,.1f} GiB; if the file is what you expect, set {LIMIT_VARIABLE} to a larger number"
        )


@contextlib.contextmanager
def reading(path: str | Path, remedy: str = "fetch it again") -> Iterator[None]:
    """Turn whatever a reader raises inside the block into `DamagedFileError` with the file's name.

    A damaged file can make a parser raise almost anything: IndexError, zlib.error, RecursionError,
    MemoryError, or the panic of a library written in Rust. noisegate's own errors pass unchanged.

    Parameters
    ----------
    path : str or Path
    remedy : str, default="fetch it again"
        What the user should do.
    """
    try:
        yield
    except NoisegateError as error:
        # What it says of the file's content is as long as the file wants, but for its first words.
        most = MOST_CHARACTERS + len(str(path))
        if len(str(error)) > most:
            error.args = (f"{str(error)[: most - 4]} ...",)
        raise
    except FileNotFoundError:
        raise MissingDataError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise InputError(f"expected a file at {path}, found a folder") from None
    except PermissionError:
        raise InputError(f"{path} cannot be read: permission denied") from None
    except Exception as error:
        raise _damaged(path, error, remedy) from None
    except BaseException as error:
        # Panics of Rust code derive from BaseException on purpose; Ctrl-C and exits must pass.
        if type(error).__name__ != "PanicException":
            raise
        raise _damaged(path, error, remedy) from None


def _damaged(path: str | Path, error: BaseException, remedy: str) -> DamagedFileError:
    reason = shown(error, 150) or type(error).__name__
    return DamagedFileError(f"{path} is cut off or is not what it should be: {reason}; {remedy}")
