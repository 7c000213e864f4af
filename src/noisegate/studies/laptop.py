"""The size of a study between smoke and paper: real data, and the paper's protocol with named reductions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisegate.studies.settings import RunSettings
    from noisegate.studies.study import Cell, Study


@dataclass(frozen=True, kw_only=True)
class Laptop:
    """A size that two cores finish in two hours, large enough to show the paper's effect.

    By default nothing is reduced. The report lists all reductions, found by comparing the settings.

    Attributes
    ----------
    change : function (RunSettings) -> RunSettings, optional
        Reduces the settings of every run; see `reduced`.
    keep : function (Cell) -> bool, optional
        Which cells of the paper to keep.
    seeds : int or None
        Maximum number of repetitions.
    search : mapping of parameter to candidates
        Grids that are shorter than the paper's.
    """

    change: Callable[[RunSettings], RunSettings] | None = None
    keep: Callable[[Cell], bool] | None = None
    seeds: int | None = None
    search: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def reduces(self) -> bool:
        """Whether anything is reduced."""
        return self != Laptop()

    def apply(self, study: Study) -> Study:
        """Return the study at this size; its first note lists the reductions."""
        cells = [self._cell(cell) for cell in study.cells if self.keep is None or self.keep(cell)]
        seeds = study.seeds if self.seeds is None else min(self.seeds, study.seeds)
        small = dataclasses.replace(study, cells=tuple(cells), seeds=seeds)
        return dataclasses.replace(small, notes=(*reductions(study, small), *study.notes))

    def _cell(self, cell: Cell) -> Cell:
        settings = cell.settings if self.change is None else self.change(cell.settings)
        search = {name: self.search.get(name, values) for name, values in cell.search.items()}
        return dataclasses.replace(cell, settings=settings, search=search)


def reduced(
    settings: RunSettings,
    *,
    recipe: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    **changes: Any,
) -> RunSettings:
    """Change fields of a run, fields of its recipe, and values of parameters that it has.

    If the number of epochs changes, the milestones of the schedule are scaled with it.
    """
    new = {**settings.recipe, **(recipe or {})}
    if recipe and "epochs" in recipe:
        before = settings.recipe.get("epochs") or settings.recipe["steps"]
        new.pop("steps", None)
        if "milestones" in settings.recipe and "milestones" not in recipe:
            share = recipe["epochs"] / before
            new["milestones"] = tuple(round(share * place) for place in settings.recipe["milestones"])
    own = {name: value for name, value in (params or {}).items() if name in settings.params}
    return settings.replace(recipe=new, params={**settings.params, **own}, **changes)


# -- what was reduced, in words --------------------------------------------------------------------


def reductions(paper: Study, small: Study) -> list[str]:
    """Describe in one sentence how a study and its reduced version differ; None if they do not."""
    places = {(cell.row, cell.group, cell.column): cell for cell in paper}
    pairs = [(places[cell.row, cell.group, cell.column].settings, cell.settings) for cell in small]
    found = [
        *(_instead(pairs, words, read) for words, read in _READ.items()),
        *(_changed(pairs, part) for part in ("recipe", "params")),
    ]
    if small.seeds != paper.seeds:
        found.append(f"fewer seeds, unless more are asked for (the paper's: {paper.seeds})")
    if len(small.cells) != len(paper.cells):
        found.append(f"{len(small.cells)} of the {len(paper.cells)} cells")
    if shorter := _shorter_grids(paper, small):
        found.append(shorter)
    words = [each for each in found if each]
    if not words:
        return []
    return [f"At this size: {'; '.join(words)}. Everything else is as at the size of the paper."]


_READ: Mapping[str, Callable[[RunSettings], Any]] = {
    "data": lambda run: run.data["name"],
    "noise": lambda run: None if run.noise is None else run.noise["name"],
    "network": lambda run: run.network,
    "training on": lambda run: "all rows" if run.rows is None else f"{run.rows:,} rows",
    "validation rows": lambda run: run.validation,
    "pretrained weights": lambda run: run.weights is not None,
}
_Pairs = Sequence[tuple["RunSettings", "RunSettings"]]


def _instead(pairs: _Pairs, words: str, read: Callable[[RunSettings], Any]) -> str:
    moved = {(_word(read(old)), _word(read(new))) for old, new in pairs if read(old) != read(new)}
    by_new: dict[str, list[str]] = {}
    for old, new in sorted(moved):
        by_new.setdefault(new, []).append(old)
    return ", ".join(f"{words} {new} in place of {_listed(old)}" for new, old in by_new.items())


def _changed(pairs: _Pairs, part: str) -> str:
    values: dict[str, set[str]] = {}
    for old, new in pairs:
        before, after = getattr(old, part), getattr(new, part)
        for name, value in after.items():
            if before.get(name) != value:
                values.setdefault(name, set()).add(_word(value))
    return ", ".join(f"{name} {_listed(sorted(found))}" for name, found in values.items())


def _shorter_grids(paper: Study, small: Study) -> str:
    places = {(cell.row, cell.group, cell.column): cell for cell in paper}
    pairs = [(places[cell.row, cell.group, cell.column], cell) for cell in small]
    grids = {
        f"{len(new.search[name])} of {len(values)} values of {name} in a search"
        for old, new in pairs
        for name, values in old.search.items()
        if len(new.search[name]) != len(values)
    }
    return ", ".join(sorted(grids))


def _word(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "-".join(map(str, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
