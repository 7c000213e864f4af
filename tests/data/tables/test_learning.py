"""Which columns are read as what, and which are left out."""

import uuid

import numpy as np
import pandas as pd
import pytest

from noisegate.data import TableReader, load
from noisegate.errors import InputError

N = 60
rng = np.random.default_rng(0)
KEPT = {
    "measured": rng.normal(size=N),
    "money": rng.integers(10**6, size=N),
    "years": 1900 + rng.integers(120, size=N),
    "halves": np.arange(N) / 2,
}
NAMES = {
    "running": np.arange(N),
    "shuffled": rng.permutation(N) + 1000,
    "holes": np.cumsum(rng.integers(1, 3, N)),
    "customer_id": rng.choice(10**8, N, replace=False),
    "orderId": rng.choice(10**8, N, replace=False),
    "hash": [uuid.UUID(int=int(n)).hex for n in rng.integers(2**62, size=N)],
    "floats": np.arange(N, dtype=float),
}


@pytest.mark.parametrize("name", KEPT)
def test_numbers_that_measure_are_kept(name):
    assert TableReader.fit(pd.DataFrame({name: KEPT[name]})).columns[0].kind == "number"


@pytest.mark.parametrize("name", NAMES)
def test_columns_that_name_the_rows_are_left_out_unless_asked_for(name):
    frame = pd.DataFrame({name: NAMES[name], "n": KEPT["measured"]})
    reader = TableReader.fit(frame)
    assert [column.name for column in reader.columns] == ["n"]
    assert reader.dropped[name].startswith("names the rows: a different")
    assert reader.summary()[-1] == (name, "left out", 0, reader.dropped[name])
    assert [column.name for column in TableReader.fit(frame, use=[name]).columns] == [name, "n"]


def test_use_and_ignore_are_options_of_a_file(tmp_path):
    frame = pd.DataFrame(
        {"id": np.arange(N), "n": KEPT["measured"], "m": KEPT["money"], "y": np.arange(N) % 2}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert load(tmp_path / "t.csv", label="y", use="id").info["features"] == ["id", "n", "m"]
    assert load(tmp_path / "t.csv", label="y", ignore="m").info["features"] == ["n"]
    with pytest.raises(InputError, match="has no column 'ID'; did you mean 'id'"):
        load(tmp_path / "t.csv", label="y", use="ID")
    with pytest.raises(InputError, match="column 'm' cannot be used: it is ignored"):
        load(tmp_path / "t.csv", label="y", use="m", ignore="m")
    with pytest.raises(InputError, match="column 'same' cannot be used: constant"):
        TableReader.fit(frame.assign(same=1), use=["same"])


def test_texts_and_words():
    frame = pd.DataFrame(
        {
            "title": [f"a story of number {n}" for n in range(N)],
            "purpose": rng.choice(["to buy a car", "to buy a house", "for holidays"], N),
            "chinese": [f"这部电影的故事很好看{n}" for n in range(N)],
            "city": rng.choice(["Oyo", "Ibadan", "Lagos"], N),
        }
    )
    kinds = {column.name: column.kind for column in TableReader.fit(frame).columns}
    assert kinds == {"title": "text", "purpose": "category", "chinese": "text", "city": "category"}


def test_columns_that_are_no_inputs_are_in_the_table_too(tmp_path):
    frame = pd.DataFrame({"n": range(4), "note": list("abcd"), "true": [0, 1, 0, 1], "y": [0, 1, 1, 1]})
    reader = load(frame, label="y", ignore="note", clean="true").reader
    assert reader.summary()[1:] == [
        ("note", "left out", 0, "ignored, as asked"),
        ("true", "left out", 0, "holds the true labels"),
    ]
