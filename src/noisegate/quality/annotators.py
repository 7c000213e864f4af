"""Several annotators a row: who is right how often, and what the label is.

Dawid and Skene's model, in which every annotator has a confusion matrix of their own, with a prior that shrinks
those of annotators with few answers towards the matrix of all together; and, where a classifier's out-of-sample
probabilities are at hand, with a class distribution of each row in place of one for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: How many answers of all annotators together may be added to those of each one, a class.
STRENGTHS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
#: How far from 0 a probability of a classifier is kept.
_LEAST = 1e-6
_STEPS, _TOLERANCE = 200, 1e-9


@dataclass(frozen=True, eq=False)
class Answers:
    """Who gave which label to which row, one entry an answer.

    Attributes
    ----------
    row, annotator, label : int64 arrays (M,)
        Numbers of rows, annotators and classes.
    rows, annotators, classes : arrays
        What these numbers stand for. Rows without any answer count too.

    Examples
    --------
    >>> answers = read_answers([["a", "b"], ["b", None]])
    >>> answers.row.tolist(), answers.annotator.tolist(), answers.label.tolist()
    ([0, 0, 1], [0, 1, 0], [0, 1, 1])
    >>> answers.classes.tolist()
    ['a', 'b']
    """

    row: Ints
    annotator: Ints
    label: Ints
    rows: npt.NDArray[Any]
    annotators: npt.NDArray[Any]
    classes: npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Consensus:
    """What several annotators say together.

    Attributes
    ----------
    labels : array (N,)
        The most probable label of each row.
    quality : float array (N,)
        The probability that it is right, given all answers.
    probs : float array (N, K)
        The probability of every class: the soft consensus.
    classes : array (K,)
    rows : array (N,)
        What the rows are called.
    annotators : array (A,)
        What the annotators are called.
    n_answers : int array (A,)
    accuracy : float array (A,)
        How often each annotator is right, averaged over the classes as frequent as they are.
    confusion : float array (A, K, K)
        `confusion[a, i, j]` is the probability that annotator a says j where i is right.

    Examples
    --------
    >>> found = consensus([["a", "a", "b"], ["b", "b", "b"], ["a", "a", "a"]])
    >>> found.labels.tolist(), found.probs.shape, found.confusion.shape
    (['a', 'b', 'a'], (3, 2), (3, 2, 2))
    >>> int(found.accuracy.argmin())
    2
    """

    labels: npt.NDArray[Any]
    quality: Floats
    probs: Floats
    classes: npt.NDArray[Any]
    rows: npt.NDArray[Any]
    annotators: npt.NDArray[Any]
    n_answers: Ints
    accuracy: Floats
    confusion: Floats


def consensus(answers: Any, *, probs: npt.ArrayLike | None = None, classes: Any = None) -> Consensus:
    """The labels that several annotators agree on, how sure they are, and how good each annotator is.

    Maximises the posterior of Dawid and Skene's model by expectation-maximisation from the majority vote:
    `P(label k | answers) ~ p_k prod_a C_a[k, answer of a]`, where the confusion matrix `C_a` of each annotator
    has a Dirichlet prior around the matrix of all annotators together.

    Parameters
    ----------
    answers : array (N, A), or a table with the columns row, annotator (or worker) and label
        In the array a missing answer is None, NaN, or (where the labels are numbers) -1. The table may be a pandas,
        Polars or Arrow table; if its columns have other names, they are taken in this order.
    probs : array (N, K), default=None
        A classifier's out-of-sample probabilities for the rows, in the order of the sorted labels: they count as
        much as they turn out to be worth.
    classes : sequence, default=None
        All labels there are, where some do not occur; else those that occur.

    Returns
    -------
    Consensus

    References
    ----------
    Dawid and Skene. Maximum likelihood estimation of observer error-rates using the EM algorithm. Applied
    Statistics 1979.

    Examples
    --------
    >>> found = consensus([["cat", "cat", "dog"], ["dog", "dog", None], ["cat", "cat", "cat"]])
    >>> found.labels.tolist()
    ['cat', 'dog', 'cat']
    >>> found.n_answers.tolist(), bool(found.accuracy[2] < found.accuracy[0])
    ([3, 3, 2], True)
    """
    given = answers if isinstance(answers, Answers) else read_answers(answers, classes=classes)
    n_rows, n_classes = len(given.rows), len(given.classes)
    logs = None if probs is None else _log_probs(probs, n_rows, n_classes)
    prior, confusion, posterior = _fit(given, logs)
    best = posterior.argmax(1)
    return Consensus(
        given.classes[best],
        posterior[np.arange(n_rows), best],
        posterior,
        given.classes,
        given.rows,
        given.annotators,
        np.bincount(given.annotator, minlength=len(given.annotators)).astype(np.int64),
        np.einsum("k,akk->a", prior, confusion),
        confusion,
    )


# -- the model -------------------------------------------------------------------------------------


def _fit(given: Answers, logs: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Class frequencies (K,), confusion matrices (A, K, K) and posteriors (N, K)."""
    posterior = _votes(given)
    weight, score = 0.0, -np.inf
    for _ in range(_STEPS):
        prior = posterior.mean(0)
        confusion = _confusion(given, posterior)
        evidence = _evidence(given, confusion)
        if logs is not None:
            weight = _worth(evidence, prior, logs)
        joint = evidence + _row_priors(prior, logs, weight)
        top = joint.max(1, keepdims=True)
        posterior = np.exp(joint - top)
        total = posterior.sum(1, keepdims=True)
        posterior /= total
        before, score = score, float((top + np.log(total)).mean())
        if abs(score - before) < _TOLERANCE:
            break
    return posterior.mean(0), _confusion(given, posterior), posterior


def _votes(given: Answers) -> Floats:
    """Shares of the votes; rows without any have all classes alike."""
    n_rows, n_classes = len(given.rows), len(given.classes)
    counts = np.bincount(given.row * n_classes + given.label, minlength=n_rows * n_classes)
    shares = counts.reshape(n_rows, n_classes) + 1e-3
    return np.asarray(shares / shares.sum(1, keepdims=True))


def _confusion(given: Answers, posterior: Floats) -> Floats:
    """Confusion matrices of all annotators, shrunk to that of all answers together: (A, K, K).

    How strongly is told by how much annotators differ (the likelihood of a Dirichlet-multinomial distribution).
    """
    n_annotators, n_classes = len(given.annotators), len(given.classes)
    place = given.annotator * n_classes + given.label
    counts = np.empty((n_annotators, n_classes, n_classes))
    for k in range(n_classes):
        weights = posterior[given.row, k]
        counts[:, k] = np.bincount(place, weights, n_annotators * n_classes).reshape(n_annotators, n_classes)
    # One answer more on the diagonal keeps the names of classes that nobody agrees on from being exchanged.
    pooled = counts.sum(0) + np.eye(n_classes) + 0.1
    pooled /= pooled.sum(1, keepdims=True)
    strength = max(STRENGTHS, key=lambda s: _dirichlet_multinomial(counts, s * pooled))
    counts += strength * pooled
    return np.asarray(counts / counts.sum(2, keepdims=True))


def _dirichlet_multinomial(counts: Floats, prior: Floats) -> float:
    """Log-likelihood of counts (A, K, K) whose rows have a Dirichlet prior (K, K), up to a constant."""
    gained = _log_gamma(counts + prior) - _log_gamma(prior)
    total = prior.sum(1)
    return float(gained.sum() - (_log_gamma(counts.sum(2) + total) - _log_gamma(total)).sum())


def _log_gamma(x: Floats) -> Floats:
    """log Gamma(x) for x > 0, by Stirling's series from x + 8 on: ten digits."""
    shifted = x + 8
    inverse = 1 / shifted**2
    series = (1 / 12 - inverse * (1 / 360 - inverse / 1260)) / shifted
    stirling = (shifted - 0.5) * np.log(shifted) - shifted + 0.5 * np.log(2 * np.pi) + series
    product = np.ones_like(x)
    for step in range(8):
        product = product * (x + step)
    return np.asarray(stirling - np.log(product))


def _evidence(given: Answers, confusion: Floats) -> Floats:
    """Log-likelihood of the answers of each row under each class, (N, K)."""
    logs = np.log(confusion)
    columns = [
        np.bincount(given.row, logs[given.annotator, k, given.label], len(given.rows))
        for k in range(len(given.classes))
    ]
    return np.stack(columns, 1)


def _row_priors(prior: Floats, logs: Floats | None, weight: float) -> Floats:
    """Log-probability of each class before any answer, (1, K) or (N, K)."""
    own = np.log(np.maximum(prior, _LEAST))[None]
    if logs is None:
        return np.asarray(own)
    # The classifier's probabilities relative to its own average, so that weight 0 leaves the class frequencies.
    tilted = own + weight * (logs - np.log(np.exp(logs).mean(0)))
    return np.asarray(tilted - np.log(np.exp(tilted).sum(1, keepdims=True)))


def _worth(evidence: Floats, prior: Floats, logs: Floats) -> float:
    """The weight of the classifier under which the answers are most likely."""
    weights, scores = np.linspace(0, 2, 21), []
    for weight in weights:
        joint = evidence + _row_priors(prior, logs, float(weight))
        top = joint.max(1)
        scores.append(float((top + np.log(np.exp(joint - top[:, None]).sum(1))).mean()))
    return float(weights[int(np.argmax(scores))])


# -- input -----------------------------------------------------------------------------------------


def read_answers(answers: Any, *, classes: Any = None, n_rows: int | None = None) -> Answers:
    """Answers of an array (N, A) or of a table with one answer a line.

    With `n_rows` the rows are 0 to n_rows - 1, and a table must name them so.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"row": [0, 0, 1], "annotator": ["ann", "bob", "ann"], "label": [1, 0, 1]})
    >>> answers = read_answers(table)
    >>> answers.annotators.tolist(), answers.annotator.tolist()
    (['ann', 'bob'], [0, 1, 0])
    """
    names = _column_names(answers)
    if names is None:
        rows, annotators, labels, what = _from_array(np.asarray(answers, dtype=object))
    else:
        rows, annotators, labels = (np.asarray(answers[name]) for name in _pick(names))
        there = ~_missing(labels)
        rows, annotators, labels = rows[there], annotators[there], labels[there]
        what = (None, None)
    if not len(labels):
        raise InputError("there are no answers: every one is missing")
    values = np.unique(labels.astype(str)) if labels.dtype == object and _mixed(labels) else np.unique(labels)
    known = values if classes is None else np.asarray(classes)
    codes = _place(labels, known, "label", rows)
    row_names = what[0] if what[0] is not None else _row_names(rows, n_rows)
    if n_rows is not None and len(row_names) != n_rows:
        raise InputError(f"there are {n_rows:,} rows, but answers to {len(row_names):,}")
    people = what[1] if what[1] is not None else np.unique(annotators)
    found = Answers(
        _place(rows, row_names, "row", rows), _place(annotators, people, "annotator", rows), codes,
        row_names, people, known,
    )  # fmt: skip
    if len(known) < 2:
        raise InputError(
            f"expected at least two different labels among the answers, found only {str(known[0])!r}"
        )
    _refuse_twice(found)
    return found


def is_answers(y: Any) -> bool:
    """Whether labels are those of several annotators: an array (N, A), or a table with one answer a line.

    >>> is_answers([[0, 1], [1, 1]]), is_answers([0, 1]), is_answers([[0], [1]])
    (True, False, False)
    """
    if _column_names(y) is not None:
        return True
    shape = getattr(y, "shape", None)
    if (
        shape is None
        and isinstance(y, list | tuple)
        and len(y)
        and isinstance(y[0], list | tuple | np.ndarray)
    ):
        shape = (len(y), len(y[0]))
    return shape is not None and len(shape) == 2 and shape[1] > 1 and not hasattr(y, "tocsr")


def _column_names(answers: Any) -> list[str] | None:
    names = getattr(answers, "column_names", None)
    if names is None and hasattr(answers, "columns") and hasattr(answers, "__getitem__"):
        names = answers.columns
    # A pandas frame of one column an annotator has no such names: it is an array.
    names = None if names is None else [str(name) for name in names]
    return names if names is not None and (len(names) == 3 or {"row", "label"} <= set(names)) else None


def _pick(names: list[str]) -> tuple[str, str, str]:
    """The names of the columns of rows, annotators and labels."""
    person = next((name for name in ("annotator", "worker", "labeler", "user") if name in names), None)
    if "row" in names and "label" in names and person is not None:
        return "row", person, "label"
    if len(names) != 3:
        raise InputError(
            f"expected a table with the columns row, annotator and label, found {', '.join(names)}"
        )
    return names[0], names[1], names[2]


def _from_array(array: Any) -> tuple[Any, Any, Any, tuple[Any, Any]]:
    if array.ndim != 2:
        raise InputError(
            f"expected the answers as an array (rows, annotators) or a table, got an array of shape {array.shape}"
        )
    row, annotator = np.nonzero(~_missing(array))
    labels = array[row, annotator]
    plain = np.asarray(labels.tolist()) if len(labels) else labels
    if plain.dtype.kind == "f" and len(plain) and (plain == np.round(plain)).all():
        plain = plain.astype(np.int64)
    return row, annotator, plain, (np.arange(array.shape[0]), np.arange(array.shape[1]))


def _missing(values: Any) -> npt.NDArray[np.bool_]:
    """Where there is no answer: None, NaN, or -1 among numbers."""
    values = np.asarray(values)
    if values.dtype != object:
        gaps = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
        return np.asarray(gaps | (values == -1) if values.dtype.kind in "fi" else gaps)
    flat = values.ravel().tolist()
    gaps = [value is None or value != value or (value == -1 and value is not True) for value in flat]
    return np.array(gaps, dtype=bool).reshape(values.shape)


def _mixed(labels: npt.NDArray[Any]) -> bool:
    return len({type(value) for value in labels.tolist()}) > 1


def _row_names(rows: npt.NDArray[Any], n_rows: int | None) -> npt.NDArray[Any]:
    if n_rows is None:
        return np.unique(rows)
    if rows.dtype.kind not in "iu" or (len(rows) and (rows.min() < 0 or rows.max() >= n_rows)):
        bad = next((r for r in rows.tolist() if not isinstance(r, int) or not 0 <= r < n_rows), None)
        raise InputError(f"rows of the answers must be whole numbers from 0 to {n_rows - 1}, got {bad!r}")
    return np.arange(n_rows)


def _place(values: npt.NDArray[Any], known: npt.NDArray[Any], what: str, rows: npt.NDArray[Any]) -> Ints:
    """The place of each value among the known ones."""
    if values.dtype.kind != known.dtype.kind or values.dtype == object:
        values, known = values.astype(str), known.astype(str)
    order = np.argsort(known, kind="stable")
    place = order[np.minimum(np.searchsorted(known, values, sorter=order), len(order) - 1)]
    wrong = np.flatnonzero(known[place] != values)
    if len(wrong):
        raise InputError(
            f"unknown {what} {str(values[wrong[0]])!r} in an answer to row {rows[wrong[0]]}; "
            f"expected one of {', '.join(map(str, known[:10].tolist()))}"
        )
    return place.astype(np.int64)


def _refuse_twice(given: Answers) -> None:
    key = given.row * len(given.annotators) + given.annotator
    distinct, counts = np.unique(key, return_counts=True)
    if (counts > 1).any():
        row, annotator = divmod(int(distinct[np.argmax(counts > 1)]), len(given.annotators))
        raise InputError(
            f"annotator {given.annotators[annotator]} has answered row {given.rows[row]} more than once; "
            "keep one of the answers"
        )


def _log_probs(probs: npt.ArrayLike, n_rows: int, n_classes: int) -> Floats:
    array = np.asarray(probs, dtype=np.float64)
    if array.shape != (n_rows, n_classes):
        raise InputError(
            f"probs must have one row for each row that has answers and one column for each label, "
            f"({n_rows}, {n_classes}), got {array.shape}"
        )
    if not np.isfinite(array).all() or array.min() < 0 or np.abs(array.sum(1) - 1).max() > 1e-3:
        raise InputError("probs must be probabilities: finite, not negative, and each row of sum 1")
    return np.log(np.maximum(array, _LEAST))
