"""Table files that would hang, fill the memory, or raise errors of the libraries that read them."""

import gzip
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import noisegate as ng
from noisegate.data.tables.parquet import read_parquet
from noisegate.data.tables.reading import EXPANSION, column_names
from noisegate.errors import DamagedFileError, InputError


@pytest.fixture
def megabytes(monkeypatch):
    """A file may need 8 MiB."""
    monkeypatch.setenv("NOISEGATE_MAX_FILE_GIB", str(8 / 1024))


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.tsv", "pipe.csv.gz", "pipe.parquet"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for read in (lambda path: ng.data.load(path, label="y"), ng.data.read_table, column_names):
        with pytest.raises(InputError, match="pipe, socket or device"):
            read(tmp_path / name)


def test_a_device_without_an_end_is_refused(tmp_path):
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="pipe, socket or device"):
        ng.data.load(tmp_path / "zero.csv", label="y")


@pytest.mark.parametrize("start", [b"a,y\n", b"a,y\n1,2,3\n4\n", b""])
def test_a_small_packed_table_cannot_fill_the_memory(tmp_path, megabytes, start):
    """Also one that Arrow leaves to pandas, and one without a line end."""
    with gzip.open(tmp_path / "bomb.csv.gz", "wb") as file:
        file.write(start + (b"1,0\n" if start else b"aaaa") * 2**21)
    assert (tmp_path / "bomb.csv.gz").stat().st_size < 2**16
    with pytest.raises(InputError, match="unpacked content would need .* NOISEGATE_MAX_FILE_GIB"):
        ng.data.load(tmp_path / "bomb.csv.gz", label="y")


def test_a_packed_table_within_the_limit_is_read(tmp_path, megabytes):
    with gzip.open(tmp_path / "fine.csv.gz", "wb") as file:
        file.write(b"a,y\n" + b"1,u\n2,v\n" * (2**20 // EXPANSION // 8))
    assert set(ng.data.load(tmp_path / "fine.csv.gz", label="y").classes) == {"u", "v"}


def test_repeated_numbers_of_a_parquet_file_are_counted_before_they_are_read(tmp_path, megabytes):
    pq.write_table(pa.table({"a": np.zeros(2_000_000), "y": [0, 1] * 1_000_000}), tmp_path / "b.parquet")
    assert (tmp_path / "b.parquet").stat().st_size < 2**17
    with pytest.raises(InputError, match="its columns would need"):
        ng.data.load(tmp_path / "b.parquet", label="y")


@pytest.mark.parametrize("categories", [False, True])
def test_a_long_text_of_a_parquet_file_that_all_rows_share_is_not_spelt_out(tmp_path, megabytes, categories):
    codes = pa.array(np.zeros(1000, np.int32))
    texts = pa.DictionaryArray.from_arrays(codes, pa.array(["a" * 2**16]))
    table = pa.table({"t": texts, "y": pa.array(np.arange(1000) % 2)})
    pq.write_table(table, tmp_path / "t.parquet", store_schema=categories)
    with pytest.raises(InputError, match="its texts would need"):
        ng.data.load(tmp_path / "t.parquet", label="y")


def test_texts_numbers_and_gaps_of_a_parquet_file_are_what_arrow_reads(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "n": rng.normal(size=500),
            "t": rng.choice(["p", "q", None, "ä"], 500),
            "c": pd.Categorical(rng.choice(["x", "y", None], 500)),
            "d": pd.date_range("2024", periods=500),
            "own": [f"text {i}" for i in range(500)],
        },
        index=np.arange(500) * 2,
    )
    frame.to_parquet(tmp_path / "f.parquet", row_group_size=150)
    found, expected = read_parquet(tmp_path / "f.parquet"), pq.read_table(tmp_path / "f.parquet")
    assert found.column_names == list(frame.columns)  # the index is no column
    for name in frame.columns:
        assert found.column(name).to_pylist() == expected.column(name).to_pylist()
    assert read_parquet(tmp_path / "f.parquet", only=["t"]).column_names == ["t"]


def test_lists_in_a_parquet_file_are_refused_before_they_are_read(tmp_path):
    pq.write_table(pa.table({"t": [["a"]] * 4, "y": [1, 0, 1, 0]}), tmp_path / "n.parquet")
    with pytest.raises(InputError, match="holds a list a row"):
        ng.data.load(tmp_path / "n.parquet", label="y")


def test_texts_of_a_parquet_file_that_are_not_utf8_are_damage(tmp_path):
    pq.write_table(
        pa.table({"t": ["ab", "cd"] * 20, "y": [0, 1] * 20}), tmp_path / "u.parquet", compression="NONE"
    )
    content = (tmp_path / "u.parquet").read_bytes()
    (tmp_path / "u.parquet").write_bytes(content.replace(b"ab\x02\0\0\0cd", b"\xff\xfe\x02\0\0\0cd"))
    with pytest.raises(DamagedFileError, match=r"u\.parquet"):
        ng.data.load(tmp_path / "u.parquet", label="y")


def test_damaged_tables_are_errors_of_ours_when_only_their_columns_are_asked_for(tmp_path):
    for name in ("x.parquet", "x.csv.gz"):
        (tmp_path / name).write_bytes(b"PAR1 this is neither PAR1")
        with pytest.raises(DamagedFileError, match=name.replace(".", r"\.")):
            column_names(tmp_path / name)


@pytest.mark.parametrize("suffix", [b".csv", b".csv.gz", b".parquet"])
def test_a_table_whose_name_is_not_utf8_is_read(tmp_path, suffix):
    frame = pd.DataFrame({"a": [1.0, 2.0] * 10, "y": ["u", "v"] * 10})
    plain, path = tmp_path / f"plain{suffix.decode()}", tmp_path / os.fsdecode(b"t\xe4b" + suffix)
    frame.to_parquet(plain) if suffix == b".parquet" else frame.to_csv(plain, index=False)
    plain.rename(path)
    assert len(ng.data.load(path, label="y").train) == 20


def test_messages_about_long_and_coloured_names_of_columns_are_short_and_plain(tmp_path):
    (tmp_path / "long.csv").write_bytes(b"a\x1b[31m" + b"a" * 100_000 + b",y\n1,1\n2,0\n")
    with pytest.raises(InputError) as refused:
        ng.data.load(tmp_path / "long.csv", label="nope")
    message = str(refused.value).replace(str(tmp_path), "")
    assert len(message) < 300
    assert message.isprintable()


def test_columns_of_one_name_are_refused_by_their_name(tmp_path):
    frame = pd.DataFrame([[1, 2, "u"], [3, 4, "v"]] * 10, columns=["x", "x", "y"])
    frame.to_csv(tmp_path / "twice.csv", index=False)
    with pytest.raises(InputError, match="the column 'x' twice"):
        ng.data.load(tmp_path / "twice.csv", label="y")
    with pytest.raises(InputError, match="the column 'x' twice"):
        ng.NoisyLabelClassifier("ce").fit(frame[["x"]], frame["y"])
