"""Which encoder a column gets, or why it is left out."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noisegate.data.tables import dates, numerals
from noisegate.data.tables.columns import (
    CategoryColumn,
    Column,
    NumberColumn,
    TimeColumn,
    as_numbers,
    as_times,
    as_written_numbers,
)
from noisegate.data.tables.frames import Frame, as_array, as_text, is_text
from noisegate.data.tables.gaps import without_marks
from noisegate.data.tables.text import TextColumn

MAX_CATEGORIES = 100
#: A column of so many single words that the kept ones are in fewer rows than this share is left out.
LEAST_COVERED = 0.1
#: From so many rows on, values that all differ may name the rows.
ROWS_TO_NAME, NUMBERS_TO_NAME = 11, 20
#: Texts of more words than this on average are read as texts...
WORDS = 1.5
#: ... unless the most frequent ones make up half of the rows and come back this often on average.
REPEATED = 3
#: Rows that are looked at to tell texts from single words.
_SAMPLE = 2000
_NAMES_OF_IDS = re.compile(
    r"(^|[_\s.-])(id|ids|uuid|guid|key|index|idx|nr|no|number|row)$|^unnamed: 0$", re.IGNORECASE
)
_CAMEL = re.compile(r"[a-z]I[dD]$")
#: Numbers that are the same text again after a file of text was read: `as_text` writes them like this.
_NUMBER_AS_SHOWN = re.compile(r"-?(0|[1-9]\d{0,8})(\.\d{0,3}[1-9])?|-?[1-9]\d{9,14}")
#: Whole numbers as they are written when they are no codes: 7, but not 007.
_WHOLE = r"^\s*[-+]?(0|[1-9]\d{0,14})\s*$"
#: Scripts without spaces between words.
_UNSPACED = r"[\x{0E00}-\x{0EFF}\x{3040}-\x{30FF}\x{3400}-\x{9FFF}]"


def learn(
    frame: Frame,
    name: str,
    *,
    forced: bool = False,
    order: str | None = None,
    decimal: str | None = None,
    max_categories: int = MAX_CATEGORIES,
) -> Column | str:
    """What a column becomes, or the reason why it is left out.

    Parameters
    ----------
    forced : bool
        The user wants the column, whatever it looks like.
    order : {"ymd", "dmy", "mdy"}, optional
        How dates are written, where that cannot be seen.
    decimal : {"point", "comma"}, optional
        How numbers are written, where that cannot be seen.
    """
    values = frame.column(name)
    missing = values.null_count > 0
    if values.null_count == len(values):
        return "all values are missing"
    kind = values.type
    if is_text(kind) or pa.types.is_dictionary(kind):
        counted = Counted.of(values)
        if len(counted.texts) == 1 and not missing:
            return "constant"
        if len(counted.texts) == 1 or not is_text(
            kind
        ):  # one value and gaps: which of the two is all it says
            return _category(name, counted, max_categories)
        as_measured = _learn_measured(frame, name, values, forced, order, decimal)
        return as_measured or _learn_texts(name, values, counted, forced, max_categories)
    times = pa.types.is_timestamp(kind) or pa.types.is_date(kind)
    numbers = as_times(frame, name, values) if times else as_numbers(frame, name, values)
    if np.nanmin(numbers) == np.nanmax(numbers):
        return _category(name, Counted.of(values), max_categories) if missing else "constant"
    if times:
        return _time(name, numbers, missing, "ymd")
    if not forced and not pa.types.is_boolean(kind) and _numbers_name_rows(name, numbers):
        return "names the rows: a different whole number in each"
    return _number(name, numbers, missing, pa.types.is_boolean(kind))


def _number(name: str, numbers: Any, missing: bool, boolean: bool) -> NumberColumn:
    fill = float(np.nanmedian(numbers))
    # Single precision has 24 bits: a column that is far from zero is counted from its median.
    far = abs(fill) > 1000 * float(np.nanstd(numbers)) or float(np.nanmax(np.abs(numbers))) >= 2**24
    return NumberColumn(name, missing, fill, fill if far else 0.0, boolean)


def _time(name: str, times: Any, missing: bool, order: str) -> TimeColumn:
    origin = float(np.nanmin(times))
    return TimeColumn(name, missing, float(np.nanmedian(times)) - origin, origin, order)


def _numbers_name_rows(name: str, numbers: npt.NDArray[np.float64]) -> bool:
    """Whole numbers that all differ, and are called an id, or leave few gaps between the least and the greatest."""
    n, width = len(numbers), float(np.nanmax(numbers) - np.nanmin(numbers)) + 1
    # The cheap questions first: most columns are no whole numbers, or too few to differ.
    if n < NUMBERS_TO_NAME or width < n or (numbers != np.floor(numbers)).any():
        return False
    dense = n / width >= 0.5
    if not (dense or _NAMES_OF_IDS.search(name.strip()) or _CAMEL.search(name)):
        return False
    return len(np.unique(numbers)) == n


def _learn_measured(
    frame: Frame, name: str, values: Any, forced: bool, order: str | None, decimal: str | None
) -> Column | str | None:
    """What a column of dates or numbers written as text becomes; None if it holds other texts."""
    given = without_marks(values)
    if pc.count_distinct(given).as_py() < 2:
        return None
    found = _learn_dates(frame, name, given, forced, order)
    found = found or _learn_written_numbers(frame, name, given, forced, decimal)
    if found is None and given is not values and pc.all(pc.match_substring_regex(given, _WHOLE)).as_py():
        # Digits alone may be codes, but among codes nobody marks gaps.
        return _number(name, as_numbers(frame, name, given), True, False)
    if found is None and dates.are_clocks(given):
        return _number(name, as_numbers(frame, name, given), given.null_count > 0, False)
    return found


def _learn_dates(
    frame: Frame, name: str, values: Any, forced: bool, order: str | None
) -> Column | str | None:
    """What a column of dates written as text becomes; None if it holds others."""
    found = dates.orders_of(values)
    orders = [order] if order in found else found
    if len(orders) == 1:
        return _time(name, as_times(frame, name, values, orders[0]), values.null_count > 0, orders[0])
    if not orders or forced:
        return None
    example = values.drop_null()[0].as_py()
    ways = " or ".join(f"dates={each} ({dates.FIRST[each]})" for each in orders)
    count = "two" if len(orders) == 2 else "three"
    return (
        f"dates such as {example} can be read in {count} ways: say which by {ways}, "
        "or write them as 2026-11-18"
    )


def _learn_written_numbers(
    frame: Frame, name: str, values: Any, forced: bool, decimal: str | None
) -> Column | str | None:
    """What a column of numbers such as 1.234,50 or $5 becomes; None if it holds other texts."""
    found = numerals.decimals_of(values)
    decimals = [decimal] if decimal in found else found
    if len(decimals) == 1:
        (sign,) = numerals.signs(values)
        numbers = as_written_numbers(frame, name, values, decimals[0], sign)
        plain = _number(name, numbers, values.null_count > 0, False)
        return dataclasses.replace(plain, decimal=decimals[0], sign=sign)
    if not decimals or forced:
        return None
    example = next(text for text in values.drop_null().to_pylist() if "," in text or "." in text)
    return (
        f"numbers such as {example} can be read in two ways: say which by decimal=point or decimal=comma, "
        "or write them without marks between thousands"
    )


def _learn_texts(name: str, values: Any, counted: Counted, forced: bool, max_categories: int) -> Column | str:
    """Texts, categories, or nothing: single words of which each row has its own."""
    # The same few texts over and over are categories, whatever they look like.
    distinct, n = len(counted.texts), len(values) - values.null_count
    common = counted.counts[:max_categories].sum()
    few = common >= n / 2 and common >= REPEATED * min(distinct, max_categories)
    if n >= ROWS_TO_NAME and not few and (_is_prose(values) or (forced and distinct > max_categories)):
        return TextColumn.learn(name, values)
    if distinct == n >= ROWS_TO_NAME and not forced:
        return "names the rows: a different text in each"
    return _category(name, counted, max_categories)


def _is_prose(values: Any) -> bool:
    """Whether texts are made of several words, or are long in a script that has no spaces."""
    given = values.drop_null()
    step = max(1, len(given) // _SAMPLE)
    some = pc.utf8_trim_whitespace(given.take(np.arange(0, len(given), step)))
    words = pc.mean(pc.count_substring_regex(some, r"\s+")).as_py() + 1
    unspaced = pc.mean(pc.count_substring_regex(some, _UNSPACED)).as_py()
    return bool(words >= WORDS or unspaced >= 6)


@dataclass(frozen=True)
class Counted:
    """The distinct values of a column as (Arrow) texts, the most frequent first, and how often each occurs."""

    texts: Any
    counts: npt.NDArray[np.int64]
    gaps: int

    @classmethod
    def of(cls, values: Any) -> Counted:
        counted = pc.value_counts(as_text(values.drop_null()))
        counts = as_array(counted.field(1))
        # By their text where the counts are equal, so that the order of the rows does not matter.
        order = pc.sort_indices(
            pa.table({"count": counted.field(1), "text": counted.field(0)}),
            sort_keys=[("count", "descending"), ("text", "ascending")],
        )
        return cls(counted.field(0).take(order), counts[as_array(order)], values.null_count)


def _category(name: str, counted: Counted, max_categories: int) -> Column | str:
    kept = tuple(counted.texts.slice(0, max_categories).to_pylist())
    covered = counted.counts[:max_categories].sum() / (counted.counts.sum() + counted.gaps)
    others = len(counted.texts) - len(kept)
    if covered < LEAST_COVERED and others:
        return (
            f"{len(counted.texts):,} different single words, the {len(kept)} most frequent in {covered:.1%} "
            "of the rows"
        )
    numbers = all(_NUMBER_AS_SHOWN.fullmatch(text) for text in kept)
    return CategoryColumn(name, counted.gaps > 0, kept, others, not numbers)
