"""Cells found in bytes are the cells pandas reads."""

import csv
import gzip

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisegate.auditing.cells import CsvFile
from noisegate.errors import DamagedFileError, MissingDataError

FILES = {
    "plain": b"a,b\n1,2\n3,4\n",
    "no last line end": b"a,b\n1,2\n3,4",
    "windows": b"a,b\r\n1,2\r\n3,4\r\n",
    "old mac": b"a,b\r1,2\r3,4\r",
    "mark": b"\xef\xbb\xbfa,b\n1,2\n",
    "quoted": b'a,b\n"x,y","say ""hi"""\n"two\nlines",4\n',
    "windows in quotes": b'a,b\r\n"two\r\nlines",4\r\n5,6\r\n',
    "blank lines": b"a,b\n\n1,2\n   \n\t\n3,4\n\n",
    "stray quotes": b'a,b\n5" pipe,2\n3,4" x\n6,7\n',
    "odd stray quote": b'a,b\n5" pipe,2\n3,4\n6,7\n',
    "after the quote": b'a,b\n"x"y"z,2\n3,4\n',
    "empty cells": b"a,b\n,\n,2\n1,\n",
    "return in quotes": b'a,b\n"x\ry",2\n3,4\n',
}


def as_pandas(path, sep=","):
    return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8-sig", sep=sep, index_col=False)


@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_pandas_reads(tmp_path, name):
    path = tmp_path / "data.csv"
    path.write_bytes(FILES[name])
    frame = as_pandas(path)
    for file in (CsvFile(path), CsvFile(path, len(frame))):
        assert file.header == list(frame.columns)
        assert [file.cells(row) for row in range(len(file))] == frame.to_numpy().tolist()


def test_tabs_and_gzip(tmp_path):
    raw = b'a\tb,c\n1\t"x\ty"\n \n2\tz\n'
    path = tmp_path / "data.tsv.gz"
    path.write_bytes(gzip.compress(raw))
    file = CsvFile(path, 2)
    assert file.header == ["a", "b,c"]
    assert file.cells(0) == ["1", "x\ty"]
    start, end = file.span(1, 1)
    assert file.content[start:end] == b"z"


texts = st.text(st.sampled_from("ab,\"\n\r '\té"), max_size=6)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_anything_pandas_wrote_comes_back(tmp_path_factory, rows, line_end):
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    # pandas leaves a carriage return without quotes, which no reader could tell from the end of a line.
    quoting = csv.QUOTE_ALL if any("\r" in text for row in rows for text in row) else csv.QUOTE_MINIMAL
    frame = pd.DataFrame(rows, columns=["a", "b"])
    frame.to_csv(path, index=False, lineterminator=line_end, quoting=quoting)
    frame = as_pandas(path)
    file = CsvFile(path, len(frame))
    assert [file.cells(row) for row in range(len(file))] == frame.to_numpy().tolist()


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "data.csv"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DamagedFileError, match="1 rows, expected 2"):
        CsvFile(path, 2)
    with pytest.raises(DamagedFileError, match="no column 5"):
        CsvFile(path).span(0, 5)
    with pytest.raises(MissingDataError):
        CsvFile(tmp_path / "none.csv")
    path.write_bytes(b"")
    with pytest.raises(DamagedFileError):
        CsvFile(path)
