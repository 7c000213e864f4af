"""`noisegate audit`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.commands.options import Device, EngineName, Label, Options, Root, Seed
from noisegate.errors import InputError


class Detector(StrEnum):
    """How an audit gets probabilities."""

    cross_fitted = "cross-fitted"
    in_training = "in-training"
    neighbours = "neighbours"


class CleanHow(StrEnum):
    """How an audit cleans labels to measure what cleaning is worth."""

    drop = "drop"
    relabel = "relabel"
    weight = "weight"


def audit(
    ctx: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="As for `noisegate fit`; omit it with --continue."),
    ] = None,
    label: Label = None,
    out: Annotated[Path, typer.Option(metavar="AUDIT", help="The audit folder to write.")] = Path(
        "noisegate-audit"
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
    folds: Annotated[
        int,
        typer.Option(min=2, help="Number of folds: each row is judged by models trained on the other folds."),
    ] = 5,
    detector: Annotated[
        Detector,
        typer.Option(
            help="cross-fitted: out-of-sample probabilities; in-training: one run, no folds; "
            "neighbours: the nearest rows vote."
        ),
    ] = Detector.cross_fitted,
    probs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own out-of-sample probabilities instead of training: .npy, or .csv or .parquet with "
            "columns p_LABEL.",
        ),
    ] = None,
    clean: Annotated[
        CleanHow | None, typer.Option(help="Also train on cleaned labels and report what that changes.")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    test: Annotated[
        str | None, typer.Option(metavar="PATH", help="Data with clean labels, to evaluate cleaning on.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Audit the labels in this file instead (from `noisegate data corrupt`)."
        ),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="Where to train the folds.")] = EngineName.local,
    workers: Annotated[int, typer.Option(min=1, help="Number of folds to train at a time.")] = 1,
    address: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address of a Ray cluster.")] = None,
    going_on: Annotated[
        Path | None,
        typer.Option(
            "--continue",
            metavar="AUDIT",
            help="Take the decisions in AUDIT as known and rank the rest again.",
        ),
    ] = None,
    option: Options = None,
    root: Root = None,
) -> None:
    """Find out which labels of DATA are wrong, and what kind of noise it is."""
    from noisegate.cli.audit import Audit, go_on, run
    from noisegate.cli.values import key_values

    if going_on is not None:
        if data is not None:
            raise InputError("--continue works on an audit folder: leave DATA out")
        go_on(going_on)
        return
    if data is None:
        raise InputError("expected DATA: a table, an .npz file, a folder of images, or a name")
    ctx.obj["interrupted"] = "the same command goes on where it stopped"
    run(
        Audit(
            data=data,
            out=out,
            label=label,
            method=method,
            params=key_values(param, "--param"),
            network=network,
            recipe=key_values(recipe, "--recipe"),
            folds=folds,
            clean=None if clean is None else clean.value,
            detector=detector.value,
            probs=probs,
            seed=seed,
            device=device,
            test=test,
            labels=labels,
            engine=engine.value,
            workers=workers,
            address=address,
            options=key_values(option, "--option"),
            root=root,
        )
    )
