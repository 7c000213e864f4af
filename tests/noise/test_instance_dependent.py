from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import kstest, truncnorm

from noisegate.errors import InputError
from noisegate.noise import InstanceDependent, describe
from noisegate.noise import instance_dependent as module
from noisegate.noise.base import stream


@pytest.mark.parametrize(("mean", "std"), [(0.4, 0.1), (0.0, 0.1), (1.0, 0.3), (0.05, 1.0)])
def test_truncated_normal_is_scipys(mean, std):
    u = np.random.default_rng(0).random(20_000)
    q = module.truncated_normal(u, mean, std)
    oracle = truncnorm(-mean / std, (1 - mean) / std, loc=mean, scale=std)
    assert kstest(q, oracle.cdf).pvalue > 1e-3
    np.testing.assert_allclose(q, oracle.ppf(u), atol=1e-9)


def test_no_spread_gives_everyone_the_same_probability():
    assert (module.truncated_normal(np.array([0.0, 0.5]), 0.3, 0.0) == 0.3).all()


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45, 1.0])
def test_flip_rate_is_the_mean_of_the_truncated_normal(rate, labels):
    y = labels(100_000, 5)
    x = np.random.default_rng(1).random((len(y), 3))
    expected = truncnorm(-rate / 0.1, (1 - rate) / 0.1, loc=rate, scale=0.1).mean()
    observed = InstanceDependent(rate).corrupt(y, x, 5)
    assert describe(y, observed, 5).rate == pytest.approx(expected, abs=0.006)


def test_targets_follow_the_softmax_of_the_projection(check_draws):
    """All examples of a class share one input, so each class has a row that can be written down."""
    k, points = 4, np.random.default_rng(2).random((4, 2, 2))
    y = np.repeat(np.arange(k), 50_000)
    observed = InstanceDependent(0.4, std=0.0).corrupt(y, points[y], k, seed=9)
    t = np.zeros((k, k))
    for i in range(k):
        scores = points[i].ravel() @ stream(9, 1 + i).standard_normal((4, k), dtype=np.float32)
        scores[i] = -np.inf
        t[i] = 0.4 * softmax(scores)
        t[i, i] = 0.6
    check_draws(y, observed, t)


def test_uint8_is_divided_by_255_and_floats_are_not(labels):
    y = labels(3000, 10)
    x = np.random.default_rng(3).integers(256, size=(len(y), 3, 4, 4), dtype=np.uint8)
    noise = InstanceDependent(0.4)
    scaled = noise.corrupt(y, x.astype(np.float32) / 255)
    np.testing.assert_array_equal(noise.corrupt(y, x), scaled)
    assert (noise.corrupt(y, x.astype(np.float32)) != scaled).any()


def test_raw_pixels_leave_one_wrong_class_alone(labels):
    y = labels(3000, 10)
    x = np.random.default_rng(3).integers(256, size=(len(y), 3, 4, 4), dtype=np.uint8)
    raw = InstanceDependent(0.4, scale="raw")
    np.testing.assert_array_equal(raw.corrupt(y, x), InstanceDependent(0.4).corrupt(y, x.astype(np.float32)))
    # Whoever flips goes to the class of the largest projection.
    certain = InstanceDependent(1.0, std=0.0, scale="raw").corrupt(y, x, seed=4)
    flat = x.reshape(len(x), -1).astype(np.float64)
    for label in range(10):
        scores = flat[y == label] @ stream(4, 1 + label).standard_normal((48, 10), dtype=np.float32)
        scores[:, label] = -np.inf
        assert (certain[y == label] == scores.argmax(1)).mean() > 0.98
    with pytest.raises(InputError, match="scale"):
        InstanceDependent(0.4, scale="pixels")


def test_chunks_and_other_classes_do_not_matter(labels, monkeypatch):
    y = labels(2000, 6)
    x = np.random.default_rng(4).random((len(y), 8))
    whole = InstanceDependent(0.4).corrupt(y, x, 6)
    monkeypatch.setattr(module, "_CHUNK", 8 * 13)
    np.testing.assert_array_equal(InstanceDependent(0.4).corrupt(y, x, 6), whole)
    # Labels of one class stay what they are when the rows of the other classes get another label.
    only = np.where(y == 2, 2, 0)
    np.testing.assert_array_equal(InstanceDependent(0.4).corrupt(only, x, 6)[y == 2], whole[y == 2])


def test_two_classes_always_flip_to_the_other(labels):
    y = labels(500, 2)
    observed = InstanceDependent(1.0, std=0.0).corrupt(y, np.random.default_rng(0).random((500, 2)))
    np.testing.assert_array_equal(observed, 1 - y)


def test_bad_inputs():
    noise = InstanceDependent(0.5)
    y = np.array([0, 1, 1])
    with pytest.raises(InputError, match="depends on the inputs"):
        noise.corrupt(y)
    with pytest.raises(InputError, match="2 inputs but 3 labels"):
        noise.corrupt(y, np.zeros((2, 4)))
    with pytest.raises(InputError, match="two-dimensional"):
        noise.corrupt(y, np.zeros(3))
    with pytest.raises(InputError, match="array of numbers"):
        noise.corrupt(y, np.array([["a"], ["b"], ["c"]]))
    with pytest.raises(InputError, match="in row 1"):
        noise.corrupt(y, np.array([[0.0, 1], [np.inf, -np.inf], [0, 1]]))
    with pytest.raises(InputError, match="too large"):
        InstanceDependent(1.0, std=0.0).corrupt(y, np.full((3, 64), 3e38, dtype=np.float32))
    with pytest.raises(InputError, match="no other class"):
        noise.corrupt([0], np.zeros((1, 2)))
    for std in (-0.1, np.nan, np.inf):
        with pytest.raises(InputError, match="std"):
            InstanceDependent(0.1, std=std)


def test_no_labels_and_a_deviation_that_is_no_number():
    assert len(InstanceDependent(0.3).corrupt(np.zeros(0, int), np.zeros((0, 4)), n_classes=3)) == 0
    with pytest.raises(InputError, match="std must be"):
        InstanceDependent(0.3, std="a")
