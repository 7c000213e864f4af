"""Progress of a study: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from noisegate.studies.execute import Event

if TYPE_CHECKING:
    from noisegate.studies.runner import Plan

#: The table shows at most this many running runs.
SHOWN = 20
#: After this many finished runs the measured pace replaces the estimate.
ENOUGH = 0.1


def clock(seconds: float) -> str:
    """Format seconds for people.

    >>> clock(42.3), clock(754), clock(45_000)
    ('42 s', '12 min 34 s', '12 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Board:
    """A progress display. Call it with every event, inside its `with` block.

    Parameters
    ----------
    name : str
        Name of the study.
    total, done, failed : int
        Number of runs, and of those that finished or failed before.
    seconds : float, optional
        First estimate of the time for the other runs, used until some have finished.
    stream : file, optional
        Standard error by default; the table needs a terminal.
    """

    def __init__(
        self,
        name: str,
        total: int,
        done: int = 0,
        failed: int = 0,
        seconds: float | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self.name, self.total, self.done, self.failed = name, total, done, failed
        self.stream = sys.stderr if stream is None else stream
        self.running: dict[str, tuple[Event, float]] = {}
        self.trouble: list[str] = []
        self._guess, self._began, self._work = seconds, time.monotonic(), 0.0
        # Progress of each run at its first event: resumed runs start in the middle.
        self._first: dict[str, float] = {}
        self._live: Any = None

    def __enter__(self) -> Board:
        if self.stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self.stream, markup=False, emoji=False, highlight=False)
            # Redrawn four times a second, so that clocks advance between events.
            self._live = Live(
                get_renderable=self._table, console=console, refresh_per_second=4, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        before, started = self.running.get(event.run.key, (event, time.monotonic()))
        if not event.final:
            if event.progress and event.progress.get("accuracy") is None:
                # Not evaluated after this epoch: keep the last known accuracy.
                progress = {**event.progress, "accuracy": before.progress.get("accuracy")}
                event = replace(event, progress=progress)
            self.running[event.run.key] = (event, started)
            if event.progress:
                self._first.setdefault(event.run.key, _share(event))
        else:
            self.running.pop(event.run.key, None)
            self._count(event, time.monotonic() - started)

    def plan(self, plan: Plan) -> None:
        """Update the totals: a search adds runs, and other processes finish some."""
        self.total, self.done = plan.total, max(self.done, len(plan.finished))

    def _count(self, event: Event, seconds: float) -> None:
        if event.kind == "busy":
            return
        self._work += 1.0 - self._first.get(event.run.key, 0.0)
        if event.kind == "finished":
            self.done += 1
            self._line(f"{event.run.label}: done in {clock(seconds)}")
        else:
            self.failed += 1
            self.trouble.append(f"{event.run.label}: {event.kind}: {event.message}")
            self._line(f"{event.run.label}: {event.kind}: {event.message}")

    def _line(self, text: str) -> None:
        if self._live is None:
            left = self.left()
            rest = "" if left is None else f", about {clock(left)} left"
            print(f"[{self.done + self.failed}/{self.total}] {text}{rest}", file=self.stream, flush=True)

    def left(self) -> float | None:
        """Seconds left, from the pace so far or the initial estimate.

        Running runs count by their epochs, because with many side by side none may finish for a long
        time.
        """
        shares = {key: _share(event) for key, (event, _) in self.running.items()}
        worked = self._work + sum(max(0.0, shares[key] - self._first.get(key, 0.0)) for key in shares)
        remaining = max(0.0, self.total - self.done - self.failed - sum(shares.values()))
        if worked < ENOUGH:
            return self._guess
        return (time.monotonic() - self._began) / worked * remaining

    def _table(self) -> Any:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        left = self.left()
        summary = f"{self.name}: {self.done} of {self.total} runs done, {len(self.running)} running"
        summary += f", {self.failed} failed" if self.failed else ""
        summary += "" if left is None else f", about {clock(left)} left"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, side in (("run", "left"), ("epoch", "right"), ("accuracy", "right"), ("time", "right")):
            table.add_column(column, justify=side)  # type: ignore[arg-type]
        for event, started in list(self.running.values())[:SHOWN]:
            table.add_row(Text(event.run.label), *_cells(event.progress), clock(time.monotonic() - started))
        for text in self.trouble[-3:]:
            table.add_row(Text(text), "", "", "")
        return Group(Text(summary), table)


def _share(event: Event) -> float:
    """The share of a run that is done, counted in epochs of its phase."""
    return float(event.progress.get("epoch", 0)) / max(1, event.progress.get("n_epochs", 1))


def _cells(progress: Mapping[str, Any]) -> tuple[str, str]:
    if "epoch" not in progress:
        return "", ""
    phase = progress.get("phase", "training")
    where = f"{progress['epoch']}/{progress['n_epochs']}"
    accuracy = progress.get("accuracy")
    return (
        where if phase == "training" else f"{phase} {where}",
        "" if accuracy is None else f"{accuracy:.2%}",
    )
