"""`noisegate data list`, `fetch` and `corrupt`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from noisegate.cli.commands.options import Data, Label, Options, Root, Seed, help_alone

data_app = typer.Typer(help="Data sets: which there are, fetching them, corrupting their labels.")


@data_app.callback(invoke_without_command=True)
def data_command(ctx: typer.Context) -> None:
    """Data sets: which there are, fetching them, corrupting their labels."""
    help_alone(ctx)


@data_app.command("list")
def data_list(root: Root = None) -> None:
    """List the named data sets and where they are stored."""
    from noisegate.cli.data import list_data

    list_data(root)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `noisegate data list`.")],
    root: Root = None,
    mirror: Annotated[
        str | None, typer.Option(metavar="URL", help="Fetch from here instead of the publisher.")
    ] = None,
    optional: Annotated[bool, typer.Option("--optional", help="The optional files too.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Download files with a wrong checksum again.")
    ] = False,
) -> None:
    """Download a data set and check it against its published checksums."""
    from noisegate.cli.data import fetch_data

    fetch_data(name, root, mirror=mirror, optional=optional, replace=replace)


@data_app.command("corrupt")
def data_corrupt(
    data: Data,
    noise: Annotated[str, typer.Option(help="A name from `noisegate list noises`.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The label file to write.")],
    rate: Annotated[float | None, typer.Option(help="Share of labels to redraw, in [0, 1].")] = None,
    mapping: Annotated[
        str | None,
        typer.Option(help="Asymmetric noise: mnist, cifar10, cifar100, or class numbers '{\"0\": 1}'."),
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="Class-dependent noise: normal, reduced, increased, or a rate a class '[0, 0.5]'."),
    ] = None,
    matrix: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Transition noise: row i holds P(given j | clean i)."),
    ] = None,
    std: Annotated[float | None, typer.Option(help="Instance-dependent noise: spread of the rates.")] = None,
    exclude_self: Annotated[
        bool,
        typer.Option("--exclude-self", help="Symmetric noise: draw from the other classes only."),
    ] = False,
    seed: Seed = 0,
    label: Label = None,
    option: Options = None,
    root: Root = None,
) -> None:
    """Corrupt the training labels of DATA and write them to a file with a checksum."""
    from noisegate.cli.data import corrupt_data
    from noisegate.cli.values import key_values, parse

    settings: dict[str, Any] = {
        "rate": rate,
        "mapping": None if mapping is None else parse(mapping),
        "rates": None if level is None else parse(level),
        "matrix": matrix,
        "std": std,
        "include_self": False if exclude_self else None,
    }
    corrupt_data(
        data,
        noise,
        {name: value for name, value in settings.items() if value is not None},
        out=out,
        seed=seed,
        label=label,
        options=key_values(option, "--option"),
        root=root,
    )
