from __future__ import annotations

import numpy as np
import pytest
from cleanlab import count

from noisegate.errors import InputError, UnknownNameError
from noisegate.noise import (
    ClassDependent,
    Symmetric,
    confident_joint,
    estimate_noise_rate,
    estimate_transition,
)


def noisy_problem(n: int, k: int, sharpness: float, seed: int = 0):
    """Probabilities of the observed label from a model that knows the clean class more or less well."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(k, size=n)
    noise = Symmetric(0.4)
    scores = rng.normal(size=(n, k))
    scores[np.arange(n), clean] += sharpness
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (p / p.sum(axis=1, keepdims=True)) @ noise.transition(k), noise.corrupt(
        clean, n_classes=k, seed=seed
    )


def test_anchor_recovers_the_truth_from_a_perfect_model():
    t = ClassDependent("normal").transition(10)
    clean = np.random.default_rng(0).integers(10, size=3000)
    for percentile in (95, 97.0, 99.9, 100):
        np.testing.assert_allclose(estimate_transition(t[clean], percentile=percentile), t, atol=1e-12)


def test_anchor_takes_the_row_at_the_percentile():
    first = np.random.default_rng(1).permutation(101) / 100
    probs = np.stack([first, 1 - first], axis=1)
    np.testing.assert_allclose(estimate_transition(probs, percentile=97), [[0.97, 0.03], [0.03, 0.97]])
    np.testing.assert_allclose(estimate_transition(probs, percentile=100), np.eye(2))
    np.testing.assert_allclose(estimate_transition(probs, percentile=0), np.eye(2)[::-1])
    # Between two ranks the lower one counts: an outlier at the top is never taken by accident.
    np.testing.assert_allclose(estimate_transition(probs, percentile=99.9)[0], [0.99, 0.01])


def test_anchor_is_chosen_by_the_size_of_the_class():
    first = np.random.default_rng(1).permutation(101) / 100
    probs = np.stack([first, 1 - first], axis=1)
    np.testing.assert_array_equal(estimate_transition(probs), estimate_transition(probs, percentile=97))
    for k in (10, 40, 100):
        probs, _ = noisy_problem(100 * k, k, 12.0)
        np.testing.assert_allclose(np.diag(estimate_transition(probs)), 0.6 + 0.4 / k, atol=0.02)
    # At the 97th percentile of a hundred classes stands a row of another one.
    assert np.diag(estimate_transition(probs, percentile=97)).max() < 0.1


def test_anchor_of_a_rare_class():
    t = np.array([[0.7, 0.3], [0.2, 0.8]])
    clean = (np.arange(5000) % 50 == 0).astype(int)
    scores = np.random.default_rng(0).normal(6, 1, 5000)
    sure = 1 / (1 + np.exp(-np.where(clean == 1, scores, -scores)))
    probs = np.stack([1 - sure, sure], axis=1) @ t
    # 30 % of the labels say so, 2 % are.
    assert 0.3 < probs[:, 1].mean() < 0.32
    np.testing.assert_allclose(estimate_transition(probs), t, atol=0.01)
    assert estimate_transition(probs, percentile=97)[1, 1] < 0.5


def test_anchor_rows_are_normalised():
    probs = np.array([[0.7, 0.302], [0.2, 0.795]])
    np.testing.assert_allclose(estimate_transition(probs).sum(axis=1), 1.0, atol=1e-15)


@pytest.mark.parametrize(("k", "sharpness"), [(2, 2.0), (5, 3.0), (10, 1.0), (20, 5.0)])
def test_confident_counts_are_cleanlabs(k, sharpness):
    probs, y = noisy_problem(4000, k, sharpness)
    counts = count.compute_confident_joint(y, probs, calibrate=False)
    share = np.bincount(y, minlength=k) / len(y)
    expected = counts / counts.sum(axis=1, keepdims=True) * share[:, None]
    joint = confident_joint(probs, y)
    np.testing.assert_allclose(joint, expected, atol=1e-14)
    # cleanlab rounds its calibrated counts to whole examples.
    np.testing.assert_allclose(joint, count.estimate_joint(y, probs), atol=1.0 / len(y))
    _, noise_matrix, _ = count.estimate_latent(joint, y)
    np.testing.assert_allclose(estimate_transition(probs, y, "confident"), noise_matrix.T, atol=1e-12)


def test_confident_joint_is_cleanlabs_exactly_where_no_count_is_rounded():
    rng = np.random.default_rng(4)
    k, n = 4, 1000
    guess, y = rng.integers(k, size=n), rng.integers(k, size=n)
    y = np.where(rng.random(n) < 0.7, guess, y)
    probs = np.full((n, k), 0.02)
    probs[np.arange(n), guess] = 0.94
    joint = confident_joint(probs, y)
    np.testing.assert_allclose(joint, count.estimate_joint(y, probs), atol=1e-14)
    np.testing.assert_allclose(joint.sum(axis=1), np.bincount(y) / n, atol=1e-14)
    assert estimate_noise_rate(probs, y) == pytest.approx((guess != y).mean(), abs=1e-12)


def test_confident_recovers_the_truth_from_a_sharp_model():
    probs, y = noisy_problem(50_000, 5, 12.0)
    np.testing.assert_allclose(
        estimate_transition(probs, y, "confident"), Symmetric(0.4).transition(5), atol=0.02
    )
    assert estimate_noise_rate(probs, y) == pytest.approx(0.32, abs=0.01)


def test_a_class_without_labels_has_the_identity_row():
    probs, y = noisy_problem(2000, 4, 3.0)
    y = np.where(y == 2, 1, y)
    t = estimate_transition(probs, y, "confident")
    np.testing.assert_array_equal(t[2], np.eye(4)[2])
    assert (t[[0, 1, 3], 2] == 0).all()
    np.testing.assert_allclose(t.sum(axis=1), 1.0)
    np.testing.assert_allclose(confident_joint(probs, y), count.estimate_joint(y, probs), atol=1e-3)


def test_equal_probabilities_are_no_evidence_of_noise():
    probs = np.full((30, 3), 1 / 3, dtype=np.float32)
    joint = confident_joint(probs, np.arange(30) % 3)
    np.testing.assert_allclose(joint, count.estimate_joint(np.arange(30) % 3, probs), atol=0.04)
    assert np.isfinite(joint).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.5, 0.4]],), "row 0 sums to 0.9"),
        (([[1.5, -0.5]],), "not negative"),
        (([[np.nan, 1.0]],), "finite"),
        (([0.5, 0.5],), "shape"),
        ((np.zeros((0, 2)),), "shape"),
        (([[0.5, 0.5]], None, "confident"), "needs the observed labels"),
        (([[0.5, 0.5]], [0, 1], "confident"), "1 rows of probabilities but 2 labels"),
        (([[0.5, 0.5]], [2], "confident"), r"0\.\.1"),
        (([[0.5, 0.5]], None, "anchor", 101), "percentile"),
        (([[0.5, 0.5]], None, "anchor", "97"), "percentile"),
        ((["a", "b"],), "probabilities of shape"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        estimate_transition(*arguments)


def test_unknown_method():
    with pytest.raises(UnknownNameError, match="did you mean 'anchor'"):
        estimate_transition([[0.5, 0.5]], method="anchors")
