"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .tsv, .parquet or .npz file, a folder of images with one sub-folder a class, a folder "
        "that holds images/ and masks/, or a name (noisegate data list).",
    ),
]
Label = Annotated[str | None, typer.Option(metavar="COL", help="The column of labels, for a table.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="What the data's loader takes, e.g. ignore=COL, use=COL, clean=COL, dates=dmy, decimal=comma, "
        "size=64, and of masks void=11, classes=sky,road,...; may be repeated.",
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of the named data sets; default: $NOISEGATE_DATA, else the user's cache."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Audit = Annotated[Path, typer.Argument(metavar="AUDIT", help="An audit folder written by `noisegate audit`.")]


class EngineName(StrEnum):
    """Where a study's runs are executed."""

    local = "local"
    ray = "ray"


def help_alone(ctx: typer.Context) -> None:
    """Print the help if no command was given."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit()
