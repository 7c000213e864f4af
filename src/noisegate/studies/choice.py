"""The chosen part and size of a study, stored in the results folder, and its report."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisegate._io.files import read_json, write_json
from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.studies import papers
from noisegate.studies.results import Results
from noisegate.studies.store import Store
from noisegate.studies.study import SCALES, Study, slug

if TYPE_CHECKING:
    from noisegate.studies.report import Report

#: The default folder of results of the command line.
RESULTS = Path("noisegate-results")
_FILE = "choice.json"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen part of a study, its size and its changes; stored beside its report.

    Attributes
    ----------
    scale : {"paper", "laptop", "smoke"}, default="paper"
    seeds : int, default=None
        Repetitions; None: the study's own number.
    rows, columns : tuple of str, default=()
        Only these rows and columns; all if empty.
    changes : mapping, default={}
        Settings changed in all runs, e.g. {"recipe.epochs": 20}.
    search : bool, default=False
        Search hyper-parameters on the noisy validation rows instead of taking the paper's.

    Examples
    --------
    >>> choice = Choice(scale="smoke", rows=("ce", "ln"))
    >>> choice.apply(papers.get("demo")).rows
    ['CE', 'LN']
    >>> choice.command("demo")
    'noisegate study run demo --scale smoke --rows ce,ln'
    """

    scale: str = "paper"
    seeds: int | None = None
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    search: bool = False

    def apply(self, study: Study) -> Study:
        """Return the chosen part of a study."""
        study = study.at_scale(self.scale).only(self.rows, self.columns).with_changes(self.changes)
        return study if self.seeds is None else study.with_seeds(self.seeds)

    def command(self, name: str, out: Path | None = None) -> str:
        """Return the command line that runs this choice of a study, with results in `out`."""
        words: list[str] = ["noisegate", "study", "run", name]
        if out is not None and out != RESULTS:
            words += ["--out", str(out)]
        if self.scale != "paper":
            words += ["--scale", self.scale]
        if self.seeds is not None:
            words += ["--seeds", str(self.seeds)]
        for flag, names in (("--rows", self.rows), ("--columns", self.columns)):
            words += [flag, ",".join(names)] if names else []
        for key, value in self.changes.items():
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
        return shlex.join([*words, *(["--search"] if self.search else [])])

    def folder(self, name: str, out: Path) -> Path:
        """Return the folder of the report; smaller, searched and changed studies have their own."""
        parts = [
            name,
            *([self.scale] if self.scale != "paper" else []),
            *(["search"] if self.search else []),
        ]
        if self.changes:
            text = json.dumps(dict(self.changes), sort_keys=True)
            parts += ["set", slug(text)[:48], hashlib.sha256(text.encode()).hexdigest()[:6]]
        return Path(out) / "reports" / "-".join(parts)

    @classmethod
    def read(cls, path: Path) -> Choice:
        """Read a choice from a file."""
        content = read_json(path)
        try:
            values: dict[str, Any] = {f.name: content[f.name] for f in fields(cls)}
            values |= {name: tuple(values[name]) for name in ("rows", "columns")}
            return cls(**values)
        except (KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{path} is damaged ({error}); remove it, or run the study again"
            ) from None

    def remember(self, name: str, out: Path) -> Choice:
        """Store this choice of a study; return it merged with earlier choices for the same report."""
        path = self.folder(name, out) / _FILE
        whole = self._with(path, papers.get(name))
        write_json(path, {"study": name, **asdict(whole)})
        return whole

    def _with(self, path: Path, study: Study) -> Choice:
        """Merge this choice with the stored one, if size, changes and search are the same."""
        try:
            before = Choice.read(path)
        except (DamagedFileError, MissingDataError):
            return self
        if (before.scale, before.changes, before.search) != (self.scale, dict(self.changes), self.search):
            return self
        own = replace(self, seeds=None, rows=(), columns=()).apply(study).seeds
        seeds: int | None = max(before.seeds or own, self.seeds or own)
        # An empty tuple stands for all rows or columns.
        rows, columns = (
            tuple(dict.fromkeys((*old, *new))) if old and new else ()
            for old, new in ((before.rows, self.rows), (before.columns, self.columns))
        )
        return replace(self, seeds=None if seeds == own else seeds, rows=rows, columns=columns)


@dataclass(frozen=True)
class Chosen:
    """A choice of a study, and the folder of its report.

    Attributes
    ----------
    name : str
        Of the study.
    choice : Choice
    folder : Path
        Of the report.
    """

    name: str
    choice: Choice
    folder: Path

    def results(self, store: Store) -> Results:
        """Its stored results."""
        return Results(self.choice.apply(papers.get(self.name)), store, search=self.choice.search)

    def write(self, store: Store) -> Report:
        """Write its report; nothing is trained."""
        from noisegate.studies.report import write_report

        return write_report(
            self.results(store),
            self.folder,
            changes=self.choice.changes,
            scale=self.choice.scale,
            command=self.choice.command(self.name, store.folder),
        )


def stored_reports(
    out: Path, name: str | None = None, *, scale: str = "paper", search: bool = False, to: Path | None = None
) -> Iterator[Chosen | InputError]:
    """Find the stored choices in a folder of results, of one study or of all.

    Parameters
    ----------
    out : Path
        The folder of results.
    name : str, default=None
        Name of a study. None: all; a study whose record is damaged is returned as an error.
    scale : str, default="paper"
    search : bool, default=False
        Which size and search of the study.
    to : Path, default=None
        Folder of the reports. None: `out`/reports.
    """
    if not (out / "store.json").exists():
        raise InputError(f"{out} is not a folder of results; run a study first: noisegate study run NAME")
    stored = sorted((out / "reports").glob(f"*/{_FILE}"))
    if name is None:
        if not stored:
            raise InputError(f"{out} has no results of a study yet; run one first: noisegate study run NAME")
        for path in stored:
            try:
                yield Chosen(_study_of(path), Choice.read(path), _target(path, to))
            except InputError as error:
                yield InputError(f"{path.parent.name}: {error}")
        return
    papers.get(name)  # an unknown name is refused
    wanted = Choice(scale=scale, search=search)
    found = [path for path in stored if _is_of(path, name, wanted, out)]
    if not found:
        others = [size for size in SCALES if Choice(scale=size).folder(name, out).exists()]
        if others and scale not in others:
            raise InputError(
                f"{out} has {name} at another size only: noisegate study report {name} --scale {others[0]}"
            )
        yield Chosen(name, wanted, to or wanted.folder(name, out))
    for path in found:
        yield Chosen(name, Choice.read(path), to if to and len(found) == 1 else _target(path, to))


def _target(path: Path, to: Path | None) -> Path:
    return path.parent if to is None else to / path.parent.name


def _study_of(path: Path) -> str:
    content = read_json(path)
    name = content.get("study") if isinstance(content, dict) else None
    if not isinstance(name, str):
        raise DamagedFileError(f"{path} is damaged (no study); remove it, or run the study again")
    return name


def _is_of(path: Path, name: str, like: Choice, out: Path) -> bool:
    """Whether a stored choice is one of this study, of the same size and search."""
    if path.parent == like.folder(name, out):
        return True  # also if the file is damaged: reading it reports that
    try:
        choice = Choice.read(path)
        return (_study_of(path), choice.scale, choice.search) == (name, like.scale, like.search)
    except InputError:
        return False
