"""What one column becomes: numbers, times and categories; what training taught about it is plain data.

An encoder is one class: it says which inputs the column becomes, writes them, and survives JSON. `KINDS` lists them
(with texts, which are in a file of their own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noisegate.data.tables import dates, numerals
from noisegate.data.tables.frames import Frame, as_array, as_text, is_text
from noisegate.data.tables.gaps import without_marks
from noisegate.errors import InputError

Floats = npt.NDArray[np.floating[Any]]
Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass
class Met:
    """What reading a frame met that training did not have, for one line about it.

    Attributes
    ----------
    unseen : dict
        Column: how many values are categories that training did not have, and one of them.
    gaps : dict
        Column: how many values are missing, though training had none missing there.
    unused : list of str
        Columns that the model does not use.
    """

    unseen: dict[str, tuple[int, str]] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """One sentence, empty where there is nothing to say."""
        parts = [
            f"{count:,} {'value' if count == 1 else 'values'} of {name} not seen in training (such as {example!r})"
            for name, (count, example) in self.unseen.items()
        ]
        parts += [
            f"{count:,} {'gap' if count == 1 else 'gaps'} in {name}, which had none in training"
            for name, count in self.gaps.items()
        ]
        if self.unused:
            shown = ", ".join(self.unused[:5]) + (", ..." if len(self.unused) > 5 else "")
            columns = "1 column" if len(self.unused) == 1 else f"{len(self.unused)} columns"
            parts.append(f"{columns} not used by the model ({shown})")
        return "; ".join(parts)


@dataclass(frozen=True)
class Column:
    """What training taught about one column.

    Attributes
    ----------
    name : str
    missing : bool
        Training had gaps: a further input says where.
    """

    kind: ClassVar[str] = ""
    name: str
    missing: bool = False

    @property
    def own(self) -> list[str]:
        """Names of the inputs, without the one that marks gaps."""
        return [self.name]

    @property
    def features(self) -> list[str]:
        """Names of the inputs this column becomes."""
        return self.own + ([f"{self.name} is missing"] if self.missing else [])

    @property
    def stays_text(self) -> bool:
        """Whether its values are read from a text file as they stand, 001 and not 1."""
        return False

    def values(self, frame: Frame) -> Any:
        """The values of the column, None where one is missing."""
        return frame.column(self.name)

    def encode(self, frame: Frame, out: Floats, met: Met) -> None:
        """Write the inputs to `out`, (N, len(features)), which is all zeros."""
        values = self.values(frame)
        self.write(frame, values, out, met)
        n_gaps = values.null_count
        if n_gaps and self.missing:
            out[:, -1] = as_array(pc.is_null(values))
        elif n_gaps:
            met.gaps[self.name] = n_gaps

    def write(self, frame: Frame, values: Any, out: Floats, met: Met) -> None:
        """Write the own inputs."""
        raise NotImplementedError

    def words(self) -> str:
        """What the column was read as, for people."""
        return self.kind

    def to_dict(self) -> dict[str, Any]:
        """The fields that are plain data."""
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
            if not isinstance(value, np.ndarray)
        }
        return {"kind": self.kind, **plain}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The fields that are arrays, stored beside the weights."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class NumberColumn(Column):
    """Numbers, booleans and lengths of time (in seconds).

    Attributes
    ----------
    fill : float
        The median, put where a value is missing.
    origin : float
        Subtracted before the numbers become single precision: a column far from zero keeps its digits.
    boolean : bool
        Training had true and false here, which become 1 and 0.
    decimal : {"", "point", "comma"}
        Training had text here, with this decimal mark: 1,234.5 or 1.234,5. Empty for plain numbers.
    sign : str
        The sign of currency or percent that stood there; it does not change the number.
    """

    kind: ClassVar[str] = "number"
    fill: float = 0.0
    origin: float = 0.0
    boolean: bool = False
    decimal: str = ""
    sign: str = ""

    def values(self, frame: Frame) -> Any:
        return without_marks(frame.column(self.name))

    def write(self, frame: Frame, values: Any, out: Floats, met: Met) -> None:
        if self.decimal and (is_text(values.type) or pa.types.is_dictionary(values.type)):
            numbers = as_written_numbers(frame, self.name, as_text(values), self.decimal, self.sign)
        else:
            numbers = as_numbers(frame, self.name, values, training=True)
        out[:, 0] = np.where(np.isnan(numbers), self.fill, numbers) - self.origin

    @property
    def stays_text(self) -> bool:
        return bool(self.decimal)

    def words(self) -> str:
        if self.boolean:
            return "true or false"
        notes = ["decimal comma"] * (self.decimal == "comma") + [self.sign] * bool(self.sign)
        return f"number ({', '.join(notes)})" if notes else "number"


@dataclass(frozen=True)
class TimeColumn(Column):
    """Points in time, as seconds since the earliest one of training.

    Attributes
    ----------
    fill : float
        The median, in seconds since `origin`.
    origin : float
        Earliest time in seconds since 1970.
    order : {"ymd", "dmy", "mdy"}
        How dates that are written as text are read; those that begin with the year are read in any case.
    """

    kind: ClassVar[str] = "time"
    fill: float = 0.0
    origin: float = 0.0
    order: str = "ymd"

    def values(self, frame: Frame) -> Any:
        return without_marks(frame.column(self.name))

    def write(self, frame: Frame, values: Any, out: Floats, met: Met) -> None:
        times = as_times(frame, self.name, values, self.order) - self.origin
        out[:, 0] = np.where(np.isnan(times), self.fill, times)

    @property
    def stays_text(self) -> bool:
        return self.order != "ymd"

    def words(self) -> str:
        return "time" if self.order == "ymd" else f"time ({dates.NAMES[self.order]})"


@dataclass(frozen=True)
class CategoryColumn(Column):
    """Categories: one input of zeros and ones each, all zero for one that training did not have.

    Attributes
    ----------
    categories : tuple of str
        Values seen in training, the most frequent first.
    others : int
        How many further values were seen, which are too rare to be kept.
    text : bool
        Training had texts here: in a file that is read later they stay as they stand.
    """

    kind: ClassVar[str] = "category"
    categories: tuple[str, ...] = ()
    others: int = 0
    text: bool = False

    @property
    def own(self) -> list[str]:
        return [f"{self.name}={category}" for category in self.categories]

    @property
    def stays_text(self) -> bool:
        return self.text

    def write(self, frame: Frame, values: Any, out: Floats, met: Met) -> None:
        texts = as_text(values)
        # Once for each distinct value, not for each row.
        encoded = pa.chunked_array(texts).combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        known = {category: number for number, category in enumerate(self.categories)}
        place = np.array([known.get(text, -1) for text in encoded.dictionary.to_pylist()], dtype=np.int64)
        codes = as_array(encoded.indices, -1).astype(np.int64)
        places = np.append(place, -1)[codes]  # gaps have the code -1
        rows = np.flatnonzero(places >= 0)
        out[rows, places[rows]] = 1.0
        # Values that training had but did not keep are not counted: which they were is not known.
        strangers = np.flatnonzero((places < 0) & (codes >= 0))
        if len(strangers) and not self.others:
            example = encoded.dictionary[int(codes[strangers[0]])].as_py()
            met.unseen[self.name] = (len(strangers), example)

    def words(self) -> str:
        n = len(self.categories)
        return f"category ({n} {'value' if n == 1 else 'values'})"


def as_numbers(frame: Frame, name: str, values: Any, *, training: bool = False) -> npt.NDArray[np.float64]:
    """Values as numbers, NaN where missing; infinity, and texts that are no numbers, are refused by row."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = as_text(values), pa.large_string()
    if is_text(kind):
        numbers = _parsed(frame, name, values)
    elif pa.types.is_boolean(kind):
        numbers = _floats(values.cast(pa.int8()))
    elif pa.types.is_duration(kind) or pa.types.is_time(kind):
        units = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
        whole = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        numbers = _floats(values.cast(whole)) / units[kind.unit]
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        numbers = _floats(values)
    else:
        raise _refused(frame, name, values, "number")
    return _finite(frame, name, numbers)


def _finite(frame: Frame, name: str, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The numbers, if single precision can hold them."""
    big = np.flatnonzero(np.abs(numbers) > np.finfo(np.float32).max)
    if len(big):
        raise InputError(
            f"column {name!r} has {numbers[big[0]]} in row {frame.row(big[0])}; "
            "expected finite numbers of single precision: mend or drop the row"
        )
    return numbers


def as_written_numbers(
    frame: Frame, name: str, texts: Any, decimal: str, sign: str = ""
) -> npt.NDArray[np.float64]:
    """Texts with a decimal mark, and maybe a sign, as numbers; NaN where missing, others are refused by row."""
    found = numerals.numbers(texts, decimal)
    bad = np.isnan(found) & as_array(pc.is_valid(texts))
    if numerals.signs(texts) not in ([], [""], [sign]):
        others = pc.replace_substring(texts, sign, "") if sign else texts
        bad |= as_array(pc.fill_null(pc.match_substring_regex(others, numerals.SIGNS), False))
    if bad.any():
        raise _refused(frame, name, texts, "number", int(np.argmax(bad)))
    return _finite(frame, name, found)


def _floats(values: Any) -> npt.NDArray[np.float64]:
    return as_array(values.cast(pa.float64(), safe=False))


def _parsed(frame: Frame, name: str, texts: Any) -> npt.NDArray[np.float64]:
    """Texts as numbers; true and false are 1 and 0."""
    trimmed = pc.utf8_trim_whitespace(texts)
    trimmed = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    try:
        return _floats(trimmed.cast(pa.float64()))
    except pa.ArrowInvalid:
        pass
    lower = pc.utf8_lower(trimmed)
    if pc.all(pc.is_in(lower.drop_null(), pa.array(["true", "false"], lower.type))).as_py():
        return _floats(pc.equal(lower, "true").cast(pa.int8()))
    times = dates.clock(trimmed)
    if not (np.isnan(times) & as_array(pc.is_valid(trimmed))).any():
        return times
    raise _refused(frame, name, texts, "number")


def as_times(frame: Frame, name: str, values: Any, order: str = "ymd") -> npt.NDArray[np.float64]:
    """Values as seconds since 1970, NaN where missing; texts that are no dates are refused by row."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        units = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
        return _floats(values.cast(pa.int64())) / units[kind.unit]
    if pa.types.is_date(kind):
        return _floats(values.cast(pa.date32()).cast(pa.int32())) * 86400
    if is_text(kind) or pa.types.is_dictionary(kind):
        texts = as_text(values)
        found = dates.seconds(texts, order)
        bad = np.isnan(found) & as_array(pc.is_valid(texts))
        if bad.any() and order != "ymd":
            found = np.where(bad, dates.seconds(texts, "ymd"), found)
            bad = np.isnan(found) & as_array(pc.is_valid(texts))
        if not bad.any():
            return found
        raise _refused(frame, name, values, "time", int(np.argmax(bad)), order)
    if pa.types.is_null(kind):
        return np.full(len(values), np.nan)
    raise _refused(frame, name, values, "time", order=order)


def _refused(
    frame: Frame, name: str, values: Any, kind: str, row: int | None = None, order: str = "ymd"
) -> InputError:
    """Name the first value that cannot be read as a number or time."""
    if row is None:
        row = next((i for i, value in enumerate(values.to_pylist()) if not _reads(value, kind)), 0)
    form = {"ymd": "2026-11-18 02:15", "dmy": "18/11/2026", "mdy": "11/18/2026"}[order]
    hint = f" (times are read as {form})" if kind == "time" else ""
    return InputError(
        f"column {name!r} was a column of {kind}s in training, but row {frame.row(row)} "
        f"has {str(values[row].as_py())!r}{hint}"
    )


def _reads(value: Any, kind: str) -> bool:
    if value is None:
        return True
    if kind == "time":
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
