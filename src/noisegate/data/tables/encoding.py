"""A table as numbers, in the way the training table taught; what was learnt is plain data and a few arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.forms import mismatch
from noisegate.data.dataset import Inputs
from noisegate.data.tables.columns import Arrays, CategoryColumn, Column, Met, NumberColumn, TimeColumn
from noisegate.data.tables.dates import ORDERS
from noisegate.data.tables.frames import Frame, as_frame, listed, no_column
from noisegate.data.tables.learning import MAX_CATEGORIES, learn
from noisegate.data.tables.numerals import DECIMALS
from noisegate.data.tables.reading import column_names, read_frame
from noisegate.data.tables.text import CHARACTER_BUCKETS, WORD_BUCKETS, TextColumn
from noisegate.errors import InputError, UnknownNameError

KINDS: dict[str, type[Column]] = {
    kind.kind: kind for kind in (NumberColumn, TimeColumn, CategoryColumn, TextColumn)
}


#: A Python number, since comparing a whole number of a thousand digits with one of numpy raises OverflowError.
_LARGEST = float(np.finfo(np.float32).max)
#: What `TableReader.to_dict` writes, see `noisegate._io.forms`. Which fields a column has depends on its kind, and
#: older models lack some.
FORM: Mapping[str, Any] = {
    "columns": [
        {
            "kind": str,
            "name": str,
            "missing?": bool,
            "fill?": int | float,
            "origin?": int | float,
            "boolean?": bool,
            "decimal?": str,
            "sign?": str,
            "order?": str,
            "categories?": [str],
            "others?": int,
            "text?": bool,
            "size?": int,
        }
    ],
    "dropped": {...: str},
    "label?": str,
    "order?": [str],
}


@dataclass(frozen=True)
class TableReader:
    """Turns a table into numbers as the training table taught it.

    Numbers and booleans stay as they are, the median where missing; times become seconds since the earliest one in
    training; categories become one input of zeros and ones each, all zero for one that training did not have; texts
    become a few hundred numbers. Where training had gaps a further input marks them. Nothing is scaled: the model
    does that. A column that names the rows (ids, hashes, running numbers: all values differ) is left out.

    Attributes
    ----------
    columns : tuple of Column
    dropped : mapping
        Why each column that was left out was left out.
    label : str or None
        The column of labels, which is no input.
    order : tuple of str
        All columns that could be inputs, in the order of the training table.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "colour": ["red", "blue", "red"], "y": [0, 1, 0]})
    >>> reader = TableReader.fit(frame, label="y")
    >>> reader.features
    ['size', 'size is missing', 'colour=red', 'colour=blue']
    >>> reader.read(frame)[1].tolist()
    [2.0, 1.0, 0.0, 1.0]
    >>> print(reader.describe())
    column  read as              inputs  note
    size    number                    2  one input marks the gaps
    colour  category (2 values)       2
    """

    columns: tuple[Column, ...]
    dropped: Mapping[str, str]
    label: str | None = None
    order: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        frame: Any,
        *,
        label: str | None = None,
        ignore: Iterable[str] | Mapping[str, str] = (),
        use: Iterable[str] = (),
        dates: str | None = None,
        decimal: str | None = None,
        max_categories: int = MAX_CATEGORIES,
    ) -> TableReader:
        """Learn from the training table.

        Parameters
        ----------
        frame : pandas, Polars or Arrow table, or a Hugging Face dataset
        label : str, optional
            The column of labels: no input.
        ignore : names of columns, or a mapping from them to the reason
            No inputs either.
        use : names of columns
            Inputs although they would be left out, because they seem to name the rows.
        dates : {"ymd", "dmy", "mdy"}, optional
            The order of day, month and year in dates that could be read in two ways.
        decimal : {"point", "comma"}, optional
            The decimal mark of numbers that could be read in two ways, such as 1,234.
        max_categories : int, default=100
            The most frequent values of a category that become inputs.
        """
        if dates is not None and dates not in ORDERS:
            raise UnknownNameError("order of dates", dates, ORDERS)
        if decimal is not None and decimal not in DECIMALS:
            raise UnknownNameError("decimal mark", decimal, DECIMALS)
        frame, wanted = as_frame(frame), set(use)
        for name in wanted:
            frame.column(name)  # refused where it is not there
        reasons = dict(ignore) if isinstance(ignore, Mapping) else dict.fromkeys(ignore, "ignored, as asked")
        left_out = set(reasons) | ({label} if label is not None else set())
        columns: list[Column] = []
        dropped: dict[str, str] = {}
        for name in frame.names:
            if name in left_out:
                if name != label:
                    dropped[name] = reasons[name]
                continue
            learnt = learn(
                frame,
                name,
                forced=name in wanted,
                order=dates,
                decimal=decimal,
                max_categories=max_categories,
            )
            if not isinstance(learnt, str):
                columns.append(learnt)
            elif name in wanted:
                raise InputError(f"column {name!r} cannot be used: {learnt}")
            else:
                dropped[name] = learnt
        if not columns:
            why = "; ".join(f"{name}: {reason}" for name, reason in dropped.items()) or "there are no others"
            raise InputError(f"no column is left to learn from ({why})")
        return cls(tuple(columns), dropped, label, tuple(n for n in frame.names if n not in left_out))

    @property
    def features(self) -> list[str]:
        """Names of the columns of `read`'s result."""
        return [feature for column in self.columns for feature in column.features]

    def read(self, path: Any) -> Inputs:
        """(N, len(features)), float32, of a file or a table in memory; further columns are ignored."""
        return self.read_noting(path)[0]

    def read_noting(
        self, path: Any, others: Iterable[str] = ()
    ) -> tuple[npt.NDArray[np.float32], Met, Frame]:
        """What `read` gives, what was met that training did not have, and the frame itself.

        Parameters
        ----------
        path : path or table in memory
        others : names of columns
            To be in the frame too, as text where the file is one of text.
        """
        others = list(others)
        frame, names = self._frame(path, others)
        for name in others:
            if name not in names:
                raise no_column(frame.what, name, names)
        used = {column.name for column in self.columns}
        lacking = [column.name for column in self.columns if column.name not in frame.names]
        if lacking:
            raise InputError(
                f"the table lacks {len(lacking)} of the {len(self.columns)} columns it was trained on: "
                f"{listed(lacking)}; it has {listed(names)}"
            )
        met = Met(unused=[n for n in names if n not in used and n != self.label and n not in others])
        # Columns far from zero were moved towards it, so that single precision keeps their digits.
        out = np.zeros((len(frame), len(self.features)), np.float32)
        ends = np.cumsum([len(column.features) for column in self.columns])
        for column, part in zip(self.columns, np.split(out, ends[:-1], axis=1), strict=True):
            column.encode(frame, part, met)
        return out, met, frame

    def names(self, path: Any) -> list[str]:
        """A name for every row: its number, as it is in the file (the header of a CSV file is row 1)."""
        frame, _ = self._frame(path, [])
        return [str(frame.row(row)) for row in range(len(frame))]

    def _frame(self, path: Any, others: list[str]) -> tuple[Frame, list[str]]:
        """The columns that are needed, and the names of all that there are."""
        if not isinstance(path, str | os.PathLike):
            frame = as_frame(path)
            return frame, frame.names
        names = [column.name for column in self.columns]
        texts = [column.name for column in self.columns if column.stays_text]
        frame = read_frame(path, texts=[*texts, *others], only=[*names, *others])
        return frame, column_names(path)

    def summary(self) -> list[tuple[str, str, int, str]]:
        """One row a column: its name, what it was read as, how many inputs it became, and a note.

        Columns that were left out come last, with the reason.
        """
        rows = [(c.name, c.words(), len(c.features), _note(c)) for c in self.columns]
        return rows + [(name, "left out", 0, reason) for name, reason in self.dropped.items()]

    def describe(self) -> str:
        """`summary` as a table of text."""
        head = ("column", "read as", "inputs", "note")
        rows = [head, *((name, kind, str(n), note) for name, kind, n, note in self.summary())]
        wide = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = (
            f"{name:<{wide[0]}}  {kind:<{wide[1]}}  {n:>{wide[2]}}  {note}".rstrip()
            for name, kind, n, note in rows
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything learnt that is no array, as plain data."""
        columns = [column.to_dict() for column in self.columns]
        told = {"label": self.label, "columns": columns, "dropped": dict(self.dropped)}
        return {"kind": "table", **told, "order": list(self.order)}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays that were learnt, by the place of their column: only texts have any."""
        return {
            f"{place}.{name}": array
            for place, column in enumerate(self.columns)
            for name, array in column.arrays().items()
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], arrays: Arrays | None = None) -> TableReader:
        """The inverse of `to_dict` and `arrays`. Raises ValueError if they do not hold what those write."""
        if told := mismatch(content, FORM):
            raise ValueError(told)
        columns = [_column(place, c, arrays or {}) for place, c in enumerate(content["columns"])]
        order = tuple(content.get("order", ()))  # earlier versions did not write it
        return cls(tuple(columns), dict(content["dropped"]), content.get("label"), order)


def _column(place: int, content: Mapping[str, Any], arrays: Arrays) -> Column:
    """One column of `from_dict`; fields that its kind does not have (older models wrote all of them) are left."""
    kind = KINDS[content["kind"]]
    values: dict[str, Any] = {}
    for one in fields(kind):
        if one.name in content:
            value = content[one.name]
            values[one.name] = tuple(value) if isinstance(value, list) else value
        elif f"{place}.{one.name}" in arrays:
            values[one.name] = np.asarray(arrays[f"{place}.{one.name}"])
        elif kind is TextColumn:
            raise KeyError(f"{place}.{one.name}")
    column = kind(**values)
    if (
        getattr(column, "order", "ymd") not in ORDERS
        or getattr(column, "decimal", "") not in ("", *DECIMALS)
        or max(abs(getattr(column, name, 0.0)) for name in ("fill", "origin")) > _LARGEST
    ):
        raise ValueError(
            f"the column {column.name} has an order, decimal mark, fill or origin that cannot be"
        )
    if isinstance(column, TextColumn):
        _check_arrays(column)
    return column


def _check_arrays(column: TextColumn) -> None:
    """Raise ValueError if the arrays of a column of texts do not fit each other."""
    n = len(column.buckets)
    shapes = {"buckets": (n,), "idf": (n,), "projection": (n, column.size), "step": (column.size,)}
    for name, shape in shapes.items():
        found = getattr(column, name)
        if found.shape != shape or not np.isfinite(found).all():
            raise ValueError(f"{name} of the column {column.name} should hold {shape} numbers")
    if n and not 0 <= column.buckets.min() <= column.buckets.max() < WORD_BUCKETS + CHARACTER_BUCKETS:
        raise ValueError(f"buckets of the column {column.name} do not exist")


def _note(column: Column) -> str:
    notes = ["one input marks the gaps"] if column.missing else []
    if isinstance(column, CategoryColumn) and column.others:
        notes.append(f"{column.others:,} rarer values have no input")
    return "; ".join(notes)
