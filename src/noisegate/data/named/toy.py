"""Generated data in two dimensions: moons, circles, Gaussians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.data.arrays import ArrayReader
from noisegate.data.dataset import Dataset, Split
from noisegate.data.registry import register
from noisegate.errors import InputError

Points = npt.NDArray[np.float64]
Draw = Callable[[npt.NDArray[np.int64], np.random.Generator], Points]


def _toy(name: str, draw: Draw, *, n: int, n_test: int, seed: int, **info: Any) -> Dataset:
    """Draw training and test rows from two random streams of one seed.

    Classes have equal numbers of rows (up to one) in random order.
    """
    splits: list[Split] = []
    for stream, count in enumerate((n, n_test)):
        if count < 2:
            raise InputError(f"{name} needs at least 2 points for training and for test, got {count}")
        rng = np.random.default_rng([seed, stream])
        y = rng.permutation(np.arange(count) % 2)
        splits.append(Split(draw(y, rng).astype(np.float32), y))
    return Dataset(
        name, splits[0], splits[1], classes=("0", "1"), reader=ArrayReader((2,)), info={"seed": seed, **info}
    )


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value >= 0):
            raise InputError(f"{name} must be a number that is not negative, got {value}")


@register("moons", "two interleaved half circles in the plane, drawn")
def moons(*, n: int = 1000, n_test: int = 1000, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Two half circles: class 0 is (cos t, sin t), class 1 is (1 - cos t, 1/2 - sin t), t uniform on [0, pi].

    Parameters
    ----------
    n, n_test : int
        Numbers of training and test points, half of them of either class.
    noise : float
        Standard deviation of the Gaussian noise on either coordinate.

    >>> load_moons = moons(n=10, noise=0.0)
    >>> x, y = load_moons.train.x, load_moons.train.y
    >>> bool(np.allclose((x[y == 0] ** 2).sum(1), 1))
    True
    """
    _not_negative(noise=noise)

    def draw(y: npt.NDArray[np.int64], rng: np.random.Generator) -> Points:
        t = rng.uniform(0, np.pi, len(y))
        upper = np.stack([np.cos(t), np.sin(t)], 1)
        x = np.where(y[:, None] == 0, upper, [1.0, 0.5] - upper)
        return x + noise * rng.standard_normal(x.shape)

    return _toy("moons", draw, n=n, n_test=n_test, seed=seed, sigma=noise)


@register("circles", "two concentric circles in the plane, drawn")
def circles(
    *, n: int = 1000, n_test: int = 1000, noise: float = 0.1, factor: float = 0.5, seed: int = 0
) -> Dataset:
    """Two circles around the origin: class 0 of radius 1, class 1 of radius `factor`.

    Parameters
    ----------
    n, n_test : int
        Numbers of training and test points, half of them of either class.
    noise : float
        Standard deviation of the Gaussian noise on either coordinate.
    factor : float
        Radius of the inner circle, in (0, 1).
    """
    _not_negative(noise=noise)
    if not 0 < factor < 1:
        raise InputError(f"factor, the radius of the inner circle, must lie between 0 and 1, got {factor}")

    def draw(y: npt.NDArray[np.int64], rng: np.random.Generator) -> Points:
        t = rng.uniform(0, 2 * np.pi, len(y))
        x = np.stack([np.cos(t), np.sin(t)], 1) * np.where(y == 0, 1.0, factor)[:, None]
        return x + noise * rng.standard_normal(x.shape)

    return _toy("circles", draw, n=n, n_test=n_test, seed=seed, sigma=noise)


@register(
    "gaussians",
    "two Gaussians at -(1, 1) and +(1, 1), variance 0.01, drawn (label-smoothing paper, Figure 5)",
)
def gaussians(*, n: int = 1000, n_test: int = 1000, variance: float = 0.01, seed: int = 0) -> Dataset:
    """Two isotropic Gaussians, class 0 centred at -(1, 1) and class 1 at +(1, 1).

    The best linear separator passes through the origin. The paper flips 5 % of the labels of class
    0 to class 1; here the labels are clean, and noise is added like any other.

    Parameters
    ----------
    n, n_test : int
        Numbers of training and test points, half of them of either class.
    variance : float
        Variance of either coordinate; 0.01 in the paper.

    References
    ----------
    Lukasik et al., Does label smoothing mitigate label noise?, ICML 2020, Figure 5.
    """
    _not_negative(variance=variance)

    def draw(y: npt.NDArray[np.int64], rng: np.random.Generator) -> Points:
        return (2.0 * y - 1)[:, None] + np.sqrt(variance) * rng.standard_normal((len(y), 2))

    return _toy("gaussians", draw, n=n, n_test=n_test, seed=seed, variance=variance)
