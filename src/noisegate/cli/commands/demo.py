"""`noisegate demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the results and the report.")] = Path(
        "noisegate-demo"
    ),
) -> None:
    """The whole story on the digits that ship with scikit-learn: a table, plots, a report."""
    from noisegate.cli.demo import run

    raise typer.Exit(run(out))
