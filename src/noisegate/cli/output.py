"""Tables and lines for people, on a terminal and in a pipe alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

# Wide enough that nothing is wrapped or cut off where no terminal sets a width.
_UNLIMITED = 10_000


def console() -> Any:
    """A rich console on standard output; text is never taken for markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _UNLIMITED
    return Console(file=sys.stdout, width=width, markup=False, emoji=False, highlight=False)


def say(text: str = "") -> None:
    """Print a line."""
    console().print(text, soft_wrap=True)


def warn(text: str) -> None:
    """Print a line on standard error, so that it is never part of a result."""
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
    console().print(drawn)
