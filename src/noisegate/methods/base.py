"""`Method`, the base class: a method is a generator of phases."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from noisegate._registry import Registry
from noisegate.errors import InputError, UnknownNameError
from noisegate.objectives import Objective, objective_parameters
from noisegate.training.job import Job
from noisegate.training.phase import Batch, History, Phase, PhaseModule, Phases, Update

__all__ = ["Batch", "History", "Method", "Phase", "PhaseModule", "Phases", "Update", "build_objective"]

#: Marks the fields made by `later`.
_LATER = "noisegate.later"


def build_objective(
    spec: str | type[Objective] | Objective | Mapping[str, Any],
    n_classes: int,
    *,
    allowed: Sequence[str],
    method: str,
    why: str,
) -> Objective:
    """Build the objective of a method; an objective that the method cannot use raises InputError.

    Parameters
    ----------
    spec : str, type of Objective, Objective, or mapping
        The name of a class, a class, an instance (which is copied), or the result of `to_dict`.
    allowed : sequence of str
        Names of the classes that make sense.
    method, why : str
        Name of the method and reason of a refusal, for the message: "it selects labels by their small cost".
    """
    kind = Objective.classes[spec] if isinstance(spec, str) else spec
    kind = Objective.from_dict(kind) if isinstance(kind, Mapping) else kind
    name = kind.__name__ if isinstance(kind, type) else type(kind).__name__
    if name not in allowed:
        raise InputError(f"{method} does not go with {name}: {why}; it goes with {', '.join(allowed)}")
    if isinstance(kind, type):
        lacking = [k for k, v in objective_parameters(kind).items() if v is inspect.Parameter.empty]
        if lacking:
            raise InputError(f"{name} needs its {', '.join(lacking)}: hand {method} an instance of it")
        return kind(n_classes)
    if kind.n_classes != n_classes:
        raise InputError(f"{method} was given {name} for {kind.n_classes} classes, the data has {n_classes}")
    return copy.deepcopy(kind)


class Method(ABC):
    """How a noisy dataset becomes a classifier.

    A subclass is a dataclass whose fields are its parameters, and defines `phases`. One without
    parameters may be a plain class.

    Attributes
    ----------
    needs_validation : bool
        Whether it always needs noisy validation rows, even if the recipe does not.
    one_network : bool
        Whether it trains only one network on one objective. Among runs that differ only in the method, the
        memory is measured on one for which this is false.

    Examples
    --------
    >>> import noisegate as ng
    >>> method = ng.methods.get("co-teaching", noise_rate=0.4)
    >>> isinstance(method, ng.methods.Method), method.get_params()["noise_rate"]
    (True, 0.4)
    >>> data = ng.data.load("moons", n=100).corrupt(ng.noise.Symmetric(0.4), seed=0)
    >>> fitted = ng.train(data, method, recipe={"epochs": 1}, device="cpu", progress=False)
    >>> fitted.predict(data.test.x[:5]).shape
    (5,)
    """

    needs_validation: ClassVar[bool] = False
    one_network: ClassVar[bool] = False
    #: Whether it accepts labels for every pixel.
    takes_maps: ClassVar[bool] = False
    #: Every method class by name; model folders refer to these names.
    classes: ClassVar[Registry[type[Method]]] = Registry("method class")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Method.classes.add(cls.__name__, cls, cls.__module__)

    @abstractmethod
    def phases(self, job: Job) -> Phases:
        """Yield phases, get their histories, return the `Fitted` that predicts.

        Code between phases must be deterministic given the modules and the seeded random state: a
        resumed run replays it.
        """

    def validate(self, n_classes: int = 10) -> None:  # noqa: B027
        """Raise InputError for invalid parameters, as far as they can be checked before training.

        Parameters
        ----------
        n_classes : int, default=10
            Number of classes of the data; a study does not know it before it has loaded the data.
        """

    def why_one_process(self) -> str | None:
        """The reason why a run cannot be spread over several processes; None if it can.

        It can if the loss of a batch is a sum of `weighted_mean`s over its rows.
        """
        return None

    @property
    def title(self) -> str:
        """The name in progress bars."""
        return type(self).__name__

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as in scikit-learn."""
        kind = type(self)
        if "__dataclass_fields__" not in vars(kind) and vars(kind).keys() & {"__init__", "__annotations__"}:
            raise InputError(
                f"the parameters of {kind.__name__} must be fields of a dataclass, so that they are stored with "
                "its results: write @dataclass above the class"
            )
        names: list[str] = (
            [f.name for f in dataclasses.fields(self)] if dataclasses.is_dataclass(self) else []
        )
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Method:
        """Change parameters in place, as in scikit-learn. Unknown ones raise UnknownNameError."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise UnknownNameError(f"parameter of {type(self).__name__}", name, known)
            setattr(self, name, value)
        return self

    def settings(self) -> dict[str, Any]:
        """The class and the parameters as plain data, for results and model files.

        A parameter made by `later` is left out if it has its default value.
        """
        silent = {f.name: f.default for f in _later_fields(self)}
        params = {k: v for k, v in self.get_params().items() if k not in silent or v != silent[k]}
        return {"class": type(self).__name__} | {k: _as_json(v) for k, v in params.items()}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Method:
        """The inverse of `settings`."""
        params = dict(settings)
        return Method.classes[params.pop("class", None)](**params)

    def __sklearn_clone__(self) -> Method:
        return copy.deepcopy(self)


def later(default: Any) -> Any:
    """Declare a parameter that was added to a method after results of the method had been stored.

    Its default must reproduce the earlier behaviour. With the default value the parameter is not part of the
    settings, so that the keys of stored runs do not change.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Softer(Method):
    ...     rate: float = later(0.1)
    ...     def phases(self, job): ...
    >>> Softer().settings(), Softer(rate=0.2).settings()
    ({'class': 'Softer'}, {'class': 'Softer', 'rate': 0.2})
    """
    return dataclasses.field(default=default, metadata={_LATER: True})


def _later_fields(method: Method) -> list[dataclasses.Field[Any]]:
    found: tuple[dataclasses.Field[Any], ...] = ()
    if dataclasses.is_dataclass(method):
        found = dataclasses.fields(method)
    return [f for f in found if f.metadata.get(_LATER)]


def _as_json(value: Any) -> Any:
    """Convert matrices to nested lists and objectives to dicts, for JSON and `from_settings`."""
    if isinstance(value, Objective):
        return value.to_dict()
    if isinstance(value, type) and issubclass(value, Objective):
        return value.__name__
    return value.tolist() if isinstance(value, Tensor | np.ndarray | np.generic) else value
