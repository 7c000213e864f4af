"""Estimating the transition matrix and the noise rate from a model's probabilities."""

from __future__ import annotations

import numbers

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError, UnknownNameError
from noisegate.noise.base import Matrix
from noisegate.noise.confident import Confident, check_given, check_probs

METHODS = ("anchor", "confident")


def estimate_transition(
    probs: npt.ArrayLike,
    y: npt.ArrayLike | None = None,
    method: str = "anchor",
    percentile: float | None = None,
) -> Matrix:
    """Estimate T[i, j] = P(observed j | clean i).

    Parameters
    ----------
    probs : array (N, K)
        Probabilities of the *observed* label from a model that was not trained on these rows: by
        cross-validation or on held-out data. A model that has memorised the labels makes T look
        like the identity.
    y : integer array (N,), optional
        Observed labels; "confident" needs them, "anchor" does not.
    method : "anchor" or "confident"
        anchor (Patrini et al., 2017): row i is the prediction on the example whose probability of
        class i is at `percentile` among all, taken as certainly of class i; normalised. confident
        (Northcutt et al., 2021): rows of the confident joint, see `confident_joint`, each
        normalised. A class nobody is counted into has the identity row.
    percentile : float, optional
        For "anchor". 100 is the largest probability, which is often an outlier; 97 is the
        original's choice, 99.9 the label-smoothing paper's. It must lie within the class: at 97 the
        row is another class's where a class has less than 3 % of the rows. None chooses it class by
        class: as many rows lie above as 30 % of those predicted as the class, but at most 3 %. That
        is 97 for ten equal classes, 99.7 for a hundred.

    Returns
    -------
    float64 array (K, K)
        Rows sum to one.

    References
    ----------
    Patrini et al., Making deep neural networks robust to label noise: a loss correction approach, CVPR 2017.
    Northcutt et al., Confident learning: estimating uncertainty in dataset labels, JAIR 2021.

    >>> probs = [[0.8, 0.2], [0.7, 0.3], [0.1, 0.9], [0.3, 0.7]]
    >>> estimate_transition(probs, percentile=100)
    array([[0.8, 0.2],
           [0.1, 0.9]])
    """
    if method == "anchor":
        return _anchor(check_probs(probs).astype(np.float64, copy=False), percentile)
    if method == "confident":
        if y is None:
            raise InputError("method 'confident' needs the observed labels: estimate_transition(probs, y)")
        joint = confident_joint(probs, y)
        mass = joint.sum(axis=0)
        t = joint.T / np.where(mass > 0, mass, 1.0)[:, None]
        empty = np.flatnonzero(mass == 0)
        t[empty, empty] = 1.0
        return t
    raise UnknownNameError("way to estimate the transition", method, METHODS)


def confident_joint(probs: npt.ArrayLike, y: npt.ArrayLike) -> Matrix:
    """Estimate the joint distribution of observed and clean labels by counting confident examples.

    The threshold of a class is the mean probability of that class over the examples labelled so. An
    example counts as (observed y, clean j) if j is a class it reaches the threshold of; if it
    reaches several, j is its most probable class. Rows are then scaled to the observed class
    counts, and all to sum to one.

    Returns
    -------
    float64 array (K, K)
        Q[i, j] = P(observed i, clean j), as in the paper and in cleanlab: observed comes first. Row
        i sums to the share of observed label i.

    Examples
    --------
    >>> probs = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]
    >>> confident_joint(probs, [0, 1, 1, 1])
    array([[0.25, 0.  ],
           [0.25, 0.5 ]])
    """
    p = check_probs(probs, values=False)
    labels = check_given(y, p)
    k = p.shape[1]
    counted = Confident(p, labels)
    pairs, number, _ = counted.pairs()
    counts = np.zeros(k * k)
    counts[pairs] = number
    counts = counts.reshape(k, k)
    joint = counts / counts.sum(axis=1, keepdims=True) * counted.observed[:, None]
    return joint / joint.sum()


def estimate_noise_rate(probs: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Estimate the share of wrong labels: the off-diagonal mass of the `confident_joint`.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities, as for `estimate_transition`.
    y : integer array (N,)
        Observed labels.

    >>> estimate_noise_rate([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]], [0, 1, 1, 1])
    0.25
    """
    return float(max(0.0, 1.0 - np.trace(confident_joint(probs, y))))


def _anchor(p: Matrix, percentile: float | None) -> Matrix:
    n, k = p.shape
    if percentile is None:
        shares = np.bincount(p.argmax(axis=1), minlength=k) / n
        percentiles = np.maximum(97.0, 100.0 - 30.0 * shares)
    elif isinstance(percentile, numbers.Real) and 0.0 <= percentile <= 100.0:
        percentiles = np.full(k, float(percentile))
    else:
        raise InputError(f"percentile must be None or lie in [0, 100], got {percentile!r}")
    ranks = np.floor(percentiles / 100.0 * (n - 1)).astype(np.int64)
    rows = np.empty(k, dtype=np.int64)
    for i, rank in enumerate(ranks):
        column = p[:, i]
        # Partition instead of a sort: linear in N. Among equals the first row is taken.
        rows[i] = (column == np.partition(column, rank)[rank]).argmax()
    return p[rows] / p[rows].sum(axis=1, keepdims=True)
