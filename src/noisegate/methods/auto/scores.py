"""How well held-out probabilities explain given labels, and how sure that is."""

from __future__ import annotations

from torch import Tensor


def spherical_score(probs: Tensor, y: Tensor) -> Tensor:
    """p_y / |p| of each row: a proper score, bounded, so that no single row decides.

    >>> import torch
    >>> spherical_score(torch.tensor([[0.6, 0.8]]), torch.tensor([1]))
    tensor([0.8000])
    """
    return probs.gather(1, y[:, None]).squeeze(1) / probs.square().sum(1).sqrt().clamp_min(1e-12)


def mean_and_error(values: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weighted mean of each row of `values` and its standard error, `(H, N)` -> `(H,)`, `(H,)`.

    >>> import torch
    >>> [float(each) for each in mean_and_error(torch.tensor([[0.0, 0.0, 2.0, 2.0]]), torch.ones(4))]
    [1.0, 0.5]
    """
    share = (weight / weight.sum()).to(values.dtype)
    mean = values @ share
    return mean, ((values - mean[:, None]) * share).square().sum(1).sqrt()
