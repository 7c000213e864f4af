"""Parquet files. What their columns need in memory is checked before it is taken."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.data.tables.frames import is_text, plain_column

#: Bytes of a value of each stored type; a text takes the offset of its end, its letters are counted apart.
WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
DICTIONARIES = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


def native_file(path: str | os.PathLike[str]) -> pa.NativeFile:
    """Open a file for Arrow, which takes names that are not UTF-8 as bytes only."""
    return pa.OSFile(os.fsencode(path), "rb")


def parquet_schema(path: str | os.PathLike[str]) -> pa.Schema:
    """The columns of a Parquet file."""
    import pyarrow.parquet as pq

    regular_size(path, "a Parquet file")
    with native_file(path) as file:
        return pq.read_schema(file)


def read_whole(path: str | os.PathLike[str]) -> pa.Table:
    """Every column as it is stored, of whatever kind: to be shown or written again, not learnt from."""
    import pyarrow.parquet as pq

    check_room(regular_size(path, "a Parquet file"), path)
    with reading(os.fspath(path)):
        with native_file(path) as source:
            chunks = _chunks(pq.read_metadata(source))
        check_room(sum(chunk["bytes"] for chunk in chunks), path, "its columns")
        shared = sorted({chunk["name"] for chunk in chunks if chunk["shared"]})
        with native_file(path) as source, pq.ParquetFile(source, read_dictionary=shared) as file:
            table = file.read()
        kinds = {name: table.schema.field(name).type for name in shared}
        categories = [name for name, kind in kinds.items() if pa.types.is_dictionary(kind)]
        check_room(sum(_letters(table.column(name)) for name in categories), path, "its texts")
        with native_file(path) as source:
            return pq.read_table(source)


def read_parquet(path: str | os.PathLike[str], only: Collection[str] | None = None) -> pa.Table:
    """Read the columns of a Parquet file, but not the index that pandas stored.

    Repeated values take next to no space in a file: a megabyte can become any number of gigabytes.
    So the file's own counts are compared with the free memory first. Texts whose values are stored
    once and referred to by numbers are read in that form, and measured before they are spelt out.

    Parameters
    ----------
    path : path
    only : names of columns, default=None
        None: all.
    """
    import pyarrow.parquet as pq

    size = regular_size(path, "a Parquet file")
    check_room(size, path)
    with native_file(path) as source:
        metadata = pq.read_metadata(source)
    schema = metadata.schema.to_arrow_schema()
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    names = [n for n in schema.names if n not in index and (only is None or n in only)]
    chunks = [chunk for chunk in _chunks(metadata) if chunk["name"] in set(names)]
    check_room(sum(chunk["bytes"] for chunk in chunks), path, "its columns")
    for name in names:  # kinds that are refused are refused before they are read
        plain_column(pa.chunked_array([], schema.field(name).type), name)
    shared = {c["name"] for c in chunks if c["shared"] and is_text(schema.field(c["name"]).type)}
    with native_file(path) as source, pq.ParquetFile(source, read_dictionary=sorted(shared)) as file:
        table = file.read(columns=names)
    table.validate(full=True)  # texts that are not UTF-8 would be met later, by whoever uses them
    categories = {n for n in names if pa.types.is_dictionary(table.schema.field(n).type)}
    check_room(sum(_letters(table.column(n)) for n in categories | shared), path, "its texts")
    return _spelt_out(table, shared)


def _chunks(metadata: Any) -> list[dict[str, Any]]:
    """Of every column in every group of rows: its name, the least it needs, whether values are shared."""
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            values = max(column.num_values, group.num_rows)
            bytes_ = max(column.total_uncompressed_size, values * WIDTHS.get(column.physical_type, 1))
            shared = not DICTIONARIES.isdisjoint(column.encodings)
            name = column.path_in_schema.partition(".")[0]
            found.append({"name": name, "bytes": bytes_, "shared": shared})
    return found


def _letters(column: pa.ChunkedArray) -> int:
    """Bytes that numbers of distinct texts need as texts; categories become texts when they are encoded."""
    import pyarrow.compute as pc

    found = 0
    for chunk in column.chunks:
        texts = chunk.dictionary
        if is_text(texts.type):
            taken = pc.binary_length(texts).take(chunk.indices)
            found += (pc.sum(taken).as_py() or 0) + 8 * len(chunk)
    return found


def _spelt_out(table: pa.Table, names: Collection[str]) -> pa.Table:
    """The columns `names`, read as numbers of distinct texts, as the texts themselves."""
    for name in names:
        chunks = [c.dictionary.cast(pa.large_string()).take(c.indices) for c in table.column(name).chunks]
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.chunked_array(chunks, pa.large_string()))
    return table
