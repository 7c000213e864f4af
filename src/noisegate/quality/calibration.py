"""Probabilities whose confidence means something."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noisegate.noise.confident import blocks, check_given, check_probs

Floats = npt.NDArray[np.float64]

_FLOOR = 1e-12
#: Rows and numbers the scaling is fitted to.
MOST_ROWS = 20_000
MOST_NUMBERS = 20_000_000


def calibrate(probs: npt.ArrayLike, y: npt.ArrayLike, *, seed: int = 0) -> Floats:
    """Rescale out-of-sample probabilities so that they are right as often as they say.

    q_j proportional to p_j^beta exp(b_j): a temperature and one shift a class, fitted to the likelihood
    of the given labels, the shifts with a weak prior towards 0. The judge is the *given* label, so q is about
    the label a row carries, which with wrong labels around is less certain than its class;
    `noisegate.quality.judge` has the class.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities.
    y : integer array (N,)
        Given labels 0..K-1.
    seed : int, default=0
        Draws the rows the scaling is fitted to where there are more than 20,000.

    Returns
    -------
    float64 array (N, K)
        Rows sum to one.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger. On calibration of modern neural networks. ICML 2017.

    >>> rng = np.random.default_rng(0)
    >>> y = (rng.random(1000) < 0.7).astype(int)          # right in seven of ten cases,
    >>> overconfident = np.tile([0.01, 0.99], (1000, 1))  # but sure of it
    >>> float(calibrate(overconfident, y)[0, 1].round(1))
    0.7
    """
    p = check_probs(probs)
    labels = check_given(y, p)
    n, k = p.shape
    most = min(MOST_ROWS, max(1000, MOST_NUMBERS // k))
    rows = np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
    beta, shift = fit_scaling(_logs(p[rows]), labels[rows])
    result = np.empty(p.shape)
    for block in blocks(n, k):
        result[block] = _softmax(beta * _logs(p[block]) + shift)
    return result


def fit_scaling(logs: Floats, y: npt.NDArray[np.integer], steps: int = 25) -> tuple[float, Floats]:
    """The beta >= 0 and the shifts (K,) of `calibrate`, from log-probabilities (N, K)."""
    n, k = logs.shape
    rows = np.arange(n)
    beta, shift = 1.0, np.zeros(k)
    counts = np.bincount(y, minlength=k)
    for _ in range(steps):
        q = _softmax(beta * logs + shift)
        # Newton in beta: the gradient is the gap between log p of the given label and its expectation.
        mean = (q * logs).sum(axis=1)
        gradient = float((logs[rows, y] - mean).sum())
        curvature = float(((q * logs**2).sum(axis=1) - mean**2).sum())
        step = gradient / (curvature + 1e-9)
        beta = float(np.clip(beta + np.clip(step, -0.5 * beta - 0.05, beta + 0.05), 0.0, 50.0))
        # Iterative scaling of the shifts: expected shares of classes towards those of the labels.
        expected = q.sum(axis=0)
        move = np.log((counts + 1.0) / (expected + 1.0)) - shift / (counts + 1.0)
        shift = shift + move.clip(-1.0, 1.0)
        if abs(step) < 1e-6 * (1 + beta) and np.abs(move).max() < 1e-6:
            break
    return beta, shift - shift.mean()


def _logs(p: npt.NDArray[np.floating]) -> Floats:
    logs: Floats = np.log(np.maximum(p.astype(np.float64), _FLOOR))
    return logs


def _softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    e /= e.sum(axis=1, keepdims=True)
    return e
