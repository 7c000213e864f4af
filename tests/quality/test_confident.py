from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from cleanlab.count import compute_confident_joint
from cleanlab.filter import find_label_issues

from noisegate.noise import confident as counting
from noisegate.noise.confident import Confident, blocks
from noisegate.quality import confident_learning, prune_by_noise_rate
from noisegate.quality.confident import prune_counts

RULES = {"confident_learning": confident_learning, "prune_by_noise_rate": prune_by_noise_rate}


def noisy(n, k, sharpness, rate=0.3, seed=0, dtype=np.float64, skew=0.0):
    rng = np.random.default_rng(seed)
    share = np.exp(-skew * np.arange(k))
    true = rng.choice(k, size=n, p=share / share.sum())
    logits = rng.normal(size=(n, k))
    logits[np.arange(n), true] += sharpness
    p = np.exp(logits)
    p = (p / p.sum(axis=1, keepdims=True)).astype(dtype)
    y = np.where(rng.random(n) < rate, rng.choice(k, size=n, p=share / share.sum()), true)
    return p, y


def cleanlabs(p, y, rule):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return find_label_issues(y, p, filter_by=rule, n_jobs=1)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("n", "k", "sharpness"),
    [
        (2000, 2, 1.5),
        (3000, 3, 0.0),
        (5000, 10, 2.0),
        (5000, 10, 6.0),
        (2000, 60, 4.0),
        (3000, 150, 1.0),
        (50, 20, 1.0),
    ],
)
@pytest.mark.parametrize("skew", [0.0, 0.2])
def test_flags_are_cleanlabs(rule, n, k, sharpness, skew, monkeypatch):
    monkeypatch.setattr(counting, "BLOCK", 5000)
    for seed in range(3):
        p, y = noisy(n, k, sharpness, seed=seed, skew=skew)
        expected = cleanlabs(p, y, rule)
        np.testing.assert_array_equal(RULES[rule](p, y), expected)
    assert expected.any()


@pytest.mark.parametrize("rule", RULES)
def test_flags_of_single_precision_are_cleanlabs(rule):
    p, y = noisy(5000, 10, 2.0, dtype=np.float32)
    np.testing.assert_array_equal(RULES[rule](p, y), cleanlabs(p, y, rule))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dense", [True, False])
def test_missing_and_single_classes_and_labels_of_other_types(rule, dense, monkeypatch):
    if not dense:
        monkeypatch.setattr("noisegate.quality.confident._DENSE", 0)
        monkeypatch.setattr(counting, "BLOCK", 50)
    p, y = noisy(600, 8, 1.0)
    y = np.where((y == 3) | (y == 5), 2, y)
    y[0] = 5  # one row of class 5, none of class 3
    expected = cleanlabs(p, y, rule)
    np.testing.assert_array_equal(RULES[rule](p, y.astype(np.int8)), expected)
    assert not expected[0]


def test_counts_to_prune_are_those_of_the_calibrated_joint():
    p, y = noisy(4000, 12, 3.0)
    counted = Confident(p, y)
    pairs, counts = prune_counts(*counted.pairs()[:2], counted.observed)
    found = np.zeros((12, 12), dtype=int)
    found.flat[pairs] = counts
    joint = compute_confident_joint(y, p)
    np.fill_diagonal(joint, 0)
    np.testing.assert_array_equal(found, joint)


def test_classes_may_come_in_any_order():
    p, y = noisy(2000, 6, 2.0)
    order = np.random.default_rng(1).permutation(6)
    permuted = p[:, order], np.argsort(order)[y]
    np.testing.assert_array_equal(confident_learning(*permuted), confident_learning(p, y))
    # Ties between rounded counts go by the order of the classes, in cleanlab as here.
    assert (prune_by_noise_rate(*permuted) != prune_by_noise_rate(p, y)).sum() <= 3


@pytest.mark.parametrize("rule", RULES)
def test_certain_predictions(rule):
    guess = np.array([0, 0, 1, 1, 1, 2, 2, 0])
    y = np.array([0, 0, 1, 1, 0, 2, 1, 2])
    np.testing.assert_array_equal(RULES[rule](np.eye(3)[guess], y), cleanlabs(np.eye(3)[guess], y, rule))
    assert not RULES[rule](np.full((9, 3), 1 / 3), np.arange(9) % 3).any()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("n", "k"), [(200_000, 10), (20_000, 200)])
def test_memory_stays_below_a_tenth_of_the_probabilities(rule, n, k):
    p, y = noisy(n, k, 4.0)
    RULES[rule](p[:100], y[:100])
    tracemalloc.start()
    RULES[rule](p, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < max(0.1 * p.nbytes, 4 * 8 * counting.BLOCK)


def test_blocks_cover_all_rows_once():
    rows = np.zeros(1000, dtype=int)
    for block in blocks(1000, 700):
        rows[block] += 1
    assert (rows == 1).all()
