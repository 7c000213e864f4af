"""The multi-layer perceptron."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.networks._layers import Head, init_glorot_

#: A description with more layers than this is damaged: building them would take long, if not much memory.
MOST_LAYERS = 1000


class MLP(nn.Module):
    """Linear layers with ReLU between them; inputs of any shape are flattened.

    Glorot-uniform weights, zero biases.

    Parameters
    ----------
    input_shape : tuple of int
        Shape of one example.
    n_outputs : int
        Number of outputs.
    hidden : sequence of int, default=(256, 256)
        Widths of the hidden layers; an empty sequence gives a linear model.

    >>> import torch
    >>> MLP((2,), 10, hidden=(5,))(torch.zeros(3, 2)).shape
    torch.Size([3, 10])
    """

    def __init__(
        self, input_shape: tuple[int, ...], n_outputs: int, hidden: Sequence[int] = (256, 256)
    ) -> None:
        super().__init__()
        if len(hidden) > MOST_LAYERS:
            raise InputError(f"an mlp has at most {MOST_LAYERS} hidden layers, got {len(hidden):,}")
        if any(width < 1 for width in hidden):
            raise InputError(f"hidden layers must have at least one unit, got widths {list(hidden)}")
        widths = [math.prod(input_shape), *hidden]
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(widths):
            layers += [nn.Linear(n_in, n_out), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers)
        self.head = Head(widths[-1], n_outputs)
        init_glorot_(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.flatten(1)))
