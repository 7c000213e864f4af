"""Data that come in several files: test rows, and labels for the training rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisegate.data import tables
from noisegate.data.arrays import Classes
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import InputError
from noisegate.noise import load_labels


def with_test_file(
    data: Dataset,
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    root: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Dataset:
    """Return a copy of `data` with test rows from a second file or folder of the same kind.

    The rows are converted as the training data were, with the same class numbers.

    Parameters
    ----------
    data : Dataset
        Read from a file or folder.
    path : path
    label : str, default=None
        The column of labels, for a table.
    root : path, default=None
        The data root, as in `load`.
    **options
        Options of the loader, as in `load`.

    Examples
    --------
    >>> import tempfile
    >>> import noisegate as ng
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, body in (("old", "1,a\\n2,b\\n3,b\\n"), ("new", "4,b\\n")):
    ...         _ = Path(folder, f"{name}.csv").write_text("size,kind\\n" + body)
    ...     data = ng.data.load(f"{folder}/old.csv", label="kind")
    ...     len(with_test_file(data, f"{folder}/new.csv", label="kind").test)
    1
    """
    if data.reader is None:
        raise InputError(f"test rows of a file are for data read from files; {data.name} was not")
    description = data.reader.to_dict()
    if description["kind"] == "table":
        # Encode with the reader of the training table; do not fit a new one to the test table.
        rows = tables.test_split(path, label, data.reader, Classes(np.asarray(data.label_values)))  # type: ignore[arg-type]
    else:
        # Images are scaled to the size that training images had.
        options |= {name: description[name] for name in ("size", "channels") if name in description}
        rows = _renumbered(data, path, label=label, root=root, **options)
    return dataclasses.replace(data, test=rows)


def _renumbered(data: Dataset, path: str | os.PathLike[str], *, label: str | None, **options: Any) -> Split:
    """The training rows of another dataset, with the classes of this one."""
    from noisegate.data import load

    if label is not None:
        options["label"] = label
    other = load(os.fspath(path), **options)
    numbers = {str(value): number for number, value in enumerate(data.label_values)}
    unknown = [value for value in map(str, other.label_values) if value not in numbers]
    if unknown:
        raise InputError(
            f"{path} has the label {unknown[0]!r}, which is not among the training labels: {listed(list(numbers))}"
        )
    codes = np.array([numbers[str(value)] for value in other.label_values], dtype=np.int64)
    rows = Split(other.train.x, codes[other.train.y])
    if rows.input_shape != data.input_shape:
        raise InputError(f"{path} has rows of shape {rows.input_shape}, {data.name} {data.input_shape}")
    return rows


def with_label_file(data: Dataset, path: str | os.PathLike[str]) -> Dataset:
    """Return a copy of `data` with the observed training labels of a file; the present ones become clean labels.

    Parameters
    ----------
    data : Dataset
    path : path
        A file written by `noisegate.noise.save_labels` or `noisegate data corrupt`. A file for other
        labels or classes raises InputError.

    Examples
    --------
    >>> import tempfile
    >>> import noisegate as ng
    >>> data = ng.data.load("moons", n=100)
    >>> noisy = data.corrupt(ng.noise.Symmetric(0.3), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ng.noise.save_labels(f"{folder}/labels.txt", noisy.train.y, clean=data.train.y)
    ...     again = with_label_file(data, f"{folder}/labels.txt")
    >>> bool((again.train.y == noisy.train.y).all())
    True
    """
    file = load_labels(Path(path), expect_length=len(data.train))
    if file.classes and file.classes != data.classes:
        raise InputError(
            f"{path} is for the classes {listed(file.classes)}, the data has {listed(data.classes)}"
        )
    if file.clean is not None and not np.array_equal(file.clean, data.train.y):
        raise InputError(f"{path} was made from other labels than these: the data changed, or its order did")
    return data.with_labels(file.observed, noise=file.noise, noise_seed=file.seed)


def listed(names: Sequence[str], most: int = 10) -> str:
    """List the first names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
