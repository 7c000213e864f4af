"""`noisegate list`: print the registries."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from noisegate.cli import output

_SKIPPED = ("n_classes", "weight", "ignore_index", "reduction", "shared")


def show(what: str) -> None:
    """Print the registry called `what`."""
    {"methods": _methods, "objectives": _objectives, "noises": _noises, "networks": _networks}[what]()


def _methods() -> None:
    from noisegate.methods import METHODS

    rows = [(e.name, e.summary, defaults(e.defaults), e.paper) for e in METHODS.values()]
    output.table(rows, ["method", "what it does", "parameters", "paper"])
    output.say("noisegate fit DATA --method NAME --param KEY=VALUE")


def _objectives() -> None:
    from noisegate.objectives import OBJECTIVES, objective_parameters

    rows = [
        (name, kind.summary or first_line(kind), defaults(objective_parameters(kind)), reference(kind))
        for name, kind in OBJECTIVES.items()
    ]
    output.table(rows, ["objective", "what it is", "parameters", "paper"])
    output.say("import noisegate as ng; objective = ng.NAME(n_classes, KEY=VALUE)")


def _noises() -> None:
    from noisegate.noise import NOISES

    rows = [(name, first_line(kind), parameters(kind), reference(kind)) for name, kind in NOISES.items()]
    output.table(rows, ["noise", "what it does", "parameters", "paper"])
    output.say("noisegate data corrupt DATA --noise NAME --out FILE")


def _networks() -> None:
    from noisegate.networks import NETWORKS

    output.table([(e.name, e.description) for e in NETWORKS.values()], ["network", "what it is"])
    output.say("noisegate fit DATA --network NAME")


def defaults(values: Mapping[str, Any]) -> str:
    """Format parameters with their defaults; required ones have none.

    >>> defaults({"rate": inspect.Parameter.empty, "std": 0.1})
    'rate, std=0.1'
    """
    shown = (
        name if value is inspect.Parameter.empty else f"{name}={value}" for name, value in values.items()
    )
    return ", ".join(shown) or "none"


def parameters(kind: type) -> str:
    """Parameters of a constructor with their defaults."""
    found = inspect.signature(kind).parameters.items()
    return defaults({name: parameter.default for name, parameter in found if name not in _SKIPPED})


def first_line(kind: type) -> str:
    """The first line of a docstring, without the full stop."""
    return (inspect.getdoc(kind) or "").partition("\n")[0].rstrip(".")


def reference(kind: type) -> str:
    """The "References" section of a docstring as one line.

    >>> from noisegate.noise import InstanceDependent
    >>> reference(InstanceDependent)
    'Xia et al., Part-dependent label noise: towards instance-dependent label noise, NeurIPS 2020'
    """
    _, heading, rest = (inspect.getdoc(kind) or "").partition("References\n----------\n")
    return " ".join(rest.partition("\n\n")[0].split()).rstrip(".") if heading else ""
