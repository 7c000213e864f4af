"""A table as numbers, in the way the training table taught; what was learnt is plain data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate.data.dataset import Inputs
from noisegate.data.tables.columns import MAX_CATEGORIES, Column, learn
from noisegate.data.tables.reading import checked_frame, listed, read_table
from noisegate.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TableReader:
    """Turns a table into numbers as the training table taught it.

    Numbers and booleans stay as they are, the median where missing; times become seconds since the earliest
    one in training; categories become one column of zeros and ones each, all zero for one that training did
    not have. Where training had gaps a further column marks them. Nothing is scaled: the model does that.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"size": [1.0, None, 3.0], "colour": ["red", "blue", "red"], "y": [0, 1, 0]})
    >>> reader = TableReader.fit(frame, label="y")
    >>> reader.features
    ['size', 'size is missing', 'colour=red', 'colour=blue']
    >>> reader.read(frame)[1].tolist()
    [2.0, 1.0, 0.0, 1.0]
    """

    columns: tuple[Column, ...]
    dropped: Mapping[str, str]
    label: str | None = None

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        *,
        label: str | None = None,
        ignore: Iterable[str] = (),
        max_categories: int = MAX_CATEGORIES,
    ) -> TableReader:
        """Learn from the training table; `label` and the columns in `ignore` are no inputs."""
        frame = checked_frame(frame, "the table")
        left_out = set(ignore) | ({label} if label is not None else set())
        columns: list[Column] = []
        dropped: dict[str, str] = {}
        for name in frame.columns:
            if name in left_out:
                continue
            learnt = learn(frame[name], max_categories)
            if isinstance(learnt, str):
                dropped[name] = learnt
            else:
                columns.append(learnt)
        if not columns:
            why = "; ".join(f"{name}: {reason}" for name, reason in dropped.items()) or "there are no others"
            raise InputError(f"no column is left to learn from ({why})")
        return cls(tuple(columns), dropped, label)

    @property
    def features(self) -> list[str]:
        """Names of the columns of `read`'s result."""
        return [feature for column in self.columns for feature in column.features]

    def read(self, path: Any) -> Inputs:
        """(N, len(features)), float64, of a file or a DataFrame; further columns are ignored."""
        frame = self._frame(path)
        lacking = [column.name for column in self.columns if column.name not in frame.columns]
        if lacking:
            raise InputError(
                f"the table lacks {len(lacking)} of the {len(self.columns)} columns it was trained on: "
                f"{listed(lacking)}; it has {listed(list(frame.columns))}"
            )
        # Double precision: a column far from zero keeps its digits until the model has standardised it.
        out = np.zeros((len(frame), len(self.features)))
        ends = np.cumsum([len(column.features) for column in self.columns])
        for column, part in zip(self.columns, np.split(out, ends[:-1], axis=1), strict=True):
            column.encode(frame[column.name], part)
        return out

    def names(self, path: Any) -> list[str]:
        """A name for every row: its number."""
        return [str(row) for row in range(len(self._frame(path)))]

    def _frame(self, path: Any) -> pd.DataFrame:
        if not isinstance(path, str | os.PathLike):
            return checked_frame(path, "the table")
        return read_table(path, texts=[c.name for c in self.columns if c.text], labels=[self.label])

    def to_dict(self) -> dict[str, Any]:
        """Everything learnt, as plain data."""
        columns = [{**vars(column), "categories": list(column.categories)} for column in self.columns]
        return {"kind": "table", "label": self.label, "columns": columns, "dropped": dict(self.dropped)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> TableReader:
        """The inverse of `to_dict`."""
        columns = tuple(Column(**{**c, "categories": tuple(c["categories"])}) for c in content["columns"])
        return cls(columns, dict(content["dropped"]), content["label"])
