"""`noisegate study list`, `run` and `report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from noisegate.cli.commands.options import Device, EngineName, Root, help_alone

study_app = typer.Typer(help="Studies: the papers' tables and figures.")


class Scale(StrEnum):
    """The sizes of a study."""

    paper = "paper"
    laptop = "laptop"
    smoke = "smoke"


RESULTS = Path("noisegate-results")
Results = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder of results; several studies may share one.")
]
Size = Annotated[
    Scale,
    typer.Option(
        help="paper; laptop: real data, reduced to two hours on two cores; smoke: digits or moons, minutes."
    ),
]
Search = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Search the paper's grid on the noisy validation rows, instead of using the paper's choice.",
    ),
]


@study_app.callback(invoke_without_command=True)
def study_command(ctx: typer.Context) -> None:
    """Studies: the papers' tables and figures."""
    help_alone(ctx)


@study_app.command("list")
def study_list() -> None:
    """List the studies, with their size and the data they need."""
    from noisegate.cli.study import list_studies

    list_studies()


@study_app.command("run")
def study_run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `noisegate study list`.")],
    out: Results = RESULTS,
    scale: Size = Scale.paper,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of repetitions; default: the paper's.")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option(help="Only these rows, e.g. ce,ln; may be repeated.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option(help="Only these columns, e.g. symmetric-40; may be repeated.")
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting of all runs, e.g. recipe.epochs=20."
        ),
    ] = None,
    search: Search = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try diverged and crashed runs again.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the number of runs and about how long they take, and exit."),
    ] = False,
    engine: Annotated[EngineName, typer.Option(help="local, or ray for a cluster.")] = EngineName.local,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of runs at a time; default: as many as fit.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; default: start one here.")
    ] = None,
    shared: Annotated[
        bool,
        typer.Option("--shared/--not-shared", help="Ray: all machines can see the folder of results."),
    ] = True,
    cpus: Annotated[float | None, typer.Option(help="Ray: number of CPUs per run; default: 1.")] = None,
    gpus: Annotated[float | None, typer.Option(help="Ray: share of a GPU per run, e.g. 0.25.")] = None,
    device: Device = "auto",
    root: Root = None,
) -> None:
    """Run a study. Finished runs are skipped, interrupted runs resume.

    The exit code is 4 if a run crashed; a run that diverged is a result like others.
    """
    from noisegate.cli.study import names, run_study
    from noisegate.cli.values import key_values
    from noisegate.studies.choice import Choice
    from noisegate.studies.engines import build

    ctx.obj["interrupted"] = "the same command goes on where it stopped"
    choice = Choice(
        scale=scale.value,
        seeds=seeds,
        rows=names(rows),
        columns=names(columns),
        changes=key_values(change, "--set"),
        search=search,
    )
    code = run_study(
        name,
        choice,
        out,
        engine=build(engine.value, workers=workers, address=address, shared=shared, cpus=cpus, gpus=gpus),
        device=device,
        root=root,
        retry=retry,
        dry_run=dry_run,
    )
    raise typer.Exit(code)


@study_app.command("report")
def study_report(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Default: all studies with results in DIR.")
    ] = None,
    out: Results = RESULTS,
    scale: Size = Scale.paper,
    search: Search = False,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the report; default: DIR/reports/NAME.")
    ] = None,
) -> None:
    """Write the report of a study from stored results: Markdown, CSV, HTML, figures. Nothing is trained."""
    from noisegate.cli.study import report

    report(name, out, scale=scale.value, search=search, to=to)
