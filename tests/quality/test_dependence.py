from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from noisegate.noise import InstanceDependent, Symmetric, Transition
from noisegate.quality.dependence import dependence


def scene(n=2000, k=4, seed=0, offset=3.0):
    """Inputs in clusters, their classes, and the probabilities of a classifier that is right and calibrated."""
    rng = np.random.default_rng(seed)
    true = rng.integers(k, size=n)
    x = rng.normal(size=(n, 6))
    centres = offset * np.eye(6)[np.arange(k)]
    x += centres[true]
    logits = x @ centres.T
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return x, true, p / p.sum(axis=1, keepdims=True), rng


def noisy(p, transition):
    """What a calibrated classifier of noisy labels says."""
    return p @ transition


def pair_flips(k, rate):
    return (1 - rate) * np.eye(k) + rate * np.roll(np.eye(k), 1, axis=1)


def by_class(kind, k):
    if kind == "symmetric":
        return Symmetric(0.3, include_self=False).transition(k)
    if kind == "pairs":
        return pair_flips(k, 0.3)
    rates = np.linspace(0.15, 0.35, k)[:, None]
    return (1 - rates) * np.eye(k) + rates * np.roll(np.eye(k), 1, axis=1)


@pytest.mark.parametrize("kind", ["symmetric", "pairs", "unequal rates"])
@pytest.mark.parametrize("k", [2, 4])
def test_noise_by_class_is_not_called_dependent(kind, k):
    p_values = []
    for seed in range(4):
        x, true, p, _ = scene(1500, k, seed)
        transition = by_class(kind, k)
        y = Transition(transition).corrupt(true, n_classes=k, seed=seed)
        p_values.append(dependence(noisy(p, transition), y, features=x)[1])
    assert np.median(p_values) > 0.05
    assert min(p_values) > 1e-3


@pytest.mark.parametrize("kind", ["symmetric", "pairs"])
def test_errors_of_the_classifier_are_not_taken_for_noise(kind):
    """Overlapping classes, and probabilities of a classifier that has learnt from the wrong labels."""
    p_values = []
    for seed in range(5):
        x, true, _, _ = scene(3000, 4, seed, offset=1.8)
        y = Transition(by_class(kind, 4)).corrupt(true, n_classes=4, seed=seed)
        p = cross_val_predict(LogisticRegression(max_iter=500), x, y, cv=5, method="predict_proba")
        p_values.append(dependence(p, y, features=x)[1])
    assert np.median(p_values) > 0.05
    assert sum(p < 0.01 for p in p_values) <= 1


def test_contradictions_of_unsure_predictions_show():
    _, true, p, rng = scene(3000)
    rank = np.argsort(np.argsort(-p.max(axis=1))) / len(p)
    y = np.where(rng.random(len(true)) < 0.8 * rank, (true + 1) % 4, true)
    assert dependence(p, y)[1] < 1e-3


@pytest.mark.parametrize("features", [True, False])
def test_wrong_labels_that_follow_the_input_show(features):
    """The published noise by instance: which wrong class a row gets is a matter of its input."""
    x, true, p, _ = scene(3000, 4)
    y = InstanceDependent(0.3, scale="raw").corrupt(true, 30 * x, n_classes=4, seed=0)
    statistic, p_value = dependence(p, y, features=x if features else None)
    assert p_value < 1e-4
    assert statistic > 4


def test_nothing_to_tell_gives_one():
    p = np.eye(3)[[0, 1, 2]] * 0.9 + 0.1 / 3
    assert dependence(p, np.array([0, 1, 2]))[1] == pytest.approx(1.0, abs=0.2)
    x, true, p, _ = scene(500)
    assert dependence(p, true, features=x)[1] > 0.05


def test_the_seed_decides():
    x, true, p, _ = scene(600)
    y = Symmetric(0.3).corrupt(true, n_classes=4, seed=1)
    first = dependence(p, y, features=x, seed=3)
    assert dependence(p, y, features=x, seed=3) == first
    assert dependence(p, y, features=x, seed=4) != first


@pytest.mark.slow
def test_size_and_power():
    """Of 5 % tests: rejections under noise by class, and under noise by input."""
    size, power = [], []
    for seed in range(60):
        x, true, p, _ = scene(1000, 4, seed)
        transition = by_class("pairs" if seed % 2 else "symmetric", 4)
        y = Transition(transition).corrupt(true, n_classes=4, seed=seed)
        size.append(dependence(noisy(p, transition), y, features=x)[1] < 0.05)
        y = InstanceDependent(0.3, scale="raw").corrupt(true, 30 * x, n_classes=4, seed=seed)
        power.append(dependence(p, y, features=x)[1] < 0.05)
    assert np.mean(size) < 0.15
    assert np.mean(power) > 0.9
