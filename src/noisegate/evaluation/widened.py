"""A network in float64, for predictions of a row that do not depend on the other rows."""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
from torch import Tensor, nn


class Widened:
    """A float64 copy of a network, kept from one prediction to the next.

    A copy takes several times as long as the prediction of one row. So only the values of parameters
    and buffers are copied at every call; everything is copied anew where a part, a tensor or an
    attribute of the network is another object than before.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._copy: nn.Module | None = None
        self._from: list[Tensor] = []
        self._to: list[Tensor] = []

    def __call__(self, network: nn.Module) -> nn.Module:
        """`network` in float64 and in evaluation mode."""
        parts, tensors = _parts(network)
        if self._copy is None or not (_same(parts, self._parts) and _same(tensors, self._from)):
            self._copy = copy.deepcopy(network).double().eval()
            self._parts, self._from, self._to = parts, tensors, _parts(self._copy)[1]
        elif tensors:
            with torch.no_grad():
                torch._foreach_copy_(self._to, tensors)
        return self._copy

    def __deepcopy__(self, memo: Any) -> Widened:
        return Widened()

    def __reduce__(self) -> tuple[type[Widened], tuple[()]]:
        return Widened, ()


def _parts(module: nn.Module) -> tuple[list[Any], list[Tensor]]:
    """The modules and their attributes, and the tensors, of a network; torch's iterators take longer."""
    parts: list[Any] = []
    tensors: list[Tensor] = []
    waiting: list[nn.Module] = [module]
    while waiting:
        each = waiting.pop()
        parts.append(each)
        parts += vars(each).values()
        for named in (each._parameters, each._buffers):
            tensors += [tensor for tensor in named.values() if tensor is not None]
        waiting += [part for part in each._modules.values() if part is not None]
    return parts, tensors


def _same(found: list[Any], known: list[Any]) -> bool:
    return len(found) == len(known) and all(map(operator.is_, found, known))
