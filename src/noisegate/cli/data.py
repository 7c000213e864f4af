"""`noisegate data`: listing, fetching and corrupting."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate.cli import output
from noisegate.cli.fit import read_data
from noisegate.data import download
from noisegate.errors import InputError
from noisegate.noise import NOISES, Noise, NoiseReport, build, describe, save_labels

if TYPE_CHECKING:
    from noisegate.data.dataset import Dataset

_FLAGS = {
    "rate": "--rate",
    "mapping": "--mapping",
    "rates": "--level",
    "matrix": "--matrix",
    "std": "--std",
    "include_self": "--exclude-self",
}


def list_data(root: Path | None) -> None:
    """Print every named data set, and where it is stored or how to get it."""
    found = download.status(root)
    rows = [(s.name, "yes" if s.available else "no", s.description, s.advice) for s in found]
    output.table(rows, ["name", "here", "what it is", "where"])


def fetch_data(name: str, root: Path | None, *, mirror: str | None, optional: bool, replace: bool) -> None:
    """Download a data set."""
    with _progress() as show:
        folder = download.fetch(
            name, root, base_url=mirror, optional=optional, replace=replace, progress=show
        )
    output.say(f"{name} is in {folder}")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """One progress bar per file on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, Any] = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total or None)
            bar.update(tasks[file], completed=done)

        yield show


# -- corrupting ------------------------------------------------------------------------------------


def corrupt_data(
    data: str,
    noise: str,
    settings: dict[str, Any],
    *,
    out: Path,
    seed: int,
    label: str | None,
    options: dict[str, Any],
    root: Path | None,
) -> None:
    """Corrupt the training labels of `data`, write them to `out`, and print what happened."""
    made = make_noise(noise, settings)
    loaded = read_data(data, label, options, root=root)
    if loaded.train.maps:
        raise InputError(
            f"{data} has a mask for every image, and a label file one label for every row; in Python: "
            "data.corrupt(noisegate.noise.MapSegments(0.2), seed=0), and MapBoundaries, MapPatches"
        )
    # The file describes the training rows only.
    noisy = dataclasses.replace(loaded, validation=None).corrupt(made, seed)
    observed, before = noisy.train.y, loaded.train.y
    sha256 = save_labels(out, observed, clean=before, noise=made, seed=seed, classes=loaded.classes)
    show_noise(loaded, describe(before, observed, loaded.n_classes), made, seed)
    output.facts([("sha256", sha256), ("labels", out), ("next", f"noisegate fit {data} --labels {out} ...")])


def make_noise(name: str, settings: dict[str, Any]) -> Noise:
    """Make the noise called `name` from the options; missing and unused options raise InputError."""
    if name == "human":
        raise InputError(
            "human labels are read, not drawn: load the data set that brings them, e.g. cifar10n"
        )
    fields = {field.name: field for field in dataclasses.fields(NOISES[name])}  # type: ignore[arg-type]
    flags = [_FLAGS[field] for field in fields if field in _FLAGS]
    for given in settings:
        if given not in fields:
            raise InputError(f"{name} noise does not take {_FLAGS[given]}; it takes {', '.join(flags)}")
    needed = [f for f, field in fields.items() if field.default is dataclasses.MISSING and f not in settings]
    if needed:
        raise InputError(f"{name} noise needs {' and '.join(_FLAGS[field] for field in needed)}")
    if isinstance(settings.get("matrix"), Path):
        settings = {**settings, "matrix": read_matrix(settings["matrix"])}
    return build(name, **settings)


def read_matrix(path: Path) -> Any:
    """A matrix of a CSV file without a header."""
    if not path.is_file():
        raise InputError(f"--matrix: there is no file {path}")
    try:
        return np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8")
    except ValueError as error:
        raise InputError(
            f"--matrix: {path} is not a table of numbers with commas between them ({error})"
        ) from None


def show_noise(data: Dataset, report: NoiseReport, noise: Noise, seed: int) -> None:
    """Print the realised rate and, for up to ten classes, the realised transition matrix."""
    wrong = round(report.rate * report.n)
    output.facts(
        [
            ("data", f"{data.name}: {report.n:,} training labels, {data.n_classes} classes"),
            ("noise", f"{noise if data.n_classes <= 10 else noise.kind}, seed {seed}"),
            ("wrong", f"{wrong:,} of {report.n:,} labels ({report.rate:.2%})"),
        ]
    )
    if data.n_classes <= 10:
        rows = [
            (name, *(f"{share:.3f}" for share in row))
            for name, row in zip(data.classes, report.transition, strict=True)
        ]
        header = ["clean \\ given", *data.classes]
        output.table(rows, header, title="realised transition", numbers=range(1, len(header)))
