"""Read a study's stored results by cell, for tables and figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Result, Store
from noisegate.studies.study import Cell, Study


class Results:
    """The stored results of a study, by cell.

    Parameters
    ----------
    study : Study
    store : Store
    search : bool
        For cells with a grid, use the candidate that noisy validation chooses instead of the paper's.
    """

    def __init__(self, study: Study, store: Store, *, search: bool = False) -> None:
        self.study, self.store, self.search = study, store, search

    def settings(self, cell: Cell) -> RunSettings | None:
        """The settings whose runs fill a cell; None until its search has finished."""
        if not (self.search and cell.search):
            return cell.settings
        scores = [self._score(candidate) for candidate in cell.candidates()]
        # A candidate that diverged or crashed scores -inf; one without a result keeps the search
        # open.
        if any(score is None for score in scores):
            return None
        best = int(np.argmax(np.array(scores, dtype=float)))
        return cell.candidates()[best] if np.isfinite(scores[best]) else None  # type: ignore[arg-type]

    def _score(self, candidate: RunSettings) -> float | None:
        found: list[float] = []
        for run in self.search_runs(candidate):
            result = self.store.result(run)
            if result is None:
                return -np.inf if self.store.failure(run) is not None else None
            metric = self.study.select.metric
            if metric not in result.metrics:
                raise InputError(
                    f"cannot select by {metric}: {run.label} did not record it; hold out validation rows, "
                    "e.g. validation=0.1"
                )
            found.append(result.metrics[metric])
        return float(np.mean(found))

    def search_runs(self, candidate: RunSettings) -> list[RunSettings]:
        """The runs that score a candidate."""
        count = self.study.seeds if self.study.select.seeds == "all" else 1
        return [candidate.replace(seed=seed) for seed in range(count)]

    def runs(self, cell: Cell) -> list[RunSettings]:
        """The runs that fill a cell, one per seed; empty until its search has finished."""
        settings = self.settings(cell)
        if settings is None:
            return []
        return [settings.replace(seed=seed) for seed in range(self.study.seeds)]

    def results(self, cell: Cell) -> list[Result]:
        """The finished runs of a cell, by seed."""
        found = (self.store.result(run) for run in self.runs(cell))
        return [result for result in found if result is not None]

    def values(self, cell: Cell, name: str) -> dict[int, float]:
        """A metric of the finished runs, by seed."""
        return {r.seed: r.metrics[name] for r in self.results(cell) if name in r.metrics}

    def curve(self, cell: Cell, name: str) -> list[list[float]]:
        """A metric after every epoch of the last phase, one list per finished run."""
        return [[e[name] for e in r.history[-1] if name in e] for r in self.results(cell)]

    def arrays(self, cell: Cell) -> list[dict[str, npt.NDArray[Any]]]:
        """The arrays that the probes stored, one dict per finished run."""
        return [self.store.arrays(result.key) for result in self.results(cell)]

    def failures(self) -> Iterator[tuple[Cell, RunSettings, dict[str, Any]]]:
        """Runs that diverged or crashed."""
        for cell in self.study:
            for run in self.runs(cell):
                failure = self.store.failure(run)
                if failure is not None and self.store.result(run) is None:
                    yield cell, run, failure

    def planned(self) -> list[RunSettings]:
        """All runs that are needed, as far as is known.

        A search adds more once its first runs are done.
        """
        runs: list[RunSettings] = []
        for cell in self.study:
            if self.search and cell.search:
                runs += [run for candidate in cell.candidates() for run in self.search_runs(candidate)]
            runs += self.runs(cell)
        return list({run.key: run for run in runs}.values())
