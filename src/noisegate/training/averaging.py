"""The moving average of a module's weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

#: Tensors of the average and of the module, grouped by dtype and by whether they are averaged or
#: copied.
Pairs = dict[tuple[torch.dtype, bool], tuple[list[Tensor], list[Tensor]]]


class MovingAverage:
    """An exponential moving average: a = decay a + (1 - decay) w after every update; capture-safe.

    Parameters and the running statistics of normalisation layers are averaged. All other buffers,
    e.g. the state of a method, are copied.

    Parameters
    ----------
    module : nn.Module
        The module whose weights are averaged.
    decay : float
        In (0, 1).

    Attributes
    ----------
    values : dict of str to tensor
        The averages, under the names of the module's `state_dict`.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.module, self.decay = module, decay
        self.values = copied_state(module)
        self._pairs: Pairs | None = None

    @torch.no_grad()
    def follow(self) -> None:
        """Update the average from the module's current weights."""
        for (_, averaged), (followers, followed) in self._paired().items():
            if averaged:
                torch._foreach_lerp_(followers, followed, 1.0 - self.decay)
            else:
                torch._foreach_copy_(followers, followed)

    def _paired(self) -> Pairs:
        """Group tensors by dtype and treatment, so that a few multi-tensor kernels do the work."""
        if self._pairs is None:
            weights = averaged_names(self.module)
            self._pairs = {}
            for name, value in self.module.state_dict().items():
                kind = value.dtype, name in weights and value.is_floating_point()
                followers, followed = self._pairs.setdefault(kind, ([], []))
                followers.append(self.values[name])
                followed.append(value)
        return self._pairs

    def refresh(self) -> None:
        """Look up the module's tensors again, in case some were replaced."""
        self._pairs = None

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Continue from stored values."""
        self.values = laid_out_as(self.module, values)
        self.refresh()

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Inside, the module holds the averaged weights; on exit it gets its own back."""
        pairs = self._paired().values()
        trained = [[value.clone() for value in followed] for _, followed in pairs]
        self._show([followers for followers, _ in pairs])
        try:
            yield
        finally:
            self._show(trained)

    @torch.no_grad()
    def _show(self, values: list[list[Tensor]]) -> None:
        for (_, followed), value in zip(self._paired().values(), values, strict=True):
            torch._foreach_copy_(followed, value)


def averaged_names(module: nn.Module) -> set[str]:
    """Names of the tensors that are averaged: parameters, and the statistics of normalisation."""
    names = {name for name, _ in module.named_parameters()}
    for prefix, layer in module.named_modules():
        if isinstance(layer, _NormBase):
            names |= {f"{prefix}.{name}" if prefix else name for name, _ in layer.named_buffers()}
    return names


def copied_state(module: nn.Module) -> dict[str, Tensor]:
    """A copy of a module's `state_dict`."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def laid_out_as(module: nn.Module, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy stored values to the module's device, in the memory layout of the module's tensors."""
    own = module.state_dict()
    return {name: torch.empty_like(own[name]).copy_(value) for name, value in values.items()}
