"""Columns of texts (reviews, titles) become a few hundred numbers, learnt without any label.

Hashed counts of words, pairs of words and short runs of characters are weighted by tf-idf. What distinguishes the
training texts most (latent semantic analysis: the leading singular vectors) spans the space they are projected to,
and a seeded rotation makes all numbers equally important, because networks standardise each of their inputs.
A projection that is drawn at random instead of learnt needs no stored arrays, and loses far more: see
`benchmarks/real_texts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisegate.data.tables.columns import Column, Floats, Met
from noisegate.data.tables.frames import Frame, as_text
from noisegate.data.tables.ngrams import word_and_character_counts

#: Buckets of words and of characters.
WORD_BUCKETS, CHARACTER_BUCKETS = 2**16, 2**16
#: Numbers a text becomes: one for so many texts, and at least and at most so many.
TEXTS_A_NUMBER, LEAST_SIZE, MOST_SIZE = 5, 512, 1024
#: How many texts the projection is learnt from at most.
LEARNT_FROM = 4096
#: An n-gram that is in fewer texts says nothing about others.
LEAST_TEXTS = 2
#: Rows that are projected at a time.
_ROWS = 8192


@dataclass(frozen=True)
class TextColumn(Column):
    """Texts: hashed n-grams with tf-idf weights, projected to `size` numbers; all zero where a text is missing.

    Attributes
    ----------
    size : int
        How many numbers a text becomes.
    buckets : int32 array (D,)
        The hashed n-grams that count; those of characters come after those of words.
    idf : float32 array (D,)
        Their weights: log((1 + N) / (1 + texts with it)) + 1.
    projection : int8 array (D, size)
        In steps of `step`, one for each number: a quarter of the room that floats take.
    step : float32 array (size,)
    """

    kind: ClassVar[str] = "text"
    size: int = 0
    buckets: npt.NDArray[np.int32] = field(compare=False, default_factory=lambda: np.zeros(0, np.int32))
    idf: npt.NDArray[np.float32] = field(compare=False, default_factory=lambda: np.zeros(0, np.float32))
    projection: npt.NDArray[np.int8] = field(compare=False, default_factory=lambda: np.zeros((0, 0), np.int8))
    step: npt.NDArray[np.float32] = field(compare=False, default_factory=lambda: np.zeros(0, np.float32))

    @property
    def own(self) -> list[str]:
        return [f"{self.name} [{number}]" for number in range(self.size)]

    @property
    def stays_text(self) -> bool:
        return True

    def words(self) -> str:
        return "text"

    def write(self, frame: Frame, values: Any, out: Floats, met: Met) -> None:
        texts = as_text(values)
        for start in range(0, len(texts), _ROWS):
            counts = _counts([text or "" for text in texts.slice(start, _ROWS).to_pylist()])[:, self.buckets]
            weighted = _weighted(counts, self.idf, self.buckets)
            there = np.unique(weighted.indices)  # a few texts have few of the n-grams
            projection = self.projection[there].astype(np.float32) * self.step
            out[start : start + _ROWS, : self.size] = weighted[:, there] @ projection

    @classmethod
    def learn(cls, name: str, values: Any, *, size: int | None = None, seed: int = 0) -> TextColumn:
        """Learn weights and projection from the training texts; no label is seen.

        `size` is the number of numbers a text becomes at most; by default it grows with the number of texts.
        """
        given = as_text(values).drop_null()
        rng = np.random.default_rng(seed)
        n = len(given)
        size = size or min(max(n // TEXTS_A_NUMBER, LEAST_SIZE), MOST_SIZE)
        chosen = np.sort(rng.permutation(n)[:LEARNT_FROM]) if n > LEARNT_FROM else np.arange(n)
        counts = _counts(given.take(chosen).to_pylist())
        texts_with = np.bincount(counts.indices, minlength=counts.shape[1])
        buckets = np.flatnonzero(texts_with >= min(LEAST_TEXTS, len(chosen))).astype(np.int32)
        idf = (np.log((1 + len(chosen)) / (1 + texts_with[buckets])) + 1).astype(np.float32)
        exact = _leading(_weighted(counts[:, buckets], idf, buckets), size, rng)
        step = np.abs(exact).max(axis=0, initial=np.finfo(np.float32).tiny) / 127
        projection = np.rint(exact / step).astype(np.int8)
        return cls(name, values.null_count > 0, len(step), buckets, idf, projection, step)


def _counts(texts: Sequence[str]) -> Any:
    """Counts of words, and behind them of characters: sparse, (N, WORD_BUCKETS + CHARACTER_BUCKETS)."""
    from scipy.sparse import hstack

    return hstack(word_and_character_counts(texts, WORD_BUCKETS, CHARACTER_BUCKETS), format="csr")


def _weighted(counts: Any, idf: npt.NDArray[np.float32], buckets: npt.NDArray[np.int32]) -> Any:
    """tf-idf with 1 + log(count); words and characters of a text have half of its length each."""
    weighted = counts.copy()
    weighted.data = (1 + np.log(counts.data)) * idf[counts.indices]
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    part = row * 2 + (buckets[counts.indices] >= WORD_BUCKETS)
    squares = np.bincount(part, weights=weighted.data**2, minlength=2 * counts.shape[0])
    weighted.data = (weighted.data / np.sqrt(2 * squares[part])).astype(np.float32)
    return weighted


def _leading(x: Any, size: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Columns that span the `size` leading right singular vectors of a sparse matrix, rotated at random.

    Subspace iteration from a seeded start; only the small side (one row a text) is made orthogonal.
    """
    across = x.T.tocsr()
    size = min(size, min(x.shape))
    basis = rng.standard_normal((x.shape[0], min(size + 20, x.shape[0]))).astype(np.float32)
    for _ in range(3):
        basis, _ = np.linalg.qr(x @ (across @ basis))
    image = across @ basis
    values, vectors = np.linalg.eigh(image.T @ image)
    values, vectors = values[::-1][:size], vectors[:, ::-1][:, :size]
    kept = values > values[0] * 1e-6
    leading = image @ (vectors[:, kept] / np.sqrt(values[kept]))
    rotation, _ = np.linalg.qr(rng.standard_normal((leading.shape[1], leading.shape[1])).astype(np.float32))
    return np.asarray(leading @ rotation, dtype=np.float32)
