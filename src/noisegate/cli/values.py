"""KEY=VALUE on the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from noisegate.errors import InputError

_KINDS: tuple[tuple[type | tuple[type, ...], type | tuple[type, ...], str], ...] = (
    (bool, bool, "true or false"),
    ((int, float), (int, float), "a number"),
    ((list, tuple), list, "a list such as [1, 2]"),
)
_WORDS = {"True": True, "False": False, "None": None}


def parse(text: str) -> Any:
    """Parse a value as JSON or a Python constant; else return the text.

    >>> parse("0.5"), parse("true"), parse("[1, 2]"), parse("adam"), parse("False")
    (0.5, True, [1, 2], 'adam', False)
    """
    if text in _WORDS:
        return _WORDS[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def key_values(items: Sequence[str] | None, flag: str) -> dict[str, Any]:
    """Parse repeated KEY=VALUE options into a dict.

    >>> key_values(["epochs=20", "optimizer=sgd"], "--recipe")
    {'epochs': 20, 'optimizer': 'sgd'}
    """
    values: dict[str, Any] = {}
    for item in items or ():
        key, equals, text = item.partition("=")
        if not equals or not key.strip():
            raise InputError(f"{flag} expects KEY=VALUE, got {item!r}")
        if key.strip() in values:
            raise InputError(f"{flag} {key.strip()} was given twice")
        values[key.strip()] = parse(text)
    return values


def check_kinds(values: Mapping[str, Any], defaults: Mapping[str, Any], flag: str) -> None:
    """Raise InputError for a value of another type than the default.

    Unknown names are checked elsewhere.

    If the default is a string, any type is accepted here: noise_rate="estimate" may also be a number,
    which the method checks.
    """
    for name, value in values.items():
        default = defaults.get(name)
        for kind, accepted, words in _KINDS:
            if isinstance(default, kind):
                # bool is a subclass of int in Python, but True is not meant as 1.
                if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
                    raise InputError(
                        f"{flag} {name} expects {words} (default {json.dumps(default)}), got {value!r}"
                    )
                break
