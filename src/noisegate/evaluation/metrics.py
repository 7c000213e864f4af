"""How good probabilities are: accuracy, log-likelihood, calibration error, Brier score."""

from __future__ import annotations

import numbers
from typing import Any

import torch
from torch import Tensor

from noisegate.errors import InputError


def accuracy(probs: Any, y: Any) -> float:
    """Share of rows whose most probable class is the label.

    Parameters
    ----------
    probs : tensor or array (N, K)
        Rows sum to one.
    y : integer tensor or array (N,)
        Labels in 0..K-1.

    >>> accuracy(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), torch.tensor([0, 1]))
    0.5
    """
    return float(_right(*_check(probs, y)).mean())


def log_likelihood(probs: Any, y: Any) -> float:
    """Mean of log p_y over the rows; larger is better.

    Probabilities are clipped at the smallest positive normal number of their type (1.2e-38 for
    float32), so that the result is finite.

    >>> round(log_likelihood(torch.tensor([[0.5, 0.5], [0.25, 0.75]]), torch.tensor([0, 0])), 4)
    -1.0397
    """
    return float(_log_given(*_check(probs, y)).mean())


def ece(probs: Any, y: Any, n_bins: int = 15) -> float:
    """Expected calibration error: sum over bins of |accuracy - mean confidence|, weighted by the bin's share.

    Confidence is the largest probability of a row. The bins are of equal width; as in torchmetrics
    a bin contains its lower edge, not its upper one, and a confidence of exactly 1 is a bin of its
    own.

    References
    ----------
    Guo et al., On calibration of modern neural networks, ICML 2017.

    >>> round(ece(torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([0, 1])), 4)
    0.4
    """
    if not isinstance(n_bins, numbers.Integral) or n_bins < 1:
        raise InputError(f"n_bins must be a whole number of at least 1, got {n_bins!r}")
    p, labels = _check(probs, y)
    return float(_calibration_error(*_confidence(p, labels, n_bins), n_bins))


def brier(probs: Any, y: Any) -> float:
    """Brier score: the mean over rows of sum_k (p_k - 1[y = k])^2.

    Smaller is better, 2 is the worst.

    This is Brier's own convention for any number of classes. For two classes it is twice the score
    that counts only the positive class.

    >>> round(brier(torch.tensor([[0.8, 0.2]]), torch.tensor([0])), 4)
    0.08
    """
    return float(_squares(*_check(probs, y)).mean().clamp_min(0))


def summary(probs: Any, y: Any, n_bins: int = 15) -> dict[str, float]:
    """All of the above by name: accuracy, log_likelihood, ece, brier.

    >>> sorted(summary(torch.tensor([[0.8, 0.2]]), torch.tensor([0])))
    ['accuracy', 'brier', 'ece', 'log_likelihood']
    """
    return {
        "accuracy": accuracy(probs, y),
        "log_likelihood": log_likelihood(probs, y),
        "ece": ece(probs, y, n_bins),
        "brier": brier(probs, y),
    }


def row_scores(p: Tensor, labels: Tensor, n_bins: int = 15) -> Tensor:
    """What each row contributes to the metrics, float64 `(N, 5)`; unchecked and capture-safe.

    `summary_of` makes the metrics of the rows of any number of batches.
    """
    bins, excess = _confidence(p, labels, n_bins)
    return torch.stack(
        [_right(p, labels), _log_given(p, labels), bins.double(), excess, _squares(p, labels)], 1
    )


def summary_of(scores: Tensor, n_bins: int = 15) -> dict[str, Tensor]:
    """`summary` as 0-d tensors on the device, from `row_scores`."""
    right, log_given, bins, excess, squares = scores.unbind(1)
    return {
        "accuracy": right.mean(),
        "log_likelihood": log_given.mean(),
        "ece": _calibration_error(bins.long(), excess, n_bins),
        "brier": squares.mean().clamp_min(0),
    }


# One number a row; each of them float64.


def _right(p: Tensor, labels: Tensor) -> Tensor:
    return (p.argmax(dim=1) == labels).double()


def _log_given(p: Tensor, labels: Tensor) -> Tensor:
    given = p.gather(1, labels[:, None])[:, 0].clamp_min(torch.finfo(p.dtype).tiny)
    return given.double().log()


def _squares(p: Tensor, labels: Tensor) -> Tensor:
    wide = p.double()
    return wide.square().sum(dim=1) - 2 * wide.gather(1, labels[:, None])[:, 0] + 1


def _confidence(p: Tensor, labels: Tensor, n_bins: int) -> tuple[Tensor, Tensor]:
    """The bin of each row's confidence, int64, and how much its outcome exceeds that."""
    confidence, guess = p.max(dim=1)
    # Edges in the type of the probabilities: a confidence of 0.7 in float32 is on the float32 edge
    # 0.7.
    edges = torch.linspace(0, 1, n_bins + 1, dtype=p.dtype, device=p.device)
    bins = torch.bucketize(confidence, edges, right=True).clamp(1, n_bins + 1) - 1
    return bins, (guess == labels).double() - confidence.double()


def _calibration_error(bins: Tensor, excess: Tensor, n_bins: int) -> Tensor:
    # Sums over masks, not a scatter: on a GPU that would add in another order each time.
    numbers = torch.arange(n_bins + 1, device=bins.device).unsqueeze(1)
    per_bin = torch.where(bins == numbers, excess, excess.new_zeros(())).sum(1)
    return per_bin.abs().sum() / len(excess)


def _check(probs: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Probabilities in float32 or float64 and labels in int64, on one device."""
    try:
        p, labels = torch.as_tensor(probs).detach(), torch.as_tensor(y).detach()
    except (TypeError, ValueError, RuntimeError):
        raise InputError("expected numbers: probabilities of shape (N, K) and integer labels (N,)") from None
    if p.dim() != 2 or not p.numel() or not p.is_floating_point():
        raise InputError(f"expected probabilities of shape (N, K), got {p.dtype} of shape {tuple(p.shape)}")
    if labels.shape != p.shape[:1]:
        raise InputError(f"expected one label a row, shape ({len(p)},), got {tuple(labels.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"expected integer labels, got {labels.dtype}")
    labels = labels.to(p.device, torch.int64)
    if labels.min() < 0 or labels.max() >= p.shape[1]:
        found = f"{int(labels.min())}..{int(labels.max())}"
        raise InputError(f"labels must lie in 0..{p.shape[1] - 1}, got {found}")
    # Half precision rounds coarsely: a row of such numbers may be off by several roundings.
    _check_rows(p, slack=1e-3 + 4 * torch.finfo(p.dtype).eps)
    return p if p.dtype == torch.float64 else p.float(), labels


def _check_rows(p: Tensor, slack: float) -> None:
    sums = p.double().sum(dim=1)
    # Written so that NaN counts as wrong.
    wrong = ~((sums - 1).abs() <= slack) | (p < 0).any(dim=1)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InputError(
            f"each row of probabilities must be at least 0 and sum to one, row {row} has the smallest entry "
            f"{float(p[row].min()):.3g} and the sum {float(sums[row]):.6g}; were these logits?"
        )
