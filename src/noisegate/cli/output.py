"""Print tables and lines to a terminal or a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

# Without a terminal: wide enough that nothing is wrapped or cut off.
_UNLIMITED = 10_000


#: The first error of writing to standard output, if any.
_lost: list[OSError] = []


def prepare() -> None:
    """Make standard output and error escape characters that their encoding lacks (labels in an ASCII locale).

    Where the shell closed them (`>&-`), what is printed goes nowhere.
    """
    _lost.clear()
    # The next file that is opened would get the number of a closed stream, and with it what C code prints.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Let a command finish its work even if its output cannot be written (a closed pipe, a full disk)."""
    try:
        yield
        sys.stdout.flush()
    except SystemExit:  # rich raises this when a pipe is closed
        _lost.append(BrokenPipeError())
    except OSError as error:
        if error.filename is not None:  # an error of a file that the command writes, not of standard output
            raise
        _lost.append(error)
        # Python flushes the rest when it exits, and would fail again.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def lost() -> OSError | None:
    """The first error of standard output, if there was one."""
    return _lost[0] if _lost else None


def console() -> Any:
    """A rich console on standard output; text is never read as markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNLIMITED
    return Console(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False)


def say(text: str = "") -> None:
    """Print a line."""
    with writing():
        print(text)


def warn(text: str) -> None:
    """Print a line on standard error, so that it never mixes with results."""
    print(f"noisegate: {text}", file=sys.stderr)


def table(
    rows: Iterable[Sequence[Any]],
    header: Sequence[str],
    *,
    title: str | None = None,
    numbers: Iterable[int] = (),
) -> None:
    """Print a table; the columns in `numbers` are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    right = set(numbers)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    for place, name in enumerate(header):
        drawn.add_column(Text(name), justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(str(cell)) for cell in row))
    with writing():
        console().print(drawn)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print names and values, one pair a line."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table.grid(padding=(0, 3, 0, 0))
    drawn.add_column(style="bold", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        drawn.add_row(Text(name), Text(str(value)))
    with writing():
        console().print(drawn)
