"""One network, one objective, one phase."""

from __future__ import annotations

import copy
import inspect
from typing import Any

from torch import Tensor, nn

from noisegate.errors import InputError, UnknownNameError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.objectives import Objective, objective_parameters, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases


class Direct(PhaseModule):
    """One network trained on one objective.

    The loss is the weighted mean of the costs of the given labels.

    >>> import torch
    >>> import noisegate as ng
    >>> module = Direct(torch.nn.Linear(2, 3), ng.CrossEntropy(3))
    >>> rows = torch.arange(4)
    >>> batch = Batch(torch.zeros(4, 2), rows % 3, rows, torch.ones(4), torch.tensor(0))
    >>> module(batch).shape, module.predictor()[1].n_classes
    (torch.Size([]), 3)
    """

    def __init__(self, network: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.network = network
        self.objective = objective

    def forward(self, batch: Batch) -> Tensor:
        losses, weights = self.objective.losses_and_weights(self.network(batch.x), batch.y)
        # A map has a loss for every pixel and one weight.
        own = batch.weight.to(losses.dtype).view(-1, *[1] * (losses.dim() - 1))
        return weighted_mean(losses, weights * own)

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.network, self.objective


#: Parameters that all objectives share and that change what is learnt, with their defaults.
_SHARED = {name: inspect.signature(Objective).parameters[name].default for name in ("weight", "ignore_index")}


class Plain(Method):
    """Train one network on one objective, as `ce`, `ln` and the other named objectives do.

    Parameters
    ----------
    objective : type of Objective, its name, or Objective
        The class, built for the number of classes of the data; or an instance, whose copy is
        trained.
    **params
        Parameters of the objective's class; also `weight` and `ignore_index`.

    Examples
    --------
    >>> import noisegate as ng
    >>> Plain(ng.LogisticNormal, temperature=0.5).get_params()["temperature"]
    0.5
    """

    one_network = True
    takes_maps = True

    def __init__(self, objective: type[Objective] | Objective | str, **params: Any) -> None:
        if isinstance(objective, str):
            objective = Objective.classes[objective]
        self.objective: type[Objective] | Objective = objective
        self.params = params
        if isinstance(objective, Objective) and params:
            raise InputError(f"{self.title} is built already: give it its parameters when it is constructed")
        self._check_names(params)

    def _kind(self) -> type[Objective]:
        return self.objective if isinstance(self.objective, type) else type(self.objective)

    @property
    def title(self) -> str:
        return self._kind().__name__

    def _parameters(self) -> dict[str, Any]:
        return objective_parameters(self._kind())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        if isinstance(self.objective, Objective):
            return {"objective": self.objective}
        return {"objective": self.objective, **self._parameters(), **self.params}

    def _check_names(self, params: dict[str, Any]) -> None:
        for name in params:
            if name not in {**self._parameters(), **_SHARED}:
                raise UnknownNameError(f"parameter of {self.title}", name, self._parameters())

    def set_params(self, **params: Any) -> Method:
        if "objective" in params:
            self.objective, self.params = Plain(params.pop("objective")).objective, {}
        self._check_names(params)
        if isinstance(self.objective, Objective):
            if params:  # a copy, since the caller may use the given one elsewhere
                self.objective = type(self.objective)(**{**self.objective.settings(), **params})
        else:
            self.params |= params
        return self

    def settings(self) -> dict[str, Any]:
        # Write out the defaults, so that a stored result stays complete when defaults change.
        defaults = {k: v for k, v in self._parameters().items() if v is not inspect.Parameter.empty}
        given = self.objective.settings() if isinstance(self.objective, Objective) else self.params
        own = {k: v for k, v in (defaults | dict(given)).items() if k in self._parameters()}
        shared = {k: given.get(k, usual) for k, usual in _SHARED.items()}
        if isinstance(shared["weight"], Tensor):
            shared["weight"] = shared["weight"].tolist()
        changed = {k: v for k, v in shared.items() if v != _SHARED[k]}
        return {"class": "Plain", "objective": self.title, **own, **changed}

    def __repr__(self) -> str:
        return f"Plain({', '.join([self.title, *(f'{k}={v!r}' for k, v in self.params.items())])})"

    def validate(self, n_classes: int = 10) -> None:
        self._build(n_classes)

    def phases(self, job: Job) -> Phases:
        objective = self._build(job.n_classes)
        network = job.network(objective)
        yield Phase(Direct(network, objective), job.recipe)
        return Fitted(network, objective)

    def _build(self, n_classes: int) -> Objective:
        if isinstance(self.objective, type):
            return self.objective(n_classes, **self.params)
        if self.objective.n_classes != n_classes:
            raise InputError(
                f"{self.objective} is for {self.objective.n_classes} classes, the data has {n_classes}"
            )
        return copy.deepcopy(self.objective)
