"""What training learns about each column of a table, and the numbers a column becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
MAX_CATEGORIES = 100
#: A column of so many texts that the kept ones are in fewer rows than this share is left out.
LEAST_COVERED = 0.1
#: A text that is a time: 2026-11-18, 2026-11-18 02:15, 2026-11-18T02:15:30.5Z.
ISO_TIME = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?"


@dataclass(frozen=True)
class Column:
    """What training taught about one column.

    Attributes
    ----------
    name : str
    kind : {"number", "time", "category"}
    fill : float
        Median of a number or time, put where the value is missing.
    origin : float
        Earliest time, in seconds since 1970: times are counted from there.
    missing : bool
        Training had gaps: a further column says where.
    categories : tuple of str
        Values seen in training, the most frequent first; each becomes a column of zeros and ones.
    others : int
        How many further values were seen, which are too rare to be kept.
    text : bool
        Training had texts here: in a file that is read later they stay as they stand.
    """

    name: str
    kind: str
    fill: float = 0.0
    origin: float = 0.0
    missing: bool = False
    categories: tuple[str, ...] = ()
    others: int = 0
    text: bool = False

    @property
    def features(self) -> list[str]:
        """Names of the columns this one becomes."""
        own = [f"{self.name}={c}" for c in self.categories] if self.kind == "category" else [self.name]
        return own + ([f"{self.name} is missing"] if self.missing else [])

    def encode(self, series: pd.Series, out: Floats) -> None:
        """Write the numbers of one column to `out`, (N, len(features)), which is all zeros."""
        import pandas as pd

        if self.kind == "category":
            places = pd.Index(self.categories, dtype=object).get_indexer(
                pd.Index(as_texts(series), dtype=object)
            )
            rows, gaps = np.flatnonzero(places >= 0), series.isna().to_numpy(bool)
            out[rows, places[rows]] = 1.0
        else:
            values = as_numbers(series, self.kind) - self.origin
            gaps = np.isnan(values)
            out[:, 0] = np.where(gaps, self.fill, values)
        if self.missing:
            out[:, -1] = gaps


def kind_of(series: pd.Series) -> str:
    """Whether a column holds numbers, times or categories."""
    from pandas.api import types

    if isinstance(series.dtype, types.CategoricalDtype):
        return "category"
    if types.is_datetime64_any_dtype(series.dtype):
        return "time"
    if types.is_complex_dtype(series.dtype):
        raise InputError(f"column {series.name!r} holds complex numbers; split them into two columns")
    if types.is_numeric_dtype(series.dtype) or types.is_bool_dtype(series.dtype):
        return "number"
    if types.is_timedelta64_dtype(series.dtype):
        return "number"
    if types.is_object_dtype(series.dtype) or types.is_string_dtype(series.dtype):
        return _kind_of_objects(series)
    raise InputError(
        f"column {series.name!r} is of type {series.dtype}, which noisegate does not read; drop it"
    )


def _kind_of_objects(series: pd.Series) -> str:
    """Objects are categories, unless all of them are numbers (decimals) or dates, in disguise or as ISO 8601."""
    from pandas.api.types import infer_dtype

    inferred = infer_dtype(series, skipna=True)
    if inferred in ("decimal", "integer", "floating", "mixed-integer-float"):
        return "number"
    if inferred in ("datetime", "datetime64", "date"):
        return "time"
    if inferred == "string":
        given = series.dropna()
        return "time" if given.str.fullmatch(ISO_TIME).all() else "category"
    for row, value in enumerate(series):
        if isinstance(value, list | dict | set | tuple | np.ndarray | bytes):
            raise InputError(
                f"column {series.name!r} holds a {type(value).__name__} in row {row}; "
                "expected a number, a text or a time: drop or spread the column"
            )
    return "category"


def as_texts(series: pd.Series) -> npt.NDArray[np.object_]:
    """Values as text, None where missing; 1, 1.0 and "1" are the same category."""

    def text(value: Any) -> str:
        if isinstance(value, float | np.floating) and float(value).is_integer():
            return str(int(value))
        return str(value)

    from pandas.api.types import infer_dtype

    gaps = series.isna().to_numpy(bool)
    out = series.to_numpy(object, copy=True)
    if infer_dtype(out, skipna=True) != "string":  # where all are texts already there is nothing to do
        out[:] = [None if gap else text(value) for gap, value in zip(gaps, out, strict=True)]
    out[gaps] = None
    return out


def as_numbers(series: pd.Series, kind: str = "number") -> Floats:
    """Values as numbers (times: seconds since 1970), NaN where missing; infinity is refused."""
    import pandas as pd

    try:
        if kind == "time":
            texts = pd.api.types.infer_dtype(series, skipna=True) == "string"
            # Of other ways to write a date it is not known whether the day or the month comes first.
            stamps = pd.to_datetime(series, utc=True, format="ISO8601" if texts else None)
            seconds = (stamps - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
            return np.asarray(seconds.to_numpy(np.float64, na_value=np.nan))
        if pd.api.types.is_timedelta64_dtype(series.dtype):
            lengths: Any = series
            return np.asarray((lengths / pd.Timedelta(seconds=1)).to_numpy(np.float64, na_value=np.nan))
        numbers = pd.to_numeric(series)
    except (ValueError, TypeError, OverflowError):
        raise _not_a(kind, series) from None
    values = numbers.to_numpy(np.float64, na_value=np.nan)
    big = np.flatnonzero(np.abs(values) > np.finfo(np.float32).max)
    if len(big):
        raise InputError(
            f"column {series.name!r} has {values[big[0]]} in row {big[0]}; "
            "expected finite numbers of single precision: mend or drop the row"
        )
    return values


def _not_a(kind: str, series: pd.Series) -> InputError:
    """Name the first value that cannot be read as a number or time."""
    import pandas as pd

    read = (
        pd.to_numeric(series, errors="coerce")
        if kind == "number"
        else pd.to_datetime(series, errors="coerce", utc=True, format="ISO8601")
    )
    row = int(np.argmax(read.isna().to_numpy(bool) & ~series.isna().to_numpy(bool)))
    form = " (times are read as 2026-11-18 02:15)" if kind == "time" else ""
    return InputError(
        f"column {series.name!r} was a column of {kind}s in training, but row {row} "
        f"has {str(series.iloc[row])!r}{form}"
    )


def learn(series: pd.Series, max_categories: int) -> Column | str:
    """What a column becomes, or the reason why it is dropped."""
    kind, name = kind_of(series), str(series.name)
    missing = bool(series.isna().any())
    texts = as_texts(series.dropna()) if kind == "category" else None
    distinct = series.nunique(dropna=True) if texts is None else len(set(texts))
    if not distinct:
        return "all values are missing"
    if distinct == 1 and not missing:
        return "constant"
    if texts is not None or distinct == 1:  # one value and gaps: which of the two is all it says
        texts = as_texts(series.dropna()) if texts is None else texts
        return _learn_categories(series, texts, missing, distinct, max_categories)
    values = as_numbers(series, kind)
    origin = float(np.nanmin(values)) if kind == "time" else 0.0
    return Column(name, kind, float(np.nanmedian(values)) - origin, origin, missing)


def _learn_categories(
    series: pd.Series, texts: npt.NDArray[np.object_], missing: bool, distinct: int, max_categories: int
) -> Column | str:
    from pandas.api.types import infer_dtype

    if distinct == len(texts) > 10:
        return "a different text in every row"
    values, counts = np.unique(texts, return_counts=True)
    order = np.lexsort((values.astype(str), -counts))[:max_categories]
    covered = counts[order].sum() / len(series)
    if covered < LEAST_COVERED and distinct > max_categories:
        return f"{distinct:,} texts, the {len(order)} most frequent in {covered:.1%} of the rows"
    return Column(
        str(series.name),
        "category",
        missing=missing,
        categories=tuple(values[order]),
        others=distinct - len(order),
        text=infer_dtype(series.to_numpy(object), skipna=True) == "string",
    )
