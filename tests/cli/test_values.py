"""KEY=VALUE."""

import pytest

from noisegate.cli.values import check_kinds, key_values
from noisegate.errors import InputError


def test_values_are_json_where_possible():
    given = ["a=1", "b=0.5", "c=true", "d=null", "e=[1, 2]", "f=adam", "g=x=y", "h="]
    expected = {"a": 1, "b": 0.5, "c": True, "d": None, "e": [1, 2], "f": "adam", "g": "x=y", "h": ""}
    assert key_values(given, "--recipe") == expected
    assert key_values(None, "--recipe") == {}


@pytest.mark.parametrize(
    ("items", "words"), [(["epochs"], "KEY=VALUE"), (["=3"], "KEY=VALUE"), (["a=1", "a=2"], "twice")]
)
def test_other_forms_are_refused(items, words):
    with pytest.raises(InputError, match=words):
        key_values(items, "--recipe")


@pytest.mark.parametrize(
    ("value", "default", "words"),
    [
        ("hot", 1.0, "a number"),
        (True, 1.0, "a number"),
        (1, True, "true or false"),
        (0.9, [0.9, 0.999], "a list"),
    ],
)
def test_the_kind_of_the_default_is_asked_for(value, default, words):
    with pytest.raises(InputError, match=f"--param t expects {words}"):
        check_kinds({"t": value}, {"t": default}, "--param")


def test_values_of_the_right_kind_pass():
    values = {"a": 1, "b": False, "c": "x", "d": [1], "unknown": object()}
    check_kinds(values, {"a": 0.5, "b": True, "c": "y", "d": (2,)}, "--param")
    check_kinds(
        {"noise_rate": 0.3, "transition": [[1]]}, {"noise_rate": "estimate", "transition": "estimate"}, "-"
    )
