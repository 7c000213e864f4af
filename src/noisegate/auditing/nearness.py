"""Similar rows: neighbours in a network's last layer, and near duplicates with different labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.auditing.stored import Neighbours

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

#: Number of similarities in memory at a time: 64 MiB of float32.
_BLOCK = 1 << 24
#: Number of projections for finding duplicates, and of following rows that each row is compared with.
_DIRECTIONS, _WINDOW = 6, 4
#: How many of the nearest rows vote.
VOTERS = 20


def normalised(features: npt.NDArray[Any]) -> Floats:
    """Centre rows of features (N, d) and scale them to length one, so that inner products are cosines."""
    x = np.asarray(features, dtype=np.float32).reshape(len(features), -1)
    x = x - x.mean(axis=0)
    scale = x.std(axis=0)
    x /= np.where(scale > 0, scale, 1.0)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    x /= np.where(length > 0, length, 1.0)
    return x


def nearest(features: Floats, rows: Ints, k: int) -> Neighbours:
    """The `k` rows nearest to each of `rows` by the cosine of normalised features, in bounded memory."""
    rows = np.sort(np.asarray(rows, dtype=np.int64))
    n = len(features)
    k = min(k, n - 1)
    found = np.empty((len(rows), k), dtype=np.int64)
    similarity = np.empty((len(rows), k), dtype=np.float32)
    step = max(1, _BLOCK // max(n, 1))
    for start in range(0, len(rows), step):
        mine = rows[start : start + step]
        cosine = features[mine] @ features.T
        cosine[np.arange(len(mine)), mine] = -np.inf
        best = _largest(cosine, k)
        found[start : start + step] = best
        similarity[start : start + step] = np.take_along_axis(cosine, best, axis=1)
    return Neighbours(rows, found, similarity.clip(-1.0, 1.0))


def _largest(values: Floats, k: int) -> Ints:
    """Columns of the `k` largest values of each row, the largest first; of equal values the first.

    The k-th largest maximum of groups of columns bounds the k-th largest value from below, so only the few
    values above it are sorted.

    >>> _largest(np.array([[1, 3, 2, 3]], dtype=np.float32), 3)
    array([[1, 3, 2]])
    """
    n = values.shape[1]
    groups = min(n, max(n // 64, k))
    whole = n // groups * groups
    maxima = values[:, :whole].reshape(len(values), -1, groups).max(axis=1)
    limits = np.partition(maxima, groups - k, axis=1)[:, groups - k]
    found = np.empty((len(values), k), dtype=np.int64)
    for i, (row, limit) in enumerate(zip(values, limits, strict=True)):
        above = np.flatnonzero(row >= limit)
        found[i] = above[np.argsort(-row[above], kind="stable")[:k]]
    return found


def duplicates(x: npt.NDArray[Any], y: Ints, *, tolerance: float = 0.02, seed: int = 0) -> list[Ints]:
    """Find groups of nearly equal rows with different labels, the largest groups first.

    Two rows are near duplicates if their distance is at most `tolerance` times the typical distance of two rows.
    Candidates are rows that lie beside each other in the order of random projections, so that no pair of
    distant rows is ever compared.

    Parameters
    ----------
    x : array (N, ...)
    y : int array (N,)
    tolerance : float, default=0.02
    seed : int, default=0
    """
    flat = np.asarray(x).reshape(len(x), -1)
    n = len(flat)
    if n < 2:
        return []
    rng = np.random.default_rng([seed, 0xD0])
    some = flat[rng.permutation(n)[:20_000]].astype(np.float64)
    scale = some.std(axis=0)
    weight = np.where(scale > 0, 1.0 / np.where(scale > 0, scale, 1.0), 0.0)
    pairs = rng.integers(len(some), size=(2, 1000))
    distance = np.linalg.norm((some[pairs[0]] - some[pairs[1]]) * weight, axis=1)
    # Of two rows that differ: among few rows many draws are of one row twice.
    distance = distance[distance > 0]
    limit = tolerance * float(np.median(distance)) if len(distance) else 0.0
    weight = weight.astype(np.float32)
    directions = rng.normal(size=(_DIRECTIONS, flat.shape[1])).astype(np.float32)
    projected = np.stack([_project(flat, direction * weight) for direction in directions])
    # Two rows within the limit are as near in each projection (Cauchy-Schwarz); the slack is for rounding.
    reach = 1.01 * limit * np.linalg.norm(directions, axis=1) + 1e-5 * np.abs(projected).max(axis=1)
    links = [np.empty((0, 2), dtype=np.int64)]
    for values in projected:
        order = np.argsort(values, kind="stable")
        for gap in range(1, min(_WINDOW, n - 1) + 1):
            left, right = order[:-gap], order[gap:]
            near = y[left] != y[right]
            for other, most in zip(projected, reach, strict=True):
                left, right = left[near], right[near]
                near = np.abs(other[left] - other[right]) <= most
            links.append(_close(flat, weight, left[near], right[near], limit))
    return _groups(np.unique(np.sort(np.concatenate(links), axis=1), axis=0), n)


def _project(flat: npt.NDArray[Any], direction: Floats) -> Floats:
    result = np.empty(len(flat), dtype=np.float32)
    step = max(1, _BLOCK // flat.shape[1])
    for start in range(0, len(flat), step):
        result[start : start + step] = flat[start : start + step].astype(np.float32) @ direction
    return result


def _close(flat: npt.NDArray[Any], weight: Floats, left: Ints, right: Ints, limit: float) -> Ints:
    """The pairs (left, right) within the limit."""
    kept = []
    step = max(1, _BLOCK // flat.shape[1])
    for start in range(0, len(left), step):
        a, b = left[start : start + step], right[start : start + step]
        gap = (flat[a].astype(np.float32) - flat[b].astype(np.float32)) * weight
        near = np.einsum("ij,ij->i", gap, gap) <= limit * limit
        kept.append(np.stack([a[near], b[near]], axis=1))
    return np.concatenate(kept) if kept else np.empty((0, 2), dtype=np.int64)


def _groups(links: Ints, n: int) -> list[Ints]:
    """Connected rows, the largest groups first."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    if not len(links):
        return []
    rows, codes = np.unique(links, return_inverse=True)
    codes = codes.reshape(links.shape)
    graph = coo_matrix((np.ones(len(links)), (codes[:, 0], codes[:, 1])), shape=(len(rows), len(rows)))
    _, group = connected_components(graph, directed=False)
    order = np.argsort(group, kind="stable")
    parts = np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1)
    return sorted(parts, key=lambda part: (-len(part), int(part[0])))


def vote(features: Floats, y: Ints, n_classes: int, k: int = VOTERS) -> npt.NDArray[np.float64]:
    """Probabilities (N, K) by the labels of each row's `k` nearest others, weighted by similarity.

    The class shares are added with the weight of one row, so that no class has probability 0.
    """
    n = len(y)
    prior = np.bincount(y, minlength=n_classes) / n
    probs = np.empty((n, n_classes))
    step = max(1, _BLOCK // n)
    for start in range(0, n, step):
        rows = np.arange(start, min(n, start + step))
        near = nearest(features, rows, k)
        weight = near.similarity.clip(min=0.0).astype(np.float64)
        codes = (rows - start)[:, None] * n_classes + y[near.neighbours]
        votes = np.bincount(codes.ravel(), weights=weight.ravel(), minlength=len(rows) * n_classes)
        probs[rows] = votes.reshape(-1, n_classes) + prior
    return probs / probs.sum(axis=1, keepdims=True)
