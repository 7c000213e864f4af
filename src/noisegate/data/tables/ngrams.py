"""Hashed n-grams of words and characters, for whole columns of texts at once and in any script.

A text is a slice of one long array of code points. With `S[j] = sum of c_i B^i for i < j` (modulo 2^64) the hash of
the slice `[i, j)` is `(S[j] - S[i]) B^-i`: it depends on the characters and not on where they stand, so that the
hashes of all n-grams of all texts are a few operations on arrays.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

#: An odd multiplier has an inverse modulo 2^64.
_BASE = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64))
#: How many code points are hashed at a time: about 100 bytes of memory each.
BLOCK = 2**20
_SPACE, _OTHER, _WORD = 0, 1, 2


def word_and_character_counts(
    texts: Sequence[str], word_buckets: int, character_buckets: int
) -> tuple[Any, Any]:
    """How often each hashed n-gram occurs in each text: two sparse matrices, of words and of characters.

    Words and pairs of neighbouring words; two to five neighbouring characters of a word, whose ends count as a
    space. Upper and lower case are one, and so are the ways Unicode has to write the same letter.

    Parameters
    ----------
    texts : sequence of str, length N
    word_buckets, character_buckets : int
        Number of columns; a power of two each.

    Returns
    -------
    words, characters : scipy.sparse.csr_array (N, word_buckets), (N, character_buckets)

    >>> words, characters = word_and_character_counts(["a cat", "A  CAT", ""], 64, 64)
    >>> words.sum(axis=1).tolist()
    [3.0, 3.0, 0.0]
    >>> bool((words[[0]] != words[[1]]).nnz)
    False
    """
    from scipy.sparse import vstack

    words, characters = [], []
    for block in _blocks(texts):
        points, ends = _code_points(block)
        kinds = _kinds(points)
        words.append(_counts(*_word_grams(points, kinds, ends), len(block), word_buckets))
        characters.append(_counts(*_character_grams(points, kinds, ends), len(block), character_buckets))
    return vstack(words, format="csr"), vstack(characters, format="csr")


def _blocks(texts: Sequence[str]) -> list[Sequence[str]]:
    """Cut a sequence of texts where about BLOCK characters are together."""
    ends = np.cumsum([len(text) + 2 for text in texts])
    cuts = np.flatnonzero(np.diff(ends // BLOCK, prepend=0)).tolist()
    starts = [0, *[cut for cut in cuts if cut], len(texts)]
    return [texts[a:b] for a, b in itertools.pairwise(starts)]


def _code_points(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], Integers]:
    """All texts behind each other, a space before and after each, and where each one ends."""
    plain = [f" {unicodedata.normalize('NFC', text.lower())} " for text in texts]
    points = np.frombuffer("".join(plain).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    return points, np.cumsum([len(text) for text in plain])


def _kinds(points: npt.NDArray[np.uint32]) -> npt.NDArray[np.int8]:
    """Whether each character is a space, part of a word (with the marks upon it), or something else."""
    distinct, place = np.unique(points, return_inverse=True)
    kinds = np.array([_kind(chr(point)) for point in distinct.tolist()], dtype=np.int8)
    return kinds[place]


def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    return _WORD if character.isalnum() or unicodedata.category(character)[0] == "M" else _OTHER


def _hashes(points: npt.NDArray[np.uint32], starts: Integers, ends: Integers) -> Hashes:
    """Hash of every slice `points[start:end]`, well mixed."""
    powers = np.full(len(points) + 1, _BASE, np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    sums = np.zeros(len(points) + 1, np.uint64)
    np.cumsum((points.astype(np.uint64) + np.uint64(1)) * powers[:-1], out=sums[1:])
    inverses = np.full(len(points) + 1, _INVERSE, np.uint64)
    inverses[0] = 1
    inverses = np.multiply.accumulate(inverses)
    return _mixed((sums[ends] - sums[starts]) * inverses[starts])


def _mixed(values: Hashes) -> Hashes:
    """Spread every bit over all bits (the finaliser of SplitMix64)."""
    values = values.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def _word_grams(
    points: npt.NDArray[np.uint32], kinds: npt.NDArray[np.int8], text_ends: Integers
) -> tuple[Integers, Hashes]:
    """Texts and hashes of single words, other marks such as "!" among them, and of pairs."""
    # A word begins where the kind changes; every character that is neither letter nor space is a word of its own.
    changes = np.diff(kinds, prepend=_SPACE) != 0
    starts = np.flatnonzero((kinds != _SPACE) & (changes | (kinds == _OTHER)))
    stops = np.flatnonzero((kinds != _SPACE) & (np.diff(kinds, append=_SPACE) != 0) | (kinds == _OTHER)) + 1
    hashes, text = _hashes(points, starts, stops), np.searchsorted(text_ends, starts, side="right")
    together = text[1:] == text[:-1]
    pairs = _mixed(hashes[:-1] * np.uint64(3) + hashes[1:])[together]
    return np.concatenate([text, text[1:][together]]), np.concatenate([hashes, pairs])


def _character_grams(
    points: npt.NDArray[np.uint32], kinds: npt.NDArray[np.int8], text_ends: Integers
) -> tuple[Integers, Hashes]:
    """Texts and hashes of two to five characters that stand together between two spaces, these included."""
    space = (kinds == _SPACE).astype(np.int32)
    # Number of spaces strictly inside of a slice: none may be there.
    before = np.concatenate([[0], np.cumsum(space)])
    # Spaces of any kind are one space.
    plain = np.where(space, np.uint32(32), points)
    text_of = np.repeat(np.arange(len(text_ends)), np.diff(text_ends, prepend=0))
    texts, hashes = [], []
    for length in range(2, 6):
        starts = np.arange(len(points) - length + 1)
        inner = before[starts + length - 1] - before[starts + 1]
        whole = (inner == 0) & ((length > 2) | (space[starts] + space[starts + 1] < 2))
        starts = starts[whole]
        texts.append(text_of[starts])
        hashes.append(_hashes(plain, starts, starts + length))
    return np.concatenate(texts), np.concatenate(hashes)


def _counts(texts: Integers, hashes: Hashes, n_texts: int, buckets: int) -> Any:
    """A sparse matrix of counts, (n_texts, buckets), float32."""
    from scipy.sparse import csr_array

    column = (hashes & np.uint64(buckets - 1)).astype(np.int64)
    keys, counts = np.unique(texts * buckets + column, return_counts=True)
    rows = np.searchsorted(keys, np.arange(n_texts + 1) * buckets)
    return csr_array((counts.astype(np.float32), keys % buckets, rows), shape=(n_texts, buckets))
