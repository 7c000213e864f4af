"""Optimisers with a tensor learning rate, and a way to skip an update without touching their state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import SGD, Adam, AdamW, Optimizer

from noisegate.training.recipe import Recipe

_NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.LocalResponseNorm)


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling: v = m v + lr * trust * |w| / (|g| + wd |w|) * (g + wd w); w = w - v.

    Groups with `adapt` False (biases, normalisation) take plain momentum steps.

    References
    ----------
    You, Gitman, Ginsburg. Large Batch Training of Convolutional Networks. 2017.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Tensor,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 1e-3,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": True},
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        # The mark that torch's fused optimisers read too: 1 means that this update does not happen.
        skipped = getattr(self, "found_inf", None)
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if "momentum_buffer" not in self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
                velocity = self.state[p]["momentum_buffer"]
                update = p.grad + group["weight_decay"] * p
                rate = group["lr"]
                if group["adapt"]:
                    size = p.norm()
                    reach = p.grad.norm() + group["weight_decay"] * size
                    ratio = group["trust"] * size / reach
                    rate = rate * torch.where((size > 0) & (reach > 0), ratio, torch.ones_like(ratio))
                new = group["momentum"] * velocity + rate * update
                if skipped is not None:
                    new = torch.where(skipped > 0, velocity, new)
                    p.sub_(torch.where(skipped > 0, torch.zeros_like(new), new))
                else:
                    p.sub_(new)
                velocity.copy_(new)


def parameter_groups(module: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """All trainable parameters, those without weight decay in a group of their own."""
    if recipe.decay_norm_and_bias:
        return [{"params": [p for p in module.parameters() if p.requires_grad]}]
    spared = {
        id(p)
        for m in module.modules()
        for name, p in m.named_parameters(recurse=False)
        if isinstance(m, _NORMS) or name == "bias"
    }
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in spared]},
        {"params": [p for p in parameters if id(p) in spared], "weight_decay": 0.0},
    ]
    if recipe.optimizer == "lars":
        groups[1]["adapt"] = False
    return [group for group in groups if group["params"]]


def build_optimizer(module: nn.Module, recipe: Recipe, lr: Tensor) -> Optimizer:
    """The optimiser of a recipe over the trainable parameters of `module`; it reads its rate from `lr`.

    Its state is there from the start, all zero. torch would make it at the first step: a CUDA graph needs it
    before, and the velocity that SGD makes then is garbage if that step is skipped.
    """
    groups = parameter_groups(module, recipe)
    if recipe.optimizer in ("adam", "adamw"):
        kind = Adam if recipe.optimizer == "adam" else AdamW
        adam = kind(
            groups,
            lr=lr,
            betas=recipe.betas,
            eps=recipe.eps,
            weight_decay=recipe.weight_decay,
            fused=True,
            capturable=lr.is_cuda,
        )
        # It says so at the first step outside a capture; ours may run both ways.
        adam._warned_capturable_if_run_uncaptured = True
        _start(adam, ("exp_avg", "exp_avg_sq"), count=True)
        return adam
    if recipe.optimizer == "lars":
        lars = LARS(groups, lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
        _start(lars, ("momentum_buffer",))
        return lars
    sgd = SGD(
        groups,
        lr=lr,
        momentum=recipe.momentum,
        nesterov=recipe.optimizer == "nesterov",
        weight_decay=recipe.weight_decay,
        fused=True,
    )
    if recipe.momentum:
        _start(sgd, ("momentum_buffer",))
    return sgd


def _start(optimizer: Optimizer, names: Iterable[str], count: bool = False) -> None:
    for p in (p for group in optimizer.param_groups for p in group["params"]):
        if count:
            optimizer.state[p]["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
        for name in names:
            optimizer.state[p][name] = torch.zeros_like(p, memory_format=torch.preserve_format)


def load_optimizer(optimizer: Optimizer, state: dict[int, Any], lr: Tensor) -> None:
    """Put a stored state into an optimiser: its rate stays `lr`, its tensors are laid out as the parameters."""
    packed = optimizer.state_dict()
    packed["state"] = state
    optimizer.load_state_dict(packed)
    for group in optimizer.param_groups:
        group["lr"] = lr
        for p in group["params"]:
            for name, value in optimizer.state[p].items():
                if value.shape == p.shape and value.stride() != p.stride():
                    # Fused kernels walk through parameter, gradient and state side by side.
                    optimizer.state[p][name] = torch.empty_like(p, requires_grad=False).copy_(value)


def state_tensors(optimizer: Optimizer) -> list[Tensor]:
    """Every tensor of an optimiser's state."""
    return [v for state in optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
