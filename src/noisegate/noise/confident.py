"""Confident counting of observed against clean classes, over probabilities of any size in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError

Probs = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]

#: Numbers of a block: 1 MiB of float64, which stays in a core's cache over all that is done with it.
BLOCK = 1 << 17
#: Up to this many classes, rows are so short that going along columns is faster.
FEW = 64
#: Slack of cleanlab's comparisons: probabilities this close to a threshold reach it.
SLACK = 1e-6


def check_probs(probs: npt.ArrayLike, *, values: bool = True) -> Probs:
    """Probabilities as a floating-point array (N, K), without a copy where they are one already.

    `values=False` checks the shape alone; `check_block` then checks each block as it is read.
    """
    try:
        p = np.asarray(probs)
        if not np.issubdtype(p.dtype, np.floating):
            p = p.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"expected probabilities of shape (N, K), got {probs!r:.100}") from None
    if p.ndim != 2 or not p.size:
        raise InputError(f"expected probabilities of shape (N, K), got {p.shape}")
    if values:
        for block in blocks(*p.shape):
            check_block(p[block], block.start)
    return p


def check_block(p: Probs, first: int = 0) -> None:
    """Raise an InputError unless the rows of a block are probabilities; `first` is the number of the first."""
    # NaN and infinity show in the sums, so that two passes over the block suffice.
    ones = np.ones(p.shape[1], dtype=p.dtype if p.dtype != np.float16 else np.float32)
    sums = p @ ones
    least = p.min()
    if not (least >= 0.0) or not np.isfinite(sums).all():
        raise InputError("probabilities must be finite and not negative; were these logits?")
    off = np.abs(sums - 1.0)
    if off.max() > 1e-2:
        i = int(off.argmax())
        raise InputError(f"each row of probabilities must sum to one, row {first + i} sums to {sums[i]:.6g}")


def check_given(y: npt.ArrayLike, p: Probs) -> npt.NDArray[np.integer[Any]]:
    """Given labels as an integer array (N,) with classes of `p`, without a copy where they are one already."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InputError(f"expected labels of shape (N,), got {labels.shape}")
    if not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"expected integer labels 0..K-1, got {labels.dtype}; number the classes first")
    n, k = p.shape
    if len(labels) != n:
        raise InputError(f"{n} rows of probabilities but {len(labels)} labels")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= k:
        raise InputError(f"labels must lie in 0..{k - 1}, got {low}..{high}")
    return labels


def blocks(n: int, k: int) -> Iterator[slice]:
    """Slices over `n` rows of `k` numbers, each of about `BLOCK` numbers."""
    rows = max(1, BLOCK // k)
    for start in range(0, n, rows):
        yield slice(start, min(n, start + rows))


def thresholds(p: Probs, y: npt.NDArray[np.integer[Any]]) -> tuple[npt.NDArray[np.float64], Ints]:
    """Mean probability of each class over the rows labelled so (infinite where there are none), and their number.

    Checks the values of `p` on the way.
    """
    k = p.shape[1]
    total, number = np.zeros(k), np.zeros(k, dtype=np.int64)
    for block in blocks(*p.shape):
        part, labels = p[block], y[block]
        check_block(part, block.start)
        own = part[np.arange(len(part)), labels]
        total += np.bincount(labels, weights=own, minlength=k)
        number += np.bincount(labels, minlength=k)
    # A class nobody is labelled as gets a threshold nobody reaches; none lets a probability of 0 pass.
    mean = np.where(number > 0, total / np.maximum(number, 1), np.inf)
    return mean.clip(min=2 * SLACK), number


def confident_class(p: Probs, threshold: npt.NDArray[np.float64]) -> tuple[Ints, Probs]:
    """The clean class each row of a block counts into, -1 where it is confidently of none; and its maximum.

    That is the one class whose threshold the row reaches, or its most probable class if it reaches
    several. This is cleanlab's rule; the paper takes the most probable among the classes that are
    reached. They differ only where the most probable class is not reached and two others are.
    """
    # The slack keeps rows at the threshold but for rounding, as when all probabilities are equal.
    low = threshold - SLACK
    if p.shape[1] <= FEW:
        return _confident_class_of_few(p, low)
    guess = p.argmax(axis=1)
    top = p[np.arange(len(p)), guess]
    # A row that reaches its most probable class counts into it, however many others it reaches.
    rest = np.flatnonzero(top < low[guess])
    if len(rest):
        reached = p[rest] >= low
        number = np.count_nonzero(reached, axis=1)
        guess[rest] = np.where(number == 1, reached.argmax(axis=1), np.where(number > 1, guess[rest], -1))
    return guess, top


def _confident_class_of_few(p: Probs, low: npt.NDArray[np.float64]) -> tuple[Ints, Probs]:
    """`confident_class` along the columns, since short rows are slow to reduce one by one."""
    columns = np.ascontiguousarray(p.T)
    reached = columns >= low[:, None]
    number = np.add.reduce(reached, axis=0, dtype=np.int8)
    # The sum of the numbers of the classes that are reached is the class where it is one.
    guess = (np.arange(p.shape[1], dtype=np.float32) @ reached.astype(np.float32)).astype(np.int64)
    several = np.flatnonzero(number > 1)
    guess[several] = p[several].argmax(axis=1)
    guess[number == 0] = -1
    return guess, columns.max(axis=0)


def contradicted(p: Probs, y: npt.NDArray[np.integer[Any]], top: Probs) -> npt.NDArray[np.bool_]:
    """Whether the most probable class is not the given one, which gets a slack; `top` is the maximum."""
    own = p[np.arange(len(p)), y] + p.dtype.type(SLACK)
    found = own < top
    tied = np.flatnonzero(own == top)
    found[tied] = p[tied].argmax(axis=1) < y[tied]
    return found


def confident_pairs(
    p: Probs, y: npt.NDArray[np.integer[Any]], threshold: npt.NDArray[np.float64]
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Count rows as (observed, clean).

    Returns
    -------
    pairs, counts : int64 arrays (P,)
        Codes observed * K + clean in order, and how many rows; the diagonal counts at least one.
    against : bool array (N,)
        The rows that are `contradicted`.
    """
    k = p.shape[1]
    diagonal = np.arange(k) * (k + 1)
    against = np.empty(len(p), dtype=bool)
    dense = np.zeros(k * k, dtype=np.int64) if k * k <= 4 * BLOCK else None
    codes = []
    for block in blocks(*p.shape):
        part, given = p[block], y[block]
        guess, top = confident_class(part, threshold)
        against[block] = contradicted(part, given, top)
        code = given.astype(np.int64) * k + guess
        if guess.min() < 0:
            code = code[guess >= 0]
        if dense is not None:
            dense += np.bincount(code, minlength=k * k)
        else:
            codes.append(code)
    if dense is not None:
        dense[diagonal] = dense[diagonal].clip(min=1)
        pairs = np.flatnonzero(dense)
        return pairs, dense[pairs], against
    # One extra count of every diagonal pair makes them appear; it is taken back where there were others.
    pairs, counts = np.unique(np.concatenate([*codes, diagonal]), return_counts=True)
    counts[np.searchsorted(pairs, diagonal)] -= 1
    return pairs, counts.clip(min=1), against
