"""Run a study: find its unfinished runs, execute them, estimate how long they take."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from noisegate.data.registry import find, lookup, root_folder
from noisegate.errors import MissingDataError
from noisegate.studies.engines.base import Context, Engine
from noisegate.studies.execute import Event
from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import Study

FAILED = ("diverged", "crashed")
#: Seconds between checks of runs that other processes execute.
POLL = 1.0


@dataclass
class Plan:
    """The runs of a study by status."""

    finished: list[RunSettings] = field(default_factory=list)
    new: list[RunSettings] = field(default_factory=list)
    running: list[RunSettings] = field(default_factory=list)
    failed: list[RunSettings] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number of runs."""
        return len(self.finished) + len(self.new) + len(self.running) + len(self.failed)


def plan(results: Results) -> Plan:
    """Sort the runs that are needed, as far as is known, by status."""
    sorted_ = Plan()
    for run in results.planned():
        status = results.store.status(run)
        getattr(sorted_, "failed" if status in FAILED else status).append(run)
    return sorted_


def check_data(study: Study, root: str | None) -> None:
    """Raise MissingDataError if a dataset is not on disk; the message says how to fetch it."""
    for name in dict.fromkeys(str(cell.settings.data["name"]) for cell in study):
        source = lookup(name).source
        if source is None:
            continue
        try:
            find(name, source, root_folder(root))
        except MissingDataError as error:
            others = [
                f"{cell.group} {cell.column}".strip() for cell in study if cell.settings.data["name"] != name
            ]
            leave = (
                "; or leave it out: name the other rows or columns with --rows, --columns" if others else ""
            )
            raise MissingDataError(f"{study.name} needs {error}{leave}") from None


def do(
    results: Results,
    engine: Engine,
    context: Context,
    *,
    retry: bool = False,
    watch: Callable[[Event], None] = lambda event: None,
    planned: Callable[[Plan], None] = lambda plan: None,
) -> Plan:
    """Execute all unfinished runs and return the plan afterwards.

    Interrupted runs come first, then the others in the order of the study. Runs of other processes are
    waited for; if such a process dies, its runs are executed here. Failed runs are skipped unless
    `retry` is set. `planned` is called with the plan at the start, and again when a search adds runs.
    """
    tried: set[str] = set()
    while True:
        now = plan(results)
        planned(now)
        if retry:
            again = [run for run in now.failed if run.key not in tried]
            for run in again:
                results.store.forgive(run)
            now.new += again
        todo = [run for run in now.new if run.key not in tried]
        todo.sort(key=lambda run: results.store.progress(run) is None)
        if todo:
            # Close the iterator even after an error, so that Ctrl-C stops the workers at once.
            with contextlib.closing(engine.run(todo, context)) as events:
                for event in events:
                    if event.final and event.kind != "busy":
                        tried.add(event.run.key)
                    watch(event)
        elif now.running:
            time.sleep(POLL)
            for run in now.running:
                watch(Event("epoch", run, progress=results.store.progress(run) or {}))
        else:
            return now


@dataclass(frozen=True)
class Estimate:
    """An estimate of how long runs will take, from similar finished ones.

    Attributes
    ----------
    seconds : float
        Total time of the runs with an estimate, if executed one after the other.
    unknown : int
        Number of runs without a similar finished run.
    """

    seconds: float
    unknown: int


def estimate(runs: Sequence[RunSettings], store: Store, hardware: str | None = None) -> Estimate:
    """Estimate each run by the median of finished runs of its kind, preferably with its method.

    If `hardware` is given, only runs on the same hardware count.
    """
    alike, similar = defaultdict(list), defaultdict(list)
    for result in store.results():
        if hardware is not None and result.about["hardware"] != hardware:
            continue
        kind = _kind(result.settings)
        alike[(result.settings["method"]["name"], kind)].append(result.seconds)
        similar[kind].append(result.seconds)
    seconds, unknown = 0.0, 0
    for run in runs:
        full = run.full()
        known = alike.get((run.method, _kind(full))) or similar.get(_kind(full))
        if known:
            seconds += float(np.median(known))
        else:
            unknown += 1
    return Estimate(seconds, unknown)


def _kind(full: dict[str, object]) -> str:
    return repr([full[name] for name in ("data", "rows", "network", "recipe")])
