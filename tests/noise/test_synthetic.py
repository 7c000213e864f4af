from __future__ import annotations

import time

import numpy as np
import pytest

from noisegate.errors import InputError, UnknownNameError
from noisegate.noise import Asymmetric, ClassDependent, Symmetric, Transition, describe
from noisegate.noise.synthetic import inverse_cdf

RANDOM_T = np.random.default_rng(1).dirichlet(np.full(10, 0.3), size=10)
RANDOM_T[2] = np.eye(10)[7]
RANDOM_T[3, [0, 9]] = 0.0
RANDOM_T /= RANDOM_T.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "noise",
    [
        Symmetric(0.4),
        Symmetric(0.4, include_self=False),
        Symmetric(0.0),
        Symmetric(1.0),
        Symmetric(1.0, include_self=False),
        Asymmetric(0.3, "mnist"),
        Asymmetric(0.4, "cifar10"),
        Asymmetric(1.0, {0: 1}),
        ClassDependent("normal"),
        ClassDependent("reduced"),
        ClassDependent("increased"),
        Transition(RANDOM_T),
    ],
    ids=str,
)
def test_draws_follow_the_transition(noise, labels, check_draws):
    y = labels(200_000, 10)
    check_draws(y, noise.corrupt(y, n_classes=10, seed=2), noise.transition(10))


def test_draws_follow_the_transition_for_many_classes(labels, check_draws):
    y = labels(200_000, 100)
    noise = Asymmetric(0.2, "cifar100")
    check_draws(y, noise.corrupt(y, n_classes=100), noise.transition(100))


@pytest.mark.parametrize(("include_self", "flips"), [(True, 0.36), (False, 0.4)])
def test_symmetric_true_flip_rate(include_self, flips, labels):
    noise = Symmetric(0.4, include_self=include_self)
    np.testing.assert_allclose(1 - noise.transition(10).diagonal(), flips)
    y = labels(200_000, 10)
    assert describe(y, noise.corrupt(y), 10).rate == pytest.approx(flips, abs=0.005)


def test_symmetric_with_one_class():
    np.testing.assert_array_equal(Symmetric(0.5).corrupt([0, 0]), [0, 0])
    np.testing.assert_array_equal(Symmetric(0.0, include_self=False).transition(1), [[1.0]])
    with pytest.raises(InputError, match="no other class"):
        Symmetric(0.5, include_self=False).corrupt([0, 0])


def test_higher_rate_flips_a_superset(labels):
    y = labels(5000, 10)
    low, high = (Symmetric(rate, include_self=False).corrupt(y, seed=3) for rate in (0.2, 0.5))
    assert (high[low != y] == low[low != y]).all()


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("mnist", {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}),
        ("cifar10", {"truck": "automobile", "bird": "airplane", "cat": "dog", "dog": "cat", "deer": "horse"}),
    ],
)
def test_named_mappings(name, pairs):
    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    number = lambda c: classes.index(c) if isinstance(c, str) else c
    expected = np.arange(10)
    for source, target in pairs.items():
        expected[number(source)] = number(target)
    np.testing.assert_array_equal(Asymmetric(1.0, name).corrupt(np.arange(10)), expected)


def test_cifar100_mapping_is_cyclic():
    np.testing.assert_array_equal(
        Asymmetric(1.0, "cifar100").corrupt(np.arange(100)), np.roll(np.arange(100), -1)
    )


def test_asymmetric_refuses():
    with pytest.raises(UnknownNameError, match="did you mean"):
        Asymmetric(0.2, "cifar-10")
    with pytest.raises(InputError, match="10 classes, not 7"):
        Asymmetric(0.2, "mnist").corrupt([0, 6])
    with pytest.raises(InputError, match="names class 5"):
        Asymmetric(0.2, {0: 5}).corrupt([0, 1], n_classes=3)
    with pytest.raises(InputError, match="from 0 on"):
        Asymmetric(0.2, {0: -1})
    with pytest.raises(InputError, match="dict"):
        Asymmetric(0.2, [0, 1])


def test_class_dependent_bounds_of_mnist_test_set():
    """Best possible noisy accuracy .823 and log-likelihood -.691: what knowing the clean label gives."""
    counts = np.array([980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009])
    share = counts / counts.sum()
    t = ClassDependent("normal").transition(10)
    assert share @ t.max(axis=1) == pytest.approx(0.823, abs=5e-4)
    log_t = np.log(t, where=t > 0, out=np.zeros_like(t))
    assert share @ (t * log_t).sum(axis=1) == pytest.approx(-0.691, abs=5e-4)
    uniform = Symmetric(0.2).transition(10)
    assert share @ uniform.max(axis=1) == pytest.approx(0.82)
    assert share @ (uniform * np.log(uniform)).sum(axis=1) == pytest.approx(-0.867, abs=5e-4)


def test_class_dependent_levels():
    rates = {level: 1 - ClassDependent(level).transition(10).diagonal() for level in ("normal", "reduced")}
    np.testing.assert_allclose(rates["normal"], 0.9 * np.array([0, 0, 0, 0, 0, 0.2, 0.3, 0.4, 0.5, 0.6]))
    np.testing.assert_allclose(rates["reduced"], rates["normal"] / 2)
    increased = 1 - ClassDependent("increased").transition(10).diagonal()
    np.testing.assert_allclose(increased[2:], 0.9 * np.arange(0.05, 0.8, 0.1))
    assert (increased[:2] == 0).all()


def test_class_dependent_refuses():
    with pytest.raises(UnknownNameError, match="noise level"):
        ClassDependent("hard")
    with pytest.raises(InputError, match="2 rates, there are 3 classes"):
        ClassDependent([0.1, 0.2]).corrupt([0, 1, 2])
    with pytest.raises(InputError, match="rate of class 1"):
        ClassDependent([0.1, 1.2])
    with pytest.raises(InputError, match="none"):
        ClassDependent([])


@pytest.mark.parametrize("rate", [-0.1, 1.01, np.nan, "x", None])
def test_bad_rate(rate):
    for make in (Symmetric, lambda r: Asymmetric(r, "mnist")):
        with pytest.raises(InputError, match="rate must"):
            make(rate)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], "row 1 sums to 0.9"),
        ([[0.9, 0.4], [0.1, 0.6]], "transpose"),
        ([[1.5, -0.5], [0, 1]], "got -0.5 at row 0, column 1"),
        ([[np.nan, 1], [0, 1]], "nan"),
        ([[0.5, 0.5]], r"square \(K, K\), got shape \(1, 2\)"),
        ([1.0], "square"),
        ([[1.0], [0.5, 0.5]], "square"),
    ],
)
def test_bad_matrix(matrix, message):
    with pytest.raises(InputError, match=message):
        Transition(matrix)


def test_transition_for_other_number_of_classes():
    with pytest.raises(InputError, match="for 2 classes, not 3"):
        Transition(np.eye(2)).corrupt([0, 1, 2])


def test_transition_matrix_is_copied():
    matrix = np.eye(2)
    noise = Transition(matrix)
    matrix[:] = 0.5
    noise.transition(2)[:] = 0.5
    np.testing.assert_array_equal(noise.transition(2), np.eye(2))


def test_inverse_cdf_at_the_edges():
    last = np.nextafter(1.0, 0.0)
    np.testing.assert_array_equal(
        inverse_cdf(np.array([0.0, 0.5, 0.5, 0.0]), np.array([0.0, 0.5, last])), [1, 2, 2]
    )
    # Ten times 0.1 cumulates to less than one: the largest u must still find a class.
    np.testing.assert_array_equal(inverse_cdf(np.full(10, 0.1), np.array([0.0, last])), [0, 9])


def test_a_million_labels_take_less_than_a_second(labels):
    y = labels(1_000_000, 10)
    for noise in (Symmetric(0.4), Asymmetric(0.4, "mnist"), ClassDependent("normal"), Transition(RANDOM_T)):
        start = time.perf_counter()
        noise.corrupt(y)
        assert time.perf_counter() - start < 1.0


def test_one_rate_for_all_classes_and_classes_that_are_no_whole_numbers_are_refused():
    with pytest.raises(InputError, match=r"one rate per class, got 0\.4"):
        ClassDependent(0.4)
    with pytest.raises(InputError, match="dict"):
        Asymmetric(0.3, {1.7: 2})
    assert Asymmetric(0.3, {"1": np.int64(2)}).transition(3)[1, 2] == 0.3
