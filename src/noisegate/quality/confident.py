"""cleanlab's two rules for flagging labels, with the same flags, in a fraction of the time and memory.

The probabilities are read twice in blocks that fit into a core's cache; nothing of their size is ever made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.noise.confident import BLOCK, SLACK, Confident, Ints, Probs, check_given, check_probs

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.integer[Any]]

#: Up to this many numbers the joint is summed as a dense matrix, in numpy's order of additions.
_DENSE = 1 << 22


def confident_learning(probs: npt.ArrayLike, y: npt.ArrayLike) -> Mask:
    """Flag the rows that are confidently of another class than their label's.

    The threshold of a class is the mean probability of that class over the rows labelled so. A row is
    flagged if it reaches the threshold of another class, see `noisegate.noise.confident_joint`, and its most
    probable class is not the given one.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities.
    y : integer array (N,)
        Given labels 0..K-1.

    Returns
    -------
    bool array (N,)
        Equal to cleanlab's `find_label_issues(..., filter_by="confident_learning")`.

    References
    ----------
    Northcutt, Jiang, Chuang. Confident learning: estimating uncertainty in dataset labels. JAIR 2021.

    >>> confident_learning([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.9, 0.1]], [0, 0, 1, 1])
    array([False, False, False,  True])
    """
    p = check_probs(probs, values=False)
    labels = check_given(y, p)
    flags = np.empty(len(p), dtype=bool)
    for block, found in Confident(p, labels).blocks():
        flags[block] = found.against & (found.guess >= 0) & (found.guess != labels[block])
    return flags


def prune_by_noise_rate(probs: npt.ArrayLike, y: npt.ArrayLike) -> Mask:
    """Flag as many rows of each pair of classes as the confident joint counts, those of largest margin.

    For each pair (given i, clean j) the joint says how many rows there are; as many rows labelled i are
    flagged, by decreasing p_j - p_i, if their most probable class is not the given one.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities.
    y : integer array (N,)
        Given labels 0..K-1.

    Returns
    -------
    bool array (N,)
        Equal to cleanlab's default, `find_label_issues(..., filter_by="prune_by_noise_rate")`, except
        where margins tie at the last flagged row, which cleanlab leaves to an unstable sort.

    References
    ----------
    Northcutt, Jiang, Chuang. Confident learning: estimating uncertainty in dataset labels. JAIR 2021.

    >>> prune_by_noise_rate([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.9, 0.1]], [0, 0, 1, 1])
    array([False, False, False,  True])
    """
    p = check_probs(probs, values=False)
    labels = check_given(y, p)
    k = p.shape[1]
    counted = Confident(p, labels)
    observed = counted.observed
    pairs, counts, candidates = counted.pairs()
    del counted
    pairs, counts = prune_counts(pairs, counts, observed)
    flags = np.zeros(len(p), dtype=bool)
    rows = np.flatnonzero(candidates)
    rows = rows[np.argsort(labels[rows], kind="stable")]
    ends = np.cumsum(np.bincount(labels[rows], minlength=k))
    given_of_pair = pairs // k
    starts = np.searchsorted(given_of_pair, np.arange(k + 1))
    for i in np.flatnonzero((observed > 1) & (np.diff(starts) > 0)):
        mine = rows[ends[i - 1] if i else 0 : ends[i]]
        wanted = slice(starts[i], starts[i + 1])
        _prune_class(p, labels, int(i), mine, pairs[wanted] % k, counts[wanted], flags)
    return flags & candidates


def _prune_class(p: Probs, y: Labels, i: int, rows: Ints, others: Ints, wanted: Ints, flags: Mask) -> None:
    """Flag rows labelled `i` pair by pair; `rows` are those that can be flagged at all."""
    step = max(1, BLOCK // (4 * max(1, len(rows))))
    for start in range(0, len(others), step):
        pairs = slice(start, start + step)
        n = wanted[pairs]
        margin = p[rows[:, None], others[None, pairs]] - p[rows, i][:, None]
        enough = np.count_nonzero(margin > SLACK, axis=0) >= n
        if enough.any():
            flags[rows[_largest(margin[:, enough], n[enough])]] = True
        # Other rows have margins of at most the slack: they matter only where n reaches so far down.
        for j, number in zip(others[pairs][~enough].tolist(), n[~enough].tolist(), strict=True):
            every = np.flatnonzero(y == i)
            flags[every[np.argsort(p[every, i] - p[every, j])[:number]]] = True


def _largest(values: npt.NDArray[np.floating[Any]], n: Ints) -> Ints:
    """Rows of the `n[j]` largest values of each column j."""
    if values.shape[1] == 1:
        return np.argpartition(-values[:, 0], n[0] - 1)[: n[0]]
    order = np.argsort(-values, axis=0)
    return order[np.arange(len(values))[:, None] < n]


def prune_counts(pairs: Ints, counts: Ints, observed: Ints) -> tuple[Ints, Ints]:
    """How many rows of each pair (given i, clean j), i * K + j, to flag: the calibrated confident joint.

    Counts are scaled to the observed number of each label, rounded so that each row keeps its sum, and at least one
    row a class is left unflagged. Pairs of which none is to be flagged are left out, as is the
    diagonal.
    """
    k = len(observed)
    given, clean = np.divmod(pairs, k)
    row_sums = np.bincount(given, weights=counts, minlength=k)
    scaled = counts / row_sums[given] * observed[given]
    if k * k <= _DENSE:
        dense = np.zeros((k, k))
        dense[given, clean] = scaled
        total = dense.sum()
    else:
        total = scaled.sum()
    scaled = scaled / total * observed.sum()
    starts = np.searchsorted(given, np.arange(k + 1))
    whole = scaled.round()
    # Rows that rounding has changed the sum of are few: only they are done one by one.
    sums = np.bincount(given, weights=scaled, minlength=k).round()
    off = sums - np.bincount(given, weights=whole, minlength=k)
    for i in np.flatnonzero(off):
        part = slice(starts[i], starts[i + 1])
        whole[part] = _rounded(scaled[part], clean[part], k, int(off[i]))
    whole = _leave_one(given, clean, whole, k)
    keep = (given != clean) & (whole > 0)
    return pairs[keep], whole[keep].astype(np.int64)


def _rounded(values: npt.NDArray[np.float64], clean: Ints, k: int, off: int) -> npt.NDArray[np.float64]:
    """Whole numbers near `values` of a row, moved by `off` in sum where rounding moved them most."""
    whole = values.round()
    gap = values - whole
    step = 1 if off > 0 else -1
    order = np.argsort(-step * gap)
    n = abs(off)
    if n < len(order) and gap[order[n - 1]] != gap[order[n]] and step * gap[order[n - 1]] > 0:
        whole[order[:n]] += step
        return whole
    # Ties are broken as by cleanlab, whose sort is unstable: the same sort, over the same row of length K.
    row = np.zeros(k)
    row[clean] = gap
    chosen = np.argsort(row)[::-step][:n]
    place = np.searchsorted(clean, chosen)
    whole[place] += step
    return whole


def _leave_one(given: Ints, clean: Ints, whole: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.float64]:
    """Take from the other pairs what the diagonal lacks to one, evenly, and cut fractions off."""
    diagonal = given == clean
    lack = np.zeros(k)
    np.maximum.at(lack, given[diagonal], 1.0 - whole[diagonal])
    number = np.bincount(given[(whole != 0)], minlength=k)
    share = lack / np.maximum(number - 1.0, 1.0)
    left: npt.NDArray[np.float64] = np.trunc((whole - share[given]).clip(min=0.0))
    return left
