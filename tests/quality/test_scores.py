from __future__ import annotations

import numpy as np
import pytest
from cleanlab.rank import get_label_quality_scores

import noisegate as ng
from noisegate.errors import InputError, UnknownNameError
from noisegate.noise import confident

NAMES = {
    "self-confidence": "self_confidence",
    "margin": "normalized_margin",
    "entropy": "confidence_weighted_entropy",
}


def some(n=500, k=7, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.3), n).astype(dtype)
    return p / p.sum(axis=1, keepdims=True), rng.integers(k, size=n)


@pytest.mark.parametrize("score", NAMES)
@pytest.mark.parametrize("k", [2, 7])
def test_scores_are_cleanlabs(score, k, monkeypatch):
    monkeypatch.setattr(confident, "BLOCK", 100)  # many blocks
    p, y = some(k=k)
    p[:3], y[:3] = np.eye(k)[[0, 1, 0]], [0, 0, 1]  # certain, and certainly wrong
    expected = get_label_quality_scores(y, p, method=NAMES[score])
    np.testing.assert_allclose(ng.label_quality(p, y, score), expected, atol=1e-12)


@pytest.mark.parametrize("score", NAMES)
def test_scores_do_not_depend_on_the_order_of_classes(score):
    p, y = some()
    order = np.random.default_rng(1).permutation(7)
    permuted = ng.label_quality(p[:, order], np.argsort(order)[y], score)
    np.testing.assert_allclose(permuted, ng.label_quality(p, y, score), atol=1e-12)


@pytest.mark.parametrize("score", NAMES)
def test_scores_lie_in_the_unit_interval_and_uniform_predictions_score_alike(score):
    p, y = some()
    quality = ng.label_quality(p, y, score)
    assert quality.min() >= 0
    assert quality.max() <= 1
    assert np.ptp(ng.label_quality(np.full((8, 4), 0.25), np.arange(8) % 4, score)) == 0


def test_narrow_probabilities_are_scored_as_they_are():
    p, y = some(dtype=np.float16)
    np.testing.assert_array_equal(ng.label_quality(p, y), p[np.arange(len(y)), y].astype(np.float64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.5, 0.4]], [0]), "row 0 sums to 0.9"),
        (([[1.5, -0.5]], [0]), "logits"),
        (([[np.nan, 1.0]], [0]), "finite"),
        (([0.5, 0.5], [0]), r"shape \(N, K\)"),
        (([[0.5, 0.5]], [0, 1]), "1 rows of probabilities but 2 labels"),
        (([[0.5, 0.5]], [2]), r"lie in 0\.\.1"),
        (([[0.5, 0.5]], [0.0]), "integer labels"),
        (([[0.5, 0.5]], [[0]]), r"labels of shape \(N,\)"),
        ((np.zeros((0, 2)), []), r"shape \(N, K\)"),
    ],
)
@pytest.mark.parametrize("function", [ng.label_quality, ng.find_label_issues, ng.calibrate])
def test_bad_input(function, arguments, message):
    with pytest.raises(InputError, match=message):
        function(*arguments)


def test_unknown_score():
    with pytest.raises(UnknownNameError, match="did you mean 'margin'"):
        ng.label_quality([[1.0, 0.0]], [0], "margins")


def test_a_bad_row_is_named_by_its_number_in_the_whole(monkeypatch):
    monkeypatch.setattr(confident, "BLOCK", 10)
    p = np.full((50, 2), 0.5)
    p[37] = 0.1
    with pytest.raises(InputError, match="row 37 sums to 0.2"):
        ng.label_quality(p, np.zeros(50, dtype=int))
