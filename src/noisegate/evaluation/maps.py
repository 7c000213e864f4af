"""How good maps of probabilities are: intersection over union of pooled pixels, boundaries, calibration."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from noisegate.errors import InputError
from noisegate.noise.base import VOID

#: What `map_scores` holds before the bins of calibration and the confusion matrix.
_COUNTS = ("pixels", "right", "log_likelihood", "squares", "boundary", "boundary_right")
#: Pixels this near to one of another class are a boundary.
BOUNDARY = 2
BINS = 15


def map_scores(log_p: Tensor, labels: Tensor, observed: Tensor | None = None) -> Tensor:
    """What each map contributes to the metrics, float64 `(B, columns)`; unchecked and capture-safe.

    Parameters
    ----------
    log_p : tensor (B, K, H, W)
        Log-probabilities of the clean class.
    labels : integer tensor (B, H, W)
        Labels 0..K-1; `VOID` does not count.
    observed : tensor (B, K, H, W), optional
        Log-probabilities of the label as it is given, where they are others.

    Notes
    -----
    Sums over the pixels of a map: `map_summary` pools them over all maps, however they were batched.
    """
    k, labels = log_p.shape[1], labels.long()
    counted = labels != VOID
    known = torch.where(counted, labels, torch.zeros_like(labels))
    confidence, guess = log_p.max(1)
    confidence = confidence.exp()
    right = (guess == known) & counted
    given = (log_p if observed is None else observed).gather(1, known.unsqueeze(1)).squeeze(1)
    given = given.clamp_min(math.log(torch.finfo(given.dtype).tiny))
    own = log_p.gather(1, known.unsqueeze(1)).squeeze(1).exp()
    squares = (2 * log_p).exp().sum(1) - 2 * own + 1
    edge = boundaries(labels) & counted
    sums = [
        _total(each, counted)
        for each in (torch.ones_like(own), right, given, squares, edge, (edge & right).to(own.dtype))
    ]
    excess = right.double() - confidence.double()
    edges = torch.linspace(0, 1, BINS + 1, dtype=confidence.dtype, device=confidence.device)
    bins = torch.bucketize(confidence, edges, right=True).clamp(1, BINS + 1) - 1
    calibration = [_total(excess, counted & (bins == number)) for number in range(BINS + 1)]
    cells = torch.where(counted, known * k + guess, torch.full_like(known, k * k)).flatten(1)
    # Whole numbers: they add up to the same in any order.
    table = torch.zeros(len(cells), k * k + 1, dtype=torch.int64, device=cells.device)
    table.scatter_add_(1, cells, torch.ones_like(cells))
    return torch.cat([torch.stack([*sums, *calibration], 1), table[:, :-1].double()], 1)


def _total(values: Tensor, where: Tensor) -> Tensor:
    return torch.where(where, values.double(), values.new_zeros((), dtype=torch.float64)).flatten(1).sum(1)


def map_summary(scores: Tensor, n_classes: int) -> dict[str, Tensor]:
    """The metrics of all maps as 0-d tensors on the device, from `map_scores`; see `summary`.

    accuracy, log_likelihood, ece, brier: over pixels with a label. mean_iou: of one confusion
    matrix over all pixels of all maps. boundary_accuracy and interior_accuracy: near to another
    class, and not.
    """
    total = scores.sum(0)
    pixels, right, log_likelihood, squares, edge, edge_right = total[: len(_COUNTS)]
    calibration = total[len(_COUNTS) : len(_COUNTS) + BINS + 1]
    counted = pixels.clamp_min(1)
    return {
        "accuracy": right / counted,
        "log_likelihood": log_likelihood / counted,
        "ece": calibration.abs().sum() / counted,
        "brier": squares / counted,
        "mean_iou": mean_iou(confusion(scores, n_classes)),
        "boundary_accuracy": edge_right / edge.clamp_min(1),
        "interior_accuracy": (right - edge_right) / (pixels - edge).clamp_min(1),
    }


def confusion(scores: Tensor, n_classes: int) -> Tensor:
    """The pooled confusion matrix (K, K), true class by row, from `map_scores`."""
    return scores[:, len(_COUNTS) + BINS + 1 :].sum(0).view(n_classes, n_classes)


def class_iou(table: Any) -> Tensor:
    """Intersection over union of every class (K,), from a confusion matrix.

    NaN where a class never occurs.

    Intersection are the pixels of the class that are predicted as it, union those that are either.

    >>> class_iou(torch.tensor([[3, 1], [0, 4]]))
    tensor([0.7500, 0.8000], dtype=torch.float64)
    """
    counts = torch.as_tensor(table).double()
    both = counts.diagonal()
    either = counts.sum(0) + counts.sum(1) - both
    return both / either


def mean_iou(table: Any) -> Tensor:
    """Mean intersection over union of the classes that occur, as label or as prediction.

    Void is not in the table.

    >>> mean_iou(torch.tensor([[3, 1, 0], [0, 4, 0], [0, 0, 0]]))
    tensor(0.7750, dtype=torch.float64)
    """
    return class_iou(table).nanmean()


def boundaries(labels: Tensor, width: int = BOUNDARY) -> Tensor:
    """Which pixels have one of another class within `width` rows and columns, `(B, H, W)`.

    Void is no class.

    >>> boundaries(torch.tensor([[[0, 0, 0, 0, 1, 1, 1]]]), 1).int()
    tensor([[[0, 0, 0, 1, 1, 0, 0]]], dtype=torch.int32)
    """
    values, void = labels.float().unsqueeze(1), (labels == VOID).unsqueeze(1)
    high = torch.where(void, torch.full_like(values, -torch.inf), values)
    low = torch.where(void, torch.full_like(values, -torch.inf), -values)
    size = 2 * width + 1
    most, least = (F.max_pool2d(each, size, 1, width) for each in (high, low))
    return (most > -least).squeeze(1) & (labels != VOID)


def metrics(probs: Any, labels: Any) -> dict[str, float]:
    """All of `map_summary` for maps of probabilities.

    Parameters
    ----------
    probs : tensor or array (N, K, H, W)
    labels : integer tensor or array (N, H, W)
        `VOID` (-100) does not count.

    >>> sorted(metrics(torch.full((1, 2, 3, 3), 0.5), torch.zeros(1, 3, 3, dtype=torch.int64)))[:3]
    ['accuracy', 'boundary_accuracy', 'brier']
    """
    p, y = torch.as_tensor(probs), torch.as_tensor(labels)
    if p.dim() != 4 or y.shape != p.shape[:1] + p.shape[2:] or not p.is_floating_point():
        raise InputError(
            f"expected probabilities (N, K, H, W) and labels (N, H, W), got {tuple(p.shape)} and {tuple(y.shape)}"
        )
    found = map_summary(map_scores(p.log(), y), p.shape[1])
    return {name: float(value) for name, value in found.items()}
