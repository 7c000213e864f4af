"""Change one setting of a run by its name: "network", "recipe.epochs", "params.q", "noise.rate", ..."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from noisegate.errors import InputError, UnknownNameError
from noisegate.studies.settings import RunSettings

_NESTED = ("recipe", "params", "noise", "data")
_TOP_LEVEL = ("network", "weights", "validation", "rows", "balanced", "evaluate_every", "noisy_test")


_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "balanced": (lambda value: isinstance(value, bool), "true or false"),
    "noisy_test": (lambda value: isinstance(value, bool), "true or false"),
    "evaluate_every": (lambda value: type(value) is int and value >= 0, "a whole number of at least 0"),
    "rows": (
        lambda value: value is None or (type(value) is int and value > 0),
        "a whole number of at least 1",
    ),
}


def validate(settings: RunSettings) -> None:
    """Build the cheap parts of a run, so that bad settings fail before the first run starts."""
    from noisegate import methods, networks, noise

    params = {k: v for k, v in settings.params.items() if (k, v) != ("noise_rate", "known")}
    try:
        methods.get(settings.method, **params).validate()
        if settings.noise is not None:
            noise.build(settings.noise)
    except TypeError as error:
        raise InputError(f"{settings.method}: {error}") from None
    networks.check_name(settings.network)


def parameter_names(method: str) -> list[str]:
    """Names of a method's parameters."""
    from noisegate import methods

    return list(methods.get(method).get_params())


def changed(settings: RunSettings, name: str, value: Any, touched: list[bool]) -> RunSettings:
    """Change one setting of a run, if the run has it; `touched` records whether it has.

    Unknown settings raise UnknownNameError, invalid values InputError.
    """
    where, _, key = name.partition(".")
    if not key and where in _TOP_LEVEL:
        touched.append(True)
        test, words = _CHECKS.get(where, (lambda value: True, ""))
        if not test(value):
            raise InputError(f"{where} must be {words}, got {value!r}")
        return settings.replace(**{where: value})
    if not key or where not in _NESTED:
        raise UnknownNameError("setting", name, [*_TOP_LEVEL, *known_names()])
    if where == "params" and key not in parameter_names(settings.method):
        touched.append(False)
        return settings
    if where == "noise" and settings.noise is None:
        touched.append(False)
        return settings
    touched.append(True)
    part = {**getattr(settings, where), key: value}
    if where == "recipe":
        from noisegate.training.recipe import Recipe

        # A length in steps unsets the one in epochs, and vice versa. Unknown fields raise an error.
        other = {"epochs": "steps", "steps": "epochs"}.get(key)
        part = {k: v for k, v in part.items() if k != other}
        Recipe.from_dict(part)
    return settings.replace(**{where: part})


def known_names() -> list[str]:
    """What can be changed below the top level."""
    from noisegate.training.recipe import Recipe

    fields = [f"recipe.{f.name}" for f in dataclasses.fields(Recipe)]
    return [*fields, *(f"{where}.NAME" for where in _NESTED[1:])]
