"""`noisegate study`: list, run, report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from noisegate.cli.output import say, table
from noisegate.errors import InputError
from noisegate.studies import papers, runner
from noisegate.studies.board import Board, clock
from noisegate.studies.choice import Choice, Chosen, stored_reports
from noisegate.studies.engines import Context, Engine
from noisegate.studies.results import Results
from noisegate.studies.store import Store
from noisegate.studies.study import Study

#: Exit code of a study of which a run crashed.
CRASHED = 4


def list_studies() -> None:
    """Print every study with its title, size and data."""
    rows = [
        [
            study.name,
            study.title,
            len({c.settings.key for c in study}) * study.seeds or "none",
            _data_names(study),
        ]
        for study in papers.studies().values()
    ]
    table(rows, ["study", "what it shows", "runs", "data"], numbers=[2])
    say(
        "noisegate study run NAME does one at the size of the paper; --scale laptop is what two cores do of it in"
    )
    say("two hours, --scale smoke what shows in minutes that everything runs.")


def _data_names(study: Study) -> str:
    return ", ".join(dict.fromkeys(str(cell.settings.data["name"]) for cell in study))


def run_study(
    name: str,
    choice: Choice,
    out: Path,
    *,
    engine: Engine,
    device: str = "auto",
    root: Path | None = None,
    retry: bool = False,
    dry_run: bool = False,
) -> int:
    """Execute the unfinished runs of a study, write its report, and return the exit code.

    A run that diverged is a result, which the report has; one that crashed is an error.
    """
    study = choice.apply(papers.get(name))
    results = Results(study, Store(out), search=choice.search)
    context = Context(out, None if root is None else str(root), device)
    if dry_run:
        _say_plan(results, engine, context)
        return 0
    runner.check_data(study, context.root)
    whole = choice.remember(name, out)
    crashed = 0
    if study.cells:
        after = _do(results, engine, context, retry)
        crashed = sum(results.store.status(run) == "crashed" for run in after.failed)
        if not after.finished and not crashed:
            raise InputError(f"no run of {study.name} has finished, so there is nothing to report")
        # Another process may have added other rows meanwhile.
        whole = choice.remember(name, out)
    if not study.cells or after.finished:
        _write(Chosen(name, whole, choice.folder(name, out)), results.store)
    if not crashed:
        return 0
    print(
        f"noisegate: {crashed} of {after.total} runs of {study.name} crashed, so the study is not finished; "
        f"{out / 'runs'}/*/failed.json has what happened, and the same command with --retry tries again",
        file=sys.stderr,
    )
    return CRASHED


def _do(results: Results, engine: Engine, context: Context, retry: bool) -> runner.Plan:
    """Execute the unfinished runs and say which failed."""
    store = results.store
    before = runner.plan(results)
    _say_set_aside(store)
    waiting = before.new + (before.failed if retry else [])
    guess = runner.estimate(waiting, store, engine.hardware(context))
    seconds = guess.seconds / engine.width(waiting, context) if waiting and not guess.unknown else None
    failed = 0 if retry else len(before.failed)
    study = results.study
    with Board(study.name, before.total, len(before.finished), failed, seconds) as board:
        after = runner.do(results, engine, context, retry=retry, watch=board, planned=board.plan)
    say(f"{study.name}: {len(after.finished)} of {after.total} runs done")
    for run in after.failed:
        failure = store.failure(run) or {}
        say(f"  {run.label}: {failure.get('status')}: {failure.get('error')}")
    if after.failed:
        say(f"  {len(after.failed)} failed; the same command with --retry tries them again")
    return after


def _say_set_aside(store: Store) -> None:
    for text in store.set_aside:
        print(f"noisegate: {text}", file=sys.stderr)


def _say_plan(results: Results, engine: Engine, context: Context) -> None:
    now = runner.plan(results)
    _say_set_aside(results.store)
    say(
        f"{results.study.name}: {now.total} runs, {len(now.finished)} done, {len(now.failed)} failed, "
        f"{len(now.running)} running in other processes, {len(now.new)} to do"
    )
    if results.search:
        cells = sum(1 for cell in results.study if cell.search and results.settings(cell) is None)
        more = cells * (results.study.seeds - 1 if results.study.select.seeds == "first" else 0)
        if more:
            say(f"  and {more} more once the search of {cells} cells is over")
    if now.new:
        width = engine.width(now.new, context)
        guess = runner.estimate(now.new, results.store, engine.hardware(context))
        if guess.seconds:
            known = len(now.new) - guess.unknown
            say(
                f"  about {clock(guess.seconds / width)} for {known} of them, {width} at a time, by those done"
            )
        if guess.unknown:
            say(f"  no similar run is done yet for {guess.unknown} of them, so their time is not known")


def report(
    name: str | None, out: Path, *, scale: str = "paper", search: bool = False, to: Path | None = None
) -> None:
    """Write the report of a study from stored results, or of every study with results. Nothing is trained."""
    failed = total = 0
    store: Store | None = None
    for chosen in stored_reports(out, name, scale=scale, search=search, to=to):
        store, total = store or Store(out), total + 1
        try:
            if isinstance(chosen, InputError):
                raise chosen
            _write(chosen, store)
        except InputError as error:
            if name is not None:
                raise
            # Continue with the other reports.
            failed += 1
            where = "" if isinstance(chosen, InputError) else f"{chosen.folder.name}: "
            print(f"noisegate: {where}{error}", file=sys.stderr)
    if failed:
        raise InputError(f"{failed} of {total} reports could not be written")


def _write(chosen: Chosen, store: Store) -> None:
    chosen.write(store)
    _say_set_aside(store)
    changes = ", ".join(f"{name} = {value}" for name, value in chosen.choice.changes.items())
    if changes:
        say(f"{chosen.name} with {changes}:")
    _say_results(chosen.results(store), chosen.choice)
    say(f"report: {chosen.folder / 'report.html'}")


def _say_results(results: Results, choice: Choice) -> None:
    """Print the table; for a smoke run print no numbers, since they could be mistaken for results."""
    from noisegate.studies.report import terminal_table

    study = results.study
    if not study.cells:
        return
    if choice.scale == "smoke":
        say(
            f"smoke size, on {_data_names(study)}: it shows that everything runs, and is no reproduction; "
            "so its numbers are in the report alone"
        )
        return
    if choice.scale == "laptop":
        say(f"laptop size: {study.notes[0] if study.laptop.reduces else 'nothing is reduced'}")
    if study.table:
        header, rows = terminal_table(results, paper=True)
        table(rows, header)
    for sentence in study.findings(results) if study.findings else ():
        say(sentence)


def names(text: Sequence[str] | None) -> tuple[str, ...]:
    """Split the values of a repeated option at commas.

    >>> names(["ce,ln", "gce"])
    ('ce', 'ln', 'gce')
    """
    return tuple(part.strip() for item in text or () for part in item.split(",") if part.strip())
