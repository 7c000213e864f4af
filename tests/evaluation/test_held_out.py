"""Accuracy on true labels from accuracy on given ones, against labels that were drawn."""

import numpy as np
import pytest

from noisegate.evaluation.held_out import held_out, implied_accuracy


@pytest.mark.parametrize(("k", "rate", "true"), [(2, 0.2, 0.85), (4, 0.3, 0.7), (10, 0.5, 0.9)])
def test_the_accuracy_behind_is_found(k, rate, true):
    rng = np.random.default_rng(0)
    y = rng.integers(k, size=200_000)
    given = np.where(rng.random(len(y)) < rate, (y + rng.integers(1, k, len(y))) % k, y)
    said = np.where(rng.random(len(y)) < true, y, (y + rng.integers(1, k, len(y))) % k)
    found = implied_accuracy(float((said == given).mean()), rate, k)
    assert found == pytest.approx(true, abs=0.01)


def test_what_a_method_without_held_out_rows_says():
    assert held_out({}) is None
    assert held_out({"probs": np.ones((3, 2)) / 2, "given": np.zeros(2)}) is None
    found = held_out({"probs": [[1.0, 0.0], [0.25, 0.75]], "given": [0, 0]})
    assert (found.n, found.accuracy) == (2, 0.5)
    assert found.log_likelihood == pytest.approx(np.log(0.25) / 2)
    assert (found.noise_rate, found.clean_accuracy, found.issues) == (None, None, None)
