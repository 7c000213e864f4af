"""Times written as text, in one of three orders of day, month and year."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noisegate.data.tables.frames import as_array

Floats = npt.NDArray[np.float64]

_HALF = r"\s?(?P<half>[AaPp]\.?[Mm]\.?)?"
_CLOCK = (
    r"(?:,?[T ]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:[.,]\d{1,9})?))?"
    rf"{_HALF}\s?(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)?)?"
)
#: Two digits of a year stand after a stroke only, since 1.2.10 may be a version and 03-04-25 a number.
_DATES = {
    "ymd": r"(?:(?P<year>\d{4})[-/.]|(?P<short>\d\d)/)(?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "dmy": r"(?P<day>\d{1,2})[-/.](?P<month>\d{1,2})(?:[-/.](?P<year>\d{4})|/(?P<short>\d\d))",
    "mdy": r"(?P<month>\d{1,2})[-/.](?P<day>\d{1,2})(?:[-/.](?P<year>\d{4})|/(?P<short>\d\d))",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = (
    r"(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?\s+)?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?"
#: Months by their English names can be read in one way: 18 November 2026, 18-Nov-26, November 18th, 2026.
_NAMED = (
    rf"(?i:{_WEEKDAY}{_DAY}[\s-]+{_NAME}[\s,-]+)(?:(?P<year>\d{{4}})|(?P<short>\d\d))",
    rf"(?i:{_WEEKDAY}{_NAME}\s+{_DAY},?\s+)(?P<year>\d{{4}})",
)
#: Years of two digits from this one on belong to the twentieth century.
_OLDEST = 69
ORDERS = tuple(_DATES)
#: Orders as people call them.
NAMES = {"ymd": "year-month-day", "dmy": "day/month/year", "mdy": "month/day/year"}
FIRST = {"ymd": "year first", "dmy": "day first", "mdy": "month first"}
#: How many values are looked at first: a column of other texts is recognised by these.
_FIRST = 50


def orders_of(texts: Any) -> list[str]:
    """The orders in which all texts (there may be gaps) are dates: several where it is not known which.

    >>> orders_of(pa.chunked_array([["18/11/2026", "03/04/2026"]]))
    ['dmy']
    >>> orders_of(pa.chunked_array([["03/04/2026"]]))
    ['dmy', 'mdy']
    """
    given = texts.drop_null()
    found = list(ORDERS)
    for part in (given.slice(0, _FIRST), given):
        found = [order for order in found if len(part) and not np.isnan(seconds(part, order)).any()]
    return found


def seconds(texts: Any, order: str) -> Floats:
    """Seconds since 1970 (UTC), NaN for gaps and for texts that are no date of that order.

    >>> seconds(pa.array(["1970-01-02", "1970-01-01 00:01:30.5", "1970-01-01T02:00+0100", "soon"]), "ymd").tolist()
    [86400.0, 90.5, 3600.0, nan]
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    trimmed = pc.utf8_trim_whitespace(texts)
    total = np.full(len(texts), np.nan)
    for date in (_DATES[order], *(_NAMED if order == "ymd" else ())):
        parts = pc.extract_regex(trimmed, rf"^{date}{_CLOCK}$")
        if parts.null_count < len(parts):
            total = np.where(np.isnan(total), _seconds_of(parts), total)
    return total


def _seconds_of(parts: Any) -> Floats:
    """Seconds since 1970 of the named parts of dates; NaN where there are none, or no such day."""
    there = as_array(pc.is_valid(parts))
    named = any(field.name == "name" for field in parts.type)
    month = _months(parts) if named else _numbers(parts, "month", 1)
    day, year = _numbers(parts, "day", 1), _numbers(parts, "year", 0)
    if any(field.name == "short" for field in parts.type):
        short = _numbers(parts, "short", -1)
        year = np.where(short < 0, year, short + np.where(short < _OLDEST, 2000, 1900))
    hour, minute, second = (_numbers(parts, name, 0) for name in ("hour", "minute", "second"))
    hour = _of_24(hour, parts)
    usable = there & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 61)
    years, months, days = (np.where(usable, part, 1).astype(np.int64) for part in (year, month, day))
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    dates = first.astype("datetime64[D]") + (days - 1)
    usable &= dates.astype("datetime64[M]") == first  # the 31st of February is in March
    total = dates.astype(np.int64) * 86400.0 + hour * 3600 + minute * 60 + second - _offsets(parts)
    return np.where(usable, total, np.nan)


def clock(texts: Any) -> Floats:
    """Seconds since midnight, or of a length of time; NaN for gaps and for other texts.

    >>> clock(pa.array(["09:30", "9:30 pm", "36:00:01.5", "soon"])).tolist()
    [34200.0, 77400.0, 129601.5, nan]
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    form = r"(?P<hour>\d{1,3}):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d(?:[.,]\d{1,9})?))?"
    parts = pc.extract_regex(pc.utf8_trim_whitespace(texts), rf"^{form}{_HALF}$")
    hour, minute, second = (_numbers(parts, name, 0) for name in ("hour", "minute", "second"))
    total = _of_24(hour, parts) * 3600 + minute * 60 + second
    return np.where(as_array(pc.is_valid(parts)), total, np.nan)


def are_clocks(texts: Any) -> bool:
    """Whether all texts (there may be gaps) are times of day or lengths of time."""
    given = texts.drop_null()
    return all(not np.isnan(clock(part)).any() for part in (given.slice(0, _FIRST), given))


def _of_24(hour: Floats, parts: Any) -> Floats:
    """Hours from midnight; NaN where am or pm stands after an hour that no clock of twelve has."""
    half = pc.struct_field(parts, "half")
    named, afternoon = (as_array(pc.match_substring_regex(half, form), 0) for form in ("^.", "^[pP]"))
    usable = ~named | ((hour >= 1) & (hour <= 12))
    return np.where(usable, np.where(named, hour % 12 + 12 * afternoon, hour), np.nan)


def _months(parts: Any) -> Floats:
    """Numbers of months from their English names."""
    names = pc.utf8_lower(pc.struct_field(parts, "name")).dictionary_encode()
    numbers = np.array([*(_MONTHS.index(name[:3]) + 1 for name in names.dictionary.to_pylist()), 1.0])
    return np.asarray(numbers[as_array(names.indices, -1)])  # -1: there is no date


def _numbers(parts: Any, name: str, default: float) -> Floats:
    """One named part of all texts as numbers; the default where it is not there."""
    values = pc.replace_substring(pc.struct_field(parts, name), ",", ".")
    values = pc.if_else(pc.match_substring_regex(values, "^$"), pa.nulls(1, values.type)[0], values)
    return as_array(values.cast(pa.float64()), default)


def _offsets(parts: Any) -> Floats:
    """Seconds by which the clock is ahead of UTC."""
    zones = pc.struct_field(parts, "zone").dictionary_encode()
    offsets = np.array([*map(_offset, zones.dictionary.to_pylist()), 0.0])
    return np.asarray(offsets[as_array(zones.indices, -1)])  # -1: there is no date, so there is no zone


def _offset(zone: str) -> float:
    if zone in ("", "Z", "UTC", "GMT"):
        return 0.0
    digits = zone[1:].replace(":", "")
    return (int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0) * (-1 if zone[0] == "-" else 1)
