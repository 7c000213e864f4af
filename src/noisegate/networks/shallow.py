"""Linear and kernel classifiers with several heads, one per strength of regularisation."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

#: A limit that no standardised feature reaches. Finite, because stored models cannot hold infinity.
NO_LIMIT = 1e30


class Scaled(nn.Module):
    """Clamp and rescale standardised features: clamp(x, -limit, limit) * scale.

    Parameters
    ----------
    n_inputs : int
        Number of features d.

    Attributes
    ----------
    scale : tensor (d,)
        Initially ones.
    limit : tensor ()
        Initially so large that nothing is clamped.
    """

    scale: Tensor
    limit: Tensor

    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(n_inputs))
        self.register_buffer("limit", torch.tensor(NO_LIMIT))

    def forward(self, x: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, -self.limit), self.limit) * self.scale


class Linear(nn.Module):
    """Several linear classifiers of the same inputs: `(B, d)` -> `(B, heads, K)`.

    >>> Linear(4, 3, 2)(torch.zeros(5, 4)).shape
    torch.Size([5, 3, 2])
    """

    kind: ClassVar[str] = "linear"

    def __init__(self, n_inputs: int, n_heads: int, n_outputs: int) -> None:
        super().__init__()
        self.view = Scaled(n_inputs)
        self.weight = nn.Parameter(torch.zeros(n_heads, n_outputs, n_inputs))
        self.bias = nn.Parameter(torch.zeros(n_heads, n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bd,hkd->bhk", self.view(x), self.weight) + self.bias

    def spec(self) -> dict[str, Any]:
        """Kind and sizes, as plain data."""
        heads, outputs, inputs = self.weight.shape
        return {"kind": self.kind, "n_inputs": inputs, "n_heads": heads, "n_outputs": outputs}


class LandmarkKernel(nn.Module):
    """Several kernel classifiers on the same landmarks: `(B, d)` -> `(B, heads, K)`.

        f_h(x) = W_h k(x) + c_h,    k_j(x) = exp(-gamma |x - l_j|^2)

    >>> LandmarkKernel(4, 6, 3, 2)(torch.zeros(5, 4)).shape
    torch.Size([5, 3, 2])
    """

    kind: ClassVar[str] = "kernel"
    landmarks: Tensor
    gamma: Tensor

    def __init__(self, n_inputs: int, n_landmarks: int, n_heads: int, n_outputs: int) -> None:
        super().__init__()
        self.view = Scaled(n_inputs)
        self.register_buffer("landmarks", torch.zeros(n_landmarks, n_inputs))
        self.register_buffer("gamma", torch.ones(()))
        self.weight = nn.Parameter(torch.zeros(n_heads, n_outputs, n_landmarks))
        self.bias = nn.Parameter(torch.zeros(n_heads, n_outputs))

    def similarities(self, viewed: Tensor) -> Tensor:
        """k(x) of inputs that have gone through `view`, `(B, landmarks)`."""
        return torch.exp(-self.gamma * squared_distances(viewed, self.landmarks))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bj,hkj->bhk", self.similarities(self.view(x)), self.weight) + self.bias

    def spec(self) -> dict[str, Any]:
        """Kind and sizes, as plain data."""
        (heads, outputs, landmarks), inputs = self.weight.shape, self.landmarks.shape[1]
        sizes = {"n_inputs": inputs, "n_landmarks": landmarks, "n_heads": heads, "n_outputs": outputs}
        return {"kind": self.kind, **sizes}


def squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """|a_i - b_j|^2, `(n, d)`, `(m, d)` -> `(n, m)`.

    >>> squared_distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([[25.]])
    """
    return (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * (a @ b.T)).clamp_min(0)
