"""Times written as text, in one of three orders of day, month and year."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noisegate.data.tables.frames import as_array

Floats = npt.NDArray[np.float64]

_CLOCK = (
    r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d(?:[.,]\d{1,9})?))?"
    r"\s?(?P<zone>Z|[+-]\d\d:?\d\d)?)?"
)
_DATES = {
    "ymd": r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
    "dmy": r"(?P<day>\d{1,2})(?P<mark>[-/.])(?P<month>\d{1,2})[-/.](?P<year>\d{4})",
    "mdy": r"(?P<month>\d{1,2})(?P<mark>[-/.])(?P<day>\d{1,2})[-/.](?P<year>\d{4})",
}
ORDERS = tuple(_DATES)
#: Orders as people call them.
NAMES = {"ymd": "year-month-day", "dmy": "day/month/year", "mdy": "month/day/year"}
#: How many values are looked at first: a column of other texts is recognised by these.
_FIRST = 50


def orders_of(texts: Any) -> list[str]:
    """The orders in which all texts (there may be gaps) are dates: none, one, or two where it is not known which.

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
    parts = pc.extract_regex(trimmed, rf"^{_DATES[order]}{_CLOCK}$")
    there = as_array(pc.is_valid(parts))
    year, month, day = (_numbers(parts, name, 1) for name in ("year", "month", "day"))
    hour, minute, second = (_numbers(parts, name, 0) for name in ("hour", "minute", "second"))
    usable = there & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 61)
    years, months, days = (np.where(usable, part, 1).astype(np.int64) for part in (year, month, day))
    first = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
    dates = first.astype("datetime64[D]") + (days - 1)
    usable &= dates.astype("datetime64[M]") == first  # the 31st of February is in March
    total = dates.astype(np.int64) * 86400.0 + hour * 3600 + minute * 60 + second - _offsets(parts)
    return np.where(usable, total, np.nan)


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
    if zone in ("", "Z"):
        return 0.0
    digits = zone[1:].replace(":", "")
    return (int(digits[:2]) * 3600.0 + int(digits[2:]) * 60.0) * (-1 if zone[0] == "-" else 1)
