"""Which labels are wrong: a probability for each, and two operating points with the precision to expect."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError, UnknownNameError
from noisegate.noise.confident import Probs, blocks, check_block, check_given, check_probs
from noisegate.quality import posterior

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

POINTS = ("look", "sure")
#: Precision the point "sure" promises.
SURE = 0.95
#: "sure" is decided with beta this much smaller: with less faith in the classifier.
CAUTION = 0.85
#: With fewer rows a class there is less faith still, in proportion: a classifier that has seen ten rows of a
#: class is wrong with confidence, as labels are. On tables with known errors "sure" was right about half of the
#: time with fewer than 16 rows a class, in 87 % of cases with 16 to 30, and in 95 % with 30 to 60.
ROWS_OF_A_CLASS = 30
#: More classes than this have no transition matrix: it would be larger than the probabilities.
MOST_CLASSES = 2000


@dataclass(frozen=True, eq=False)
class Judgement:
    """What out-of-sample probabilities say about given labels.

    Attributes
    ----------
    wrong : float64 array (N,)
        Probability that the given label is wrong.
    suggested : int64 array (N,)
        The most probable true class; for flagged rows the most probable other one.
    suggested_probability : float64 array (N,)
    is_label_issue, is_sure : bool array (N,)
        The points "look" and "sure".
    noise_rate : float
        Estimated share of wrong labels: the mean of `wrong`.
    transition : float64 array (K, K) or None
        Estimated P(given j | true i); None for more than 2,000 classes.
    joint : float64 array (K, K) or None
        Estimated numbers of rows with true class i and label j.
    precision : dict
        Expected precision of each point, NaN where nothing is flagged.
    f1 : float
        Expected F1 of "look".
    model : NoiseModel

    Examples
    --------
    >>> import noisegate as ng
    >>> probs = [[0.95, 0.05]] * 8 + [[0.05, 0.95]] * 8
    >>> judged = ng.quality.judge(probs, [1] + [0] * 7 + [1] * 8)
    >>> judged.wrong.argmax().item(), judged.suggested[0].item(), judged.is_label_issue[:3].tolist()
    (0, 0, [True, False, False])
    """

    wrong: Floats
    suggested: Ints
    suggested_probability: Floats
    is_label_issue: Mask
    is_sure: Mask
    noise_rate: float
    transition: Floats | None
    joint: Floats | None
    precision: dict[str, float]
    f1: float
    model: posterior.NoiseModel


def find_label_issues(probs: npt.ArrayLike, y: npt.ArrayLike, point: str = "look") -> Mask:
    """Flag labels that are likely wrong.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities: from cross-validation, or from a model trained on other rows.
    y : integer array (N,)
        Given labels 0..K-1.
    point : {"look", "sure"}, default="look"
        look: the rows worth looking at; those that maximise the F1 to be expected. sure: rows of which at least
        95 % are expected to be wrong. `noisegate.quality.judge` has the precision to be
        expected of both.

    Returns
    -------
    bool array (N,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> true = rng.integers(3, size=300)
    >>> given = np.where(rng.random(300) < 0.2, (true + 1) % 3, true)
    >>> probs = 0.1 + 0.7 * np.eye(3)[true]
    >>> found = find_label_issues(probs, given)
    >>> bool((found == (given != true)).all())
    True
    """
    if point not in POINTS:
        raise UnknownNameError("point", point, POINTS)
    judgement = judge(probs, y)
    return judgement.is_label_issue if point == "look" else judgement.is_sure


def judge(probs: npt.ArrayLike, y: npt.ArrayLike, *, seed: int = 0) -> Judgement:
    """Estimate for every row the probability that its label is wrong, and what it should be.

    A small model of noise is fitted to the labels by EM, see `noisegate.quality.posterior`; the rest
    follows from its posterior. With p the posterior in decreasing order, flagging the first n has the
    expected F1 of about 2 (p_1 + ... + p_n) / (n + sum of all p); "look" takes the n that
    maximises it, which are the rows with p of at least half that F1; none, if it is likelier that no label
    is wrong at all.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities.
    y : integer array (N,)
        Given labels 0..K-1.
    seed : int, default=0
        Draws the rows the model is fitted to where there are more than 5,000.

    Returns
    -------
    Judgement

    Notes
    -----
    No probabilities can tell a classifier's doubt from noise that follows that doubt. The estimates take the
    classifier for about as right where it is confident as trained classifiers are, and
    become too pessimistic or too optimistic where it is not. With fewer than 30 rows a class that faith
    shrinks, for the point "sure", in proportion to the rows.

    >>> probs = [[0.9, 0.1]] * 6 + [[0.1, 0.9]] * 6
    >>> found = judge(probs, [0] * 5 + [1] * 7)
    >>> int(found.wrong.argmax()), int(found.suggested[5])
    (5, 0)
    """
    p = check_probs(probs, values=False)
    labels = check_given(y, p)
    n, k = p.shape
    if k < 2:
        raise InputError("labels of one class cannot be judged: probabilities need at least two columns")
    predicted, confidence = predictions(p)
    rank = confidence_rank(predicted, confidence)
    rows = np.arange(n)
    if n > posterior.MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(n, posterior.MOST_ROWS, replace=False))
    slots = posterior.make_slots(p, labels, rank, rows)
    model = posterior.fit(slots, k)
    cautious = replace(model, beta=model.beta * CAUTION)
    if n < ROWS_OF_A_CLASS * k:
        cautious = posterior.refitted(model, slots, cautious.beta * n / (ROWS_OF_A_CLASS * k))
    return _apply(model, cautious, p, labels, rank)


def _apply(
    model: posterior.NoiseModel,
    cautious: posterior.NoiseModel,
    p: Probs,
    y: npt.NDArray[np.integer],
    rank: Floats,
) -> Judgement:
    n, k = p.shape
    wrong, low = np.empty(n), np.empty(n)
    suggested = np.empty((2, n), dtype=np.int64)
    chance = np.empty((2, n))
    joint = np.zeros(k * k) if k <= MOST_CLASSES else None
    for block in blocks(n, k):
        slots = posterior.make_slots(p[block], y[block], rank[block])
        post, _ = posterior.posterior(model, slots)
        wrong[block] = 1.0 - post[:, 0]
        low[block] = 1.0 - posterior.posterior(cautious, slots)[0][:, 0]
        # The best of all classes, and the best of all but the given one.
        for which, first in ((0, 0), (1, 1)):
            best = post[:, first:].argmax(axis=1) + first
            at = np.arange(len(best))
            suggested[which, block] = slots.classes[at, best]
            chance[which, block] = post[at, best]
        if joint is not None:
            codes = slots.classes * k + slots.classes[:, :1]
            np.add.at(joint, codes.ravel(), post.ravel())
    np.clip(wrong, 0.0, 1.0, out=wrong)
    look, f1 = best_f1(wrong)
    sure = look & (low >= SURE)
    pick = look.astype(np.int64)
    precision = {name: _mean(wrong, flags) for name, flags in (("look", look), ("sure", sure))}
    return Judgement(
        wrong, suggested[pick, np.arange(n)], chance[pick, np.arange(n)], look, sure, float(wrong.mean()),
        None if joint is None else _rows(joint.reshape(k, k)), None if joint is None else joint.reshape(k, k),
        precision, f1, model,
    )  # fmt: skip


def best_f1(wrong: Floats) -> tuple[Mask, float]:
    """The rows that maximise the F1 to be expected, and that F1; rows of equal probability go together.

    No row is flagged if that is better: without any wrong label, flagging nothing has an F1 of 1.

    >>> best_f1(np.array([0.9, 0.9, 0.3, 0.1]))[0].tolist()
    [True, True, False, False]
    >>> best_f1(np.array([0.1, 0.01]))[0].tolist()
    [False, False]
    """
    order = np.sort(wrong)[::-1]
    f1 = 2.0 * np.cumsum(order) / (np.arange(1, len(order) + 1) + order.sum()).clip(min=1e-12)
    best = int(f1.argmax())
    nothing = float(np.exp(np.log1p(-order.clip(max=1.0 - 1e-12)).sum()))
    if nothing >= f1[best]:
        return np.zeros(len(wrong), dtype=bool), nothing
    return wrong >= order[best], float(f1[best])


def confidence_rank(predicted: Ints, confidence: Floats) -> Floats:
    """The rank of each row's confidence among the rows predicted as the same class, in (0, 1); 0 is the surest.

    Rows that are equally confident share their mean rank.

    >>> confidence_rank(np.array([0, 0, 0, 1]), np.array([0.9, 0.5, 0.5, 0.7])).round(2).tolist()
    [0.17, 0.67, 0.67, 0.5]
    """
    order = np.lexsort((-confidence, predicted))
    group, value = predicted[order], confidence[order]
    n = len(order)
    new_class = np.r_[True, group[1:] != group[:-1]]
    new_tie = new_class | np.r_[True, value[1:] != value[:-1]]
    starts = np.flatnonzero(new_class)
    sizes = np.diff(np.r_[starts, n])
    tie_starts = np.flatnonzero(new_tie)
    tie_middle = (tie_starts + np.r_[tie_starts[1:], n]) / 2.0
    middle = tie_middle[np.cumsum(new_tie) - 1]
    which = np.cumsum(new_class) - 1
    rank = np.empty(n)
    rank[order] = (middle - starts[which]) / sizes[which]
    return rank


def predictions(p: Probs) -> tuple[Ints, Floats]:
    """The most probable class of each row and its probability; checks the values on the way."""
    predicted, confidence = np.empty(len(p), dtype=np.int64), np.empty(len(p))
    for block in blocks(*p.shape):
        part = p[block]
        check_block(part, block.start)
        predicted[block] = part.argmax(axis=1)
        confidence[block] = part.max(axis=1)
    return predicted, confidence


def _mean(values: Floats, mask: Mask) -> float:
    return float(values[mask].mean()) if mask.any() else float("nan")


def _rows(joint: Floats) -> Floats:
    """Rows as shares; a class no row is of has the identity row."""
    mass = joint.sum(axis=1, keepdims=True)
    shares: Floats = np.where(mass > 0, joint / np.where(mass > 0, mass, 1.0), np.eye(len(joint)))
    return shares
