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
        typer.Option(metavar="DATA", help="The corrected data, in the format of the original; a new place."),
    ] = None,
    moves: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="For folders of images: which file goes where, instead of a copy."
        ),
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The decisions, as .csv or .parquet.")
    ] = None,
    label_studio: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Flagged and decided rows as Label Studio tasks.")
    ] = None,
    take: Annotated[
        Path | None,
        typer.Option(
            "--import", metavar="FILE", help="First take decisions from such a file (.csv, .parquet, .json)."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Imported decisions replace those about the same rows.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Go on although the data have changed since the audit.")
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
