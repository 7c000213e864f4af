"""Count confident rows by observed and clean class, for probabilities of any size in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError

Probs = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.int64]

#: Numbers in a block: 1 MiB of float64, which stays in a core's cache while it is processed.
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
    """Raise an InputError unless the rows of a block are probabilities.

    `first` is the number of the first.
    """
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


@dataclass(frozen=True, eq=False)
class Counted:
    """What confident counting finds in a block of rows or in all of them.

    Attributes
    ----------
    guess : int64 array (N,)
        The clean class each row counts into, -1 where it is confidently of none: the one class
        whose threshold the row reaches, or its most probable class if it reaches several. This is
        cleanlab's rule; the paper takes the most probable among the classes that are reached. They
        differ only where the most probable class is not reached and two others are.
    against : bool array (N,)
        Whether the most probable class is not the given one, which gets a slack.
    """

    guess: Ints
    against: npt.NDArray[np.bool_]


class Confident:
    """Confident counting over all rows: thresholds first, then blocks of `Counted`.

    The threshold of a class is its mean probability over the rows labelled so, infinite where there
    are none. The values of `p` are checked on the way.

    Attributes
    ----------
    observed : int64 array (K,)
        How many rows carry each label.
    threshold : float64 array (K,)
    """

    def __init__(self, p: Probs, y: npt.NDArray[np.integer[Any]]) -> None:
        n, k = p.shape
        self.p, self.y = p, y
        total, self.observed = np.zeros(k), np.zeros(k, dtype=np.int64)
        # Of wide rows the first look keeps what makes a second one needless for most of them.
        self.wide = k > FEW
        self._best = np.empty(n if self.wide else 0, dtype=np.int32)
        self._top, self._own = (np.empty(n if self.wide else 0, dtype=p.dtype) for _ in range(2))
        for block in blocks(n, k):
            part, labels = p[block], y[block]
            check_block(part, block.start)
            rows = np.arange(len(part))
            own = part[rows, labels]
            total += np.bincount(labels, weights=own, minlength=k)
            self.observed += np.bincount(labels, minlength=k)
            if self.wide:
                best = part.argmax(axis=1)
                self._best[block], self._top[block], self._own[block] = best, part[rows, best], own
        # A class without labels gets a threshold that no row reaches; no threshold lets a probability of
        # 0 pass.
        mean = np.where(self.observed > 0, total / np.maximum(self.observed, 1), np.inf)
        self.threshold = mean.clip(min=2 * SLACK)
        # The slack keeps rows at the threshold but for rounding, as when all probabilities are
        # equal.
        self._low = self.threshold - SLACK

    def blocks(self) -> Iterator[tuple[slice, Counted]]:
        """All rows, block by block."""
        for block in blocks(*self.p.shape):
            yield block, self._wide(block) if self.wide else self._few(block)

    def _wide(self, block: slice) -> Counted:
        guess, top, own = self._best[block].astype(np.int64), self._top[block], self._own[block]
        against = self._against(block, own, top)
        # A row that reaches its most probable class counts into it, however many others it reaches.
        rest = np.flatnonzero(top < self._low[guess])
        if len(rest):
            reached = self.p[block][rest] >= self._low
            number = np.count_nonzero(reached, axis=1)
            guess[rest] = np.where(number == 1, reached.argmax(axis=1), np.where(number > 1, guess[rest], -1))
        return Counted(guess, against)

    def _few(self, block: slice) -> Counted:
        """Along the columns, since short rows are slow to reduce one by one."""
        part = self.p[block]
        columns = np.ascontiguousarray(part.T)
        reached = columns >= self._low[:, None]
        number = np.add.reduce(reached, axis=0, dtype=np.int8)
        # The sum of the numbers of the classes that are reached is the class where it is one.
        guess = (np.arange(len(columns), dtype=np.float32) @ reached.astype(np.float32)).astype(np.int64)
        several = np.flatnonzero(number > 1)
        guess[several] = part[several].argmax(axis=1)
        guess[number == 0] = -1
        own = part[np.arange(len(part)), self.y[block]]
        return Counted(guess, self._against(block, own, columns.max(axis=0)))

    def _against(self, block: slice, own: Probs, top: Probs) -> npt.NDArray[np.bool_]:
        own = own + own.dtype.type(SLACK)
        against = own < top
        tied = np.flatnonzero(own == top)
        against[tied] = self.p[block][tied].argmax(axis=1) < self.y[block][tied]
        return against

    def pairs(self) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
        """Rows counted as (observed, clean).

        Returns
        -------
        pairs, counts : int64 arrays (P,)
            Codes observed * K + clean in order, and how many rows; the diagonal counts at least
            one.
        against : bool array (N,)
            As in `Counted`.
        """
        n, k = self.p.shape
        diagonal = np.arange(k) * (k + 1)
        against = np.empty(n, dtype=bool)
        dense = np.zeros(k * k, dtype=np.int64) if k * k <= 4 * BLOCK else None
        codes = []
        for block, found in self.blocks():
            against[block] = found.against
            code = self.y[block].astype(np.int64) * k + found.guess
            if found.guess.min() < 0:
                code = code[found.guess >= 0]
            if dense is not None:
                dense += np.bincount(code, minlength=k * k)
            else:
                codes.append(code)
        if dense is not None:
            dense[diagonal] = dense[diagonal].clip(min=1)
            pairs = np.flatnonzero(dense)
            return pairs, dense[pairs], against
        # One extra count of every diagonal pair makes them appear; it is taken back where there
        # were others.
        pairs, counts = np.unique(np.concatenate([*codes, diagonal]), return_counts=True)
        counts[np.searchsorted(pairs, diagonal)] -= 1
        return pairs, counts.clip(min=1), against
