"""The command line: its commands, in the order of the help, and its exit codes."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.main

from noisegate._version import __version__
from noisegate.cli import output
from noisegate.cli.commands.apply import apply
from noisegate.cli.commands.audit import audit
from noisegate.cli.commands.data import data_app
from noisegate.cli.commands.demo import demo
from noisegate.cli.commands.fit import fit
from noisegate.cli.commands.listing import list_names
from noisegate.cli.commands.options import help_alone
from noisegate.cli.commands.predict import predict
from noisegate.cli.commands.review import review
from noisegate.cli.commands.study import study_app
from noisegate.errors import NoisegateError
from noisegate.runs.memory import memory_kept

UNHEARD, USAGE, INTERRUPTED = 1, 2, 130
#: Commands whose results are files, whatever becomes of what they print.
FILES = ("fit", "audit", "apply")

app = typer.Typer(
    name="noisegate",
    help="Train classifiers on labels that are partly wrong, and compare the methods that can.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(study_app, name="study")
for _command in (demo, fit, predict, audit, review, apply):
    app.command(_command.__name__)(_command)
app.command("list")(list_names)


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
    help_alone(ctx)


# -- errors ----------------------------------------------------------------------------------------

# typer brings a click of its own or uses an installed one, by version: this is the base of either's errors.
_ClickError = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0, 2 after an error, 130 after Ctrl-C.

    3 means that a fit failed to learn: its model is saved, but is no better than always predicting one class.
    4 means that a run of a study crashed: the results of the others are stored.

    1 means that results could not be printed that are nowhere else. Where they are in files (a saved model, an
    audit, `--out`) a full disk behind standard output gets a warning, and a closed pipe, as in
    `noisegate list methods | head -1`, not even that.

    An error is one line on standard error that says what to do; `--debug` prints the traceback above it.
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
        kept = not {*FILES, "--out"}.isdisjoint(arguments)
        return code if kept else code or UNHEARD
    return code


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        print(f"noisegate: {line}", file=sys.stderr)


def message_of(error: Exception) -> str:
    """Describe an error in one line; an exception that noisegate did not raise on purpose is called unexpected."""
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
