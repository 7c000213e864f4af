"""Small networks side by side, evaluated in shared matrix products."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from noisegate.networks.shallow import Scaled


class Bag(nn.Module):
    """Networks of one hidden layer, all in one matrix product; the log of their mean probability.

        f(x) = log 1/M sum_m softmax(V_m relu(W_m x + a_m) + c_m)

    Parameters
    ----------
    n_inputs, n_members, n_hidden, n_outputs : int
        Length of the inputs, number of networks M, hidden units of each, number of classes K.
    dropout : float, default=0.0
        Dropout probability of the hidden units, in training. The members share one mask, which saves
        a third of a step: drawing random numbers costs more than the matrix products here.

    Shapes
    ------
    (B, d) -> (B, K); `logits`: (B, d) -> (M, B, K)

    >>> bag = Bag(4, 3, 8, 2)
    >>> bag(torch.zeros(5, 4)).shape, bag.logits(torch.zeros(5, 4)).shape
    (torch.Size([5, 2]), torch.Size([3, 5, 2]))
    """

    kind: ClassVar[str] = "bag"

    def __init__(
        self, n_inputs: int, n_members: int, n_hidden: int, n_outputs: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.view = Scaled(n_inputs)
        self.dropout = dropout
        wide = n_members * n_hidden
        self.hidden = nn.Parameter(_drawn((n_inputs, wide), 1.0, math.sqrt(n_inputs)))
        self.hidden_bias = nn.Parameter(torch.zeros(wide))
        self.out = nn.Parameter(_drawn((n_members, n_hidden, n_outputs), 0.1, math.sqrt(n_hidden)))
        self.out_bias = nn.Parameter(torch.zeros(n_members, 1, n_outputs))

    def logits(self, x: Tensor) -> Tensor:
        """The logits of every member, `(M, B, K)`."""
        members, width, _ = self.out.shape
        seen = self.view(x).expand(members, -1, -1)
        hidden = self.hidden.view(-1, members, width).transpose(0, 1)
        units = torch.baddbmm(self.hidden_bias.view(members, 1, width), seen, hidden)
        if self.training and self.dropout:
            units = units * functional.dropout(units.new_ones(1, len(x), width), self.dropout)
        return torch.relu(units) @ self.out + self.out_bias

    def forward(self, x: Tensor) -> Tensor:
        log_probs = torch.log_softmax(self.logits(x), 2)
        return torch.logsumexp(log_probs, 0) - math.log(len(log_probs))

    def spec(self) -> dict[str, Any]:
        """The kind of network and its constructor arguments, as plain data."""
        members, width, outputs = self.out.shape
        sizes = {"n_inputs": len(self.hidden), "n_members": members, "n_hidden": width, "n_outputs": outputs}
        return {"kind": self.kind, **sizes, "dropout": self.dropout}


def _drawn(shape: tuple[int, ...], factor: float, divisor: float) -> Tensor:
    """Draw normal numbers and scale them; on the meta device, where there are only shapes, do neither.

    Arithmetic there would import torch's compiler, which takes a second.
    """
    found = torch.empty(shape)
    return found if found.is_meta else found.normal_().mul_(factor).div_(divisor)
