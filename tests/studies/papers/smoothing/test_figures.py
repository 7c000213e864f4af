import math

import numpy as np
import pytest

from noisegate.studies.papers.smoothing.figures import bandwidth, density, losses

MARGIN = np.linspace(-30, 30, 6001)


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.6])
def test_the_losses_are_the_closed_forms_of_figure_1(alpha):
    found = losses(MARGIN, alpha)
    logistic, flipped = np.logaddexp(0, -MARGIN), np.logaddexp(0, MARGIN)
    p = 1 / (1 + np.exp(-MARGIN))
    expected = {
        "ce": logistic,
        "ls": (1 - alpha / 2) * logistic + alpha / 2 * flipped,
        "bc": ((1 - alpha / 2) * logistic - alpha / 2 * flipped) / (1 - alpha),
        "fc": -np.log((1 - alpha / 2) * p + alpha / 2 * (1 - p)),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.6])
def test_what_the_caption_of_figure_1_says(alpha):
    found = losses(MARGIN, alpha)
    share = 1 - alpha / 2
    # Smoothing: a finite minimum where the probability is 1 - alpha / 2; its height is the entropy there.
    place = found["ls"].argmin()
    assert MARGIN[place] == pytest.approx(math.log(share / (1 - share)), abs=0.01)
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert found["ls"][place] == pytest.approx(entropy, abs=1e-4)
    assert found["bc"][-1] < -1
    assert found["fc"][0] == pytest.approx(-math.log(alpha / 2), abs=1e-6)
    assert found["fc"][-1] > 0


@pytest.mark.parametrize("bounded", [True, False])
def test_a_density_integrates_to_one_and_has_the_mean_of_the_histogram(bounded):
    edges = np.linspace(-2, 3, 201)
    values = np.random.default_rng(0).normal(0.5, 0.3, 5000)
    x, y = density(edges, np.histogram(values, edges)[0], bounded=bounded)
    assert y.sum() * (x[1] - x[0]) == pytest.approx(1)
    assert (x * y).sum() * (x[1] - x[0]) == pytest.approx(values.mean(), abs=0.01)
    truth = np.exp(-0.5 * ((x - 0.5) / 0.3) ** 2) / (0.3 * math.sqrt(2 * math.pi))
    assert np.abs(y - truth).max() < 0.12


def test_a_bounded_density_stays_inside_and_reflects():
    edges = np.linspace(0, 1, 101)
    values = np.random.default_rng(0).uniform(0, 1, 20_000)
    x, y = density(edges, np.histogram(values, edges)[0], bounded=True)
    assert len(x) == 100
    # Without reflection the ends of a flat density would fall to a half.
    assert np.abs(y - 1).max() < 0.1
    outside, _ = density(edges, np.histogram(values, edges)[0])
    assert outside.min() < 0


def test_the_bandwidth_is_silverman_s():
    values = np.random.default_rng(0).normal(100, 20, 100_000)
    counts = np.histogram(values, np.arange(0, 201))[0]
    assert bandwidth(counts) == pytest.approx(0.9 * 20 * 100_000**-0.2, rel=0.05)
    assert bandwidth(np.array([0, 7, 0])) == 1
