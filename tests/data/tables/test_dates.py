"""Dates in three orders, against datetime."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from noisegate.data import TableReader, load
from noisegate.data.tables.dates import orders_of, seconds
from noisegate.errors import InputError, UnknownNameError

FORMS = {
    "ymd": ["%Y-%m-%d", "%Y/%m/%d", "%Y-%m-%dT%H:%M:%S", "%Y.%m.%d %H:%M"],
    "dmy": ["%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y %H:%M:%S"],
    "mdy": ["%m/%d/%Y", "%m-%d-%Y %H:%M", "%m/%d/%Y %I:%M %p", "%m/%d/%Y, %I:%M:%S%p", "%m/%d/%y"],
}
NAMED = [
    "%d %B %Y",
    "%d-%b-%Y %H:%M",
    "%d-%b-%y",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%B %d, %Y %I:%M %p",
    "%b. %d %Y",
]


@pytest.mark.parametrize(
    ("order", "form"),
    [(order, form) for order, forms in (*FORMS.items(), ("ymd", NAMED)) for form in forms],
)
def test_dates_are_those_of_datetime(order, form):
    rng = np.random.default_rng(0)
    days = [
        datetime.datetime(1970, 1, 1) + datetime.timedelta(minutes=int(m)) for m in rng.integers(5e7, size=99)
    ]
    texts = pa.array([day.strftime(form) for day in days])
    read = [datetime.datetime.strptime(text, form) for text in texts.to_pylist()]
    expected = [(day - datetime.datetime(1970, 1, 1)).total_seconds() for day in read]
    np.testing.assert_array_equal(seconds(texts, order), expected)
    assert orders_of(texts) == [order]


@pytest.mark.parametrize(
    "text",
    [
        "31/02/2026",
        "1/13/2026",
        "0/1/2026",
        "1/1/2026 25:00",
        "1/1/2026 13:00 pm",
        "x 1/1/2026",
        "18/11/2026!",
        "1.2.10",
        "3 maryam 2026",
        "March 2026",
        "31 Feb 2026",
        "0 May 2026",
    ],
)
def test_what_is_no_date(text):
    assert np.isnan([seconds(pa.array([text]), order) for order in ("ymd", "dmy")]).all()


def test_an_order_that_can_only_be_one_is_recognised():
    frame = pd.DataFrame({"day": ["18/11/2026", "03/04/2026", None], "n": [1, 2, 3]})
    reader = TableReader.fit(frame)
    assert reader.columns[0].words() == "time (day/month/year)"
    first = datetime.datetime(2026, 4, 3), datetime.datetime(2026, 11, 18)
    assert reader.read(frame)[0, 0] == (first[1] - first[0]).total_seconds()
    # New dates are read in that order, or beginning with the year.
    assert reader.read(frame.assign(day="04/04/2026"))[0, 0] == 86400
    assert reader.read(frame.assign(day="2026-04-04"))[0, 0] == 86400
    with pytest.raises(InputError, match=r"row 1 has '04/18/2026' \(times are read as 18/11/2026\)"):
        reader.read(frame.assign(day=["04/04/2026", "04/18/2026", None]))


def test_an_order_that_is_not_known_is_named_with_the_remedy(tmp_path):
    frame = pd.DataFrame({"day": ["03/04/2026", "05/06/2026"] * 5, "n": range(10), "y": [0, 1] * 5})
    reader = TableReader.fit(frame, label="y")
    assert reader.dropped["day"].startswith(
        "dates such as 03/04/2026 can be read in two ways: say which by dates=dmy"
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    for order, day in (("dmy", datetime.datetime(2026, 6, 5)), ("mdy", datetime.datetime(2026, 5, 6))):
        data = load(tmp_path / "t.csv", label="y", dates=order)
        start = datetime.datetime(2026, 4, 3) if order == "dmy" else datetime.datetime(2026, 3, 4)
        assert data.train.x[1, 0] == (day - start).total_seconds()
    with pytest.raises(UnknownNameError, match="unknown order of dates 'german'"):
        load(tmp_path / "t.csv", label="y", dates="german")


def test_two_digits_of_a_year_can_be_read_in_several_ways():
    texts = pa.array(["18/11/26", "03/04/25"])
    assert orders_of(texts) == ["ymd", "dmy"]
    assert orders_of(pa.array(["03/04/05"])) == ["ymd", "dmy", "mdy"]
    assert orders_of(pa.array(["18/11/99", "03/04/05"])) == ["dmy"]
    frame = pd.DataFrame({"day": texts.to_pylist() * 5, "n": range(10)})
    reason = TableReader.fit(frame).dropped["day"]
    assert "two ways: say which by dates=ymd (year first) or dates=dmy (day first)" in reason
    day = TableReader.fit(frame, dates="dmy").read(frame)[0, 0]
    assert day == (datetime.datetime(2026, 11, 18) - datetime.datetime(2025, 4, 3)).total_seconds()


def test_times_of_day_are_seconds(tmp_path):
    times = ["09:30", "23:59:30", "-", "00:15"]
    frame = pd.DataFrame({"at": times, "half": ["9:30 am", "12:05 PM", "", "1:00 p.m."], "y": [0, 1, 0, 1]})
    reader = TableReader.fit(frame, label="y")
    expected = [[34200, 0, 34200, 0], [86370, 0, 43500, 0], [34200, 1, 43500, 1], [900, 0, 46800, 0]]
    assert reader.read(frame).tolist() == expected
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert reader.read(tmp_path / "t.csv").tolist() == expected
    assert load(tmp_path / "t.csv", label="y").train.x.tolist() == expected
