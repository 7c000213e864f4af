"""Accuracy on true labels from accuracy on given ones, against labels that were drawn."""

import numpy as np
import pytest

from noisegate.evaluation.held_out import expected_accuracy, held_out, implied_accuracy
from noisegate.noise import Asymmetric, Symmetric
from noisegate.quality import judge


@pytest.mark.parametrize(("k", "rate", "true"), [(2, 0.2, 0.85), (4, 0.3, 0.7), (10, 0.5, 0.9)])
def test_the_accuracy_behind_is_found(k, rate, true):
    rng = np.random.default_rng(0)
    y = rng.integers(k, size=200_000)
    given = np.where(rng.random(len(y)) < rate, (y + rng.integers(1, k, len(y))) % k, y)
    said = np.where(rng.random(len(y)) < true, y, (y + rng.integers(1, k, len(y))) % k)
    found = implied_accuracy(float((said == given).mean()), rate, k)
    assert found == pytest.approx(true, abs=0.01)


@pytest.mark.parametrize(
    "noise", [Symmetric(0.3), Asymmetric(0.3, {i: (i + 1) % 4 for i in range(4)})], ids=["symmetric", "next"]
)
@pytest.mark.parametrize("sharpness", [3.0, 4.0])
def test_the_accuracy_to_be_expected_is_that_on_true_labels(noise, sharpness):
    rng = np.random.default_rng(0)
    true = rng.integers(4, size=3000)
    logits = rng.normal(size=(3000, 4))
    logits[np.arange(3000), true] += sharpness
    given = noise.corrupt(true, n_classes=4, seed=0)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True) @ noise.transition(4)
    quality = 1 - judge(probs, given).wrong
    found = held_out({"probs": probs, "given": given, "quality": quality, "noise_rate": 1 - quality.mean()})
    right = (probs.argmax(1) == true).mean()
    assert found.accuracy == pytest.approx((probs.argmax(1) == given).mean())
    assert found.clean_accuracy == pytest.approx(right, abs=0.06)
    assert found.clean_accuracy > found.accuracy + 0.5 * (right - found.accuracy)


def test_labels_that_are_known_to_be_right_or_wrong_say_it_exactly():
    agrees, right = np.array([True, True, False, False]), np.array([1.0, 0.0, 1.0, 0.0])
    assert expected_accuracy(agrees, right) == 0.5
    assert expected_accuracy(~agrees, right) == 0.5
    assert expected_accuracy(right == 1, right) == 1


def test_what_a_method_without_held_out_rows_says():
    assert held_out({}) is None
    assert held_out({"probs": np.ones((3, 2)) / 2, "given": np.zeros(2)}) is None
    found = held_out({"probs": [[1.0, 0.0], [0.25, 0.75]], "given": [0, 0]})
    assert (found.n, found.accuracy) == (2, 0.5)
    assert found.log_likelihood == pytest.approx(np.log(0.25) / 2)
    assert (found.noise_rate, found.clean_accuracy, found.issues) == (None, None, None)
