"""Studies: declared grids of runs, resumable, with the papers' tables and figures.

>>> from noisegate import studies
>>> study = studies.get("demo").at_scale("smoke").only(rows=["ce"], columns=["symmetric-40"]).with_seeds(1)
>>> len(study.cells), study.cells[0].settings.method
(1, 'ce')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisegate.errors import InputError
from noisegate.studies.choice import Choice, stored_reports
from noisegate.studies.papers import get, studies
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Figure, Number, Selection, Smoke, Study, Value

if TYPE_CHECKING:
    from pathlib import Path

    from noisegate.studies.report import Report
    from noisegate.studies.results import Results

__all__ = [
    "Cell",
    "Choice",
    "Figure",
    "Number",
    "RunSettings",
    "Selection",
    "Smoke",
    "Study",
    "Value",
    "get",
    "run",
    "studies",
    "write_reports",
]


def run(
    study: Study | str,
    out: str | Path,
    *,
    choice: Choice | None = None,
    engine: str = "local",
    workers: int | None = None,
    device: str = "auto",
    root: str | None = None,
    search: bool = False,
    retry: bool = False,
    **options: Any,
) -> Results:
    """Execute the unfinished runs of a study and return its results.

    Parameters
    ----------
    study : Study or str
    out : path
        The folder of results; several studies may share one, and so may several processes.
    choice : Choice, default=None
        Size, rows, columns and changes. None: the whole study at the size of the paper. The choice is
        stored for named studies, so that `write_reports` can write the report.
    engine, workers, options
        See `noisegate.studies.engines.build`.
    device, root
        As in `noisegate.train` and `noisegate.data.load`.
    search : bool
        Whether to search the grids of the cells on the noisy validation rows, instead of using their
        settings.
    retry : bool
        Whether to retry runs that diverged or crashed.

    Returns
    -------
    Results
        `values(cell, "test_accuracy")` by seed, `curve`, `arrays`;
        `noisegate.studies.report.write_report` makes tables and figures of it.

    Examples
    --------
    >>> import tempfile
    >>> from noisegate import studies
    >>> from noisegate.studies import Cell, RunSettings, Study
    >>> settings = RunSettings(data={"name": "moons", "n": 100}, method="ce", network="mlp-8", recipe={"epochs": 1})
    >>> cells = (Cell(row="CE", column="moons", settings=settings),)
    >>> mine = Study(name="mine", title="One cell", reference="nobody", cells=cells, seeds=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     results = studies.run(mine, folder, workers=1, device="cpu")
    ...     sorted(results.values(mine.cells[0], "test_accuracy"))
    [0, 1]
    """
    from pathlib import Path

    from noisegate.studies import runner
    from noisegate.studies.engines import Context, build
    from noisegate.studies.results import Results
    from noisegate.studies.store import Store

    chosen = get(study) if isinstance(study, str) else study
    if choice is not None:
        if search != choice.search and search:
            raise InputError("search is part of the choice: Choice(search=True)")
        chosen, search = choice.apply(chosen), choice.search
    runner.check_data(chosen, root)
    results = Results(chosen, Store(out), search=search)
    if choice is not None and isinstance(study, str):
        choice.remember(study, Path(out))
    context = Context(Path(out), root, device)
    runner.do(results, build(engine, workers=workers, **options), context, retry=retry)
    return results


def write_reports(
    out: str | Path,
    study: str | None = None,
    *,
    scale: str = "paper",
    search: bool = False,
    to: str | Path | None = None,
) -> list[Report]:
    """Write the reports of one study, or of all studies with results, from stored results. Nothing is trained.

    Parameters
    ----------
    out : path
        The folder of results.
    study : str, default=None
        Name of a study (`noisegate study list`). None: all studies with results in `out`.
    scale, search : str, bool, default="paper", False
        The size of the study, and whether to report the one with searched hyper-parameters.
    to : path, default=None
        Folder of the reports. None: `out`/reports.

    Returns
    -------
    list of Report
        The written reports; `missing` lists what is not available yet.

    Examples
    --------
    >>> import tempfile
    >>> from noisegate import studies
    >>> choice = studies.Choice(scale="smoke", rows=("ce",), columns=("symmetric-40",), seeds=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = studies.run("demo", folder, choice=choice, workers=1, device="cpu")
    ...     reports = studies.write_reports(folder, "demo", scale="smoke")
    ...     [report.missing for report in reports]
    [()]
    """
    from pathlib import Path

    from noisegate.studies.store import Store

    target = None if to is None else Path(to)
    written = []
    for chosen in stored_reports(Path(out), study, scale=scale, search=search, to=target):
        if isinstance(chosen, InputError):
            raise chosen
        written.append(chosen.write(Store(out)))
    return written
