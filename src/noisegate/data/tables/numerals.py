"""Numbers written as text: with a decimal comma, marks between thousands, a sign of currency or percent."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noisegate.data.tables.frames import as_array

Floats = npt.NDArray[np.float64]

#: Signs that may stand before or after a number.
SIGNS = "[$€£¥%]"
#: Spaces and apostrophes between thousands mean the same in every country.
_THOUSANDS = r"[\x{20}\x{a0}\x{202f}'’]"
#: What stands between the whole part and the rest, by name.
DECIMALS = {"point": ".", "comma": ","}
#: How many values are looked at first: a column of other texts is recognised by these.
_FIRST = 50


def decimals_of(texts: Any) -> list[str]:
    """Return the names of the decimal marks with which all texts (there may be gaps) are numbers.

    Texts that are digits alone (they may be codes) have none, and so have those with several signs. Two names:
    it is not known whether 1,234 is more than a thousand or more than one.

    >>> decimals_of(pa.chunked_array([["1,5", "1.234,25"]]))
    ['comma']
    >>> decimals_of(pa.chunked_array([["1,234", "56"]])), decimals_of(pa.chunked_array([["12", "7"]]))
    (['point', 'comma'], [])
    """
    given = texts.drop_null()
    found = list(DECIMALS)
    for part in (given.slice(0, _FIRST), given):
        found = [name for name in found if len(part) and not np.isnan(numbers(part, name)).any()]
    if not found or pc.all(pc.match_substring_regex(given, r"^\s*[-+]?\d+\s*$")).as_py():
        return []
    if len(signs(given)) > 1:
        return []
    same = len(found) == 2 and (numbers(given, "point") == numbers(given, "comma")).all()
    return found[:1] if same else found


def signs(texts: Any) -> list[str]:
    """Return the signs of currency or percent that occur, each once; an empty text if a number has none.

    >>> signs(pa.array(["5 %", "$5", "5", None]))
    ['%', '$', '']
    """
    texts = texts.drop_null()
    found = pc.extract_regex(texts, rf"(?P<sign>{SIGNS})")
    return pc.fill_null(pc.struct_field(found, "sign"), "").unique().to_pylist()


def numbers(texts: Any, decimal: str) -> Floats:
    """Return the numbers, NaN for gaps and for texts that are no number with that decimal mark.

    >>> numbers(pa.array(["1.234,5", "-0,5 %", "€ 2", "1e3", "1.5"]), "comma").tolist()
    [1234.5, -0.5, 2.0, 1000.0, nan]
    """
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    mark = DECIMALS[decimal]
    other = "." if mark == "," else ","
    between = rf"(?:[{other}]|{_THOUSANDS})"
    whole = rf"(?:[1-9]\d{{0,2}}(?:{between}\d{{3}})+|\d+)"
    pattern = (
        rf"^\s*(?P<minus>[-+−]?)\s*{SIGNS}?\s*(?P<number>{whole}(?:[{mark}]\d+)?|[{mark}]\d+)"
        rf"(?P<power>[eE][-+]?\d+)?\s*{SIGNS}?\s*$"
    )
    parts = pc.extract_regex(texts, pattern)
    digits = pc.replace_substring_regex(pc.struct_field(parts, "number"), rf"[{other}]|{_THOUSANDS}", "")
    plain = pc.binary_join_element_wise(
        pc.replace_substring(pc.struct_field(parts, "minus"), "−", "-"),
        pc.replace_substring(digits, mark, "."),
        pc.struct_field(parts, "power"),
        pa.scalar("", digits.type),
    )
    return as_array(pc.replace_substring(plain, "+", "").cast(pa.float64()))
