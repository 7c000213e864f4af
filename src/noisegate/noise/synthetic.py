"""Label noise that depends on the clean class alone."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError, UnknownNameError
from noisegate.noise.base import (
    Labels,
    Matrix,
    Noise,
    check_matrix,
    check_n_classes,
    check_rate,
    plain,
    stream,
)

# airplane 0, automobile 1, bird 2, cat 3, deer 4, dog 5, frog 6, horse 7, ship 8, truck 9
MAPPINGS: Mapping[str, Mapping[int, int]] = {
    "mnist": {7: 1, 2: 7, 5: 6, 6: 5, 3: 8},
    "cifar10": {9: 1, 2: 0, 3: 5, 5: 3, 4: 7},
    "cifar100": {i: (i + 1) % 100 for i in range(100)},
}
_MAPPING_CLASSES = {"mnist": 10, "cifar10": 10, "cifar100": 100}

LEVELS: Mapping[str, tuple[float, ...]] = {
    "normal": (0, 0, 0, 0, 0, 0.2, 0.3, 0.4, 0.5, 0.6),
    "reduced": (0, 0, 0, 0, 0, 0.1, 0.15, 0.2, 0.25, 0.3),
    "increased": (0, 0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75),
}


@dataclass(frozen=True, eq=False)
class Symmetric(Noise):
    """Symmetric noise: all classes are corrupted at the same rate, towards all classes equally.

    With probability `rate` a label is redrawn uniformly. There are two conventions for the classes to
    draw from:

    - `include_self=True`: from all K classes, the clean one among them. The true flip rate is only
      rate (K - 1) / K, e.g. 0.36 for rate 0.4 and 10 classes. This is what the Logistic-Normal
      paper and the softmax-temperature paper (Collier et al., 2020) do.
    - `include_self=False`: from the K - 1 other classes. The true flip rate is `rate`. This is what
      the
      label-smoothing paper (Lukasik et al., 2020) does.

    >>> Symmetric(0.4).transition(2)
    array([[0.8, 0.2],
           [0.2, 0.8]])
    >>> Symmetric(0.4, include_self=False).transition(2)
    array([[0.6, 0.4],
           [0.4, 0.6]])
    """

    kind: ClassVar[str] = "symmetric"
    rate: float
    include_self: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_rate(self.rate))
        object.__setattr__(self, "include_self", bool(self.include_self))

    def _check_classes(self, n_classes: int) -> int:
        k = check_n_classes(n_classes)
        if k == 1 and self.rate > 0 and not self.include_self:
            raise InputError("with one class there is no other class to flip to")
        return k

    def draw(self, y: Labels, x: npt.NDArray[Any] | None, n_classes: int, seed: int) -> Labels:
        k = self._check_classes(n_classes)
        rng = stream(seed)
        drawn = rng.random(len(y)) < self.rate
        if self.include_self:
            return np.where(drawn, rng.integers(k, size=len(y)), y)
        shift = rng.integers(1, max(k, 2), size=len(y))
        return np.where(drawn, (y + shift) % k, y)

    def transition(self, n_classes: int) -> Matrix:
        """T = (1 - rate) I + rate U, U uniform over all classes or over the other ones."""
        k = self._check_classes(n_classes)
        if self.include_self:
            return _redraw_matrix(np.full(k, self.rate))
        t = np.full((k, k), self.rate / max(k - 1, 1))
        np.fill_diagonal(t, 1.0 - self.rate)
        return t


@dataclass(frozen=True, eq=False)
class Asymmetric(Noise):
    """Asymmetric noise: some classes become one particular other class with probability `rate`.

    Parameters
    ----------
    rate : float
        P(observed = mapping[i] | clean = i) for each class i in the mapping. The flip rate over all
        labels is `rate` times the share of the labels whose class is in the mapping.
    mapping : dict {source: target}, or "mnist", "cifar10" or "cifar100"
        mnist is 7 > 1, 2 > 7, 5 <> 6, 3 > 8; cifar100 is i > i + 1, the last class to the first.
        cifar10 is bird > airplane, cat <> dog, deer > horse and truck > automobile, classes in the
        order airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck. The
        Logistic-Normal paper does not print truck > automobile; its authors' code has it, and the
        paper's numbers fit it.

    >>> Asymmetric(0.3, {0: 1}).transition(2)
    array([[0.7, 0.3],
           [0. , 1. ]])
    """

    kind: ClassVar[str] = "asymmetric"
    rate: float
    mapping: str | Mapping[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_rate(self.rate))
        if isinstance(self.mapping, str):
            if self.mapping not in MAPPINGS:
                raise UnknownNameError("mapping", self.mapping, MAPPINGS)
            return
        object.__setattr__(self, "mapping", _check_mapping(self.mapping))

    def _targets(self, n_classes: int) -> Labels:
        """The class that each class becomes; itself if it stays clean."""
        k = check_n_classes(n_classes)
        if isinstance(self.mapping, str):
            pairs = MAPPINGS[self.mapping]
            if k != _MAPPING_CLASSES[self.mapping]:
                raise InputError(
                    f"the mapping {self.mapping!r} is for {_MAPPING_CLASSES[self.mapping]} classes, not {k}: "
                    "give n_classes, or the mapping as a dict"
                )
        else:
            pairs = self.mapping
        largest = max((max(pair) for pair in pairs.items()), default=0)
        if largest >= k:
            raise InputError(f"the mapping names class {largest}, but the classes are 0..{k - 1}")
        targets = np.arange(k)
        targets[list(pairs)] = list(pairs.values())
        return targets

    def draw(self, y: Labels, x: npt.NDArray[Any] | None, n_classes: int, seed: int) -> Labels:
        flip = stream(seed).random(len(y)) < self.rate
        return np.where(flip, self._targets(n_classes)[y], y)

    def transition(self, n_classes: int) -> Matrix:
        """Row i is 1 - rate on i and rate on mapping[i].

        A class outside the mapping has the identity row.
        """
        targets = self._targets(n_classes)
        t = np.eye(n_classes) * (1.0 - self.rate)
        t[np.arange(n_classes), targets] += self.rate
        return t


@dataclass(frozen=True, eq=False)
class ClassDependent(Noise):
    """Each class has its own probability that a label is redrawn uniformly over all K classes.

    The true flip rate of class i is rates[i] (K - 1) / K.

    Parameters
    ----------
    rates : sequence of K floats, or "normal", "reduced" or "increased"
        The levels are those of the softmax-temperature paper (Collier et al., 2020, section 5.1 and
        appendix C.3), for 10 classes. normal: 0-4 clean, 5..9 with 20, 30, 40, 50, 60 %; reduced:
        half of that; increased: 0 and 1 clean, 2..9 with 5, 15, ..., 75 %.

    >>> ClassDependent([0.0, 0.5]).transition(2)
    array([[1.  , 0.  ],
           [0.25, 0.75]])
    """

    kind: ClassVar[str] = "class-dependent"
    rates: str | Sequence[float]

    def __post_init__(self) -> None:
        if isinstance(self.rates, str):
            if self.rates not in LEVELS:
                raise UnknownNameError("noise level", self.rates, LEVELS)
            return
        try:
            given = list(self.rates)
        except TypeError:
            raise InputError(f"class-dependent noise needs one rate per class, got {self.rates!r}") from None
        rates = tuple(check_rate(rate, f"rate of class {i}") for i, rate in enumerate(given))
        if not rates:
            raise InputError("class-dependent noise needs one rate per class, got none")
        object.__setattr__(self, "rates", rates)

    def _per_class(self, n_classes: int) -> Matrix:
        rates = np.asarray(
            LEVELS[self.rates] if isinstance(self.rates, str) else self.rates, dtype=np.float64
        )
        if len(rates) != check_n_classes(n_classes):
            raise InputError(
                f"class-dependent noise has {len(rates)} rates, there are {n_classes} classes: give n_classes"
            )
        return rates

    def draw(self, y: Labels, x: npt.NDArray[Any] | None, n_classes: int, seed: int) -> Labels:
        rates = self._per_class(n_classes)
        rng = stream(seed)
        drawn = rng.random(len(y)) < rates[y]
        return np.where(drawn, rng.integers(n_classes, size=len(y)), y)

    def transition(self, n_classes: int) -> Matrix:
        """T[i] = (1 - rates[i]) e_i + rates[i] / K."""
        return _redraw_matrix(self._per_class(n_classes))


@dataclass(frozen=True, eq=False)
class Transition(Noise):
    """Labels drawn from the rows of a given matrix.

    Parameters
    ----------
    matrix : array (K, K)
        T[i, j] = P(observed j | clean i); entries in [0, 1], rows sum to one.

    >>> Transition([[0.0, 1.0], [0.0, 1.0]]).corrupt([0, 1, 0])
    array([1, 1, 1])
    """

    kind: ClassVar[str] = "transition"
    matrix: npt.ArrayLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", check_matrix(self.matrix))

    def draw(self, y: Labels, x: npt.NDArray[Any] | None, n_classes: int, seed: int) -> Labels:
        t = self.transition(n_classes)
        u = stream(seed).random(len(y))
        observed = np.empty_like(y)
        # One sorted pass instead of an (N, K) table of cumulative probabilities.
        order = np.argsort(y, kind="stable")
        ends = np.cumsum(np.bincount(y, minlength=n_classes))
        for i, rows in enumerate(np.split(order, ends[:-1])):
            observed[rows] = inverse_cdf(t[i], u[rows])
        return observed

    def transition(self, n_classes: int) -> Matrix:
        """A copy of the matrix."""
        t = np.array(self.matrix, dtype=np.float64)
        if len(t) != check_n_classes(n_classes):
            raise InputError(f"the matrix is for {len(t)} classes, not {n_classes}: give n_classes")
        return t

    def __repr__(self) -> str:
        return f"Transition({plain(self.matrix)})"


def inverse_cdf(weights: Matrix, u: Matrix) -> Labels:
    """The smallest j whose cumulated weight exceeds u in [0, 1); an entry of weight zero is never drawn."""
    cumulated = np.cumsum(weights)
    cumulated /= cumulated[-1]
    return np.searchsorted(cumulated, u, side="right")


def _redraw_matrix(rates: Matrix) -> Matrix:
    return np.diag(1.0 - rates) + rates[:, None] / len(rates)


def _class_number(value: Any) -> int:
    return int(value) if isinstance(value, str) else operator.index(value)


def _check_mapping(mapping: Mapping[int, int]) -> dict[int, int]:
    # Keys may be strings: JSON has no other keys.
    try:
        pairs = {_class_number(source): _class_number(target) for source, target in mapping.items()}
    except (AttributeError, TypeError, ValueError):
        raise InputError(
            f"mapping must be a dict of class numbers {{source: target}} or one of {', '.join(MAPPINGS)}"
        ) from None
    negative = [number for pair in pairs.items() for number in pair if number < 0]
    if negative:
        raise InputError(f"mapping must name classes from 0 on, got {negative[0]}")
    return pairs
