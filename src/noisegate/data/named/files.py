"""Files of your own under the name "file", so that a study can use them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.data.arrays import from_arrays, read_npz
from noisegate.data.dataset import Dataset
from noisegate.data.registry import register
from noisegate.data.tables import load_table
from noisegate.errors import InputError, MissingDataError


@register("file", "a table or .npz arrays of your own below the data root, for studies")
def file(
    *,
    root: Path,
    table: str | None = None,
    label: str | None = None,
    ignore: Sequence[str] = (),
    x: str | None = None,
    y: str | None = None,
    clean: str | None = None,
) -> Dataset:
    """Training rows from files below the data root.

    Parameters
    ----------
    root : path
    table : str, default=None
        A .csv, .tsv or .parquet file, with the given labels in the column `label`; the columns of
        `ignore` are left out.
    x, y : str, default=None
        In place of a table: inputs and given labels as "FILE.npz:ARRAY".
    clean : str, default=None
        True labels, to measure with: a column of the table, or "FILE.npz:ARRAY".
    """
    if table is not None and label is not None and x is None and y is None:
        return load_table(_existing(root / table), label=label, clean=clean, ignore=ignore)
    if table is not None or x is None or y is None:
        raise InputError(
            'the data set "file" takes either table= and label=, or x= and y= ("FILE.npz:ARRAY")'
        )
    inputs = _array(root, x)
    # Half precision is how features are kept; networks take single.
    inputs = inputs.astype(np.float32) if inputs.dtype == np.float16 else inputs
    truth = None if clean is None else _array(root, clean)
    return from_arrays(inputs, _array(root, y), clean=truth, name=Path(x.rpartition(":")[0]).stem)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}; put it there, or name another data root")
    return path


def _array(root: Path, place: str) -> npt.NDArray[Any]:
    """The array of "FILE.npz:ARRAY"."""
    path, _, name = place.rpartition(":")
    if not path:
        raise InputError(f'expected "FILE.npz:ARRAY", got {place!r}')
    arrays = read_npz(_existing(root / path))
    if name not in arrays:
        raise InputError(f"{root / path} has no array {name!r}; it has {', '.join(sorted(arrays))}")
    return arrays[name]
