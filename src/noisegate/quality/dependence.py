"""Whether labels go wrong by the true class alone, or by the input too: a test by parametric bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.noise.confident import check_given, check_probs
from noisegate.quality import posterior
from noisegate.quality.issues import confidence_rank, predictions
from noisegate.quality.posterior import Slots

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Sets of labels drawn from the model without dependence.
DRAWS = 100
#: Rows are looked at if their true class is this sure. Among others, the classifier's own errors look like
#: noise that depends on the input.
MOST_DOUBT = 0.02
#: Classifiers err more often on such rows than the model expects, up to four times where the truth was known.
#: The scores are also compared with those of a model whose beta is smaller by this factor.
MORE_DOUBT = 1.5
#: With fewer such rows nothing is said.
FEWEST_ROWS = 20
#: Rows of one predicted class whose similarities are looked at; more are a random choice.
MOST_SIMILAR = 1500
#: A wrong label with fewer rows of a predicted class, or a smaller share of the contradicted ones, says nothing
#: about where noise lies: where all wrong labels name one class, the others are errors of the classifier.
_FEWEST, _RARE = 4, 0.05


def dependence(
    probs: npt.ArrayLike,
    y: npt.ArrayLike,
    *,
    features: npt.NDArray[Any] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[float, float]:
    """Test whether noise depends on the input beyond the true class.

    Under class-conditional noise, a row's label is wrong with a probability, and towards a class, that depend
    on its true class alone. Two scores look for more, on rows whose true class is hardly in doubt (of the half
    that is predicted with most confidence those with a doubt of at most 2 % under the model of
    `noisegate.quality.posterior`): whether labels contradict unsure predictions more often than sure ones of
    the same class, and whether similar rows of a class have the same wrong label. How often the test is right
    where the answer is known: `benchmarks/results/dependence.md`.

    Both are compared with the same scores of labels drawn from the fitted class-conditional model, in which
    the classifier errs as often as its probabilities say; so neither its errors nor unequal confusions are
    taken for dependence. In the second score a label counts by its probability to be wrong under that model,
    since rows that the classifier gets wrong resemble each other. The smaller of the two p-values, doubled,
    is the result.

    Parameters
    ----------
    probs : array (N, K)
        Out-of-sample probabilities.
    y : integer array (N,)
        Given labels.
    features : array (N, ...), optional
        What tells how similar two rows are, and was not learnt from `y`: the inputs. By default the logarithms
        of `probs`.
    draws : int, default=100
    seed : int, default=0

    Returns
    -------
    statistic, p_value : float
        The larger score in standard deviations of the draws, and the probability of one as large; 0 and 1 if
        too few rows are sure.

    References
    ----------
    Gretton et al., A kernel statistical test of independence, NeurIPS 2007, for the second score.
    """
    p = check_probs(probs, values=False)
    labels = check_given(y, p).astype(np.int64)
    k = p.shape[1]
    rank = confidence_rank(*predictions(p))
    rows = np.flatnonzero(rank <= 0.5)
    if len(rows) < FEWEST_ROWS:
        return 0.0, 1.0
    rng = np.random.default_rng([seed, 0xDE])
    if len(rows) > posterior.MOST_ROWS:
        rows = np.sort(rng.choice(rows, posterior.MOST_ROWS, replace=False))
    slots = posterior.make_slots(p, labels, 2 * rank, rows)
    sure = posterior.clean(posterior.fit(slots, k, slope=False), slots).max(axis=1) >= 1.0 - MOST_DOUBT
    if sure.sum() < FEWEST_ROWS:
        return 0.0, 1.0
    rows, slots = rows[sure], Slots(slots.classes[sure], slots.logs[sure], slots.rank[sure])
    model = posterior.fit(slots, k, slope=False)
    inputs = np.log(np.maximum(p[rows], 1e-5)) if features is None else features[rows]
    found = []
    for beta in (model.beta, model.beta / MORE_DOUBT):
        null = _Null.of(replace(model, beta=beta), slots)
        groups = _Groups.of(null.predicted, slots.rank, inputs if k > 2 else None, rng)
        observed = _scores(labels[rows], null, groups)
        rate, where = np.array([_scores(null.draw(rng), null, groups) for _ in range(draws)]).T
        found.append([_two_sided(observed[0], rate)] + ([_upper(observed[1], where)] if k > 2 else []))
    # Of each score the larger p-value.
    results = [max(pair, key=lambda each: each[1]) for pair in zip(*found, strict=True)]
    p_value = min(1.0, len(results) * min(tail for _, tail in results))
    return max(abs(z) for z, _ in results), p_value


@dataclass(frozen=True, eq=False)
class _Null:
    """Noise by the true class alone: what labels could have been.

    Attributes
    ----------
    model : NoiseModel
        Without a slope.
    slots : Slots
    clean : array (N, S)
        Probabilities of the true class of each row, over its slots.
    predicted : int array (N,)
        The most probable true class.
    wrong : array (K,)
        Probability that a label of the class is wrong.
    pairs, counts : arrays (P,)
        Codes t * K + j in order, and the expected number of wrong labels of each.
    """

    model: posterior.NoiseModel
    slots: Slots
    clean: Floats
    predicted: Ints
    wrong: Floats
    pairs: Ints
    counts: Floats

    @classmethod
    def of(cls, model: posterior.NoiseModel, slots: Slots) -> _Null:
        k = model.n_classes
        clean = posterior.clean(model, slots)
        wrong = posterior.posterior(model, slots)[0]
        mass = np.bincount(slots.classes.ravel(), weights=wrong.ravel(), minlength=k)
        wrong[:, 0] = 0.0
        codes = slots.classes * k + slots.classes[:, :1]
        pairs, where = np.unique(codes, return_inverse=True)
        counts = np.bincount(where.ravel(), weights=wrong.ravel(), minlength=len(pairs)).astype(np.float64)
        rate = np.bincount(pairs // k, weights=counts, minlength=k) / mass.clip(min=1e-12)
        predicted = slots.classes[np.arange(len(clean)), clean.argmax(axis=1)]
        return cls(model, slots, clean, predicted, rate, pairs, counts)

    def draw(self, rng: np.random.Generator) -> Ints:
        """Given labels of all rows."""
        n, k = len(self.predicted), len(self.wrong)
        reached = np.cumsum(self.clean, axis=1)
        slot = (reached < rng.random((n, 1)) * reached[:, -1:]).sum(axis=1)
        true = self.slots.classes[np.arange(n), slot]
        flipped = np.flatnonzero(rng.random(n) < self.wrong[true])
        # A label of each flipped row by its class's share of wrong labels: its place among the summed counts.
        edges = np.concatenate([[0.0], np.cumsum(self.counts)])
        first, last = (np.searchsorted(self.pairs, (true[flipped] + i) * k) for i in (0, 1))
        place = edges[first] + rng.random(len(flipped)) * (edges[last] - edges[first])
        at = np.searchsorted(edges[1:], place, side="right").clip(first, last - 1)
        given = true.copy()
        given[flipped] = self.pairs[at] % k
        return given

    def doubt(self, rows: Ints, given: Ints) -> Floats:
        """The probability to be wrong of the labels `given` to some rows."""
        classes, clean = self.slots.classes[rows], self.clean[rows]
        noise = self.model.noise(classes * self.model.n_classes + given[:, None])
        same = classes == given[:, None]
        right = (clean * same * (1.0 - self.wrong[classes])).sum(axis=1)
        bad = (clean * ~same * self.wrong[classes] * noise).sum(axis=1)
        found: Floats = bad / (bad + right).clip(min=1e-300)
        return found


@dataclass(frozen=True, eq=False)
class _Group:
    """Some of the rows predicted as one class, and their similarities."""

    predicted: int
    rows: Ints
    similarity: Floats


@dataclass(frozen=True, eq=False)
class _Groups:
    """Rows by the class they are predicted as.

    Attributes
    ----------
    rank : array (N,)
        Ranks, centred within each class.
    similar : list of _Group
        Empty without inputs.
    some : int array
        The rows of all groups.
    """

    rank: Floats
    similar: list[_Group]
    some: Ints

    @classmethod
    def of(
        cls, predicted: Ints, rank: Floats, inputs: npt.NDArray[Any] | None, rng: np.random.Generator
    ) -> _Groups:
        sizes, sums = np.bincount(predicted), np.bincount(predicted, weights=rank)
        centred = rank - (sums / sizes.clip(min=1))[predicted]
        similar = []
        for t in np.flatnonzero(sizes):
            rows = np.flatnonzero(predicted == t)
            if len(rows) > MOST_SIMILAR:
                rows = np.sort(rng.choice(rows, MOST_SIMILAR, replace=False))
            # Fewer rows cannot be contradicted often enough.
            if inputs is not None and len(rows) >= _FEWEST:
                similar.append(_Group(int(t), rows, _similarity(inputs[rows])))
        some = [group.rows for group in similar]
        return cls(centred, similar, np.concatenate(some) if some else np.empty(0, np.int64))


def _similarity(inputs: npt.NDArray[Any]) -> Floats:
    """Gaussian kernel of standardised rows, its width the median distance; 0 between a row and itself."""
    x = np.asarray(inputs, dtype=np.float64).reshape(len(inputs), -1)
    scale = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    square = (x**2).sum(axis=1)
    distance = (square[:, None] + square[None, :] - 2 * x @ x.T).clip(min=0.0)
    middle = float(np.median(distance))
    kernel: Floats = np.exp(-distance / middle) if middle > 0 else np.ones_like(distance)
    np.fill_diagonal(kernel, 0.0)
    return kernel


def _scores(given: Ints, null: _Null, groups: _Groups) -> tuple[float, float]:
    """Contradictions by rank, and likeness of wrong labels by similarity, within predicted classes."""
    against = given != null.predicted
    rate, where = float(groups.rank @ against), 0.0
    contradicted = np.bincount(null.predicted[groups.some], weights=against[groups.some])
    for group in groups.similar:
        if contradicted[group.predicted] < _FEWEST:
            continue
        at = np.flatnonzero(against[group.rows])
        labels = given[group.rows[at]]
        counts = np.bincount(labels)
        kept = counts[labels] >= max(_FEWEST, _RARE * len(at))
        at, labels = at[kept], labels[kept]
        if not len(at):
            continue
        similarity = group.similarity[np.ix_(at, at)]
        names, codes = np.unique(labels, return_inverse=True)
        weight = null.doubt(group.rows[at], labels)[:, None]
        centred = np.eye(len(names))[codes]
        centred = weight * (centred - (weight * centred).sum(axis=0) / weight.sum().clip(min=1e-12))
        where += float((similarity @ centred * centred).sum())
    return rate, where


def _two_sided(value: float, drawn: Floats) -> tuple[float, float]:
    """Standardised score, and its p-value if the draws are normal."""
    spread = float(drawn.std(ddof=1))
    z = (value - float(drawn.mean())) / spread if spread > 0 else 0.0
    return z, math.erfc(abs(z) / math.sqrt(2))


def _upper(value: float, drawn: Floats) -> tuple[float, float]:
    """Standardised score, and its p-value if the draws are gamma but for place and scale.

    The three moments of the draws fix the gamma distribution; its tail is Wilson and Hilferty's.
    """
    spread = float(drawn.std(ddof=1))
    if spread == 0:
        return 0.0, 1.0
    z = (value - float(drawn.mean())) / spread
    skew = float((((drawn - drawn.mean()) / spread) ** 3).mean())
    if skew < 0.05:
        return z, 0.5 * math.erfc(z / math.sqrt(2))
    shape = 4.0 / skew**2
    ratio = max(1.0 + z * skew / 2.0, 0.0)
    normal = (np.cbrt(ratio) - 1.0 + 1.0 / (9.0 * shape)) * math.sqrt(9.0 * shape)
    return z, 0.5 * math.erfc(float(normal) / math.sqrt(2))
