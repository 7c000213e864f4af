"""The registry of method names, for the estimator, the command line and studies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from noisegate._registry import Registry
from noisegate.errors import InputError, UnknownNameError
from noisegate.methods.base import Method
from noisegate.methods.direct import Plain
from noisegate.objectives import Objective, objective_parameters


@dataclasses.dataclass(frozen=True)
class MethodEntry:
    """A named method: what `noisegate list methods` shows and `--method NAME` builds.

    >>> METHODS["gce"].summary
    'generalised cross-entropy: bounded, between cross-entropy and absolute error'
    >>> METHODS["gce"].create({"q": 0.5})
    Plain(GCE, q=0.5)
    """

    name: str
    summary: str
    paper: str
    build: Callable[..., Method]
    defaults: Mapping[str, Any]

    def create(self, params: Mapping[str, Any]) -> Method:
        """Build the method with some parameters changed. Unknown ones raise UnknownNameError."""
        for name in params:
            if name not in self.defaults:
                raise UnknownNameError(f"parameter of method {self.name!r}", name, self.defaults)
        return self.build(**params)


#: Every named method, in the order of `noisegate list methods`.
METHODS: Registry[MethodEntry] = Registry("method")


def register(name: str, summary: str, paper: str) -> Callable[[type[Method]], type[Method]]:
    """Register a method class under a name; its fields are its parameters. A decorator.

    Parameters
    ----------
    name : str
        The name for `ng.train(data, method=name)` and `noisegate fit --method name`.
    summary, paper : str
        One line each for `noisegate list methods`.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import noisegate as ng
    >>> from noisegate.methods import METHODS, Direct, register
    >>> @register("twice", "cross-entropy, and then once more", "nobody's paper")
    ... @dataclass
    ... class Twice(ng.methods.Method):
    ...     def phases(self, job):
    ...         objective = ng.CrossEntropy(job.n_classes)
    ...         network = job.network(objective)
    ...         for _ in range(2):
    ...             yield ng.Phase(Direct(network, objective), job.recipe)
    ...         return ng.Fitted(network, objective)
    >>> data = ng.data.load("moons", n=100)
    >>> len(ng.train(data, "twice", recipe={"epochs": 1}, device="cpu", progress=False).history)
    2
    >>> _ = METHODS.pop("twice"), ng.methods.Method.classes.pop("Twice")
    """

    def add(kind: type[Method]) -> type[Method]:
        entry = MethodEntry(name, summary, paper, kind, kind().get_params())
        METHODS.add(name, entry, kind.__module__)
        return kind

    return add


def register_objective(
    name: str, objective: type[Objective], paper: str, *, summary: str | None = None, **fixed: Any
) -> None:
    """Register plain training on an objective under a name.

    `fixed` are parameters that differ from the objective's defaults. `summary` distinguishes several names of
    one objective; by default it is the objective's own.

    >>> import noisegate as ng
    >>> from noisegate.methods import METHODS, register_objective
    >>> register_objective("gce-mild", ng.GCE, "Zhang and Sabuncu 2018", q=0.2)
    >>> ng.methods.get("gce-mild")
    Plain(GCE, q=0.2)
    >>> _ = METHODS.pop("gce-mild")
    """

    def build(**params: Any) -> Method:
        return Plain(objective, **{**fixed, **params})

    defaults = {**objective_parameters(objective), **fixed}
    entry = MethodEntry(name, summary or objective.summary, paper, build, defaults)
    METHODS.add(name, entry, objective.__module__)


def get(method: str | Method | Objective | type[Objective], **params: Any) -> Method:
    """Return the method of a name, with some parameters changed; an objective becomes plain training on it.

    >>> get("ln", temperature=0.5)
    Plain(LogisticNormal, temperature=0.5)
    """
    if isinstance(method, str):
        return METHODS[method].create(params)
    if isinstance(method, Objective) or (isinstance(method, type) and issubclass(method, Objective)):
        return Plain(method, **params)
    if not isinstance(method, Method):
        raise InputError(f"expected the name of a method, a Method or an objective, got {method!r}")
    return method
