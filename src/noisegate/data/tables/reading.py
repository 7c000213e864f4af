"""Table files: CSV and TSV (also with ; or | between values), packed by gzip or not, and Parquet."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import warnings
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from noisegate._io.foreign import check_room, memory_limit, regular_size
from noisegate._turns import TURN
from noisegate.data.tables.frames import Frame, as_frame, checked, is_text
from noisegate.data.tables.parquet import native_file, parquet_schema, read_parquet
from noisegate.data.tables.separators import separator_of
from noisegate.errors import DamagedFileError, InputError, NoisegateError, shown

if TYPE_CHECKING:
    import pandas as pd

TABLE_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
#: What stands for a missing value in a file of text: what pandas takes for one.
GAPS = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
]  # fmt: skip
#: Bytes by which the kind of each column is seen first.
BLOCK = 2**22
#: A value takes two letters of a file or more, with its comma, and eight bytes in memory.
EXPANSION = 4
#: gzip cannot compress by more than this.
MOST_COMPRESSION = 1032


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
    size = regular_size(path, "a table")
    if not lower.endswith(TABLE_SUFFIXES):
        raise InputError(f"{path} is no table noisegate reads; expected one of {' '.join(TABLE_SUFFIXES)}")
    check_room(size, path)
    parquet = lower.endswith((".parquet", ".pq"))
    with _reading(path):
        if _packed(path):
            check_unpacked(path, size)
        table = read_parquet(path, only) if parquet else _read_text(path, frozenset(texts), only)
        table = checked(table, str(path))
    return Frame(table, str(path), 1 if parquet else 2, not parquet)


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """The names of all columns of a table file, from its first lines."""
    path = Path(path)
    regular_size(path, "a table")
    with _reading(path):
        if path.name.lower().endswith((".parquet", ".pq")):
            return list(parquet_schema(path).names)
        with _open(path, {}) as start:
            return list(start.schema.names)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Arrow, pandas and gzip have an exception each for a damaged file: turn all into ours."""
    try:
        yield
    except NoisegateError:
        raise
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions") from None
    except Exception as error:
        raise _damaged(path, error) from None


def read_table(path: str | os.PathLike[str], *, texts: Collection[str] = ()) -> pd.DataFrame:
    """A CSV, TSV or Parquet file as a pandas DataFrame; columns in `texts` stay text as it stands.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "shop.csv").write_text("sku,price\\n007,1.5\\n008,\\n")
    ...     read_table(f"{folder}/shop.csv", texts=["sku"])
       sku  price
    0  007    1.5
    1  008    NaN
    """
    return read_frame(path, texts=texts).table.to_pandas()


# -- CSV and TSV -----------------------------------------------------------------------------------


def _options(path: Path, types: dict[str, Any], only: Collection[str] | None = None) -> dict[str, Any]:
    from pyarrow import csv

    return {
        "read_options": csv.ReadOptions(block_size=BLOCK),
        "parse_options": csv.ParseOptions(delimiter=separator_of(path), newlines_in_values=True),
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

    return csv.open_csv(_content(path), **_options(path, types))


def _content(path: Path) -> pa.NativeFile:
    """The content of a file of text, unpacked if it is packed."""
    return pa.CompressedInputStream(native_file(path), "gzip") if _packed(path) else native_file(path)


def _packed(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


def check_unpacked(path: Path, size: int) -> None:
    """Refuse a .gz file whose content would not fit in memory: a thousand letters can be packed into one."""
    limit = memory_limit()
    if EXPANSION * MOST_COMPRESSION * size <= limit:
        return
    count = 0
    with _content(path) as content:
        while part := content.read_buffer(BLOCK).size:
            count += part
            check_room(EXPANSION * count, path, "its unpacked content", limit)


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
                table = csv.read_csv(_content(path), **_options(path, types, names))
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

    # The list of warning filters is the process's: two threads would undo each other's changes.
    with TURN, warnings.catch_warnings():
        # More values in a row than names in the header: which belong together is not known.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            _content(path),
            sep=separator_of(path),
            low_memory=False,
            encoding="utf-8-sig",
            index_col=False,
            dtype=dict.fromkeys(texts, str),
        )
    return as_frame(frame, str(path)).table


def _damaged(path: Path, error: Exception) -> InputError:
    """What is wrong with a file that cannot be read, and what to do."""
    text = shown(error)
    if type(error).__name__ == "ParserWarning":
        return DamagedFileError(f"{path} has rows with more values than the header has names; mend it")
    long = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", text)
    if long is not None:
        return DamagedFileError(
            f"{path}: line {long[2]} has {long[3]} values, and the header {long[1]} names: mend the line"
        )
    if type(error).__name__ == "EmptyDataError" or "Empty CSV file" in text:
        return InputError(f"{path} is empty; expected a header line and rows")
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text:
        encoding = _likely_encoding(path)
        return DamagedFileError(
            f"{path} is not UTF-8 text ({shown(text, 90)}), but perhaps {encoding}: save it as 'CSV UTF-8' in a "
            f"spreadsheet, or convert it, e.g. iconv -f {encoding} -t UTF-8 OLD.csv > NEW.csv"
        )
    return DamagedFileError(f"{path} cannot be read as a table ({text})")


def _likely_encoding(path: Path) -> str:
    """The encoding of text that is not UTF-8, by its first bytes: iconv's name of it."""
    try:
        with _content(path) as content:
            start = content.read(4096)
    except (OSError, ValueError):
        start = b""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    # The Latin letters and separators of a table in UTF-16 have a zero byte each.
    zeros = [start[first::2].count(0) for first in (0, 1)]
    if max(zeros) > len(start) // 4:
        return "UTF-16LE" if zeros[1] > zeros[0] else "UTF-16BE"
    return "WINDOWS-1252"
