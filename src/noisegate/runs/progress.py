"""A progress bar where a person is watching, silence where nobody is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from noisegate.training.trainer import Epoch

_SHOWN = {
    "loss": "loss",
    "validation_accuracy": "noisy val",
    "test_accuracy": "clean test",
    "train_memorised": "memorised",
}


@contextlib.contextmanager
def progress_bar(label: str, enabled: bool | None = None) -> Iterator[Callable[[Epoch], None]]:
    """Yield a function to call with every epoch; it draws a bar on standard error if that is a terminal."""
    if not (sys.stderr.isatty() if enabled is None else enabled):
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


def _describe(metrics: dict[str, float]) -> str:
    shown = (f"{name} {metrics[key]:.3f}" for key, name in _SHOWN.items() if key in metrics)
    return "  ".join(shown)
