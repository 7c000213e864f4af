"""Tables: CSV, TSV and Parquet with numbers, categories, times and gaps; what was learnt is data."""

from __future__ import annotations

import difflib
import gzip
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.data.arrays import Classes, label_array
from noisegate.data.dataset import Dataset, Inputs, Labels, Split
from noisegate.errors import DamagedFileError, InputError, MissingDataError

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
MAX_CATEGORIES = 100
#: A column of so many texts that the kept ones are in fewer rows than this share is left out.
LEAST_COVERED = 0.1
#: A text that is a time: 2026-11-18, 2026-11-18 02:15, 2026-11-18T02:15:30.5Z.
ISO_TIME = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?\s?(Z|[+-]\d\d:?\d\d)?)?"


# -- files -----------------------------------------------------------------------------------------


def read_table(
    path: str | os.PathLike[str], *, texts: Iterable[str] = (), labels: Iterable[str | None] = ()
) -> pd.DataFrame:
    """Read a CSV, TSV or Parquet file; column names come out as text.

    In CSV and TSV, where everything is text, a column of numbers is one whose every value is a number; so what a
    column is depends on the rows of the file. Columns in `texts` stay text as it stands (001, 1.10, true), and so
    do those in `labels`, unless each is a whole number or a boolean written as such.
    """
    import pandas as pd

    path = Path(path)
    lower = path.name.lower()
    if not path.exists():
        raise MissingDataError(f"there is no file {path}")
    if not lower.endswith(TABLE_SUFFIXES):
        raise InputError(f"{path} is no table noisegate reads; expected one of {' '.join(TABLE_SUFFIXES)}")
    if path.is_dir():
        raise InputError(f"expected a table at {path}, found a folder")
    try:
        if lower.endswith((".parquet", ".pq")):
            frame = pd.read_parquet(path)
        else:
            labels = [name for name in labels if name is not None]
            with warnings.catch_warnings():
                # More values in a row than names in the header: which belong together is not known.
                warnings.simplefilter("error", pd.errors.ParserWarning)
                frame = pd.read_csv(
                    path,
                    sep="\t" if lower.endswith((".tsv", ".tsv.gz")) else ",",
                    low_memory=False,
                    encoding="utf-8-sig",
                    index_col=False,
                    dtype=dict.fromkeys([*texts, *labels], str),
                )
            for name in set(labels) & set(frame.columns):
                frame[name] = _plain(frame[name])
    except pd.errors.ParserWarning:
        hint = _separator_hint(path) or "mend it"
        raise DamagedFileError(
            f"{path} has rows with more values than the header has names; {hint}"
        ) from None
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} is empty; expected a header line and rows") from None
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from None
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions") from None
    except Exception as error:  # pyarrow, gzip and pandas have an exception each for a damaged file
        hint = _separator_hint(path)
        raise DamagedFileError(
            f"{path} cannot be read as a table ({str(error).strip()}){'; ' + hint if hint else ''}"
        ) from None
    return _checked(frame, str(path))


SEPARATORS = "values are separated by commas (.csv) or tabs (.tsv) only"


def _separator_hint(path: Path) -> str:
    """What to do about a file whose header looks as if something else stood between the values; else nothing."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            header = file.readline()
    except (OSError, ValueError, EOFError):
        return ""
    other = max(";|", key=header.count)
    return f"{SEPARATORS}, its header has {other!r}" if header.count(other) > header.count(",") else ""


def _plain(texts: pd.Series) -> pd.Series:
    """Texts as whole numbers or booleans, where every one that is there is written as those are: 1, but not 01."""
    given = texts.dropna()
    if given.empty:
        return texts
    if given.isin(["True", "TRUE", "true", "False", "FALSE", "false"]).all():
        return texts.str.lower().map({"true": True, "false": False})
    if given.str.fullmatch(r"-?(0|[1-9]\d{0,17})(\.0+)?").all():
        return texts.map(lambda text: int(text.partition(".")[0]) if isinstance(text, str) else text)
    number = given.str.fullmatch(r"-?(0|[1-9]\d*)?(\.\d*)?(e[-+]?\d+)?", case=False) & given.str.contains(
        r"\d"
    )
    if number.all() and given.str.contains(".", regex=False).any():
        return texts.astype(float)  # measured values, which are refused as labels
    return texts


def _checked(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """A frame with text as column names, none twice, and at least one row."""
    frame = frame.rename(columns=str)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(f"{what} has the column {twice[0]!r} twice; rename one of them")
    if not len(frame):
        raise InputError(f"{what} has no rows")
    return frame


# -- columns ---------------------------------------------------------------------------------------


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


def _learn(series: pd.Series, max_categories: int) -> Column | str:
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


# -- the reader ------------------------------------------------------------------------------------


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
        frame = _checked(frame, "the table")
        left_out = set(ignore) | ({label} if label is not None else set())
        columns: list[Column] = []
        dropped: dict[str, str] = {}
        for name in frame.columns:
            if name in left_out:
                continue
            learnt = _learn(frame[name], max_categories)
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
                f"{_listed(lacking)}; it has {_listed(list(frame.columns))}"
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
            return _checked(path, "the table")
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


def _listed(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(map(repr, names[:most])) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )


# -- the dataset -----------------------------------------------------------------------------------


def _check_column(frame: pd.DataFrame, column: str, what: str) -> None:
    names = list(frame.columns)
    if column not in names:
        near = difflib.get_close_matches(column, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        if len(names) == 1 and any(mark in names[0] for mark in ";\t,|"):
            hint = f"{SEPARATORS}; "
        raise InputError(f"{what} has no column {column!r}; {hint}there are {_listed(names)}")


def label_column(frame: pd.DataFrame, label: str | None, what: str) -> npt.NDArray[Any]:
    """The labels of a table, checked: there, none missing, text or whole numbers or booleans."""
    names = list(frame.columns)
    if label is None:
        raise InputError(f"{what}: say which column holds the labels, label=...; there are {_listed(names)}")
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
    frame = _checked(frame, name)
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
