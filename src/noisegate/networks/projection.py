"""Projection of wide inputs on their principal directions, as the first layer of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

#: Extra random directions, which make the randomised decomposition accurate.
OVERSAMPLING = 10
POWER_STEPS = 1


class Projection(nn.Module):
    """Project inputs on principal directions, scaled to variance 1: `(B, d)` -> `(B, r)`.

        z = (x * scale) P

    Parameters
    ----------
    n_inputs, n_outputs : int
        d and r.

    Attributes
    ----------
    scale : tensor (d,)
        Multiplies the inputs, to undo their standardisation.
    matrix : tensor (d, r)
        P: the directions, divided by `deviation`.
    deviation : tensor (r,)
        Standard deviations along the directions.

    >>> Projection(5, 2)(torch.zeros(3, 5)).shape
    torch.Size([3, 2])
    """

    scale: Tensor
    matrix: Tensor
    deviation: Tensor

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(n_inputs))
        self.register_buffer("matrix", torch.zeros(n_inputs, n_outputs))
        self.register_buffer("deviation", torch.ones(n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.scale) @ self.matrix

    def spec(self) -> dict[str, int]:
        """The constructor arguments, as plain data."""
        return {"n_inputs": len(self.matrix), "n_outputs": self.matrix.shape[1]}

    @torch.no_grad()
    def fit(self, batches: Callable[[], Iterator[Tensor]], scale: Tensor, n_rows: int) -> None:
        """Find the directions by a randomised singular value decomposition (Halko et al. 2011).

        Parameters
        ----------
        batches : function () -> iterator of tensors (B, d)
            Centred inputs in small batches, in the same order each time, so that they need not fit
            into memory at once.
        scale : tensor (d,)
            Multiplies the inputs first.
        n_rows : int
            Total number of rows.
        """
        inputs, rank = self.matrix.shape
        width = min(rank + OVERSAMPLING, inputs, n_rows)
        directions = torch.randn(inputs, width, device=self.matrix.device)
        for _ in range(POWER_STEPS + 1):
            seen = torch.cat([(x.float() * scale) @ directions for x in batches()])
            basis = torch.linalg.qr(seen)[0]
            parts = zip(batches(), basis.split([len(x) for x in batches()]), strict=True)
            directions = sum(
                ((x.float() * scale).T @ part for x, part in parts), torch.zeros_like(directions)
            )
        found, lengths, _ = torch.linalg.svd(directions, full_matrices=False)
        kept = min(rank, width)
        deviation = (lengths[:kept] / n_rows**0.5).clamp_min(1e-12)
        self.scale.copy_(scale)
        self.matrix.zero_()
        self.matrix[:, :kept] = found[:, :kept] / deviation
        self.deviation.fill_(1e-12)
        self.deviation[:kept] = deviation
