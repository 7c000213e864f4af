"""Marks that people write where a value is missing: -, ?, n/a."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from noisegate.data.tables.frames import as_text, emptied, is_text

#: Texts that stand for a missing value among numbers or dates, in lower case; elsewhere they are values.
MARKS = (
    "", "-", "--", "---", "\u2013", "\u2014", "?", "??", "???", ".", "..", "...", "\u2026", "*", "/",
    "na", "n/a", "n.a.", "n. a.", "#n/a", "#na", "<na>", "nan", "nat", "nil", "none", "null", "(null)",
    "missing", "unknown", "not available", "not known", "not applicable", "tbd", "tba",
    "#null!", "#div/0!", "#value!", "#ref!", "#name?", "#num!",
)  # fmt: skip
_ANY_MARK = rf"(?i)^\s*(?:{'|'.join(map(re.escape, MARKS))})\s*$"


def without_marks(values: Any) -> Any:
    """Texts with None where a mark stands; columns that are no texts, and those without marks, unchanged.

    >>> without_marks(pa.chunked_array([["1", "-", " n/a ", None]])).to_pylist()
    ['1', None, None, None]
    """
    kind = values.type
    if not (is_text(kind) or pa.types.is_dictionary(kind)):
        return values
    texts = as_text(values)
    found = emptied(texts, pc.match_substring_regex(texts, _ANY_MARK))
    return values if found is texts else found
