"""Format a table's numbers, cells and headers, and the compact table of the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from noisegate.reporting.page import Heading, Span
from noisegate.studies import board
from noisegate.studies.report.table import CellRuns, Entry, Table, build_table, gather, printed
from noisegate.studies.results import Results
from noisegate.studies.study import Number, Study, Value

PLUS_MINUS = " ± "


def with_deviation(mean: float, std: float | None, value: Value, between: str = PLUS_MINUS) -> str:
    """Mean and deviation with the digits of a value.

    >>> with_deviation(98.85, 0.181, Value())
    '98.85 ± 0.18'
    """
    return printed(mean, value) + ("" if std is None else between + printed(std, value))


def counted(entry: Entry) -> str:
    """Number of runs behind a number, and the state of the others: "n=5", "3 of 5; 1 diverged"."""
    of = entry.of
    if not of.runs:
        return of.waiting
    parts = [f"{count} {status}" for status, count in of.failed.items()]
    lacking = len(of.results) - entry.n
    if lacking:
        parts.append(f"{lacking} without this number")
    if entry.complete:
        return f"n={entry.n}"
    if entry.n == 0 and not parts:
        return "not run"
    return "; ".join([f"{entry.n} of {of.seeds}", *parts])


def entry_cell(entry: Entry | None) -> tuple[Span, ...]:
    """Ours, how many runs it stands for and, on the next line, the paper's and the difference."""
    if entry is None:
        return (Span(""),)
    spans: list[Span] = []
    if entry.mean is None:
        spans.append(Span(counted(entry), soft=True))
    else:
        spans.append(Span(with_deviation(entry.mean, entry.std, entry.value), bold=entry.bold))
        spans += [Span(entry.stars)] if entry.stars else []
        spans.append(Span(f" ({counted(entry)})", soft=True))
    if entry.paper is not None:
        spans.append(Span("paper ", soft=True, below=True))
        spans += paper_spans(entry.paper, entry.value)
        if entry.difference is not None:
            spans.append(Span(f", {entry.difference:+z.1f} sd", soft=True))
    return tuple(spans)


def paper_spans(number: Number, value: Value) -> list[Span]:
    """A paper's number, bold and with the stars where the paper has them."""
    marks = number.mark.split()
    text = with_deviation(number.mean, number.std, value)
    signs = "".join(mark for mark in marks if mark != "bold")
    return [Span(text, soft=True, bold="bold" in marks), *([Span(signs, soft=True)] if signs else [])]


# -- layout ----------------------------------------------------------------------------------------


def corner(study: Study) -> str:
    """The header of the first column."""
    return "method" if study.compete == "rows" and study.bold != "none" else ""


def unit(value: Value) -> str:
    """A value's title with its unit."""
    return f"{value.title} (%)" if value.percent else value.title


def leaves(study: Study) -> list[tuple[str, str, Value]]:
    """The columns as printed, from left to right: (group, column, value)."""
    return [(group, column, value) for group, column in study.columns for value in study.values]


def levels(study: Study) -> list[list[str]]:
    """The header's lines from the top, one label a column each.

    Lines without any label are left out.
    """
    columns = leaves(study)
    lines = [[group for group, _, _ in columns], [column for _, column, _ in columns]]
    if len(study.values) > 1 or not any(map(any, lines)):
        lines.append([unit(value) for _, _, value in columns])
    return [line for line in lines if any(line)]


def headings(study: Study) -> tuple[list[list[Heading]], list[str]]:
    """The lines of headings over the header, neighbours joined, and the header itself."""
    lines = levels(study)
    joined: list[list[Heading]] = []
    for depth in range(len(lines) - 1):
        # What stands under different headings is not joined, even where it has the same label.
        path = list(zip(*lines[: depth + 1], strict=True))
        row: list[Heading] = [("", 1)]
        for place, label in enumerate(lines[depth]):
            if place and path[place] == path[place - 1]:
                row[-1] = (label, row[-1][1] + 1)
            else:
                row.append((label, 1))
        joined.append(row)
    return joined, [corner(study), *lines[-1]]


def table_rows(table: Table) -> list[list[tuple[Span, ...] | str]]:
    """The body of the table in the paper's layout, the name of the row first."""
    study = table.study
    rows: list[list[tuple[Span, ...] | str]] = []
    for row in study.rows:
        entries = (table.at(row, column, value.name, group) for group, column, value in leaves(study))
        rows.append([row, *(entry_cell(entry) for entry in entries)])
    return rows


def column_name(group: str, column: str) -> str:
    """Group and column in one.

    >>> column_name("Symmetric", "20%"), column_name("", "SVHN")
    ('Symmetric 20%', 'SVHN')
    """
    return f"{group} {column}".strip()


def place(of: CellRuns) -> str:
    """The name of a cell for people."""
    parts = (of.cell.row, column_name(of.cell.group, of.cell.column))
    return ", ".join(part for part in parts if part)


def terminal_table(results: Results, *, paper: bool = True) -> tuple[list[str], list[list[str]]]:
    """The table for a terminal, (header, rows): ours, and the paper's in brackets.

    A number that stands for fewer runs than the study asks for says for how many.
    """
    study = results.study
    if not study.cells or not study.table:
        return [], []
    table = build_table(study, gather(results))
    header = [corner(study), *(" ".join(filter(None, path)) for path in zip(*levels(study), strict=True))]
    rows = []
    for row in study.rows:
        entries = (table.at(row, column, value.name, group) for group, column, value in leaves(study))
        rows.append([row, *(_short(entry, paper) for entry in entries)])
    return header, rows


def _short(entry: Entry | None, paper: bool) -> str:
    if entry is None:
        return ""
    parts = ["-"]
    if entry.mean is not None:
        parts = [with_deviation(entry.mean, entry.std, entry.value, "±") + entry.stars]
    if not entry.complete:
        parts.append(f"[{entry.n} of {entry.of.seeds}]")
    if paper and entry.paper is not None:
        parts.append(f"({with_deviation(entry.paper.mean, entry.paper.std, entry.value, '±')})")
    return " ".join(parts)


# -- small words -----------------------------------------------------------------------------------


def many(count: int, word: str) -> str:
    """A number with its noun.

    >>> many(1, "run"), many(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def clock(seconds: float) -> str:
    """Seconds, and hours and minutes where there are.

    >>> clock(4.21), clock(3 * 3600 + 125)
    ('4.2 s', '10,925 s (3 h 2 min)')
    """
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds:,.0f} s ({board.clock(seconds)})"


def tally(texts: Iterable[str]) -> str:
    """Distinct texts, with how often each where there are several.

    >>> tally(["a", "a"]), tally(["a", "b", "a"])
    ('a', 'a (2 runs); b (1 run)')
    """
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    if len(counts) < 2:
        return next(iter(counts), "")
    ordered: Sequence[tuple[str, int]] = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return "; ".join(f"{text} ({many(count, 'run')})" for text, count in ordered)
