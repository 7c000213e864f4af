from __future__ import annotations

import numpy as np
import pytest

import noisegate as ng
from noisegate.quality import calibration


def drawn(n=20_000, k=4, seed=0):
    """Probabilities, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.5), n)
    return p, (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=k - 1)


def test_a_temperature_and_shifts_are_found_again():
    p, y = drawn()
    bent = p**2.5 * np.array([1.0, 0.5, 2.0, 1.0])
    bent /= bent.sum(axis=1, keepdims=True)
    found = ng.calibrate(bent, y)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert np.abs(found - p).mean() < 0.01
    assert np.abs(bent - p).mean() > 0.05


def test_scaling_is_the_maximum_of_the_likelihood():
    p, y = drawn(2000)
    logs = np.log(np.maximum(p**0.5, 1e-12))
    beta, shift = calibration.fit_scaling(logs, y)

    def likelihood(beta, shift):
        q = beta * logs + shift
        q = q - np.log(np.exp(q).sum(axis=1, keepdims=True))
        return q[np.arange(len(y)), y].sum() - 0.5 * ((shift - shift.mean()) ** 2).sum()

    best = likelihood(beta, shift)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert likelihood(beta + rng.normal(0, 0.1), shift + rng.normal(0, 0.1, 4)) < best + 0.05


def test_calibrated_probabilities_stay_and_confidence_is_accuracy():
    p, y = drawn()
    found = ng.calibrate(p, y)
    assert np.abs(found - p).mean() < 0.01
    sharp = p**4 / (p**4).sum(axis=1, keepdims=True)
    found = ng.calibrate(sharp, y)
    assert found.max(axis=1).mean() == pytest.approx((found.argmax(axis=1) == y).mean(), abs=0.01)
    assert sharp.max(axis=1).mean() > (sharp.argmax(axis=1) == y).mean() + 0.1


def test_classes_may_come_in_any_order():
    p, y = drawn(1000)
    order = np.array([2, 0, 3, 1])
    np.testing.assert_allclose(
        ng.calibrate(p[:, order], np.argsort(order)[y]), ng.calibrate(p, y)[:, order], atol=1e-9
    )


def test_zeros_and_one_class_are_no_error():
    assert np.isfinite(ng.calibrate([[1.0, 0.0], [0.0, 1.0]], [0, 1])).all()
    np.testing.assert_array_equal(ng.calibrate([[1.0], [1.0]], [0, 0]), 1.0)
