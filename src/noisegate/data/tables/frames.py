"""Frames of any kind (pandas, Polars, Arrow, or whatever hands over Arrow data) become one kind: an Arrow table."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noisegate.errors import InputError, shown

if TYPE_CHECKING:
    import pandas as pd

#: Values that are none of those a column may hold.
_NESTED = (list, dict, set, tuple, bytes, bytearray)
#: Packages whose objects are tables if they have column names.
_FRAMES = ("pandas", "polars", "modin", "cudf", "dask", "pyspark", "duckdb", "ibis", "datasets")


@dataclass(frozen=True)
class Frame:
    """A table in memory, and how its rows are called in messages.

    Attributes
    ----------
    table : pyarrow.Table
        Column names are text and differ from each other; no column is nested.
    what : str
        The file, or "the table".
    first : int
        The number of the first row: 0 in memory, as Python counts; in a CSV file 2, since the header is row 1;
        in a Parquet file 1.
    written : bool
        It came from a file of text, where everything is as it is written.
    """

    table: pa.Table
    what: str = "the table"
    first: int = 0
    written: bool = False

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def names(self) -> list[str]:
        return list(self.table.column_names)

    def column(self, name: str) -> pa.ChunkedArray:
        """The values of a column; names that are not there are refused, with the near ones."""
        if name not in self.table.column_names:
            raise no_column(self.what, name, self.names)
        return self.table.column(name)

    def row(self, place: int) -> int:
        """What the row at a place is called in messages and predictions."""
        return int(place) + self.first


def no_column(what: str, name: str, names: Sequence[str]) -> InputError:
    """That a table has no column of a name, and which it has."""
    near = [other for other in names if other.lower() == name.lower()]
    near = near or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    return InputError(f"{what} has no column {name!r}; {hint}there are {listed(names)}")


def listed(names: Sequence[str], most: int = 10) -> str:
    """Some names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(repr(name), 80) for name in names[:most]) + more


def is_frame(data: Any) -> bool:
    """Whether an object is a table with named columns (and not an array, a list or a file).

    >>> is_frame(pa.table({"a": [1]})), is_frame([[1]])
    (True, False)
    """
    if isinstance(data, Frame):
        return True
    known = type(data).__module__.split(".")[0] in _FRAMES or hasattr(data, "__arrow_c_stream__")
    # A single column (a Series, an array of Arrow) hands over Arrow data too, but has no column names.
    # Those of a lazy frame are not asked for: that would plan its query.
    return known and any(_has(data, name) for name in ("columns", "column_names"))


def _has(data: Any, name: str) -> bool:
    return inspect.getattr_static(data, name, None) is not None


def as_frame(data: Any, what: str = "the table") -> Frame:
    """A frame of a pandas, Polars or Arrow table, a Hugging Face dataset, or anything with `__arrow_c_stream__`.

    >>> as_frame(pa.table({"a": [1, None]})).names
    ['a']
    """
    if isinstance(data, Frame):
        return data
    module = type(data).__module__.split(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        table = _from_pandas(data)
    elif module == "datasets":
        table = _from_datasets(data, what)
    elif hasattr(data, "__arrow_c_stream__"):
        table = _from_capsule(data, what)
    else:
        table = _from_others(data, what)
    return Frame(checked(table, what), what)


def _from_datasets(data: Any, what: str) -> pa.Table:
    """A dataset of Hugging Face: numbers that stand for names (ClassLabel) become these names."""
    if hasattr(data, "keys"):
        raise InputError(f"{what} has several parts ({', '.join(data)}): give one, such as data['train']")
    if not hasattr(data, "select"):
        raise InputError(
            f"{what} is a stream of rows; expected a whole dataset, load it without streaming=True"
        )
    table = pa.table(data.with_format("arrow")[:])
    for name, feature in data.features.items():
        if hasattr(feature, "names") and hasattr(feature, "int2str"):
            known = pa.array(feature.names, pa.large_string())
            codes = table.column(name).combine_chunks().cast(pa.int32())
            codes = pc.if_else(pc.less(codes, 0), None, codes)  # -1 is no label
            names = pa.DictionaryArray.from_arrays(codes, known)
            table = table.set_column(table.column_names.index(name), name, names)
    return table


def _from_capsule(data: Any, what: str) -> pa.Table:
    try:
        return pa.table(data)
    except pa.ArrowException as error:
        raise InputError(
            f"{what} has a column of a type that Arrow does not know ({shown(error)}): convert or drop it"
        ) from None


def _from_others(data: Any, what: str) -> pa.Table:
    """Frames that narwhals knows."""
    import narwhals as nw

    found = nw.from_native(data, pass_through=True)
    if isinstance(found, nw.LazyFrame):
        found = found.collect()
    if not isinstance(found, nw.DataFrame):
        raise InputError(f"expected {what} to be a pandas, Polars or Arrow table, got {type(data).__name__}")
    return found.to_arrow()


def checked(table: pa.Table, what: str) -> pa.Table:
    """The table with plain columns; refuse columns of one name, nested ones, and tables without rows."""
    names = list(map(str, table.column_names))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{what} has the column {twice[0]!r} twice; rename one of them")
    if not table.num_rows:
        raise InputError(f"{what} has no rows")
    columns = [plain_column(column, name) for name, column in zip(names, table.columns, strict=True)]
    return pa.table(columns, names=names)


def plain_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """A column of one of the kinds the encoders know: number, boolean, time, text, or categories."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            texts = [None if value is None else str(value) for value in column.to_pylist()]
            return pa.chunked_array([texts], pa.large_string())
        return plain_column(column.cast(kind.storage_type), name)
    if pa.types.is_nested(kind):
        raise InputError(
            f"column {name!r} holds a {'struct' if pa.types.is_struct(kind) else 'list'} a row; "
            "expected a number, a text or a time: drop or spread the column"
        )
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        raise InputError(
            f"column {name!r} holds bytes; expected a number, a text or a time: drop or decode the column"
        )
    if is_text(kind):
        column = column if kind == pa.large_string() else column.cast(pa.large_string())
        empty = pc.match_substring_regex(column, r"^\s*$")  # as in a file, where nothing stands
        return emptied(column, empty)
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_floating(kind):  # of pandas a NaN is a gap, of Polars and Arrow a value
        return emptied(column, pc.is_nan(column))
    if pa.types.is_dictionary(kind):
        return _texts_of_categories(column)
    return column


def emptied(column: Any, where: Any) -> Any:
    """A column with gaps where a condition holds; the column itself where it holds nowhere."""
    if not pc.any(where).as_py():
        return column
    return pc.if_else(where, pa.nulls(1, column.type)[0], column)  # None would import pandas


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _texts_of_categories(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Categories as a dictionary of texts, so that the column stays one of categories."""
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices.cast(pa.int32()), as_text(chunk.dictionary))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, type=pa.dictionary(pa.int32(), pa.large_string()))


def as_text(values: Any) -> Any:
    """Values as text; 1, 1.0 and "1" are the same text.

    >>> as_text(pa.array([1.0, 2.5, None])).to_pylist()
    ['1', '2.5', None]
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        return values.cast(pa.large_string())
    if pa.types.is_floating(kind):
        whole = pc.fill_null(pc.equal(pc.floor(values), values), False)
        small = pc.fill_null(pc.less(pc.abs(values), 2.0**62), False)
        whole = pc.and_(whole, small)
        integers = pc.if_else(whole, values, 0.0).cast(pa.int64()).cast(pa.large_string())
        return pc.if_else(whole, integers, values.cast(pa.large_string()))
    return values.cast(pa.large_string())


def as_array(values: Any, gap: float = float("nan")) -> npt.NDArray[Any]:
    """Numbers or booleans of an Arrow column as a NumPy array, with `gap` where a value is missing.

    Arrow's own ways (`to_numpy`, scalars of Python) import pandas, which takes longer than reading a small table.

    >>> as_array(pa.chunked_array([[1.5, None], [2.0]])).tolist()
    [1.5, nan, 2.0]
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_boolean(values.type):
        return as_array(values.cast(pa.uint8()), gap).astype(np.bool_)
    if not len(values):
        return np.zeros(0, values.type.to_pandas_dtype())
    whole = pa.Array.from_buffers(values.type, len(values), [None, values.buffers()[1]], offset=values.offset)
    found = np.from_dlpack(whole).copy()
    if values.null_count:
        found[as_array(pc.is_null(values))] = gap
    return found


# -- pandas ----------------------------------------------------------------------------------------


def _from_pandas(frame: pd.DataFrame) -> pa.Table:
    """Column by column: a column of objects of several kinds is one of texts."""
    columns = [_from_series(frame.iloc[:, place]) for place in range(frame.shape[1])]
    if not columns:
        raise InputError("the table has no columns")
    return pa.table(columns, names=list(map(str, frame.columns)))


def _from_series(series: pd.Series) -> Any:
    kind = str(series.dtype)
    if kind.startswith("complex"):
        raise InputError(f"column {series.name!r} holds complex numbers; split them into two columns")
    series = _plain_series(series)
    try:
        if kind == "object":
            return _from_objects(series.name, series.tolist(), series.isna().tolist())
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"column {series.name!r} is of type {kind}, which noisegate does not read; drop it"
        ) from None


def _plain_series(series: pd.Series) -> pd.Series:
    """Kinds that pandas alone has: periods become the time of their beginning, intervals become text."""
    kind = str(series.dtype)
    if kind.startswith("Sparse"):
        return series.astype(getattr(series.dtype, "subtype", float))
    if kind.startswith("period"):
        return series.dt.to_timestamp()
    if kind.startswith("interval"):
        return series.astype("category").cat.rename_categories(str)
    if kind == "category" and str(series.cat.categories.dtype).startswith(("interval", "period")):
        return series.cat.rename_categories(str)  # the result of pd.cut
    return series


def _from_objects(name: Any, values: Sequence[Any], gaps: Iterable[bool]) -> pa.Array:
    """A column of objects: of one kind where Arrow says so, else texts."""
    present = [None if gap is True else value for value, gap in zip(values, gaps, strict=True)]
    for row, value in enumerate(present):
        if isinstance(value, _NESTED) or type(value).__name__ == "ndarray":
            raise InputError(
                f"column {name!r} holds a {type(value).__name__} in row {row}; "
                "expected a number, a text or a time: drop or spread the column"
            )
        if isinstance(value, complex):
            raise InputError(f"column {name!r} holds complex numbers; split them into two columns")
    try:
        return pa.array(present, from_pandas=True)
    except (pa.ArrowException, TypeError, OverflowError, UnicodeEncodeError):
        return text_array(name, [None if value is None else _text(value) for value in present])


def text_array(name: Any, texts: Sequence[str | None]) -> pa.Array:
    """Texts as an Arrow column; one that is not Unicode (half of a surrogate pair) is refused by its row."""
    try:
        return pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        row = next(row for row, text in enumerate(texts) if text is not None and not _is_unicode(text))
        raise InputError(
            f"column {name!r} has a text in row {row} that is not Unicode ({shown(repr(texts[row]), 80)}); "
            "mend it, for instance by text.encode(errors='replace').decode()"
        ) from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any) -> str:
    """One value as text; a whole number without its point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
