"""The commands and their options; what they do is in the files beside this one, imported when needed."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from noisegate._version import __version__
from noisegate.cli import output
from noisegate.errors import InputError, NoisegateError
from noisegate.runs.memory import memory_kept

UNHEARD, USAGE, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="noisegate",
    help="Train classifiers on labels that are partly wrong, and compare the methods that can.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Data sets: which there are, fetching them, corrupting their labels.")
app.add_typer(data_app, name="data")
study_app = typer.Typer(help="Studies: the papers' tables and figures.")
app.add_typer(study_app, name="study")

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A .csv, .tsv, .parquet or .npz file, a folder of images with one sub-folder a class, or a name "
        "(noisegate data list).",
    ),
]
Label = Annotated[str | None, typer.Option(metavar="COL", help="The column of labels, for a table.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="What the data's loader takes, e.g. ignore=COL, use=COL, clean=COL, dates=dmy, size=64; "
        "may be repeated.",
    ),
]
Root = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where named data sets lie; else $NOISEGATE_DATA, or the user's cache."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Audit = Annotated[Path, typer.Argument(metavar="AUDIT", help="An audit folder written by `noisegate audit`.")]
Results = Annotated[
    Path, typer.Option(metavar="DIR", help="The folder of results; several studies may share one.")
]
RESULTS = Path("noisegate-results")


class Scale(StrEnum):
    """The sizes of a study."""

    paper = "paper"
    laptop = "laptop"
    smoke = "smoke"


class EngineName(StrEnum):
    """Where a study's runs are executed."""

    local = "local"
    ray = "ray"


Size = Annotated[
    Scale,
    typer.Option(
        help="paper; laptop: real data, reduced to two hours on two cores; smoke: digits or moons, minutes."
    ),
]
Search = Annotated[
    bool,
    typer.Option(
        "--search", help="Search the paper's grid on the noisy validation rows, for its own choice."
    ),
]


class Detector(StrEnum):
    """How an audit gets probabilities."""

    cross_fitted = "cross-fitted"
    in_training = "in-training"
    neighbours = "neighbours"


class CleanHow(StrEnum):
    """What an audit can do to labels to see what cleaning is worth."""

    drop = "drop"
    relabel = "relabel"
    weight = "weight"


class Listing(StrEnum):
    """What `noisegate list` can list."""

    methods = "methods"
    objectives = "objectives"
    noises = "noises"
    networks = "networks"


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"noisegate {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def root_command(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train classifiers on labels that are partly wrong, and compare the methods that can."""
    ctx.ensure_object(dict)["debug"] = debug
    _help_alone(ctx)


@data_app.callback(invoke_without_command=True)
def data_command(ctx: typer.Context) -> None:
    """Data sets: which there are, fetching them, corrupting their labels."""
    _help_alone(ctx)


@study_app.callback(invoke_without_command=True)
def study_command(ctx: typer.Context) -> None:
    """Studies: the papers' tables and figures."""
    _help_alone(ctx)


def _help_alone(ctx: typer.Context) -> None:
    """Print the help if no command was given."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
        raise typer.Exit()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results and report go.")] = Path(
        "noisegate-demo"
    ),
) -> None:
    """The whole story on the digits that ship with scikit-learn: a table, plots, a report."""
    from noisegate.cli.demo import run

    run(out)


@app.command()
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
        str | None, typer.Option(metavar="PATH", help="Labelled data of the same kind, to measure on.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Train on these labels instead, written by `data corrupt`."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Store checkpoints there; after a kill the same command resumes."),
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


@app.command()
def predict(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model folder written by `noisegate fit`.")
    ],
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A .csv or .parquet file; by default CSV goes to standard output."),
    ] = None,
    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COL", help="A column to carry through, e.g. a key; may be repeated."),
    ] = None,
    device: Device = "auto",
    root: Root = None,
) -> None:
    """Write the label and the probabilities of every row or image of DATA.

    Rows are numbered as in the file: the header of a CSV file is row 1.
    """
    from noisegate.cli.predict import run

    run(model, data, out=out, device=device, root=root, ids=ids or ())


@app.command("audit")
def audit_command(
    ctx: typer.Context,
    data: Annotated[
        str | None,
        typer.Argument(metavar="[DATA]", help="As for `noisegate fit`; left out with --continue."),
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
    folds: Annotated[int, typer.Option(min=2, help="Each row is judged by networks trained on others.")] = 5,
    detector: Annotated[
        Detector, typer.Option(help="in-training: one run, no folds; neighbours: the nearest rows vote.")
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
        CleanHow | None, typer.Option(help="Also train on cleaned labels and say what that changes.")
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
    test: Annotated[
        str | None, typer.Option(metavar="PATH", help="Clean labelled data, to judge cleaning on.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Audit these labels instead, written by `data corrupt`."),
    ] = None,
    engine: Annotated[EngineName, typer.Option(help="Where folds are trained.")] = EngineName.local,
    workers: Annotated[int, typer.Option(min=1, help="Folds at a time.")] = 1,
    address: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of a Ray cluster.")] = None,
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


@app.command()
def review(
    ctx: typer.Context,
    audit: Audit,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 0,
    reviewer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who decides; default: the name of the account.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")
    ] = True,
    root: Root = None,
) -> None:
    """Serve a local page to decide on the suspects of AUDIT with the keyboard."""
    from noisegate.cli.review import run

    ctx.obj["interrupted"] = f"every decision is stored; `noisegate apply {audit}` writes the corrected data"
    run(audit, port=port, reviewer=reviewer, browser=browser, root=root)


@app.command("apply")
def apply_command(
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


@data_app.command("list")
def data_list(root: Root = None) -> None:
    """List the named data sets and where they are."""
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
        bool, typer.Option("--replace", help="Fetch files with a wrong checksum anew.")
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
    rate: Annotated[float | None, typer.Option(help="How many labels are drawn anew, in [0, 1].")] = None,
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


@app.command("list")
def list_command(
    what: Annotated[Listing, typer.Argument(metavar="WHAT", help="methods, objectives, noises or networks.")],
) -> None:
    """List methods, objectives, noises or networks, with parameters and papers."""
    from noisegate.cli.listing import show

    show(what.value)


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
        int | None, typer.Option(min=1, help="Repetitions; the paper's number if left out.")
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
        typer.Option(
            "--dry-run", help="Print how many runs there are and about how long they take, and exit."
        ),
    ] = False,
    engine: Annotated[EngineName, typer.Option(help="local, or ray for a cluster.")] = EngineName.local,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; as many as fit if left out.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster; one is started here if left out.")
    ] = None,
    shared: Annotated[
        bool,
        typer.Option("--shared/--not-shared", help="Ray: whether all machines see the folder of results."),
    ] = True,
    cpus: Annotated[float | None, typer.Option(help="Ray: CPUs of a run; 1 if left out.")] = None,
    gpus: Annotated[float | None, typer.Option(help="Ray: share of a GPU of a run, e.g. 0.25.")] = None,
    device: Device = "auto",
    root: Root = None,
) -> None:
    """Run a study. Finished runs are skipped, interrupted runs resume."""
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
    run_study(
        name,
        choice,
        out,
        engine=build(engine.value, workers=workers, address=address, shared=shared, cpus=cpus, gpus=gpus),
        device=device,
        root=root,
        retry=retry,
        dry_run=dry_run,
    )


@study_app.command("report")
def study_report(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="All that were run into DIR if left out.")
    ] = None,
    out: Results = RESULTS,
    scale: Size = Scale.paper,
    search: Search = False,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where it goes; DIR/reports/NAME if left out.")
    ] = None,
) -> None:
    """Write the report of a study from stored results: Markdown, CSV, HTML, figures. Nothing is trained."""
    from noisegate.cli.study import report

    report(name, out, scale=scale.value, search=search, to=to)


# -- errors ----------------------------------------------------------------------------------------

# typer brings a click of its own or uses an installed one, by version: this is the base of either's errors.
_ClickError = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 2 after an error, 130 after Ctrl-C.

    3 means that a fit has come to nothing: its model is saved, and no better than always saying one class.

    1 means that the command did its work (a model is saved, say) but could not print about it. A reader that went
    away, as in `noisegate list methods | head -1`, is no error.

    An error is one line on standard error that says what to do; with `--debug` the traceback stands above it.
    """
    state: dict[str, Any] = {"debug": False}
    command = typer.main.get_command(app)
    output.prepare()
    try:
        arguments = list(sys.argv[1:] if argv is None else argv)
        with memory_kept():
            code = command.main(args=arguments, prog_name="noisegate", standalone_mode=False, obj=state)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if state["debug"]:
            traceback.print_exc()
        _say(f"error: {message_of(error)}")
        return USAGE
    if code == INTERRUPTED:
        _say("; ".join(["interrupted", *([state["interrupted"]] if "interrupted" in state else [])]))
    code = code if isinstance(code, int) else 0
    lost = output.lost()
    if lost is not None and not isinstance(lost, BrokenPipeError):
        _say(f"done, but standard output could not be written: {lost.strerror or lost}")
        return code or UNHEARD
    return code


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"noisegate: {line}", file=sys.stderr)


def message_of(error: Exception) -> str:
    """One line about an error; what noisegate did not foresee is named as such."""
    if isinstance(error, _ClickError):
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "noisegate"
        text = f"{error.format_message().rstrip('.')}; see `{where} --help`"  # type: ignore[attr-defined]
    elif isinstance(error, NoisegateError):
        text = str(error)
    elif isinstance(error, OSError) and error.strerror:
        text = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        text = "out of memory; try a smaller batch, e.g. --recipe batch_size=32, or a smaller network"
    else:
        text = f"unexpected {type(error).__name__}: {error} (noisegate --debug ... shows where)"
    return " ".join(text.split())
