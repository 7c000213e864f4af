"""`noisegate apply`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.commands.options import Audit, Root


def apply(
    audit: Audit,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA", help="Where to write the corrected data, in the format of the original."
        ),
    ] = None,
    moves: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="For folders of images: write a list of moves instead of a copy."
        ),
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the decisions, as .csv or .parquet.")
    ] = None,
    label_studio: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the flagged and decided rows as Label Studio tasks."),
    ] = None,
    take: Annotated[
        Path | None,
        typer.Option(
            "--import", metavar="FILE", help="First read decisions from a file (.csv, .parquet, .json)."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Imported decisions replace those about the same rows.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Continue even if the data have changed since the audit.")
    ] = False,
    root: Root = None,
) -> None:
    """Write the data of AUDIT with the labels that were decided; the original is never touched."""
    from noisegate.cli.apply import run

    run(
        audit,
        out=out,
        moves=moves,
        decisions=decisions,
        label_studio=label_studio,
        take=take,
        overwrite=overwrite,
        force=force,
        root=root,
    )
