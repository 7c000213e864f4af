"""`noisegate fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.commands.options import Data, Device, Label, Options, Root, Seed


def fit(
    ctx: typer.Context,
    data: Data,
    label: Label = None,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="The model folder to write.")] = Path(
        "noisegate-model"
    ),
    method: Annotated[str, typer.Option(help="A name from `noisegate list methods`.")] = "auto",
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A parameter of the method; may be repeated."),
    ] = None,
    network: Annotated[str, typer.Option(help="A name from `noisegate list networks`.")] = "auto",
    recipe: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A field of the recipe, e.g. epochs=20; may be repeated."),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    test: Annotated[
        str | None, typer.Option(metavar="PATH", help="Labelled data of the same kind, to evaluate on.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Train on the labels in this file instead (from `noisegate data corrupt`)."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for checkpoints: if the command is killed, running it again resumes."
        ),
    ] = None,
    devices: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="GPUs to spread the run over, or CPU processes without GPUs; batch_size is that of all together.",
        ),
    ] = 1,
    option: Options = None,
    root: Root = None,
) -> None:
    """Train a classifier on DATA and write it to a model folder."""
    from noisegate.cli.fit import Fit, run
    from noisegate.cli.values import key_values

    ctx.obj["interrupted"] = (
        "the same command goes on from its last checkpoint, at most half a minute back"
        if checkpoint
        else "with --checkpoint DIR the same command could go on"
    )
    code = run(
        Fit(
            data=data,
            label=label,
            out=out,
            method=method,
            params=key_values(param, "--param"),
            network=network,
            recipe=key_values(recipe, "--recipe"),
            seed=seed,
            device=device,
            test=test,
            labels=labels,
            checkpoint=checkpoint,
            options=key_values(option, "--option"),
            root=root,
            devices=devices,
        )
    )
    raise typer.Exit(code)
