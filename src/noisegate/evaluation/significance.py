"""Whether two methods differ by more than chance: t-tests over repeated runs, and how papers mark them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError

#: Signs of significance, from the weakest: a sign stands for p below its bound.
STARS = ((0.05, "*"), (0.01, "†"), (0.001, "‡"))


def welch(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p-value of Welch's t-test of equal means; None with fewer than two numbers on a side.

    t = (mean a - mean b) / sqrt(v_a + v_b), v = s^2 / n, with the degrees of freedom
    (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1)). Where neither side varies, p is 1 for equal
    numbers and 0 for different ones.

    References
    ----------
    Welch, The generalization of "Student's" problem when several different population variances are involved,
    Biometrika 1947.

    >>> round(welch([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 4)
    0.2209
    """
    x, y = _numbers(a), _numbers(b)
    if min(len(x), len(y)) < 2:
        return None
    (mean_x, v_x), (mean_y, v_y) = _mean_and_error(x), _mean_and_error(y)
    total = v_x + v_y
    if total == 0.0:
        return 1.0 if mean_x == mean_y else 0.0
    # As shares of the total: the squares of tiny variances would underflow.
    degrees = 1.0 / ((v_x / total) ** 2 / (len(x) - 1) + (v_y / total) ** 2 / (len(y) - 1))
    return _two_sided((mean_x - mean_y) / math.sqrt(total), degrees)


def paired(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Two-sided p-value of the paired t-test, `a[i]` with `b[i]`; None with fewer than two pairs.

    t = mean d / sqrt(s_d^2 / n) of the differences d, with n - 1 degrees of freedom. Where the differences do
    not vary, p is 1 if they are zero and 0 otherwise.

    >>> round(paired([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 4)
    0.0742
    """
    x, y = _numbers(a), _numbers(b)
    if len(x) != len(y):
        raise InputError(f"a paired test needs as many numbers on both sides, got {len(x)} and {len(y)}")
    if len(x) < 2:
        return None
    mean, error = _mean_and_error(x - y)
    if error == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return _two_sided(mean / math.sqrt(error), len(x) - 1)


def bootstrap_interval(
    values: Sequence[float], level: float = 0.95, seed: int = 0, resamples: int = 9999
) -> tuple[float, float]:
    """A bootstrapped interval of the mean: percentiles of the means of resamples; the same for the same numbers.

    With one number, or equal ones, it is that number twice.

    >>> low, high = bootstrap_interval([1.0, 2.0, 3.0, 4.0])
    >>> 1.0 <= low < 2.5 < high <= 4.0
    True
    """
    x = _numbers(values)
    if not len(x):
        raise InputError("an interval needs at least one number")
    if len(x) == 1 or np.ptp(x) == 0.0:
        return float(x[0]), float(x[0])
    # Not scipy.stats.bootstrap, whose argument for a generator has another name in every other version.
    rows = np.random.default_rng(seed).integers(len(x), size=(resamples, len(x)))
    low, high = np.quantile(x[rows].mean(1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def stars(p: float | None) -> str:
    """The sign of a p-value: "*" below .05, "†" below .01, "‡" below .001, nothing otherwise.

    >>> [stars(p) for p in (0.2, 0.049, 0.009, 0.0009, None)]
    ['', '*', '†', '‡', '']
    """
    if p is None:
        return ""
    return next((sign for bound, sign in reversed(STARS) if p < bound), "")


def difference_in_deviations(
    mean: float, std: float | None, paper_mean: float, paper_std: float | None
) -> float | None:
    """How many standard deviations ours lies above the paper's: (ours - paper) / sqrt((s^2 + s_paper^2) / 2).

    Where only one deviation is known it is divided by that one; where none is, or where it is zero and the
    means differ, there is no such number.

    >>> difference_in_deviations(98.85, 0.3, 98.60, 0.4)  # doctest: +ELLIPSIS
    0.707...
    """
    known = [s for s in (std, paper_std) if s is not None]
    if not known:
        return None
    scale = math.sqrt(sum(s * s for s in known) / len(known))
    if scale == 0.0:
        return 0.0 if mean == paper_mean else None
    return (mean - paper_mean) / scale


def _numbers(values: Sequence[float]) -> npt.NDArray[np.float64]:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise InputError(f"a t-test needs a list of finite numbers, got {values!r}")
    return numbers


def _mean_and_error(x: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The mean and its squared standard error; equal numbers give exactly themselves and 0."""
    if np.ptp(x) == 0.0:
        return float(x[0]), 0.0
    return float(x.mean()), float(x.var(ddof=1) / len(x))


def _two_sided(t: float, degrees: float) -> float:
    from scipy.special import stdtr

    return min(1.0, 2.0 * float(stdtr(degrees, -abs(t))))
