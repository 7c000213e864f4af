"""Numbers as people write them, against Python's own formatting."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from noisegate.data import TableReader, load
from noisegate.data.tables import numerals
from noisegate.errors import InputError, UnknownNameError

NUMBERS = [0.5, -1234.25, 12.0, 9876543.125, -0.001, 1000000.5]
EUROPEAN = str.maketrans(",.", ".,")
FORMS = {
    "1,234.50": ("point", lambda v: f"{v:,.3f}"),
    "1.234,50": ("comma", lambda v: f"{v:,.3f}".translate(EUROPEAN)),
    "1234,5": ("comma", lambda v: f"{v:.4f}".replace(".", ",")),
    "1 234,50": ("comma", lambda v: f"{v:,.3f}".replace(",", "\u202f").replace(".", ",")),
    "1'234.50": ("point", lambda v: f"{v:,.3f}".replace(",", "'")),
    "$1,234.50": ("point", lambda v: f"${v:,.3f}".replace("$-", "-$")),
    "1,5 %": ("comma", lambda v: f"{v:.4f} %".replace(".", ",")),
    "1.5": ("point", lambda v: f" {v:+.4f} "),
    "1,5e3": ("comma", lambda v: f"{v:.9e}".replace(".", ",")),
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_those_that_were_written(form):
    decimal, write = FORMS[form]
    texts = pa.chunked_array([pa.array([*map(write, NUMBERS), None], pa.large_string())])
    assert numerals.decimals_of(texts) == [decimal]
    np.testing.assert_allclose(numerals.numbers(texts, decimal), [*NUMBERS, np.nan], rtol=1e-12)


@pytest.mark.parametrize(
    "texts",
    [
        ["12", "7"],
        ["a", "1,5"],
        ["1,5", "1.5"],
        ["$5", "€5"],
        ["18.11.2026"],
        ["1,2,3"],
        ["(1.5)"],
        ["1.2.3"],
        ["0,123.4"],
    ],
)
def test_what_is_left_to_others(texts):
    assert numerals.decimals_of(pa.chunked_array([pa.array(texts, pa.large_string())])) == []


def frame(n=40):
    values = np.random.default_rng(0).normal(0, 2000, n).round(2)
    price = [f"{v:,.2f} €".translate(EUROPEAN) for v in values]
    price[3] = None
    return pd.DataFrame({"price": price, "y": ["a", "b"] * (n // 2)}), np.where(
        np.arange(n) == 3, np.nan, values
    )


def test_a_column_with_decimal_commas_is_one_of_numbers_in_frames_and_files(tmp_path):
    table, values = frame()
    table.to_csv(tmp_path / "t.csv", index=False)
    data = load(tmp_path / "t.csv", label="y")
    assert data.reader.summary()[0] == ("price", "number (decimal comma, €)", 2, "one input marks the gaps")
    expected = np.where(np.isnan(values), np.nanmedian(values), values)
    np.testing.assert_allclose(data.train.x[:, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(load(table, label="y").train.x, data.train.x)
    reader = TableReader.from_dict(data.reader.to_dict())
    new = pd.DataFrame({"price": ["1.234", "2,5 €", None]})  # in a file 1.234 would be a plain number
    new.to_csv(tmp_path / "new.csv", index=False)
    for given in (new, tmp_path / "new.csv"):
        np.testing.assert_allclose(reader.read(given)[:, 0], [1234, 2.5, np.nanmedian(values)])
    for bad in ("cheap", "$5", "1.5"):
        with pytest.raises(
            InputError, match=rf"column 'price' was a column of numbers .* row 1 has '{re.escape(bad)}'"
        ):
            reader.read(pd.DataFrame({"price": ["1,5", bad]}))
    with pytest.raises(InputError, match="column 'price' has 1e\\+99 in row 0"):
        reader.read(pd.DataFrame({"price": ["1e99"]}))


def test_numbers_that_can_be_read_in_two_ways_are_named_with_the_remedy():
    table = pd.DataFrame({"n": ["1,234", "56", "7,500"], "m": [1.0, 2.0, 5.0]})
    reader = TableReader.fit(table)
    assert reader.dropped["n"].startswith(
        "numbers such as 1,234 can be read in two ways: say which by decimal=point"
    )
    for decimal, first in (("point", 1234), ("comma", 1.234)):
        chosen = TableReader.fit(table, decimal=decimal)
        assert chosen.read(table)[0, 0] == np.float32(first)
        assert load(table.assign(y=[0, 1, 0]), label="y", decimal=decimal).train.x[0, 0] == np.float32(first)
    with pytest.raises(UnknownNameError, match="unknown decimal mark 'point.'; did you mean 'point'"):
        TableReader.fit(table, decimal="point.")
