"""The probability that a given label is wrong, from out-of-sample probabilities alone.

The model behind it. Let p(x) be out-of-sample probabilities of the *given* label, and

    c_t(x)    proportional to  p_t(x)^beta exp(bias_t)          probability of the true class t
    e_t(x)    = sigmoid(a_t + slope (r(x) - 1/2))               probability that its label is wrong
    N[t, j]                                                     the class a wrong label of t names

    P(given y | x) = c_y (1 - e_y) + sum over t != y of c_t e_t N[t, y]

r(x) in [0, 1] is the rank of the prediction's confidence among the rows predicted as the same class. Training on
wrong labels flattens p; beta undoes that. slope = 0 is noise that depends on the class alone: confident
predictions are contradicted as often as others. Human noise has a positive slope: people err on the rows the
classifier finds hard. The share of labels that contradict the most confident predictions, where the classifier
itself hardly errs, fixes the rate there; the slope carries it on to rows on which label and classifier
can both be wrong. All but beta is fitted by EM. The labels say little about beta, because doubt about
the class and wrong labels that follow that doubt look alike; so its likelihood is tempered and
meets a prior.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.noise.confident import blocks

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Candidates for beta; the last is where a softmax of ten classes is all but one-hot.
BETAS = np.geomspace(1.0, 8.0, 10)
#: Mean and standard deviation of log beta before any data: classifiers trained on wrong labels were found at
#: 1.4 to 6 where the truth was known.
BETA_PRIOR = (np.log(3.0), 0.25)
#: The likelihood of all rows counts as that of this many at most when beta is chosen: the model is an
#: approximation, and with many rows its misfit would decide.
EFFECTIVE_ROWS = 200
#: Rows the model is fitted to; more do not change it.
MOST_ROWS = 5000
#: Classes a row can truly be of: those most probable, and the given one.
MOST_SLOTS = 16
_FLOOR = 1e-5
_BINS = 10


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """Parameters of the model in this module.

    Attributes
    ----------
    beta : float
    bias, rate : array (K,)
        Rate holds a_t, in logits at the middle rank.
    slope : float
    pairs, weights : arrays (P,)
        t * K + j of the pairs (true t, given j) that were counted, in order, and N there.
    backoff : array (K,)
        What N[t, j] is for other pairs, divided by the marginal of j.
    marginal : array (K,)
        Shares of given labels.
    spread : float
        Standard deviation of log beta, as far as the labels and the prior leave it open.
    """

    beta: float
    bias: Floats
    rate: Floats
    slope: float
    pairs: Ints
    weights: Floats
    backoff: Floats
    marginal: Floats
    spread: float = 0.0

    @property
    def n_classes(self) -> int:
        return len(self.bias)

    def noise(self, pairs: Ints) -> Floats:
        """N[t, j] for codes t * K + j of any shape."""
        place = np.searchsorted(self.pairs, pairs).clip(max=len(self.pairs) - 1)
        known = self.pairs[place] == pairs
        true, given = np.divmod(pairs, self.n_classes)
        return np.where(known, self.weights[place], self.backoff[true] * self.marginal[given])


@dataclass(frozen=True, eq=False)
class Slots:
    """The classes each row can truly be of. `classes` (N, S), `logs` = log p there; slot 0 is the given label."""

    classes: Ints
    logs: Floats
    rank: Floats


def make_slots(
    probs: npt.NDArray[np.floating[Any]],
    y: npt.NDArray[np.integer[Any]],
    rank: Floats,
    rows: Ints | None = None,
) -> Slots:
    """Given label first, then the most probable others; of all rows, or of some in memory of a block."""
    rows = np.arange(len(probs)) if rows is None else rows
    width = min(probs.shape[1], MOST_SLOTS)
    classes, logs = np.empty((len(rows), width), dtype=np.int64), np.empty((len(rows), width))
    for block in blocks(len(rows), probs.shape[1]):
        mine = rows[block]
        classes[block], chosen = _most_probable(probs[mine], y[mine].astype(np.int64), width)
        logs[block] = np.log(np.maximum(chosen, _FLOOR))
    return Slots(classes, logs, rank[rows])


def _most_probable(p: npt.NDArray[np.floating[Any]], y: Ints, width: int) -> tuple[Ints, npt.NDArray[Any]]:
    """The given and the most probable other classes of each row, (B, width), and their probabilities."""
    at, given = np.arange(len(p))[:, None], y[:, None]
    if p.shape[1] == width:
        others = np.arange(width - 1)[None, :]
        others = others + (others >= given)
    else:
        # The given class would fill a slot of its own: of one more than needed it is left out, or the last.
        best = np.argpartition(p, -width, axis=1)[:, -width:]
        best = np.take_along_axis(best, np.argsort(-np.take_along_axis(p, best, axis=1), axis=1), axis=1)
        drop = np.where((best == given).any(axis=1), (best == given).argmax(axis=1), width - 1)
        others = best[np.arange(width)[None, :] != drop[:, None]].reshape(len(p), width - 1)
    classes = np.concatenate([given, others], axis=1)
    return classes, p[at, classes]


def posterior(model: NoiseModel, slots: Slots) -> tuple[Floats, Floats]:
    """P(true class | row, given label) for every slot, shape (N, S), and log P(given label | row)."""
    noise = model.noise(slots.classes * model.n_classes + slots.classes[:, :1])
    return _posterior(model, slots, clean(model, slots), noise)


def clean(model: NoiseModel, slots: Slots) -> Floats:
    """P(true class | row) for every slot, shape (N, S)."""
    logits = model.beta * slots.logs + model.bias[slots.classes]
    c = np.exp(logits - logits.max(axis=1, keepdims=True))
    c /= c.sum(axis=1, keepdims=True)
    return c


def _posterior(model: NoiseModel, slots: Slots, c: Floats, noise: Floats) -> tuple[Floats, Floats]:
    e = _sigmoid(model.rate[slots.classes] + model.slope * (slots.rank[:, None] - 0.5))
    joint = c * e * noise
    joint[:, 0] = c[:, 0] * (1.0 - e[:, 0])
    total = joint.sum(axis=1, keepdims=True).clip(min=1e-300)
    return joint / total, np.log(total[:, 0])


def fit(slots: Slots, k: int, *, slope: bool = True) -> NoiseModel:
    """Fit the model to rows; see the module for how beta is chosen. `slope=False` keeps the slope at 0."""
    counts = np.bincount(slots.classes[:, 0], minlength=k)
    marginal = (counts + 1.0) / (counts + 1.0).sum()
    pairs, where = _coded(slots, k)
    model = NoiseModel(
        float(np.exp(BETA_PRIOR[0])), np.zeros(k), np.full(k, -1.5), 0.0, pairs, marginal[pairs % k],
        np.ones(k), marginal,
    )  # fmt: skip
    found = []
    model = _em(model, slots, where, 30, slope)[0]
    start = int(np.abs(BETAS - model.beta).argmin())
    for path in (range(start, len(BETAS)), range(start - 1, -1, -1)):
        current = model
        for i in path:
            current, score = _em(replace(current, beta=float(BETAS[i])), slots, where, 8, slope)
            found.append((np.log(BETAS[i]), score, current))
    logs, scores = (np.array([entry[i] for entry in found]) for i in (0, 1))
    n = len(slots.rank)
    weight = scores * min(1.0, EFFECTIVE_ROWS / n) - 0.5 * ((logs - BETA_PRIOR[0]) / BETA_PRIOR[1]) ** 2
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    mean = float(weight @ logs)
    nearest = found[int(np.abs(logs - mean).argmin())][2]
    spread = float(np.sqrt(weight @ (logs - mean) ** 2))
    return _em(replace(nearest, beta=float(np.exp(mean)), spread=spread), slots, where, 20, slope)[0]


def resampled(
    model: NoiseModel, slots: Slots, draws: int, rng: np.random.Generator
) -> Iterator[tuple[NoiseModel, Slots, Ints]]:
    """Bootstrap: the model fitted again to resampled rows, at another beta each time; these rows, and which."""
    _, where = _coded(slots, model.n_classes, model.pairs)
    n = len(slots.rank)
    for _ in range(draws):
        rows = rng.integers(n, size=n)
        mine = Slots(slots.classes[rows], slots.logs[rows], slots.rank[rows])
        start = replace(model, beta=float(model.beta * np.exp(model.spread * rng.normal())))
        yield _em(start, mine, where[rows], 10)[0], mine, rows


def refitted(model: NoiseModel, slots: Slots, beta: float) -> NoiseModel:
    """The model without a slope at another beta."""
    _, where = _coded(slots, model.n_classes, model.pairs)
    return _em(replace(model, beta=beta, slope=0.0), slots, where, 20, False)[0]


def _coded(slots: Slots, k: int, known: Ints | None = None) -> tuple[Ints, Ints]:
    """Codes t * K + j of the pairs in the slots, and where each slot's stands among them."""
    codes = slots.classes * k + slots.classes[:, :1]
    pairs = np.unique(codes) if known is None else known
    return pairs, np.searchsorted(pairs, codes).clip(max=len(pairs) - 1)


def _em(
    model: NoiseModel, slots: Slots, where: Ints, steps: int, slope: bool = True
) -> tuple[NoiseModel, float]:
    """EM steps at a fixed beta; the model and its penalised log-likelihood."""
    k = model.n_classes
    bins = np.minimum((slots.rank * _BINS).astype(np.int64), _BINS - 1)
    cell = slots.classes * _BINS + bins[:, None]
    sizes = np.bincount(bins, minlength=_BINS).clip(min=1)
    centre = np.bincount(bins, weights=slots.rank, minlength=_BINS) / sizes - 0.5
    likelihood = -np.inf
    for _ in range(steps):
        c = clean(model, slots)
        post, logs = _posterior(model, slots, c, model.weights[where])
        likelihood = float(logs.sum())
        wrong = post.copy()
        wrong[:, 0] = 0.0
        mass, bad = (_sums(cell, values, k * _BINS).reshape(k, _BINS) for values in (post, wrong))
        rate, tilt = _rates(model.rate, model.slope, mass, bad, centre, slope)
        weights, backoff = _pairs(model, where, wrong, bad.sum(axis=1))
        bias = _biases(model, _sums(slots.classes, c, k), mass.sum(axis=1))
        model = replace(model, rate=rate, slope=tilt, weights=weights, backoff=backoff, bias=bias)
    penalty = 0.5 * (model.bias**2).sum() + 0.5 * (model.slope / 2) ** 2
    penalty += 0.5 * ((model.rate - model.rate.mean()) ** 2).sum()
    return model, likelihood - float(penalty)


def _pairs(model: NoiseModel, where: Ints, wrong: Floats, out: Floats) -> tuple[Floats, Floats]:
    """N and its backoff: expected counts, shrunk to the shares of given labels as by two more rows a class."""
    k = model.n_classes
    true, given = np.divmod(model.pairs, k)
    counts = _sums(where, wrong, len(model.pairs))
    strength = 2.0
    # The marginal without the class itself: a wrong label names another one.
    backoff = strength / ((1.0 - model.marginal).clip(min=1e-9) * (out + strength))
    weights = counts / (out[true] + strength) + backoff[true] * model.marginal[given]
    return weights, backoff


def _biases(model: NoiseModel, now: Floats, mass: Floats) -> Floats:
    """One step of iterative scaling: class shares `now` under c towards those of the posterior."""
    step = np.log((mass + 1.0) / (now + 1.0)) - model.bias / (mass + 1.0)
    return model.bias + step.clip(-1.0, 1.0)


def _rates(
    rate: Floats, slope: float, mass: Floats, bad: Floats, centre: Floats, tilted: bool
) -> tuple[Floats, float]:
    """Newton steps of a logistic regression of wrongness on the rank, with priors on rates and slope."""
    for _ in range(2):
        e = _sigmoid(rate[:, None] + slope * centre[None, :])
        information = mass * e * (1.0 - e)
        gradient = (bad - mass * e).sum(axis=1) - (rate - rate.mean())
        rate = (rate + (gradient / (information.sum(axis=1) + 1.0)).clip(-1.0, 1.0)).clip(-12.0, 6.0)
        if not tilted:
            continue
        e = _sigmoid(rate[:, None] + slope * centre[None, :])
        pull = ((bad - mass * e) * centre).sum() - slope / 4.0
        curvature = (mass * e * (1.0 - e) * centre**2).sum() + 0.25
        slope = float(slope + np.clip(pull / curvature, -1.0, 1.0))
    return rate, slope


def _sigmoid(x: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-x))


def _sums(codes: Ints, values: Floats, n: int) -> Floats:
    """The sum of the values of each code 0..n-1."""
    return np.bincount(codes.ravel(), weights=values.ravel(), minlength=n).astype(np.float64, copy=False)
