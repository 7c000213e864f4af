"""Papers' tables as text, one line per row, to compare with the paper by eye."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from noisegate.studies.study import Number


def number(text: str) -> Number:
    """A number as printed: "98.85±0.18", in ** where the paper prints it bold, with *, † or ‡ of its test.

    >>> number("**98.85±0.18**")
    Number(mean=98.85, std=0.18, mark='bold')
    >>> number("-1.109‡")
    Number(mean=-1.109, std=None, mark='‡')
    """
    bold = text.startswith("**") and text.rstrip("*†‡").count("**") >= 1
    found = re.match(r"^(-?\d+(?:\.\d+)?)(?:±(\d+(?:\.\d+)?))?", text.strip("*"))
    if found is None:
        raise ValueError(f"not a number of a table: {text!r}")
    rest = text.replace("**", "")
    stars = "".join(sign for sign in rest[-1:] if sign in "*†‡")
    mark = " ".join(filter(None, ["bold" if bold else "", stars]))
    return Number(float(found[1]), None if found[2] is None else float(found[2]), mark)


def table(columns: Sequence[str], text: str) -> Mapping[str, Mapping[str, Number]]:
    """Rows of a table by label.

    The label, a bar, then one number a column ("-" where there is none).

    >>> table(["0 %", "20 %"], '''
    ... CE | 99.27±0.07 88.41±0.34
    ... LN | **99.38±0.06** -
    ... ''')["LN"]
    {'0 %': Number(mean=99.38, std=0.06, mark='bold')}
    """
    rows: dict[str, dict[str, Number]] = {}
    for line in text.strip().splitlines():
        label, _, cells = line.partition("|")
        values = cells.split()
        if len(values) != len(columns):
            raise ValueError(f"row {label.strip()!r} has {len(values)} numbers, expected {len(columns)}")
        pairs = zip(columns, values, strict=True)
        rows[label.strip()] = {column: number(value) for column, value in pairs if value != "-"}
    return rows
