"""Quality of each given label, from out-of-sample probabilities: one number in [0, 1], low is likely wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from noisegate.errors import UnknownNameError
from noisegate.noise.confident import Probs, blocks, check_block, check_given, check_probs

Floats = npt.NDArray[np.float64]
_LEAST = 1e-6


def label_quality(probs: npt.ArrayLike, y: npt.ArrayLike, score: str = "self-confidence") -> Floats:
    """Score given labels: low is likely wrong.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities: from cross-validation, or from a model trained on other rows.
    y : integer array (N,)
        Given labels 0..K-1.
    score : {"self-confidence", "margin", "entropy"}, default="self-confidence"
        self-confidence: p_y. margin: (p_y - max of the others + 1) / 2. entropy: log(1 + h) / h with
        h = H(p) / (p_y log K), the entropy of the prediction over the given label's probability.

    Returns
    -------
    float64 array (N,)
        In [0, 1]. The three equal cleanlab's self_confidence, normalized_margin and
        confidence_weighted_entropy.

    References
    ----------
    Kuan, Mueller. Model-agnostic label quality scoring to detect real-world label errors. ICML DataPerf 2022.

    >>> label_quality([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    array([0.9, 0.4])
    >>> label_quality([[0.9, 0.1], [0.6, 0.4]], [0, 1], score="margin")
    array([0.9, 0.4])
    """
    if score not in SCORES:
        raise UnknownNameError("score", score, SCORES)
    p = check_probs(probs, values=False)
    labels = check_given(y, p)
    quality = np.empty(len(p))
    for block in blocks(*p.shape):
        part = p[block]
        check_block(part, block.start)
        quality[block] = SCORES[score](part, labels[block])
    return quality.clip(0.0, 1.0, out=quality)


def _self_confidence(p: Probs, y: npt.NDArray[np.integer]) -> Floats:
    own: Floats = p[np.arange(len(p)), y]
    return own


def _margin(p: Probs, y: npt.NDArray[np.integer]) -> Floats:
    rows = np.arange(len(p))
    rest = p.copy()
    rest[rows, y] = -np.inf
    margin: Floats = (p[rows, y] - rest.max(axis=1) + 1.0) / 2.0
    return margin


def _entropy(p: Probs, y: npt.NDArray[np.integer]) -> Floats:
    wide = p.astype(np.float64, copy=False)
    logs = np.log(np.where(wide > 0.0, wide, 1.0))
    entropy = -(wide * logs).sum(axis=1) / np.log(p.shape[1])
    h = entropy / _self_confidence(wide, y).clip(min=_LEAST)
    score: Floats = np.log1p(h) / h.clip(min=_LEAST)
    return score


SCORES: dict[str, Callable[[Probs, npt.NDArray[np.integer]], Floats]] = {
    "self-confidence": _self_confidence,
    "margin": _margin,
    "entropy": _entropy,
}
