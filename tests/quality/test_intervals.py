from __future__ import annotations

import numpy as np
import pytest

from noisegate.noise import Symmetric
from noisegate.quality import judge
from noisegate.quality.intervals import intervals


def clear(n=2000, k=4, rate=0.2, seed=0, human=False):
    """Probabilities of a good classifier; label errors depend on the class, or on how hard the row is."""
    rng = np.random.default_rng(seed)
    true = rng.integers(k, size=n)
    ease = rng.uniform(3, 8, n)
    logits = rng.normal(size=(n, k))
    logits[np.arange(n), true] += ease
    p = np.exp(0.5 * logits)
    p /= p.sum(axis=1, keepdims=True)
    if not human:
        return p, Symmetric(rate, include_self=False).corrupt(true, n_classes=k, seed=seed), true
    chance = rate * 2 * (8 - ease) / 5
    other = np.where(np.eye(k, dtype=bool)[true], -np.inf, logits).argmax(axis=1)
    return p, np.where(rng.random(n) < chance, other, true), true


def test_intervals_cover_the_truth_and_contain_the_estimate():
    covered = []
    for seed in range(6):
        p, y, true = clear(seed=seed)
        found = judge(p, y)
        looked = np.array([0, 100, 400, 2000])
        spread = intervals(p, y, found, looked)
        wrong = y != true
        low, high = spread.noise_rate
        assert low <= found.noise_rate <= high
        order = np.argsort(-found.wrong, kind="stable")
        errors = np.concatenate([[0], np.cumsum(wrong[order])])[looked]
        covered += [low - 0.01 <= wrong.mean() <= high + 0.01]
        covered += ((spread.curve[0] - 2 <= errors) & (errors <= spread.curve[1] + 2)).tolist()
        assert spread.errors == pytest.approx((spread.curve[0][-1], spread.curve[1][-1]))
        np.testing.assert_allclose(spread.transition[0].clip(max=found.transition), spread.transition[0])
        assert (np.diff(spread.curve[0]) >= 0).all()
    assert np.mean(covered) > 0.85


def test_fewer_rows_give_wider_intervals():
    widths = []
    for n in (200, 4000):
        p, y, _ = clear(n)
        low, high = intervals(p, y, judge(p, y), np.array([0, n])).noise_rate
        widths.append(high - low)
    assert widths[0] > 1.5 * widths[1]


def test_no_flags_have_no_precision():
    p, y, _ = clear(500, rate=0.0)
    found = judge(p, y)
    assert np.isnan(intervals(p, y, found, np.array([0, 500])).precision["sure"]).all() or found.is_sure.any()
