"""Optimisers with a tensor learning rate, and a way to skip an update without touching their state.

They call torch's fused kernels directly, because the classes of torch.optim import torch's compiler
when first used, which takes longer than many a small fit. The kernels are private to torch, though:
if one is missing, or takes other arguments, the classes of torch.optim are used.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from noisegate.training.recipe import Recipe

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.LocalResponseNorm)
Group = dict[str, Any]


class Optimizer(ABC):
    """An optimiser of groups of parameters; capture-safe.

    Its state exists from the start, all zeros: a CUDA graph needs it before the first step, and
    that step may be skipped.

    Parameters
    ----------
    groups : list of dict
        Each has `params`, and settings that replace those of the recipe, e.g. `weight_decay`.
    recipe : Recipe
    lr : tensor ()
        The learning rate, read at every step.

    Attributes
    ----------
    state : list of dict
        The state tensors of every parameter, in the order of the groups.
    found_inf : tensor () or None
        If it is 1, the next update leaves weights, state and counters as they are. None: 0.
    """

    #: Names of the state tensors of a parameter that have its shape.
    moments: tuple[str, ...] = ()
    #: Whether the state also has a step counter.
    counts: ClassVar[bool] = False

    def __init__(self, groups: list[Group], recipe: Recipe, lr: Tensor) -> None:
        self.groups, self.recipe, self.lr = groups, recipe, lr
        self.found_inf: Tensor | None = None
        self.parameters = [p for group in groups for p in group["params"]]
        self.state = [self._start(p) for p in self.parameters]
        self._of = {id(p): state for p, state in zip(self.parameters, self.state, strict=True)}

    def _start(self, p: nn.Parameter) -> dict[str, Tensor]:
        state = {"step": torch.zeros((), dtype=torch.float32, device=p.device)} if self.counts else {}
        return state | {name: torch.zeros_like(p, requires_grad=False) for name in self.moments}

    def zero_grad(self) -> None:
        """Free the gradients."""
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for group in self.groups:
            # A kernel takes tensors of one dtype.
            kinds: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    params, gradients = kinds.setdefault(p.dtype, ([], []))
                    params.append(p)
                    gradients.append(p.grad)
            for params, gradients in kinds.values():
                self._update(params, gradients, group)

    @abstractmethod
    def _update(self, params: list[Tensor], gradients: list[Tensor], group: Group) -> None:
        """Update parameters of one dtype."""

    def _kept(self, name: str, params: list[Tensor]) -> list[Tensor]:
        return [self._of[id(p)][name] for p in params]

    def _weight_decay(self, group: Group) -> float:
        return group.get("weight_decay", self.recipe.weight_decay)

    def tensors(self) -> list[Tensor]:
        """All tensors other than parameters that a step changes."""
        return [tensor for state in self.state for tensor in state.values()]

    def load(self, state: list[Mapping[str, Tensor]]) -> None:
        """Copy values from the `state` of another optimiser of the same kind."""
        for own, stored in zip(self.state, state, strict=True):
            for name, tensor in own.items():
                tensor.copy_(stored[name])


class Momentum(Optimizer):
    """Stochastic gradient descent with momentum.

    v = m v + g + wd w; w = w - lr v, or with Nesterov momentum w = w - lr (g + wd w + m v).
    """

    def __init__(self, groups: list[Group], recipe: Recipe, lr: Tensor) -> None:
        self.moments = ("momentum_buffer",) if recipe.momentum else ()
        super().__init__(groups, recipe, lr)

    def _update(self, params: list[Tensor], gradients: list[Tensor], group: Group) -> None:
        torch._fused_sgd_(
            params,
            gradients,
            self._kept("momentum_buffer", params) if self.moments else [],
            lr=self.lr,
            momentum=self.recipe.momentum,
            weight_decay=self._weight_decay(group),
            nesterov=self.recipe.optimizer == "nesterov",
            dampening=0.0,
            maximize=False,
            is_first_step=False,
            found_inf=self.found_inf,
        )


class Adam(Optimizer):
    """Adam; with the recipe's "adamw" its variant with decoupled weight decay."""

    moments, counts = ("exp_avg", "exp_avg_sq"), True

    def _update(self, params: list[Tensor], gradients: list[Tensor], group: Group) -> None:
        steps = self._kept("step", params)
        torch._foreach_add_(steps, 1)
        update = torch._fused_adamw_ if self.recipe.optimizer == "adamw" else torch._fused_adam_
        update(
            params,
            gradients,
            self._kept("exp_avg", params),
            self._kept("exp_avg_sq", params),
            [],
            steps,
            lr=self.lr,
            beta1=self.recipe.betas[0],
            beta2=self.recipe.betas[1],
            eps=self.recipe.eps,
            weight_decay=self._weight_decay(group),
            amsgrad=False,
            maximize=False,
            found_inf=self.found_inf,
        )
        if self.found_inf is not None:
            # The kernel skips the update but not the counting, so undo that.
            torch._foreach_sub_(steps, [self.found_inf] * len(steps))


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling.

    v = m v + lr * trust * |w| / (|g| + wd |w|) * (g + wd w); w = w - v. Groups with `adapt` False
    (biases, normalisation) take plain momentum steps.

    References
    ----------
    You, Gitman, Ginsburg. Large Batch Training of Convolutional Networks. 2017.
    """

    moments = ("momentum_buffer",)
    trust: ClassVar[float] = 1e-3

    def _update(self, params: list[Tensor], gradients: list[Tensor], group: Group) -> None:
        decay = self._weight_decay(group)
        velocities = self._kept("momentum_buffer", params)
        for p, gradient, velocity in zip(params, gradients, velocities, strict=True):
            update, rate = gradient + decay * p, self.lr
            if group.get("adapt", True):
                size = p.norm()
                reach = gradient.norm() + decay * size
                ratio = self.trust * size / reach
                rate = rate * torch.where((size > 0) & (reach > 0), ratio, torch.ones_like(ratio))
            new = self.recipe.momentum * velocity + rate * update
            if self.found_inf is not None:
                p.sub_(torch.where(self.found_inf > 0, torch.zeros_like(new), new))
                new = torch.where(self.found_inf > 0, velocity, new)
            else:
                p.sub_(new)
            velocity.copy_(new)


class _OfTorch(Optimizer):
    """A fused optimiser of torch.optim that shares our state and gives the same numbers."""

    def __init__(self, groups: list[Group], recipe: Recipe, lr: Tensor) -> None:
        super().__init__(groups, recipe, lr)
        options = [{k: v for k, v in group.items() if k != "adapt"} for group in groups]
        self._inner = self._build(options)
        for p, state in zip(self.parameters, self.state, strict=True):
            self._inner.state[p] = state

    @abstractmethod
    def _build(self, groups: list[Group]) -> Any:
        """The optimiser of torch.optim."""

    @torch.no_grad()
    def step(self) -> None:
        self._inner.found_inf = self.found_inf
        self._inner.step()

    def _update(self, params: list[Tensor], gradients: list[Tensor], group: Group) -> None:
        raise NotImplementedError("torch.optim updates all groups at once")


class MomentumOfTorch(_OfTorch, Momentum):
    """`Momentum` by torch.optim.SGD."""

    def _build(self, groups: list[Group]) -> Any:
        return torch.optim.SGD(
            groups,
            lr=self.lr,
            momentum=self.recipe.momentum,
            weight_decay=self.recipe.weight_decay,
            nesterov=self.recipe.optimizer == "nesterov",
            fused=True,
        )


class AdamOfTorch(_OfTorch, Adam):
    """`Adam` by torch.optim.Adam or torch.optim.AdamW."""

    def _build(self, groups: list[Group]) -> Any:
        kind = torch.optim.AdamW if self.recipe.optimizer == "adamw" else torch.optim.Adam
        return kind(
            groups,
            lr=self.lr,
            betas=self.recipe.betas,
            eps=self.recipe.eps,
            weight_decay=self.recipe.weight_decay,
            fused=True,
            capturable=self.lr.is_cuda,
        )


@functools.cache
def has_kernels(optimizer: str) -> bool:
    """Whether this torch has an optimiser's kernels with the expected arguments: try one step."""
    p = nn.Parameter(torch.zeros(1))
    p.grad = torch.zeros(1)
    recipe = Recipe(optimizer=optimizer)
    try:
        KINDS[optimizer]([{"params": [p]}], recipe, torch.zeros(())).step()
    except (AttributeError, TypeError, RuntimeError):
        return False
    return True


#: The optimisers to use if a kernel is missing.
KINDS_OF_TORCH: dict[str, type[Optimizer]] = {
    "sgd": MomentumOfTorch,
    "nesterov": MomentumOfTorch,
    "adam": AdamOfTorch,
    "adamw": AdamOfTorch,
    "lars": LARS,
}
KINDS: dict[str, type[Optimizer]] = {
    "sgd": Momentum,
    "nesterov": Momentum,
    "adam": Adam,
    "adamw": Adam,
    "lars": LARS,
}


def parameter_groups(module: nn.Module, recipe: Recipe) -> list[Group]:
    """Group the trainable parameters: those with weight decay, and those the recipe exempts."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if recipe.decay_norm_and_bias:
        return [{"params": parameters}]
    spared = {
        id(p)
        for m in module.modules()
        for name, p in m.named_parameters(recurse=False)
        if isinstance(m, _NORMS) or name == "bias"
    }
    groups: list[Group] = [
        {"params": [p for p in parameters if id(p) not in spared]},
        {"params": [p for p in parameters if id(p) in spared], "weight_decay": 0.0, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(module: nn.Module, recipe: Recipe, lr: Tensor) -> Optimizer:
    """Build the recipe's optimiser of a module; at every step it reads its rate from `lr`."""
    kinds = KINDS if has_kernels(recipe.optimizer) else KINDS_OF_TORCH
    return kinds[recipe.optimizer](parameter_groups(module, recipe), recipe, lr)
