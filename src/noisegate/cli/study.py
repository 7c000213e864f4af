"""`noisegate study`: list, run, report."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from noisegate._io.files import read_json, write_json
from noisegate.cli.app import RESULTS
from noisegate.cli.output import say, table
from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.studies import papers, runner
from noisegate.studies.board import Board, clock
from noisegate.studies.engines import Context, Engine
from noisegate.studies.results import Results
from noisegate.studies.store import Store
from noisegate.studies.study import SCALES, Study, slug


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which part of a study, at which size, with which changes; stored beside its report.

    Attributes
    ----------
    scale : {"paper", "laptop", "smoke"}
    seeds : int or None
        Repetitions, where not the study's own number.
    rows, columns : tuple of str
        The only ones; all if empty.
    changes : mapping
        Settings changed in all runs.
    search : bool
        Search hyper-parameters on the noisy validation rows instead of taking the paper's.
    """

    scale: str = "paper"
    seeds: int | None = None
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    search: bool = False

    def apply(self, study: Study) -> Study:
        """The study as chosen."""
        study = study.at_scale(self.scale).only(self.rows, self.columns).with_changes(self.changes)
        return study if self.seeds is None else study.with_seeds(self.seeds)


def list_studies() -> None:
    """Print every study with its place in the paper and its size."""
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
) -> None:
    """Do what is left of a study and write its report."""
    study = choice.apply(papers.get(name))
    results = Results(study, Store(out), search=choice.search)
    context = Context(out, None if root is None else str(root), device)
    if dry_run:
        _say_plan(results, engine, context)
        return
    runner.check_data(study, context.root)
    folder = report_folder(out, name, choice)
    whole = _stored_with(choice, name, folder)
    if study.cells:
        _do(results, engine, context, retry)
        # Another process may have chosen other rows meanwhile.
        whole = _stored_with(choice, name, folder)
    _write(Results(whole.apply(papers.get(name)), results.store, search=choice.search), whole, folder, out)


def _stored_with(choice: Choice, name: str, folder: Path) -> Choice:
    """The choice together with what was chosen before, stored."""
    whole = _with_stored(choice, name, folder / "choice.json")
    write_json(folder / "choice.json", {"study": name, **asdict(whole)})
    return whole


def _with_stored(choice: Choice, name: str, path: Path) -> Choice:
    """The choice together with what was chosen before, where that is the same study of fewer or other cells."""
    try:
        before = _read_choice(path)
    except (DamagedFileError, MissingDataError):
        return choice
    if (before.scale, before.changes, before.search) != (choice.scale, dict(choice.changes), choice.search):
        return choice
    own = replace(choice, seeds=None, rows=(), columns=()).apply(papers.get(name)).seeds
    seeds: int | None = max(before.seeds or own, choice.seeds or own)
    if seeds == own:
        seeds = None
    rows, columns = (
        tuple(dict.fromkeys((*old, *new))) if old and new else ()
        for old, new in ((before.rows, choice.rows), (before.columns, choice.columns))
    )
    return replace(choice, seeds=seeds, rows=rows, columns=columns)


def _do(results: Results, engine: Engine, context: Context, retry: bool) -> None:
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
    if not after.finished:
        raise InputError(f"no run of {study.name} came to an end, so there is nothing to report")


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


def report_folder(out: Path, name: str, choice: Choice) -> Path:
    """Where the report of a study goes: smaller, searched and changed ones have folders of their own."""
    parts = [
        name,
        *([choice.scale] if choice.scale != "paper" else []),
        *(["search"] if choice.search else []),
    ]
    if choice.changes:
        text = json.dumps(dict(choice.changes), sort_keys=True)
        parts += ["set", slug(text)[:48], hashlib.sha256(text.encode()).hexdigest()[:6]]
    return out / "reports" / "-".join(parts)


def report(
    name: str | None, out: Path, *, scale: str = "paper", search: bool = False, to: Path | None = None
) -> None:
    """Write the report of a study from stored results, or of all that were run; nothing is trained."""
    if not (out / "store.json").exists():
        raise InputError(f"{out} is not a folder of results; do a study first: noisegate study run NAME")
    store = Store(out)
    stored = sorted((out / "reports").glob("*/choice.json"))
    if name is None and not stored:
        raise InputError(f"no study was run into {out} yet; do one first: noisegate study run NAME")
    if name is None:
        _report_all(stored, store, to)
        return
    study = papers.get(name)
    plain = Choice(scale=scale, search=search)
    folder = report_folder(out, name, plain)
    found = [path for path in stored if _is_of(path, name, plain)] or [folder / "choice.json"]
    if not found[0].exists():
        others = [s for s in SCALES if report_folder(out, name, Choice(scale=s)).exists()]
        if others and scale not in others:
            raise InputError(
                f"{out} has {name} at another size only: noisegate study report {name} --scale {others[0]}"
            )
    for path in found:
        choice = _read_choice(path) if path.exists() else plain
        target = path.parent if to is None else to if len(found) == 1 else to / path.parent.name
        _write(Results(choice.apply(study), store, search=choice.search), choice, target, out)


def _report_all(stored: Sequence[Path], store: Store, to: Path | None) -> None:
    """The reports of all studies; one that cannot be written keeps none of the others from it."""
    failed = 0
    for path in stored:
        folder = path.parent if to is None else to / path.parent.name
        try:
            choice, study = _read_choice(path), papers.get(_study_of(path))
            _write(Results(choice.apply(study), store, search=choice.search), choice, folder, store.folder)
        except InputError as error:
            failed += 1
            print(f"noisegate: {path.parent.name}: {error}", file=sys.stderr)
    if failed:
        raise InputError(f"{failed} of {len(stored)} reports could not be written")


def _study_of(path: Path) -> str:
    content = read_json(path)
    name = content.get("study") if isinstance(content, dict) else None
    if not isinstance(name, str):
        raise DamagedFileError(f"{path} is damaged (no study); remove it, or do the study again")
    return name


def _is_of(path: Path, name: str, like: Choice) -> bool:
    """Whether a stored choice is one of this study, of the same size and search."""
    if path.parent == report_folder(path.parents[2], name, like):
        return True  # whatever is in it
    try:
        choice = _read_choice(path)
        return (_study_of(path), choice.scale, choice.search) == (name, like.scale, like.search)
    except InputError:
        return False


def _read_choice(path: Path) -> Choice:
    content = read_json(path)
    try:
        values: dict[str, Any] = {f.name: content[f.name] for f in fields(Choice)}
        values |= {name: tuple(values[name]) for name in ("rows", "columns")}
        return Choice(**values)
    except (KeyError, TypeError) as error:
        raise DamagedFileError(f"{path} is damaged ({error}); remove it, or do the study again") from None


def _write(results: Results, choice: Choice, folder: Path, out: Path) -> None:
    from noisegate.studies.report import write_report

    write_report(
        results,
        folder,
        changes=choice.changes,
        scale=choice.scale,
        command=command(results.study.name, choice, out),
    )
    _say_set_aside(results.store)
    if choice.changes:
        say(f"{results.study.name} with {', '.join(f'{k} = {v}' for k, v in choice.changes.items())}:")
    _say_results(results, choice)
    say(f"report: {folder / 'report.html'}")


def _say_results(results: Results, choice: Choice) -> None:
    """The table; but of a smoke run no number, since somebody would take it for a result."""
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


def command(name: str, choice: Choice, out: Path | None = None) -> str:
    """The command line that does this choice of a study, into this folder."""
    words: list[str] = ["noisegate", "study", "run", name]
    if out is not None and out != RESULTS:
        words += ["--out", str(out)]
    if choice.scale != "paper":
        words += ["--scale", choice.scale]
    if choice.seeds is not None:
        words += ["--seeds", str(choice.seeds)]
    for flag, names in (("--rows", choice.rows), ("--columns", choice.columns)):
        words += [flag, ",".join(names)] if names else []
    for key, value in choice.changes.items():
        words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return shlex.join([*words, *(["--search"] if choice.search else [])])


def names(text: Sequence[str] | None) -> tuple[str, ...]:
    """Names given by a repeated option, each perhaps several with commas between.

    >>> names(["ce,ln", "gce"])
    ('ce', 'ln', 'gce')
    """
    return tuple(part.strip() for item in text or () for part in item.split(",") if part.strip())
