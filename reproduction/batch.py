"""Parts of several studies, one after another, side by side in a few processes, until a time is over.

    python reproduction/batch.py LIST --out DIR --minutes 9 --processes 3

LIST has a line for each part: the words after `noisegate study run`, of which it knows --scale, --seeds, --rows,
--columns, --set and --search. Nothing is done that DIR has already, and no run is begun in the last minute
(--last MINUTES).
Reports are not written: `noisegate study run` with the same words does so from what is stored.
"""

from __future__ import annotations

import argparse
import functools
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from noisegate.runs.run import Run
from noisegate.runs.side_by_side import side_by_side
from noisegate.studies import papers
from noisegate.studies.execute import Execution, failed
from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import SCALES
from noisegate.training import compiling
from noisegate.training.trainer import Epoch

#: Minutes before the end from which on no run is begun, unless told otherwise.
LAST = 1.0


def part(line: str) -> argparse.Namespace:
    """The words of a line."""
    parser = argparse.ArgumentParser(prog="a line of LIST", exit_on_error=True)
    parser.add_argument("study")
    parser.add_argument("--scale", choices=SCALES, default="paper")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--rows", type=lambda text: text.split(","), default=[])
    parser.add_argument("--columns", type=lambda text: text.split(","), default=[])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--search", action="store_true")
    return parser.parse_args(shlex.split(line))


def planned(lines: Sequence[str], store: Store) -> list[RunSettings]:
    """Every run of the lines once, in order; within a line seed by seed, so that what is there can be compared."""
    runs: dict[str, RunSettings] = {}
    for line in lines:
        if line.strip() and not line.startswith("#"):
            words = part(line)
            study = papers.get(words.study).at_scale(words.scale).only(words.rows, words.columns)
            changes = dict(each.split("=", 1) for each in words.set)
            study = study.with_changes({name: json.loads(value) for name, value in changes.items()})
            study = study if words.seeds is None else study.with_seeds(words.seeds)
            results = Results(study, store, search=words.search)
            for run in sorted(results.planned(), key=lambda run: run.seed):
                runs.setdefault(run.key, run)
    return list(runs.values())


class Batch:
    """Runs of this process.

    Parameters
    ----------
    runs : sequence of RunSettings
    store : Store
    device : str
    width : int
        How many at a time.
    until : float
        Of `time.monotonic`.
    last : float
        Minutes before that from which on no run is begun.
    """

    def __init__(
        self,
        runs: Sequence[RunSettings],
        store: Store,
        device: str,
        width: int,
        until: float,
        last: float = LAST,
    ) -> None:
        self.runs, self.store, self.device, self.width, self.until = runs, store, device, width, until
        self.last = last
        self.begun: dict[int, Execution] = {}

    def _makers(self) -> Iterator[Callable[[], Run]]:
        number = 0
        for settings in self.runs:
            if time.monotonic() > self.until - 60 * self.last:
                return
            if self.store.status(settings) == "new":
                yield functools.partial(self._begin, number, settings)
                number += 1

    def _begin(self, number: int, settings: RunSettings) -> Run:
        execution = Execution(settings, self.store, self.device, beside=self.width)
        self.begun[number] = execution
        return execution.__enter__().run

    def do(self) -> None:
        """Do what there is time for; what is not done by then is left as it is."""
        for number, _, what in side_by_side(self._makers(), self.width):
            if not isinstance(what, Epoch):
                self._end(number, what)
            elif time.monotonic() > self.until:
                break

    def _end(self, number: int, error: Exception | None) -> None:
        execution = self.begun.pop(number)
        try:
            if error is None:
                execution.conclude()
        except Exception as trouble:
            error = trouble
        finally:
            execution.__exit__(None, None, None)
        how = "done" if error is None else failed(execution.settings, self.store, error).message
        print(f"{time.strftime('%X')} {execution.settings.label}: {how}", flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where results go, for how long, and in how many processes."""
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--last", type=float, default=LAST, metavar="MINUTES")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--share", type=int, help="which of the processes this is")


def work(plan: Callable[[Store], Sequence[RunSettings]], words: argparse.Namespace) -> int:
    """Do the runs of a plan in this process, or let this command's own children share them."""
    until = time.monotonic() + 60 * words.minutes
    # Of small networks beside each other compiling makes no step faster, and each process would wait for it.
    compiling.compiling_pays = lambda *_, **__: False
    store = Store(words.out)
    if words.share is None and words.processes > 1:
        command = [sys.executable, *sys.argv, "--share"]
        children = [subprocess.Popen([*command, str(number)]) for number in range(words.processes)]
        return max(child.wait() for child in children)
    runs = plan(store)[words.share or 0 :: words.processes]
    left = sum(store.status(run) == "new" for run in runs)
    print(f"{time.strftime('%X')} {left} of {len(runs)} runs to do", flush=True)
    Batch(runs, store, words.device, words.width, until, words.last).do()
    there = sum(store.status(run) == "finished" for run in runs)
    print(f"{time.strftime('%X')} {there} are there", flush=True)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("list", type=Path)
    add_options(parser)
    words = parser.parse_args()
    lines = words.list.read_text().splitlines()
    return work(lambda store: planned(lines, store), words)


if __name__ == "__main__":
    sys.exit(main())
