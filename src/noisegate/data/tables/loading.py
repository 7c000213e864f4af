"""A table with a column of labels as a Dataset."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from noisegate.data.arrays import Classes, label_array
from noisegate.data.dataset import Dataset, Labels, Split
from noisegate.data.tables.encoding import TableReader
from noisegate.data.tables.reading import SEPARATORS, checked_frame, listed, read_table
from noisegate.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def _check_column(frame: pd.DataFrame, column: str, what: str) -> None:
    names = list(frame.columns)
    if column not in names:
        near = difflib.get_close_matches(column, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        if len(names) == 1 and any(mark in names[0] for mark in ";\t,|"):
            hint = f"{SEPARATORS}; "
        raise InputError(f"{what} has no column {column!r}; {hint}there are {listed(names)}")


def label_column(frame: pd.DataFrame, label: str | None, what: str) -> npt.NDArray[Any]:
    """The labels of a table, checked: there, none missing, text or whole numbers or booleans."""
    names = list(frame.columns)
    if label is None:
        raise InputError(f"{what}: say which column holds the labels, label=...; there are {listed(names)}")
    _check_column(frame, label, what)
    series = frame[label]
    gaps = int(series.isna().sum())
    if gaps:
        raise InputError(
            f"{what}: {gaps} of {len(series)} labels in {label!r} are missing (empty, or NA, None, null and the "
            "like in a file of text); drop these rows, or label them first"
        )
    return label_array(series.to_numpy(), f"{what}, column {label!r}")


def from_frame(
    frame: pd.DataFrame,
    *,
    label: str | None = None,
    clean: str | None = None,
    test: Any = None,
    ignore: Iterable[str] = (),
    name: str = "table",
) -> Dataset:
    """A dataset of a DataFrame; the options are those of `load_table`."""
    frame = checked_frame(frame, name)
    given = label_column(frame, label, name)
    coding = Classes.of(given, f"{name}, column {label!r}")
    # A text is several names with commas between, unless a column is called so.
    if isinstance(ignore, str):
        ignore = [ignore] if ignore in frame.columns else [part.strip() for part in ignore.split(",")]
    ignore = list(ignore)
    for column in ignore:
        _check_column(frame, column, name)
    reader = TableReader.fit(frame, label=label, ignore=[*ignore, *([clean] if clean is not None else [])])
    true = (
        None
        if clean is None
        else coding.number(label_column(frame, clean, name), f"{name}, column {clean!r}")
    )
    return Dataset(
        name,
        Split(reader.read(frame), coding.number(given, name), true),
        None if test is None else test_split(test, label, reader, coding),
        classes=coding.names,
        reader=reader,
        info={
            "label": label,
            "label_values": coding.values.tolist(),
            "features": reader.features,
            "dropped": dict(reader.dropped),
        },
    )


def test_split(test: Any, label: str | None, reader: TableReader, coding: Classes) -> Split:
    """The rows of a second table, read as the first one taught, with its classes; one class alone is fine."""
    what = str(test) if isinstance(test, str | os.PathLike) else "the test table"
    frame = reader._frame(test)
    y: Labels = coding.number(label_column(frame, label, what), what)
    return Split(reader.read(frame), y)


def load_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    clean: str | None = None,
    test: Any = None,
    ignore: Iterable[str] = (),
) -> Dataset:
    """A CSV, TSV or Parquet table with one column of labels.

    Parameters
    ----------
    label : str
        The column of observed labels: text, whole numbers or booleans.
    clean : str, optional
        A column of clean labels, where they are known; never an input.
    test : path or DataFrame, optional
        A second table with the same columns.
    ignore : sequence of str
        Columns that are no inputs.
    """
    return from_frame(
        read_table(path, labels=[label, clean]),
        label=label,
        clean=clean,
        test=test,
        ignore=ignore,
        name=Path(path).name.split(".")[0],
    )
