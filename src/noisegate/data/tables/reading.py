"""CSV, TSV and Parquet files as DataFrames."""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noisegate.errors import DamagedFileError, InputError, MissingDataError, shown

if TYPE_CHECKING:
    import pandas as pd

TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
SEPARATORS = "values are separated by commas (.csv) or tabs (.tsv) only"


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
            f"{path} cannot be read as a table ({shown(error)}){'; ' + hint if hint else ''}"
        ) from None
    return checked_frame(frame, str(path))


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


def checked_frame(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    """A frame with text as column names, none twice, and at least one row."""
    frame = frame.rename(columns=str)
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise InputError(f"{what} has the column {twice[0]!r} twice; rename one of them")
    if not len(frame):
        raise InputError(f"{what} has no rows")
    return frame


def listed(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(map(repr, names[:most])) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
