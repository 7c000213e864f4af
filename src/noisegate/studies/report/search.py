"""The hyper-parameters that a search chose, and those of the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisegate.studies.report.table import CellRuns, candidate_state
from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings


@dataclass(frozen=True)
class Searched:
    """The search of one cell.

    Attributes
    ----------
    of : CellRuns
    chosen : mapping of parameter to value, or None while the search is not over
    score : float or None
        Of the chosen one: the metric that selects, averaged over the seeds it is judged by.
    paper : mapping of parameter to value
    states : mapping of "scored", "diverged", "crashed" or "open" to a number of candidates
    """

    of: CellRuns
    chosen: Mapping[str, Any] | None
    score: float | None
    paper: Mapping[str, Any]
    states: Mapping[str, int]


def searched(results: Results, cells: Sequence[CellRuns]) -> list[Searched]:
    """The searches of all cells that have a grid; none where the paper's choice is taken."""
    if not results.search:
        return []
    return [_searched(results, of) for of in cells if of.cell.search]


def _searched(results: Results, of: CellRuns) -> Searched:
    names = list(of.cell.search)
    states = Counter(candidate_state(results, candidate) for candidate in of.cell.candidates())
    chosen = {name: of.runs[0].params[name] for name in names} if of.runs else None
    score = _score(results, of.runs[0]) if of.runs else None
    return Searched(of, chosen, score, _paper_choice(of.cell.settings, names), states)


def _score(results: Results, chosen: RunSettings) -> float | None:
    found = [results.store.result(run) for run in results.search_runs(chosen)]
    metric = results.study.select.metric
    scores = [result.metrics[metric] for result in found if result is not None and metric in result.metrics]
    return float(np.mean(scores)) if scores else None


def _paper_choice(settings: RunSettings, names: Sequence[str]) -> dict[str, Any]:
    from noisegate import methods

    params = methods.get(settings.method, **settings.params).get_params()
    return {name: params[name] for name in names}
