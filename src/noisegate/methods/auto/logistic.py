"""Multinomial logistic regression: many strengths and folds in shared matrix products."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: The step is this share of the largest one that cannot overshoot.
CAUTION = 0.9
#: Directions with less than this share of the largest variance are left out.
NEGLIGIBLE = 1e-7
#: How many probabilities are held at a time.
BLOCK = 2**24


class Path(NamedTuple):
    """Logistic regressions at several strengths.

    Attributes
    ----------
    weight : tensor (L, K, d)
        Of the model trained on all rows.
    bias : tensor (L, K)
    held_out : tensor (L, N, K)
        Probabilities of every row from the models that were not trained on it.
    """

    weight: Tensor
    bias: Tensor
    held_out: Tensor


def logistic_path(
    x: Tensor,
    y: Tensor,
    n_classes: int,
    trains: Tensor,
    weight: Tensor,
    penalties: list[float],
    n_steps: int = 60,
) -> Path:
    """Fit logistic regression at several strengths, on all rows and without each fold.

        min_W  sum_i w_i CE(W x_i + b, y_i) / sum_i w_i + lambda s / 2 |W|^2

    where s is the total variance of x, so that a strength means the same for every scale and number
    of features.

    Parameters
    ----------
    x : tensor (N, d)
    y : int64 tensor (N,)
    n_classes : int
    trains : bool tensor (N, F)
        Whether a row is in the training rows of a fold; every row must be left out by at least one.
    weight : tensor (N,)
        Of the rows, not negative.
    penalties : list of float
        lambda, L of them.
    n_steps : int
        Accelerated gradient steps.

    Returns
    -------
    Path

    Notes
    -----
    The Hessian of cross-entropy is at most half the covariance of the features, in every direction
    (Boehning 1992). In the principal axes that bound is diagonal, so each step is a gradient scaled
    by its inverse, with Nesterov's momentum, which starts again where it climbs.
    """
    axes, variances, mean = principal_axes(x, weight)
    rotated = (x - mean) @ axes
    folds = torch.cat([trains, torch.ones_like(trains[:, :1])], 1).to(x.dtype) * weight[:, None]
    shares = folds.sum(0)
    # A fold's covariance is at most this many times that of all rows.
    excess = float((shares[-1] / shares.clamp_min(1e-12)).max().clamp(1, 4))
    folds = folds / shares.clamp_min(1e-12)
    strengths = torch.tensor(penalties, dtype=x.dtype, device=x.device) * variances.sum().clamp_min(1e-12)
    size = max(1, BLOCK // max(1, len(x) * folds.shape[1] * n_classes))
    parts = [
        _solve(rotated, variances * excess, y, n_classes, folds, some, n_steps)
        for some in strengths.split(size)
    ]
    held: list[Tensor] = []
    outside = (~trains).to(x.dtype)
    outside = outside / outside.sum(1, keepdim=True).clamp_min(1)
    for fitted, bias in parts:
        logits = _logits(rotated, fitted, bias)[:, :-1]
        held.append((torch.softmax(logits, 3) * outside[:, :, None, None]).sum(1).transpose(0, 1))
    whole = torch.cat([fitted[:, -1] for fitted, _ in parts], 1)
    weights = torch.einsum("dj,jlk->lkd", axes, whole)
    biases = torch.cat([bias[-1] for _, bias in parts]) - weights @ mean
    return Path(weights, biases, torch.cat(held))


def fold_probs(
    x: Tensor, y: Tensor, n_classes: int, weights: Tensor, penalty: float, n_steps: int = 60
) -> Tensor:
    """What logistic regressions on differently weighted rows say about all rows.

    Parameters
    ----------
    x : tensor (N, d)
    y : int64 tensor (N,)
    n_classes : int
    weights : tensor (N, F)
        Of the rows in each fit; not negative, and in no column all zero.
    penalty : float
        As in `logistic_path`, of the variance of unweighted rows.
    n_steps : int

    Returns
    -------
    tensor (N, F, K)
    """
    axes, variances, mean = principal_axes(x, torch.ones_like(weights[:, 0]))
    rotated = (x - mean) @ axes
    shares = weights / weights.sum(0).clamp_min(1e-12)
    # The covariance of any weights is at most this many times that of all rows.
    excess = float(shares.max() * len(x))
    strength = (penalty * variances.sum().clamp_min(1e-12)).reshape(1)
    fitted, bias = _solve(rotated, variances * excess, y, n_classes, shares, strength, n_steps)
    return torch.softmax(_logits(rotated, fitted, bias)[:, :, 0], 2)


def principal_axes(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Axes `(d, j)`, variances `(j,)` and the mean of weighted rows; in float64 where it matters."""
    share = (weight / weight.sum()).double()
    mean = (x.double() * share[:, None]).sum(0)
    centred = (x.double() - mean).to(x.dtype)
    covariance = (centred * share[:, None].to(x.dtype)).T @ centred
    variances, axes = torch.linalg.eigh(covariance.double())
    kept = variances > variances[-1] * NEGLIGIBLE
    if not bool(kept.any()):  # constant inputs: one axis of no variance, so that shapes stay
        kept = torch.arange(len(variances), device=x.device) == len(variances) - 1
    return axes[:, kept].to(x.dtype), variances[kept].clamp_min(0).to(x.dtype), mean.to(x.dtype)


def _logits(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x @ weight.flatten(1)).view(len(x), *bias.shape) + bias


def _solve(
    x: Tensor,
    variances: Tensor,
    y: Tensor,
    n_classes: int,
    folds: Tensor,
    strengths: Tensor,
    n_steps: int,
) -> tuple[Tensor, Tensor]:
    """Weights `(d, F, L, K)` and biases `(F, L, K)`, for rows in their principal axes."""
    shape = (folds.shape[1], len(strengths), n_classes)
    weight, bias = x.new_zeros(x.shape[1], *shape), x.new_zeros(shape)
    ahead, bias_ahead = weight.clone(), bias.clone()
    pace = x.new_ones(*shape[:2], 1)
    strength = strengths[None, None, :, None]
    step = CAUTION / (0.5 * variances[:, None, None, None] + strength)
    given = torch.zeros(len(x), n_classes, dtype=x.dtype, device=x.device).scatter_(1, y[:, None], 1.0)
    for _ in range(n_steps):
        error = torch.softmax(_logits(x, ahead, bias_ahead), 3)
        error = error.sub_(given[:, None, None, :]).mul_(folds[:, :, None, None])
        slope = (x.T @ error.flatten(1)).view_as(weight) + strength * ahead
        bias_slope = error.sum(0)
        to, bias_to = ahead - step * slope, bias_ahead - 2 * CAUTION * bias_slope
        climbs = (slope * (to - weight)).sum((0, 3)) + (bias_slope * (bias_to - bias)).sum(2) > 0
        pace = torch.where(climbs[..., None], 1.0, pace)
        next_pace = (1 + torch.sqrt(1 + 4 * pace**2)) / 2
        momentum = (pace - 1) / next_pace
        ahead, bias_ahead = to + momentum * (to - weight), bias_to + momentum * (bias_to - bias)
        weight, bias, pace = to, bias_to, next_pace
    return weight, bias
