"""A table with a column of labels as a Dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noisegate.data.arrays import Classes, label_array
from noisegate.data.dataset import Dataset, Labels, Split
from noisegate.data.tables.encoding import TableReader
from noisegate.data.tables.frames import Frame, as_array, as_frame, as_text, is_text, listed
from noisegate.data.tables.reading import read_frame
from noisegate.errors import InputError

#: Numbers as they are written when they are names of classes (1, -1, 2.0, but not 01), and measured values.
_WHOLE = r"^-?(0|[1-9]\d{0,17})(\.0+)?$"
_MEASURED = r"^-?(0|[1-9]\d*)?(\.\d*)?([eE][-+]?\d+)?$"


def from_frame(
    frame: Any,
    *,
    label: str | None = None,
    clean: str | None = None,
    test: Any = None,
    ignore: Iterable[str] | str = (),
    use: Iterable[str] | str = (),
    dates: str | None = None,
    decimal: str | None = None,
    name: str = "table",
) -> Dataset:
    """A dataset of a pandas, Polars or Arrow table; the options are those of `load_table`.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "colour": ["red", "blue", "red"], "kind": ["a", "b", "a"]})
    >>> data = from_frame(frame, label="kind")
    >>> data.classes, data.input_shape
    (('a', 'b'), (4,))
    """
    frame = as_frame(frame, name)
    left, kept = names_of(ignore, frame), names_of(use, frame)
    values, codes = label_codes(frame, label)
    coding = Classes.of(values, f"{frame.what}, column {label!r}", len(frame))
    others = [label, clean]
    for column in (*left, *kept):
        if column in kept and (column in left or column in others):
            raise InputError(f"column {column!r} cannot be used: it is ignored, or holds labels")
    reader = TableReader.fit(
        frame,
        label=label,
        ignore=dict.fromkeys(left, "ignored, as asked")
        | ({} if clean is None else {clean: "holds the true labels"}),
        use=kept,
        dates=dates,
        decimal=decimal,
    )
    true = None if clean is None else _numbered(frame, clean, coding)
    return Dataset(
        name,
        Split(reader.read(frame), coding.number(values, frame.what)[codes], true),
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


def names_of(columns: Iterable[str] | str, frame: Frame) -> list[str]:
    """Names of columns; a text is several with commas between, unless a column is called so."""
    if isinstance(columns, str):
        columns = [columns] if columns in frame.names else [part.strip() for part in columns.split(",")]
    names = list(map(str, columns))
    for column in names:
        frame.column(column)  # refused where it is not there
    return names


def label_codes(frame: Frame, label: str | None) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """The distinct labels, checked (none missing; text, whole numbers or booleans), and which one each row has."""
    if label is None:
        raise InputError(
            f"{frame.what}: say which column holds the labels, label=...; there are {listed(frame.names)}"
        )
    column = frame.column(label)
    if column.null_count:
        first = frame.row(int(np.argmax(pc.is_null(column))))
        raise InputError(
            f"{frame.what}: {column.null_count} of {len(frame)} labels in {label!r} are missing, the first in row "
            f"{first} (empty, or NA, None, null and the like in a file of text); drop these rows, or label them "
            "first"
        )
    encoded = column.combine_chunks()
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    # Of categories there may be some that no row has.
    used = pc.unique(encoded.indices)
    used = used.take(pc.sort_indices(used))
    codes, distinct = as_array(pc.index_in(encoded.indices, used)), encoded.dictionary.take(used)
    written = _as_written(distinct) if frame.written and is_text(distinct.type) else distinct
    # A time or the like is a label by its text.
    plain = pa.types.is_integer(written.type) or pa.types.is_floating(written.type)
    if not (plain or pa.types.is_boolean(written.type)):
        written = as_text(written)
    return label_array(written.to_pylist(), f"{frame.what}, column {label!r}"), codes.astype(np.int64)


def read_labels(path: str | os.PathLike[str], label: str) -> npt.NDArray[Any]:
    """The labels of a table file, (N,), checked as `load_table` does."""
    values, codes = label_codes(read_frame(path, texts=[label]), label)
    return values[codes]


def _as_written(texts: Any) -> Any:
    """Texts of a file as whole numbers or booleans, if every one is written as those are: 1, but not 01."""
    if pc.all(pc.match_substring_regex(texts, r"^(true|false|True|False|TRUE|FALSE)$")).as_py():
        return pc.equal(pc.utf8_lower(texts), "true")
    if pc.all(pc.match_substring_regex(texts, _WHOLE)).as_py():
        return pc.replace_substring_regex(texts, r"\.0+$", "").cast(pa.int64())
    measured = pc.and_(pc.match_substring_regex(texts, _MEASURED), pc.match_substring_regex(texts, r"\d"))
    if pc.all(measured).as_py() and pc.any(pc.match_substring(texts, ".")).as_py():
        return texts.cast(pa.float64())  # measured values, which are refused as labels
    return texts


def _numbered(frame: Frame, column: str | None, coding: Classes) -> Labels:
    values, codes = label_codes(frame, column)
    return coding.number(values, f"{frame.what}, column {column!r}")[codes]


def test_split(test: Any, label: str | None, reader: TableReader, coding: Classes) -> Split:
    """The rows of a second table, read as the first one taught, with its classes; one class alone is fine."""
    what = "the test table" if not isinstance(test, str | os.PathLike) else str(test)
    names = [] if label is None else [label]
    if isinstance(test, str | os.PathLike):
        x, _, frame = reader.read_noting(test, names)
    else:
        frame = as_frame(test, what)
        x = np.asarray(reader.read(frame))
    return Split(x, _numbered(frame, label, coding))


def load_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    clean: str | None = None,
    test: Any = None,
    ignore: Iterable[str] | str = (),
    use: Iterable[str] | str = (),
    dates: str | None = None,
    decimal: str | None = None,
) -> Dataset:
    """A CSV, TSV or Parquet table with one column of labels.

    Parameters
    ----------
    label : str
        The column of observed labels: text, whole numbers or booleans.
    clean : str, optional
        A column of clean labels, where they are known; never an input.
    test : path or table, optional
        A second table with the same columns.
    ignore : sequence of str
        Columns that are no inputs.
    use : sequence of str
        Columns that are inputs although they seem to name the rows: ids, hashes, running numbers.
    dates : {"ymd", "dmy", "mdy"}, optional
        The order of day, month and year in dates that can be read in two ways, such as 03/04/2026.
    decimal : {"point", "comma"}, optional
        The decimal mark of numbers that can be read in two ways, such as 1,234.
    """
    frame = read_frame(path, texts=[name for name in (label, clean) if name is not None])
    data = from_frame(
        frame, label=label, clean=clean, test=test, ignore=ignore, use=use, dates=dates, decimal=decimal
    )
    return Dataset(
        Path(path).name.split(".")[0],
        data.train,
        data.test,
        classes=data.classes,
        reader=data.reader,
        info=data.info,
    )
