"""Table files: CSV and TSV, packed by gzip or not, and Parquet."""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from noisegate.data.tables.frames import Frame, as_frame, checked, is_text
from noisegate.errors import DamagedFileError, InputError, MissingDataError, shown

if TYPE_CHECKING:
    import pandas as pd

TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
SEPARATORS = "values are separated by commas (.csv) or tabs (.tsv) only"
#: What stands for a missing value in a file of text: what pandas takes for one.
GAPS = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
]  # fmt: skip
#: Bytes by which the kind of each column is seen first.
BLOCK = 2**22


def read_frame(
    path: str | os.PathLike[str], *, texts: Collection[str] = (), only: Collection[str] | None = None
) -> Frame:
    """Read a CSV, TSV or Parquet file.

    In CSV and TSV, where everything is text, a column of numbers is one whose every value is a number; so what a
    column is depends on the rows of the file.

    Parameters
    ----------
    texts : names of columns
        They stay text as it stands (001, 1.10, true).
    only : names of columns, optional
        Further ones are not read; names that are not there are left to the caller.
    """
    path = Path(path)
    lower = path.name.lower()
    if not path.exists():
        raise MissingDataError(f"there is no file {path}")
    if not lower.endswith(TABLE_SUFFIXES):
        raise InputError(f"{path} is no table noisegate reads; expected one of {' '.join(TABLE_SUFFIXES)}")
    if path.is_dir():
        raise InputError(f"expected a table at {path}, found a folder")
    parquet = lower.endswith((".parquet", ".pq"))
    try:
        table = _read_parquet(path, only) if parquet else _read_text(path, frozenset(texts), only)
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions") from None
    except Exception as error:  # Arrow, pandas and gzip have an exception each for a damaged file
        raise _damaged(path, error) from None
    return Frame(checked(table, str(path)), str(path), 1 if parquet else 2, not parquet)


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of all columns of a table file, from its first lines."""
    path = Path(path)
    if path.name.lower().endswith((".parquet", ".pq")):
        import pyarrow.parquet as pq

        return list(pq.read_schema(path).names)
    return list(_open(path, {}).schema.names)


def read_table(path: str | os.PathLike[str], *, texts: Collection[str] = ()) -> pd.DataFrame:
    """A CSV, TSV or Parquet file as a pandas DataFrame; columns in `texts` stay text as it stands."""
    return read_frame(path, texts=texts).table.to_pandas()


def _read_parquet(path: Path, only: Collection[str] | None) -> pa.Table:
    import pyarrow.parquet as pq

    schema = pq.read_schema(path)
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    names = [name for name in schema.names if name not in index and (only is None or name in only)]
    return pq.ParquetFile(path).read(columns=names)


# -- CSV and TSV -----------------------------------------------------------------------------------


def _options(path: Path, types: dict[str, Any], only: Collection[str] | None = None) -> dict[str, Any]:
    from pyarrow import csv

    tabs = path.name.lower().endswith((".tsv", ".tsv.gz"))
    return {
        "read_options": csv.ReadOptions(block_size=BLOCK),
        "parse_options": csv.ParseOptions(delimiter="\t" if tabs else ",", newlines_in_values=True),
        "convert_options": csv.ConvertOptions(
            column_types=types,
            null_values=GAPS,
            strings_can_be_null=True,
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            include_columns=None if only is None else list(only),
        ),
    }


def _open(path: Path, types: dict[str, Any]) -> Any:
    from pyarrow import csv

    return csv.open_csv(path, **_options(path, types))


def _read_text(path: Path, texts: frozenset[str], only: Collection[str] | None) -> pa.Table:
    """Read by Arrow; a file whose rows differ in length is left to pandas, which forgives what can be forgiven."""
    from pyarrow import csv

    try:
        with _open(path, {}) as start:
            schema = start.schema
        names = [name for name in schema.names if only is None or name in only]
        if only is not None and not names:
            names = schema.names[:1]  # nothing that is asked for is there: the caller says so
        if len(set(schema.names)) < len(schema.names):
            return pa.table([pa.nulls(1)] * len(schema.names), names=schema.names)  # refused by its names
        types = {field.name: _expected(field, field.name in texts) for field in schema}
        # A column whose later values are of another kind than the first ones is one of texts.
        for _ in range(len(names) + 1):
            try:
                table = csv.read_csv(path, **_options(path, types, names))
                return _settled(
                    table, [n for n in names if n not in texts and schema.field(n).type == pa.null()]
                )
            except pa.ArrowInvalid as error:
                wrong = _column_of(str(error), schema.names)
                if wrong is None or types[wrong] == pa.large_string():
                    raise
                types[wrong] = pa.large_string()
    except pa.ArrowInvalid as error:
        if "CSV parse error" not in str(error):
            raise
    return _read_leniently(path, texts)


def _expected(field: pa.Field, text: bool) -> pa.DataType:
    """The type a column is read as, by its first values: whole numbers may be followed by others."""
    if text or pa.types.is_null(field.type) or is_text(field.type) or pa.types.is_binary(field.type):
        return pa.large_string()
    return pa.float64() if pa.types.is_integer(field.type) else field.type


def _column_of(message: str, names: list[str]) -> str | None:
    """The column that a message of Arrow's is about: 'In CSV column #3: ...'."""
    _, _, rest = message.partition("In CSV column #")
    number = rest.partition(":")[0]
    return names[int(number)] if number.isdigit() and "conversion error" in rest else None


def _settled(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Columns that begin with gaps only, as numbers where all their values are."""
    for name in names:
        place = table.column_names.index(name)
        try:
            table = table.set_column(place, name, table.column(name).cast(pa.float64()))
        except pa.ArrowInvalid:
            continue
    return table


def _read_leniently(path: Path, texts: frozenset[str]) -> pa.Table:
    import pandas as pd

    with warnings.catch_warnings():
        # More values in a row than names in the header: which belong together is not known.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            path,
            sep="\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ",",
            low_memory=False,
            encoding="utf-8-sig",
            index_col=False,
            dtype=dict.fromkeys(texts, str),
        )
    return as_frame(frame, str(path)).table


def _damaged(path: Path, error: Exception) -> InputError:
    """What is wrong with a file that cannot be read, and what to do."""
    text = shown(error)
    hint = _separator_hint(path)
    if type(error).__name__ == "ParserWarning":
        return DamagedFileError(
            f"{path} has rows with more values than the header has names; {hint or 'mend it'}"
        )
    if type(error).__name__ == "EmptyDataError" or "Empty CSV file" in text:
        return InputError(f"{path} is empty; expected a header line and rows")
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text:
        return DamagedFileError(f"{path} is not UTF-8 text ({text}); save it as UTF-8")
    return DamagedFileError(f"{path} cannot be read as a table ({text}){'; ' + hint if hint else ''}")


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
