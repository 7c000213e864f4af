"""The form of plain data, such as JSON holds: whether a file has what its readers rely on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noisegate.errors import shown


def mismatch(value: Any, form: Any, name: str = "") -> str | None:
    """Describe the first place at which plain data do not have a form; None if they have it.

    Parameters
    ----------
    value : plain data
        As JSON holds it.
    form : type, list, or mapping
        A type: a value of it, and finite; [form]: a list of such values; {name: form}: a mapping that has
        these names and may have others, where entries whose name ends in "?" may be missing or null;
        {...: form}: a mapping of any names to such values.
    name : str, default=""
        What the value is called in the message.

    >>> mismatch({"rows": [1, "2"]}, {"rows": [int], "note?": str})
    "rows holds '2'"
    >>> mismatch({"rows": [1]}, {"rows": [int], "note?": str}) is None
    True
    """
    if isinstance(form, Mapping):
        if not isinstance(value, Mapping):
            return _holds(name, value)
        if ... in form:
            return next((told for k, v in value.items() if (told := mismatch(v, form[...], str(k)))), None)
        for key, inner in form.items():
            plain, optional = key.removesuffix("?"), key.endswith("?")
            if optional and value.get(plain) is None:
                continue
            if plain not in value:
                return f"{name or 'it'} lacks {plain}"
            if told := mismatch(value[plain], inner, plain):
                return told
        return None
    if isinstance(form, list):
        if not isinstance(value, list):
            return _holds(name, value)
        return next((told for inner in value if (told := mismatch(inner, form[0], name))), None)
    if not isinstance(value, form) or (isinstance(value, bool) and not issubclass(bool, form)):
        return _holds(name, value)
    return _holds(name, value) if isinstance(value, float) and not math.isfinite(value) else None


def _holds(name: str, value: Any) -> str:
    return f"{name or 'it'} holds {shown(repr(value), 60)}"
