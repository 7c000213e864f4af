"""Studies: declared grids of runs, resumable, with the papers' tables and figures.

>>> from noisegate import studies
>>> study = studies.get("demo").at_scale("smoke").only(rows=["ce"], columns=["symmetric-40"]).with_seeds(1)
>>> len(study.cells), study.cells[0].settings.method
(1, 'ce')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisegate.studies.papers import get, studies
from noisegate.studies.study import Cell, Figure, Number, RunSettings, Selection, Smoke, Study, Value

if TYPE_CHECKING:
    from pathlib import Path

    from noisegate.studies.results import Results

__all__ = [
    "Cell",
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
]


def run(
    study: Study | str,
    out: str | Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    device: str = "auto",
    root: str | None = None,
    search: bool = False,
    retry: bool = False,
    **options: Any,
) -> Results:
    """Do what is left of a study, yours or one of the catalogue, and return its results.

    Parameters
    ----------
    study : Study or str
    out : path
        The folder of results; several studies may share one, and so may several processes.
    engine, workers, options
        See `noisegate.studies.engines.build`.
    device, root
        As in `noisegate.train` and `noisegate.data.load`.
    search : bool
        Search the grids of the cells on the noisy validation rows instead of taking their settings.
    retry : bool
        Try runs again that diverged or crashed.

    Returns
    -------
    Results
        `values(cell, "test_accuracy")` by seed, `curve`, `arrays`; `noisegate.studies.report.write_report` makes
        tables and figures of it.
    """
    from pathlib import Path

    from noisegate.studies import runner
    from noisegate.studies.engines import Context, build
    from noisegate.studies.results import Results
    from noisegate.studies.store import Store

    chosen = get(study) if isinstance(study, str) else study
    runner.check_data(chosen, root)
    results = Results(chosen, Store(out), search=search)
    context = Context(Path(out), root, device)
    runner.do(results, build(engine, workers=workers, **options), context, retry=retry)
    return results
