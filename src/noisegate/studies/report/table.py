"""The entries of a study's table: means, deviations, the paper's numbers, bold type and stars."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisegate.errors import UnknownNameError
from noisegate.evaluation.significance import difference_in_deviations, paired, stars, welch
from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Result
from noisegate.studies.study import Cell, Number, Study, Value

#: Methods that differ from the best with p below this are not bold.
LEVEL = 0.05

_TOO_FEW = (
    "A test needs two runs a side: where there are fewer only the best mean is bold, which says nothing about "
    "significance."
)
_TWO = "With two runs a test finds only the largest differences: bold then says little."

Failure = Mapping[str, Any]


@dataclass(frozen=True)
class CellRuns:
    """The runs of a cell: planned, finished and failed ones.

    `runs` is empty while a search has not chosen their settings; `waiting` says why.
    """

    cell: Cell
    seeds: int
    runs: tuple[RunSettings, ...]
    results: tuple[Result, ...]
    failures: tuple[tuple[RunSettings, Failure], ...]
    waiting: str = ""

    @property
    def failed(self) -> dict[str, int]:
        """How many runs diverged, how many crashed."""
        return dict(Counter(str(failure.get("status", "crashed")) for _, failure in self.failures))

    def values(self, name: str, scale: float = 1.0) -> dict[int, float]:
        """A metric of the finished runs by seed, times `scale`."""
        return {r.seed: scale * r.metrics[name] for r in self.results if name in r.metrics}


def gather(results: Results) -> list[CellRuns]:
    """Read the stored results of every cell, once."""
    found = []
    for cell in results.study:
        runs = results.runs(cell)
        done = [(run, results.store.result(run)) for run in runs]
        failures = [(run, results.store.failure(run)) for run, result in done if result is None]
        found.append(
            CellRuns(
                cell,
                results.study.seeds,
                tuple(runs),
                tuple(result for _, result in done if result is not None),
                tuple((run, failure) for run, failure in failures if failure is not None),
                "" if runs else _waiting(results, cell),
            )
        )
    return found


def _waiting(results: Results, cell: Cell) -> str:
    states = {candidate_state(results, candidate) for candidate in cell.candidates()}
    return "its search is not over" if "open" in states else "every candidate of its search failed"


def candidate_state(results: Results, candidate: RunSettings) -> str:
    """The state of a candidate of a search: "scored", "open", or how its first failed run failed."""
    for run in results.search_runs(candidate):
        if results.store.result(run) is None:
            failure = results.store.failure(run)
            return "open" if failure is None else str(failure.get("status", "crashed"))
    return "scored"


def all_runs(results: Results, cells: Sequence[CellRuns]) -> Iterator[tuple[CellRuns, RunSettings, str]]:
    """Every run with its cell, and whether it fills that ("cell") or judges a candidate ("search").

    Those that fill cells come first. A run that several cells share, or that does both, comes
    several times.
    """
    for of in cells:
        yield from ((of, run, "cell") for run in of.runs)
    if results.search:
        for of in (of for of in cells if of.cell.search):
            for candidate in of.cell.candidates():
                yield from ((of, run, "search") for run in results.search_runs(candidate))


@dataclass(frozen=True)
class Entry:
    """One number of the table, for a row, a column and a value, in the unit in which the paper prints it.

    Attributes
    ----------
    of : CellRuns
    value : Value
    samples : mapping of seed to number
        Of the finished runs that have it.
    difference : float or None
        Ours minus the paper's, in standard deviations; None where one is not known or they are not
        comparable.
    bold : bool
    p_best : float or None
        Of Welch's test against the best of its competition; None for the best itself.
    stars : str
        Of the paired test against the row that the study names.
    """

    of: CellRuns
    value: Value
    samples: Mapping[int, float]
    difference: float | None = None
    bold: bool = False
    p_best: float | None = None
    stars: str = ""

    @property
    def n(self) -> int:
        """Number of runs in the mean."""
        return len(self.samples)

    @cached_property
    def mean(self) -> float | None:
        """Mean over the runs."""
        return float(np.mean(list(self.samples.values()))) if self.samples else None

    @cached_property
    def std(self) -> float | None:
        """Standard deviation over the runs, with n - 1."""
        return float(np.std(list(self.samples.values()), ddof=1)) if self.n > 1 else None

    @property
    def paper(self) -> Number | None:
        """The paper's number."""
        return self.of.cell.paper.get(self.value.name)

    @property
    def complete(self) -> bool:
        """Whether all runs have finished and have the number."""
        return self.n == self.of.seeds


@dataclass(frozen=True)
class Table:
    """The entries of a study, and what has to be said about how they were compared."""

    study: Study
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def _places(self) -> dict[tuple[str, str, str, str], Entry]:
        cells = ((entry.of.cell, entry) for entry in self.entries)
        return {(cell.row, cell.group, cell.column, entry.value.name): entry for cell, entry in cells}

    def at(self, row: str, column: str, value: str | None = None, group: str = "") -> Entry | None:
        """The entry at a place, of the first value by default; None where the study has no cell."""
        return self._places.get((row, group, column, value or self.study.values[0].name))

    @property
    def has_paper(self) -> bool:
        """Whether the paper has a number for any of them."""
        return any(entry.paper is not None for entry in self.entries)


def build_table(study: Study, cells: Sequence[CellRuns], *, comparable: bool = True) -> Table:
    """Compute every entry.

    Parameters
    ----------
    study : Study
    cells : sequence of CellRuns
        From `gather`.
    comparable : bool
        Whether the paper's numbers can be compared with ours; if not, there are no differences.
    """
    for name, known in (("bold", ("welch", "best", "none")), ("compete", ("rows", "columns"))):
        if getattr(study, name) not in known:
            raise UnknownNameError(f"{name} of study {study.name}", getattr(study, name), known)
    entries = [_entry(of, value, comparable) for of in cells for value in study.values]
    notes: list[str] = []
    if study.bold != "none":
        entries = _each_competition(entries, study, lambda rivals: _judge(rivals, study.bold, notes))
    if study.stars_against is not None:
        entries = _starred(entries, study, study.stars_against, notes)
    return Table(study, tuple(entries), tuple(dict.fromkeys(notes)))


def _entry(of: CellRuns, value: Value, comparable: bool) -> Entry:
    entry = Entry(of, value, of.values(value.name, 100.0 if value.percent else 1.0))
    if not comparable or entry.mean is None or entry.paper is None:
        return entry
    difference = difference_in_deviations(entry.mean, entry.std, entry.paper.mean, entry.paper.std)
    return dataclasses.replace(entry, difference=difference)


def _each_competition(
    entries: Iterable[Entry], study: Study, judge: Callable[[list[Entry]], list[Entry]]
) -> list[Entry]:
    """Judge the entries that compete with each other; the order is kept."""
    ordered = list(entries)
    competitions: dict[tuple[str, ...], list[int]] = {}
    for place, entry in enumerate(ordered):
        cell = entry.of.cell
        key = (cell.row,) if study.compete == "columns" else (cell.group, cell.column)
        competitions.setdefault((*key, entry.value.name), []).append(place)
    for places in competitions.values():
        for place, judged in zip(places, judge([ordered[place] for place in places]), strict=True):
            ordered[place] = judged
    return ordered


def _judge(rivals: list[Entry], rule: str, notes: list[str]) -> list[Entry]:
    """Mark the entries that are bold, if at least two have a number."""
    there = [entry for entry in rivals if entry.mean is not None]
    if len(there) < 2:
        return rivals
    sign = 1 if rivals[0].value.higher_is_better else -1
    best = max(there, key=lambda entry: sign * (entry.mean or 0.0))
    judged = []
    for entry in rivals:
        if entry.mean is None:
            judged.append(entry)
            continue
        p = None if entry is best else welch(list(entry.samples.values()), list(best.samples.values()))
        bold = entry is best or printed(entry.mean, entry.value) == printed(best.mean or 0.0, entry.value)
        if rule == "welch":
            # Without a p-value the printed digits decide, as they do under "best".
            bold = bold if p is None else p >= LEVEL
            if p is None and entry is not best:
                notes.append(_TOO_FEW)
            if p is not None and min(entry.n, best.n) == 2:
                notes.append(_TWO)
        judged.append(dataclasses.replace(entry, bold=bold, p_best=p))
    return judged


def _starred(entries: list[Entry], study: Study, row: str, notes: list[str]) -> list[Entry]:
    """Test every entry against the named row of its column, paired by seed."""
    if row not in study.rows:
        notes.append(f"There are no stars: the row they test against, {row}, is not part of this selection.")
        return entries
    of_row = {(e.of.cell.group, e.of.cell.column, e.value.name): e for e in entries if e.of.cell.row == row}
    judged = []
    for entry in entries:
        reference = of_row.get((entry.of.cell.group, entry.of.cell.column, entry.value.name))
        if reference is None or entry.of.cell.row == row:
            judged.append(entry)
            continue
        common = sorted(entry.samples.keys() & reference.samples.keys())
        p = paired([entry.samples[s] for s in common], [reference.samples[s] for s in common])
        if p is None and entry.n and reference.n:
            notes.append(
                "Where fewer than two seeds are common to a row and its reference, no star can be given."
            )
        judged.append(dataclasses.replace(entry, stars=stars(p)))
    return judged


def printed(number: float, value: Value) -> str:
    """A number with the digits of its value.

    >>> printed(98.6049, Value(digits=2)), printed(-0.001, Value(digits=2))
    ('98.60', '0.00')
    """
    return f"{number:z.{value.digits}f}"
