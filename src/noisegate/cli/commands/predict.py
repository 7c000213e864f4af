"""`noisegate predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.commands.options import Data, Device, Root


def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model folder written by `noisegate fit`.")
    ],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A .csv or .parquet file; by default CSV goes to standard output. For a model of masks a folder.",
        ),
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COL", help="A column to carry through, e.g. a key; may be repeated."),
    ] = None,
    device: Device = "auto",
    root: Root = None,
) -> None:
    """Write the label and the probabilities of every row or image of DATA.

    Rows are numbered as in the file: the header of a CSV file is row 1. A model trained on masks
    writes a folder: masks, their entropy, the variance of each class, and pictures of all that.
    """
    from noisegate.cli.predict import run

    run(model, data, out=out, device=device, root=root, ids=ids or ())
