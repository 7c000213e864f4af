"""Significance: against scipy, against formulas written out by hand, and where the formulas have no answer."""

import math

import numpy as np
import pytest
from scipy import stats

from noisegate.errors import InputError
from noisegate.evaluation.significance import difference_in_deviations, paired, stars, welch


def samples(seed, n, m, spread):
    rng = np.random.default_rng(seed)
    return rng.normal(0.9, 0.01, n), rng.normal(0.9 + spread, 0.03, m)


@pytest.mark.parametrize(
    ("n", "m", "spread"), [(2, 2, 0.0), (5, 5, 0.02), (5, 3, -0.05), (25, 4, 0.2), (3, 25, 0.001)]
)
def test_welch_is_scipys(n, m, spread):
    for seed in range(5):
        a, b = samples(seed, n, m, spread)
        expected = stats.ttest_ind(a, b, equal_var=False).pvalue
        assert welch(a, b) == pytest.approx(expected, rel=1e-9)
        assert welch(b, a) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "spread"), [(2, 0.0), (5, 0.02), (25, 0.005), (5, 0.5)])
def test_paired_is_scipys(n, spread):
    for seed in range(5):
        a, b = samples(seed, n, n, spread)
        assert paired(a, b) == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)


def test_welch_by_hand():
    # Variances 1 and 4: v = 1/3 and 4/3, t = -2 / sqrt(5/3), df = (5/3)^2 / ((1/9 + 16/9) / 2) = 50/17.
    t, df = 2 / math.sqrt(5 / 3), 50 / 17
    assert welch([1, 2, 3], [2, 4, 6]) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-12)


def test_two_pairs_by_hand():
    # With one degree of freedom t is Cauchy: p = 1 - 2/pi atan|t|; differences 1 and 3 give t = 2.
    assert paired([1, 3], [0, 0]) == pytest.approx(1 - 2 / math.pi * math.atan(2), rel=1e-12)


def test_pairing_sees_what_welch_does_not():
    seeds = np.array([0.70, 0.80, 0.90, 0.60])
    better = seeds + np.array([0.010, 0.011, 0.009, 0.010])
    assert paired(better, seeds) < 0.001
    assert welch(better, seeds) > 0.8


@pytest.mark.parametrize("test", [welch, paired])
def test_constant_samples(test):
    assert test([0.1] * 3, [0.1] * 3) == 1.0
    assert test([0.1] * 3, [0.2] * 3) == 0.0
    assert test([0.5, 0.6, 0.9], [0.5, 0.6, 0.9]) == 1.0


def test_constants_of_different_length_are_equal():
    # The mean of seven 0.1 is not 0.1: without care two equal constants differ significantly.
    assert np.mean([0.1] * 7) != 0.1
    assert welch([0.1] * 7, [0.1] * 2) == 1.0


def test_one_constant_side_is_the_test_of_one_sample():
    expected = stats.ttest_1samp([0.4, 0.45, 0.3], 0.5).pvalue
    assert welch([0.5] * 4, [0.4, 0.45, 0.3]) == pytest.approx(expected)


def test_tiny_variances_do_not_underflow():
    a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])
    assert welch(a * 1e-150, b * 1e-150) == pytest.approx(welch(a, b), rel=1e-9)


@pytest.mark.parametrize(("a", "b"), [([], []), ([0.5], [0.6])])
def test_too_few(a, b):
    assert welch(a, b) is None
    assert paired(a, b) is None


def test_one_against_many_cannot_be_said():
    assert welch([0.5], [0.1, 0.2, 0.3]) is None


def test_bad_input():
    with pytest.raises(InputError, match="2 and 3"):
        paired([1, 2], [1, 2, 3])
    with pytest.raises(InputError, match="finite"):
        welch([1, math.nan], [1, 2])


def test_significance_is_calibrated():
    # Equal means, unequal variances: about 5 % of the tests may be below .05.
    rng = np.random.default_rng(0)
    p = [welch(rng.normal(0, 1, 5), rng.normal(0, 4, 5)) for _ in range(2000)]
    assert 0.03 < np.mean(np.array(p) < 0.05) < 0.07


@pytest.mark.parametrize(
    ("p", "sign"),
    [
        (1.0, ""),
        (0.05, ""),
        (0.0499, "*"),
        (0.01, "*"),
        (0.00999, "†"),
        (0.001, "†"),
        (0.00099, "‡"),
        (0, "‡"),
    ],
)
def test_stars(p, sign):
    assert stars(p) == sign


def test_difference_in_deviations():
    assert difference_in_deviations(98.85, 0.18, 98.60, 0.11) == pytest.approx(
        0.25 / math.sqrt((0.18**2 + 0.11**2) / 2)
    )
    assert difference_in_deviations(90, None, 92, 0.5) == pytest.approx(-4)
    assert difference_in_deviations(90, 2.0, 92, None) == pytest.approx(-1)
    assert difference_in_deviations(90, 0.0, 92, 1.0) == pytest.approx(-2 * math.sqrt(2))
    assert difference_in_deviations(90, None, 92, None) is None
    assert difference_in_deviations(92, 0.0, 92, None) == 0.0
    assert difference_in_deviations(91, 0.0, 92, None) is None


def test_a_bootstrapped_interval_is_scipys():
    from scipy.stats import bootstrap

    from noisegate.evaluation.significance import bootstrap_interval

    values = np.random.default_rng(0).normal(3.0, 2.0, 25)
    expected = bootstrap((values,), np.mean, method="percentile", n_resamples=20_000).confidence_interval
    low, high = bootstrap_interval(values.tolist())
    assert low == pytest.approx(expected.low, abs=0.05)
    assert high == pytest.approx(expected.high, abs=0.05)
    assert bootstrap_interval(values.tolist()) == (low, high)
    assert bootstrap_interval([2.0]) == (2.0, 2.0)
    with pytest.raises(InputError, match="at least one number"):
        bootstrap_interval([])
