"""Learn from decisions: the reviewers' answers correct the estimates for rows they have not seen.

Each audited row has a calibrated probability p that its given label is wrong. Reviewers answer some
rows, mostly the worst ones, which shows where p is too high or too low: in general, with growing p,
for single classes, for single pairs of given and suggested class. This is estimated by a logistic
regression of the answers,

    logit P(wrong) = logit p + a + b (logit p - m) + u[given] + v[given, suggested],

with normal priors around "p is right" on a, b, u and v, so that ten answers move the estimates a
little and a thousand as far as they must. m is the mean of logit p over the answered rows.
Intervals include the uncertainty of the coefficients (Laplace's approximation) and the randomness of
each row's being wrong or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit

from noisegate.auditing import stored
from noisegate.auditing.state import State, open_log
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import InputError
from noisegate.quality.issues import SURE

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
#: Standard deviations of the priors on a, b, u and v.
PRIORS = (0.75, 0.25, 0.7, 1.0)
#: Pairs of classes with an effect of their own, those with most answers first.
MOST_PAIRS = 500
_Z95 = 1.959963984540054
_STEPS = 50
# Keep probabilities away from 0 and 1, which no number of answers could move.
_EDGE = 1e-4


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """As audit.json has it, with None for NaN."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if math.isnan(number) else number for name, number in numbers.items()}


@dataclass(frozen=True, eq=False)
class Learnt:
    """Estimates for all rows, corrected by the answers.

    Attributes
    ----------
    p_wrong : float array (N,)
        Corrected probability that the given label is wrong, in the order of the audit's rows;
        0 or 1 for answered rows.
    answered, wrong : int
        How many rows are answered, and how many of these have a wrong given label.
    errors_left : Interval
        Wrong labels among the rows that are not answered.
    flags : mapping
        The rows flagged "look" and "sure" after the answers; answered rows are not among them.
    precision : mapping
        Share of wrong labels among these; NaN where there are none.
    """

    p_wrong: Floats
    answered: int
    wrong: int
    errors_left: Interval
    flags: Mapping[str, Mask]
    precision: Mapping[str, Interval]


class _Effects:
    """Which coefficients apply to which row: a, b, one per class, one per answered pair."""

    def __init__(
        self, z: Floats, given: npt.NDArray[Any], suggested: npt.NDArray[Any], rows: npt.NDArray[Any]
    ) -> None:
        self.z = z
        self.middle = float(z[rows].mean()) if len(rows) else 0.0
        k = int(max(given.max(), suggested.max())) + 1 if len(given) else 1
        pair = given.astype(np.int64) * k + suggested
        classes = np.unique(given[rows])
        pairs, counts = np.unique(pair[rows], return_counts=True)
        pairs = np.sort(pairs[np.argsort(-counts, kind="stable")[:MOST_PAIRS]])
        self.given = _places(given, classes)
        self.pair = _places(pair, pairs)
        self.n_given, self.n_pairs = len(classes), len(pairs)
        sizes = (1, 1, self.n_given, self.n_pairs)
        self.prior = np.repeat([1 / sd**2 for sd in PRIORS], sizes)

    def matrix(self, rows: npt.NDArray[Any]) -> sparse.csr_array:
        """(len(rows), coefficients)."""
        n, lines = len(rows), np.arange(len(rows))
        parts = [(lines, np.zeros(n, int), np.ones(n)), (lines, np.ones(n, int), self.z[rows] - self.middle)]
        for places, start in ((self.given[rows], 2), (self.pair[rows], 2 + self.n_given)):
            known = places >= 0
            parts.append((lines[known], start + places[known], np.ones(int(known.sum()))))
        i, j, v = (np.concatenate(column) for column in zip(*parts, strict=True))
        return sparse.csr_array((v, (i, j)), shape=(n, len(self.prior)))


def _places(values: npt.NDArray[Any], known: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The place of each value in the sorted `known`, -1 where it is not there."""
    if not len(known):
        return np.full(len(values), -1, np.int64)
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return np.where(known[place] == values, place, -1)


def _fit(x: sparse.csr_array, offset: Floats, y: Floats, prior: Floats) -> tuple[Floats, Floats]:
    """Coefficients at the posterior's mode and their covariance there, by damped Newton steps."""

    def cost(theta: Floats) -> float:
        eta = offset + x @ theta
        return float(np.logaddexp(0, eta).sum() - y @ eta + 0.5 * (prior * theta**2).sum())

    theta = np.zeros(x.shape[1])
    hessian = np.diag(prior)
    for _ in range(_STEPS):
        p = expit(offset + x @ theta)
        gradient = x.T @ (p - y) + prior * theta
        hessian = (x.T @ (x * (p * (1 - p))[:, None])).toarray() + np.diag(prior)
        step = np.linalg.solve(hessian, gradient)
        size, before = 1.0, cost(theta)
        # The cost is convex: a full step can only be too long where the answers contradict p strongly.
        while cost(theta - size * step) > before and size > 1e-6:
            size /= 2
        theta = theta - size * step
        if np.abs(step).max() < 1e-8:
            break
    covariance: Floats = np.asarray(np.linalg.inv(hessian), np.float64)
    return theta, covariance


def learn(
    p_wrong: npt.ArrayLike,
    given: npt.ArrayLike,
    suggested: npt.ArrayLike,
    answered: npt.ArrayLike,
    wrong: npt.ArrayLike,
    flags: Callable[[Floats], Mapping[str, Mask]] | None = None,
) -> Learnt:
    """Correct the estimates of all rows by the answers for some.

    Parameters
    ----------
    p_wrong : float array (N,)
        Calibrated probability that the given label is wrong.
    given, suggested : int array (N,)
        Codes of classes.
    answered, wrong : bool array (N,)
        Which rows were answered, and which of these carry a wrong label.
    flags : function, default=None
        Flags rows by their corrected probabilities (N,): bool arrays (N,) by name, without answered rows.

    Examples
    --------
    Half of the flags of one pair of classes are confirmed where nine in ten were expected:

    >>> p, pair = np.full(400, 0.9), np.zeros(400, int)
    >>> seen = np.arange(400) < 200
    >>> learnt = learn(p, pair, pair + 1, seen, seen & (np.arange(400) % 2 == 0))
    >>> learnt.wrong, 90 < learnt.errors_left.value < 115
    (100, True)
    """
    p = np.clip(np.asarray(p_wrong, np.float64), _EDGE, 1 - _EDGE)
    known = np.asarray(answered, bool)
    truth = np.asarray(wrong, bool) & known
    rows, rest = np.flatnonzero(known), np.flatnonzero(~known)
    z = np.log(p) - np.log1p(-p)
    effects = _Effects(z, np.asarray(given), np.asarray(suggested), rows)
    theta, covariance = _fit(effects.matrix(rows), z[rows], truth[rows].astype(np.float64), effects.prior)
    x = effects.matrix(rest)
    new = truth.astype(np.float64)
    # The edge keeps logits finite; without answers p must not change.
    new[rest] = expit(z[rest] + x @ theta) if len(rows) else np.asarray(p_wrong, np.float64)[rest]
    spread = new[rest] * (1 - new[rest])

    def total(chosen: Mask) -> Interval:
        """Wrong labels among the chosen rows that are not answered."""
        weight = spread * chosen
        slope = x.T @ weight
        variance = float(slope @ covariance @ slope + weight.sum())
        value, most = float(new[rest] @ chosen), float(chosen.sum())
        half = _Z95 * math.sqrt(variance)
        return Interval(value, max(value - half, 0.0), min(value + half, most))

    flagged = {} if flags is None else flags(new)
    precision = {name: _share(total(flag[rest]), int(flag.sum())) for name, flag in flagged.items()}
    everything = total(np.ones(len(rest), bool))
    return Learnt(new, len(rows), int(truth.sum()), everything, flagged, precision)


def _share(count: Interval, n: int) -> Interval:
    """A count as a share of n."""
    return Interval(*((part / n if n else math.nan) for part in (count.value, count.low, count.high)))


#: The columns of the flags.
_FLAGS = {"look": "is_label_issue", "sure": "is_sure"}
#: Columns with the audit's first estimates, kept so that answers do not count twice.
_FIRST = {name: f"first_{name}" for name in ("p_wrong", "is_label_issue", "is_sure")}


def _first(audit: StoredAudit, name: str) -> npt.NDArray[Any]:
    """A column as the audit itself estimated it, before any continuation."""
    kept = _FIRST[name]
    return audit.rows[kept if kept in audit.rows.columns else name].to_numpy()


def learn_from(audit: StoredAudit, state: State) -> Learnt:
    """`learn` from an audit and the decisions about it."""
    rows = audit.rows["row"].to_numpy()
    given = audit.rows["given_label"].to_numpy()
    answered = state.answered[rows]
    return learn(
        _first(audit, "p_wrong"),
        given,
        audit.rows["suggested_label"].to_numpy(),
        answered,
        answered & (state.label[rows] != given),
        lambda p: _flags(audit, p, ~answered),
    )


def _flags(audit: StoredAudit, p_wrong: Floats, left: Mask) -> dict[str, Mask]:
    """Flag those of the `left` rows that reach, after the answers, the threshold the flags had at first.

    A row that the audit was sure of stays so as long as it is expected to be wrong as often as "sure" promises:
    the threshold can lie where no corrected probability gets.
    """
    before, found = _first(audit, "p_wrong"), {}
    for name, column in _FLAGS.items():
        n = int(_first(audit, column).sum())
        threshold = np.partition(before, -n)[-n] if n else np.inf
        found[name] = left & (p_wrong.astype(before.dtype) >= threshold)
    found["sure"] |= left & _first(audit, "is_sure") & (p_wrong >= SURE)
    return found


def continued(audit: StoredAudit, state: State) -> tuple[StoredAudit, Learnt]:
    """Return the audit with the decided rows taken as known, new estimates, and the other rows ranked again.

    Answered rows come last, with p_wrong 0 and without flags: their label is known.
    """
    learnt = learn_from(audit, state)
    rows = audit.rows.copy()
    order = rows["row"].to_numpy()
    answered = state.answered[order]
    for name, kept in _FIRST.items():
        rows[kept] = _first(audit, name)
    rows["p_wrong"] = np.where(answered, 0.0, learnt.p_wrong).astype(np.float32)
    # The quality of an unanswered row is the probability that its label is right.
    quality = rows["quality"].to_numpy()
    rows["quality"] = np.where(answered, quality, 1.0 - learnt.p_wrong).astype(np.float32)
    for name, column in _FLAGS.items():
        rows[column] = learnt.flags[name]
    place = np.lexsort((rows["quality"].to_numpy(), -rows["p_wrong"].to_numpy(), answered))
    known = np.flatnonzero(state.answered)
    info = dict(audit.info) | _estimates(audit, learnt, rows["p_wrong"].to_numpy()[place])
    info["decided"] = {"rows": known.tolist(), "labels": state.label[known].tolist(), "wrong": learnt.wrong}
    return replace(audit, info=info, rows=rows.iloc[place].reset_index(drop=True)), learnt


def _estimates(audit: StoredAudit, learnt: Learnt, ranked: npt.NDArray[Any]) -> dict[str, Any]:
    """The entries of audit.json that change with the answers."""
    left, found, n = learnt.errors_left, learnt.wrong, len(audit)
    errors = Interval(found + left.value, found + left.low, found + left.high)
    cumulative = np.cumsum(ranked, dtype=np.float64)
    open_rows = n - learnt.answered
    looked = np.unique(np.round(np.linspace(0, open_rows, min(open_rows + 1, 200))).astype(int))
    # The share of the interval's width at n is the share of the errors left that lie in the first n rows.
    share = np.where(looked > 0, cumulative[np.maximum(looked, 1) - 1], 0.0) / max(left.value, 1e-12)
    return {
        "errors": errors.to_dict(),
        "noise_rate": _share(errors, n).to_dict() | {"level": 0.95},
        "precision": {
            name: {"n": int(learnt.flags[name].sum())} | interval.to_dict()
            for name, interval in learnt.precision.items()
        },
        "curve": {
            "looked": looked.tolist(),
            "found": (share * left.value).tolist(),
            "low": (share * left.low).tolist(),
            "high": (share * left.high).tolist(),
        },
    }


def continue_audit(folder: str | Path) -> tuple[StoredAudit, Learnt]:
    """Take the decisions in an audit folder as known, rank the rest again, and write the audit anew.

    The decisions and the audit's id are kept.
    """
    audit = stored.read(folder)
    log = open_log(audit)
    try:
        state = State(log, len(audit))
    finally:
        log.close()
    if not state.answered.any():
        raise InputError(f"nothing is decided in {folder} yet; decide with `noisegate review {folder}`")
    new, learnt = continued(audit, state)
    stored.write(folder, new)
    return new, learnt
