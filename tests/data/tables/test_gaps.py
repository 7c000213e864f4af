"""What people write where a value is missing, among numbers and dates, and what stays a value."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from noisegate.data import TableReader, load
from noisegate.data.tables.gaps import MARKS
from noisegate.errors import InputError

COLUMNS = {
    "whole": ["3", "-", "12", "7"],
    "measured": ["1.5", "n/a", "2.25", "Unknown"],
    "euros": ["1.234,50 €", "", "12,00 €", "?"],
    "day": ["2026-11-18", "--", "2026-11-19", " - "],
}


def test_marks_among_numbers_and_dates_are_gaps(tmp_path):
    frame = pd.DataFrame(COLUMNS)
    reader = TableReader.fit(frame)
    assert [column.words() for column in reader.columns] == [
        "number",
        "number",
        "number (decimal comma, €)",
        "time",
    ]
    assert all(column.missing for column in reader.columns)
    found = reader.read(frame)
    assert found[:, 0].tolist() == [3, 7, 12, 7]  # the median of 3, 12 and 7
    gaps = found[:, [reader.features.index(f"{name} is missing") for name in COLUMNS]]
    assert gaps.T.tolist() == [[0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1], [0, 1, 0, 1]]
    frame.assign(y=[0, 1, 0, 1]).to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv", label="y")
    np.testing.assert_array_equal(data.train.x, found)
    np.testing.assert_array_equal(reader.read(tmp_path / "t.csv"), found)


@pytest.mark.parametrize("mark", MARKS)
def test_marks_that_training_did_not_have_are_counted(mark, tmp_path):
    reader = TableReader.fit(
        pd.DataFrame({"size": [1, 2, 3], "day": pd.to_datetime(["2026-01-01"] * 2 + ["2026-01-05"])})
    )
    frame = pd.DataFrame({"size": ["1", mark.upper()], "day": [mark, "2026-01-05"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for table in (frame, pa.Table.from_pandas(frame), tmp_path / "t.csv"):
        values, met, _ = reader.read_noting(table)
        assert values.tolist() == [[1, 0], [2, 345600]]
        assert met.gaps == {"size": 1, "day": 1}


def test_marks_among_other_texts_are_values():
    frame = pd.DataFrame({"answer": ["yes", "no", "-", "unknown"], "n": [1, 2, 3, 4]})
    reader = TableReader.fit(frame)
    assert set(reader.columns[0].categories) == {"yes", "no", "-", "unknown"}
    # One number and marks: which of the two it is is all it says. Codes stay codes.
    reader = TableReader.fit(pd.DataFrame({"one": ["5", "-", "5", "-"], "code": ["007", "-", "012", "7"]}))
    assert [column.kind for column in reader.columns] == ["category", "category"]


def test_a_text_that_is_no_mark_is_refused_by_its_row():
    reader = TableReader.fit(pd.DataFrame({"size": [1, 2, 3]}))
    with pytest.raises(
        InputError, match="column 'size' was a column of numbers in training, but row 2 has 'big'"
    ):
        reader.read(pd.DataFrame({"size": ["1", "-", "big"]}))


def test_a_nan_of_arrow_is_a_gap_like_one_of_pandas():
    table = pa.table({"size": pa.array([1.0, float("nan"), 3.0])})
    reader = TableReader.fit(table)
    assert reader.columns == TableReader.fit(table.to_pandas()).columns
    assert reader.read(table).tolist() == [[1, 0], [2, 1], [3, 0]]


def test_empty_texts_are_gaps_as_in_a_file(tmp_path):
    frame = pd.DataFrame({"colour": ["red", "", "blue", " "], "n": [1, 2, 3, 4], "y": list("abab")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    reader = TableReader.fit(frame, label="y")
    assert reader.features == ["colour=blue", "colour=red", "colour is missing", "n"]
    np.testing.assert_array_equal(load(tmp_path / "t.csv", label="y").train.x, reader.read(frame))
