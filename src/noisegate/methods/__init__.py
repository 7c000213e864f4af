"""Methods: how a noisy dataset becomes a classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from noisegate.errors import InputError, UnknownNameError
from noisegate.methods.base import Batch, Method, MethodEntry, Phase, PhaseModule
from noisegate.methods.direct import Direct, Plain
from noisegate.objectives import CrossEntropy, LogisticNormal, Objective, objective_parameters

METHODS: dict[str, MethodEntry] = {}


def register(
    name: str, summary: str, paper: str, build: Callable[..., Method], defaults: dict[str, Any]
) -> None:
    """Give a method a name for the estimator, the command line and studies."""
    METHODS[name] = MethodEntry(name, summary, paper, build, defaults)


def register_objective(name: str, objective: type[Objective], paper: str, **fixed: Any) -> None:
    """Give plain training on an objective a name; `fixed` are parameters that differ from its defaults."""

    def build(**params: Any) -> Method:
        return Plain(objective, **{**fixed, **params})

    register(name, objective.summary, paper, build, {**objective_parameters(objective), **fixed})


register_objective("ce", CrossEntropy, "the common baseline")
register_objective("ln", LogisticNormal, "Englesson et al. 2023, Logistic-Normal likelihoods")


def get(method: str | Method | Objective | type[Objective], **params: Any) -> Method:
    """The method of a name, with some parameters changed; objectives become plain training on them.

    >>> get("ln", temperature=0.5)
    Plain(LogisticNormal, temperature=0.5)
    """
    if isinstance(method, str):
        if method not in METHODS:
            raise UnknownNameError("method", method, METHODS)
        return METHODS[method].create(params)
    if isinstance(method, Objective) or (isinstance(method, type) and issubclass(method, Objective)):
        return Plain(method, **params)
    if not isinstance(method, Method):
        raise InputError(f"expected the name of a method, a Method or an objective, got {method!r}")
    return method


__all__ = [
    "METHODS",
    "Batch",
    "Direct",
    "Method",
    "MethodEntry",
    "Phase",
    "PhaseModule",
    "Plain",
    "get",
    "register",
    "register_objective",
]
