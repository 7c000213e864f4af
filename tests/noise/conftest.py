from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from noisegate.noise import describe

Array = npt.NDArray[np.float64]


@pytest.fixture
def labels() -> Callable[..., npt.NDArray[np.int64]]:
    """Random labels, the same for the same arguments."""

    def make(n: int, k: int, seed: int = 7) -> npt.NDArray[np.int64]:
        return np.random.default_rng(seed).integers(k, size=n)

    return make


@pytest.fixture
def check_draws() -> Callable[..., None]:
    """Compare drawn labels with a transition: impossible ones never come, the rest passes chi-square."""

    def check(clean: npt.NDArray[np.int64], observed: npt.NDArray[np.int64], t: Array) -> None:
        report = describe(clean, observed, len(t))
        seen = report.transition * report.counts[:, None]
        expected = t * report.counts[:, None]
        assert (seen[t == 0] == 0).all()
        possible = t > 0
        statistic = ((seen - expected)[possible] ** 2 / expected[possible]).sum()
        freedom = possible.sum() - len(t)
        assert statistic <= (chi2.ppf(1 - 1e-4, freedom) if freedom else 1e-12)

    return check
