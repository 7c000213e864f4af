"""Progress on standard error: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from noisegate.training.trainer import Epoch

#: Seconds between two lines if standard error is not a terminal.
EVERY_SECONDS = 10.0
_SHOWN = {
    "loss": "loss",
    "validation_accuracy": "noisy val",
    "test_accuracy": "clean test",
    "train_memorised": "memorised",
}


@contextlib.contextmanager
def progress_bar(label: str, enabled: bool | None = None) -> Iterator[Callable[[Epoch], None]]:
    """Yield a function that shows the progress of a run; call it with every `Epoch`.

    Parameters
    ----------
    label : str
        Name of the run.
    enabled : bool, default=None
        True: a progress bar. False: nothing. None: a bar if standard error is a terminal, else a
        line every ten seconds, so that a log tells a long run from one that hangs.
    """
    if enabled is None and not sys.stderr.isatty():
        yield _lines(label)
        return
    if enabled is False:
        yield lambda epoch: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[seen]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[int, object] = {}

        def show(epoch: Epoch) -> None:
            if epoch.phase not in tasks:
                name = label if epoch.phase_name == "training" else f"{label}: {epoch.phase_name}"
                tasks[epoch.phase] = bar.add_task(name, total=epoch.n_epochs, seen="")
            bar.update(tasks[epoch.phase], completed=epoch.epoch, seen=_describe(epoch.metrics))  # type: ignore[arg-type]

        yield show


def _lines(label: str) -> Callable[[Epoch], None]:
    last = time.monotonic()

    def show(epoch: Epoch) -> None:
        nonlocal last
        if time.monotonic() - last < EVERY_SECONDS:
            return
        last = time.monotonic()
        numbers = _describe(epoch.metrics)
        print(
            f"{label}: {epoch.phase_name}, epoch {epoch.epoch} of {epoch.n_epochs}  {numbers}",
            file=sys.stderr,
        )

    return show


def _describe(metrics: dict[str, float]) -> str:
    shown = (f"{name} {metrics[key]:.3f}" for key, name in _SHOWN.items() if key in metrics)
    return "  ".join(shown)
