"""How certain the estimates are: intervals from resampled rows and from what is not known of beta."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noisegate.noise.confident import Ints, check_given, check_probs
from noisegate.quality import posterior
from noisegate.quality.issues import Judgement, confidence_rank, predictions

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Intervals of a `Judgement`, each (low, high).

    Attributes
    ----------
    noise_rate : (float, float)
    errors : (float, float)
        Of the number of wrong labels: the end of the curve.
    precision : dict
        Of the points "look" and "sure".
    transition : (array (K, K), array (K, K)) or None
    curve : (array, array)
        Of the number of wrong labels among the first `looked` rows.
    level : float
    """

    noise_rate: Interval
    errors: Interval
    precision: dict[str, Interval]
    transition: tuple[Floats, Floats] | None
    curve: tuple[Floats, Floats]
    level: float


def intervals(
    probs: npt.ArrayLike,
    y: npt.ArrayLike,
    found: Judgement,
    looked: Ints,
    *,
    draws: int = 40,
    level: float = 0.95,
    seed: int = 0,
) -> Intervals:
    """Bootstrap intervals of what `judge` estimates.

    Each draw resamples rows, takes another beta from what the fit leaves open, fits the rest of the model to
    these rows and judges them. For counts of wrong labels the chance of each label is drawn, too.

    Parameters
    ----------
    probs, y
        As for `judge`.
    found : Judgement
        Its answer.
    looked : integer array
        How many of the worst rows are looked at, for the curve.
    draws : int, default=40
    level : float, default=0.95
    seed : int, default=0

    Returns
    -------
    Intervals
    """
    p = check_probs(probs, values=False)
    labels = check_given(y, p)
    n, k = p.shape
    rng = np.random.default_rng([seed, 0xB0])
    rows = rng.permutation(n)[: posterior.MOST_ROWS]
    slots = posterior.make_slots(p, labels, confidence_rank(*predictions(p)), rows)
    # A place in the ranking of all rows is one in the ranking of these; the last is the end of the curve.
    places = np.clip(np.round(np.append(looked, n) / n * len(rows)).astype(np.int64), 0, len(rows))
    flags = {"look": found.is_label_issue[rows], "sure": found.is_sure[rows]}
    totals = {"look": int(found.is_label_issue.sum()), "sure": int(found.is_sure.sum())}
    rates, curves, transitions = [], [], []
    precision: dict[str, list[float]] = {name: [] for name in flags}
    for model, mine, chosen in posterior.resampled(found.model, slots, draws, rng):
        wrong = 1.0 - posterior.posterior(model, slots)[0][:, 0]
        post = posterior.posterior(model, mine)[0]
        drawn = 1.0 - post[:, 0]
        rates.append(float(drawn.mean()))
        drawn = drawn[np.argsort(-found.wrong[rows[chosen]], kind="stable")]
        curve, spread = (_sums(values)[places] * (n / len(rows)) for values in (drawn, drawn * (1 - drawn)))
        curves.append(curve + rng.normal() * np.sqrt(spread))
        for name, mask in flags.items():
            if mask.any():
                share = float(wrong[mask].mean())
                precision[name].append(share + rng.normal() * np.sqrt(share * (1 - share) / totals[name]))
        if found.transition is not None:
            transitions.append(_transition(post, mine, k))
    tails = [(1 - level) / 2, (1 + level) / 2]
    band = np.quantile(curves, tails, axis=0)
    errors = found.noise_rate * n
    return Intervals(
        _around(found.noise_rate, rates, tails),
        (min(max(float(band[0, -1]), 0.0), errors), max(min(float(band[1, -1]), n), errors)),
        {
            name: _around(found.precision[name], values, tails) if values else (np.nan, np.nan)
            for name, values in precision.items()
        },
        None if found.transition is None else _matrix(found.transition, np.array(transitions), tails),
        (
            np.maximum.accumulate(band[0, :-1].clip(min=0)),
            np.maximum.accumulate(np.minimum(band[1, :-1], looked)),
        ),
        level,
    )


def _around(value: float, draws: list[float], tails: list[float]) -> Interval:
    low, high = np.clip(np.quantile(draws, tails), 0.0, 1.0).tolist()
    return min(low, value), max(high, value)


def _sums(values: Floats) -> Floats:
    """Sums of the first 0, 1, ..., n values."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _matrix(value: Floats, draws: Floats, tails: list[float]) -> tuple[Floats, Floats]:
    low, high = np.quantile(draws, tails, axis=0, overwrite_input=True)
    return np.minimum(low, value), np.maximum(high, value)


def _transition(post: Floats, slots: posterior.Slots, k: int) -> Floats:
    codes = slots.classes * k + slots.classes[:, :1]
    joint = np.bincount(codes.ravel(), weights=post.ravel(), minlength=k * k).reshape(k, k)
    mass = joint.sum(axis=1, keepdims=True)
    rows: Floats = np.where(mass > 0, joint / np.where(mass > 0, mass, 1.0), np.eye(k))
    return rows
