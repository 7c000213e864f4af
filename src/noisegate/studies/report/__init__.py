"""The report of a study: Markdown, CSV, one self-contained HTML page and figures, from stored results only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noisegate._io.files import write_text
from noisegate.errors import InputError, UnknownNameError
from noisegate.studies.report.document import Content, compose
from noisegate.studies.report.figures import draw_figures, save_figures
from noisegate.studies.report.search import searched
from noisegate.studies.report.spreadsheet import runs_csv, table_csv
from noisegate.studies.report.table import CellRuns, Entry, Table, all_runs, build_table, gather
from noisegate.studies.report.words import terminal_table
from noisegate.studies.results import Results
from noisegate.studies.study import SCALES, Study

__all__ = ["CellRuns", "Entry", "Report", "Table", "build_table", "gather", "terminal_table", "write_report"]


@dataclass(frozen=True)
class Report:
    """A written report.

    Attributes
    ----------
    folder : Path
    files : tuple of Path
        The files that were written to it.
    table : Table or None
        None for a study that has only figures.
    missing : tuple of str
        Cells that lack runs and figures that could not be drawn, in words.
    failed : int
        Runs that diverged or crashed.
    """

    folder: Path
    files: tuple[Path, ...]
    table: Table | None = field(repr=False)
    missing: tuple[str, ...]
    failed: int


def write_report(
    results: Results,
    folder: str | Path,
    *,
    changes: Mapping[str, Any] | None = None,
    scale: str = "paper",
    command: str | None = None,
) -> Report:
    """Write the report of a study from its stored results; nothing is trained.

    Parameters
    ----------
    results : Results
        Of the study at its scale, with its changes.
    folder : path
        For report.md, report.html, table.csv, runs.csv and figures/; each file is replaced
        atomically.
    changes : mapping, optional
        Settings changed in all runs.
    scale : {"paper", "laptop", "smoke"}
        A laptop report lists the reductions. A smoke report says that it is no reproduction, and shows no
        differences from the paper.
    command : str, optional
        The command line that runs the study.
    """
    if scale not in SCALES:
        raise UnknownNameError("scale", scale, SCALES)
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InputError(f"expected a folder for the report at {target}, found a file")
    fallback = f"noisegate study run {results.study.name}" + (f" --scale {scale}" if scale != "paper" else "")
    content = _content(results, dict(changes or {}), scale, command or fallback)
    written = save_figures(content.figures, target)
    if content.table is not None:
        written.append(_write(target / "table.csv", table_csv(content.table)))
    if content.cells:
        written.append(_write(target / "runs.csv", runs_csv(results, content.cells)))
    page = compose(content)
    written += [page.write(target / "report.md"), page.write(target / "report.html")]
    undrawn = [f"{item.figure.name}: {item.missing}" for item in content.figures if item.missing]
    missing = (*content.incomplete, *undrawn)
    return Report(target, tuple(written), content.table, missing, len(content.failures))


def _content(results: Results, changes: Mapping[str, Any], scale: str, command: str) -> Content:
    """Read everything first, so that nothing is written if there are no results."""
    study = results.study
    cells = gather(results)
    # The keys of these runs are known; asking `results` again would compute all of them once more.
    planned = {run.key for _, run, _ in all_runs(results, cells)}
    found = (results.store.result(key) for key in sorted(planned))
    stored = [result for result in found if result is not None]
    if study.cells and not stored:
        failures = [failure for of in cells for _, failure in of.failures]
        failed = f"; {len(failures)} failed, the first: {failures[0].get('error')}" if failures else ""
        raise InputError(
            f"{results.store.folder} has no finished run of {study.name}{failed}; run the study first: {command}"
        )
    table = build_table(study, cells, comparable=scale != "smoke") if study.cells and study.table else None
    return Content(
        results=results,
        cells=cells,
        table=table,
        figures=draw_figures(results, mark=_mark(study, scale)),
        searches=searched(results, cells),
        runs=stored,
        planned=len(planned),
        scale=scale,
        changes=changes,
        command=command,
    )


def _mark(study: Study, scale: str) -> str:
    """The text written into figures of a smaller size."""
    if scale == "laptop":
        return "laptop size, reduced" if study.laptop.reduces else ""
    return "smoke size, no reproduction" if scale == "smoke" else ""


def _write(path: Path, content: str) -> Path:
    write_text(path, content)
    return path
