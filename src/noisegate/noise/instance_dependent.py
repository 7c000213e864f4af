"""Label noise that depends on the input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError, UnknownNameError, is_real
from noisegate.noise.base import Labels, Matrix, Noise, check_rate, stream

# Inputs are turned into float32 this many numbers at a time (64 MB).
_CHUNK = 1 << 24
#: The divisor of pixels.
SCALES = {"unit": 255.0, "raw": 1.0}


@dataclass(frozen=True, eq=False)
class InstanceDependent(Noise):
    """The part-dependent noise of Xia et al. (2020), as CausalNL and others use it.

    For each example its own flip probability q is drawn from Normal(rate, std) truncated to [0, 1];
    for each class y there is a random matrix W_y of standard normals, shape (d, K). With a = x W_y
    and a_y = -inf,

        P(observed j | x, y) = q softmax(a)_j for j != y,     P(observed y | x, y) = 1 - q.

    So similar examples get similar wrong labels. The expected flip rate is the mean of the truncated
    normal: `rate` in the middle of [0, 1], but 0.08 at rate 0 with std 0.1.

    Parameters
    ----------
    rate : float
        Centre of the flip probabilities, in [0, 1].
    std : float
        Their spread; 0 gives every example the same flip probability.
    scale : {"unit", "raw"}
        "unit" divides uint8 inputs by 255. "raw" takes them as they are, like the public generators
        of Xia et al. and of CausalNL's authors. Other inputs are taken as they are either way.

    Notes
    -----
    The scale decides how hard the problem is. Large inputs make the softmax one-hot: each image then has one wrong
    class that gets all of its q, and at q = 0.5 that class ties with the right one. The right class leads the
    likeliest wrong one by 1 - q - q max_j softmax(a)_j; on the training images of Fashion-MNIST at q = 0.5 (seed 0)
    that is below 0.01 for 99.8 % of them with "raw", for 60.5 % with "unit", whose mean is 0.041. Published results
    with this noise used "raw".

    There is no standardisation. Inputs are flattened and worked through class by class in chunks,
    so memory does not grow with N K d.

    References
    ----------
    Xia et al., Part-dependent label noise: towards instance-dependent label noise, NeurIPS 2020.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(1000, 5))
    >>> y = np.arange(1000) % 4
    >>> observed = InstanceDependent(0.3).corrupt(y, x, n_classes=4, seed=0)
    >>> round(float((observed != y).mean()), 2)
    0.3
    """

    kind: ClassVar[str] = "instance-dependent"
    needs_x: ClassVar[bool] = True
    rate: float
    std: float = 0.1
    scale: str = "unit"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_rate(self.rate))
        if not (is_real(self.std) and self.std >= 0):
            raise InputError(f"std must be a finite number of at least 0, got {self.std!r}")
        object.__setattr__(self, "std", float(self.std))
        if self.scale not in SCALES:
            raise UnknownNameError("scale of instance-dependent noise", self.scale, SCALES)

    def draw(self, y: Labels, x: npt.NDArray[Any] | None, n_classes: int, seed: int) -> Labels:
        if x is None or x.ndim < 2 or x.dtype.kind not in "uifb":
            raise InputError("expected inputs as an array of numbers (N, ...), at least two-dimensional")
        if n_classes == 1:
            raise InputError("with one class there is no other class to flip to")
        if not len(y):
            return y.copy()
        flat = x.reshape(len(x), -1)
        _check_finite(flat)
        rng = stream(seed)
        # Draw all per-example numbers first, so that they do not depend on the chunks.
        flip = rng.random(len(y)) < truncated_normal(rng.random(len(y)), self.rate, self.std)
        u = rng.random(len(y))
        observed = y.copy()
        for label in np.unique(y):
            rows = np.flatnonzero(flip & (y == label))
            # Each class's matrix has its own stream, so that dropping other classes does not change
            # it.
            shape = (flat.shape[1], n_classes)
            weights = stream(seed, 1 + int(label)).standard_normal(shape, dtype=np.float32)
            step = max(1, _CHUNK // max(flat.shape[1], n_classes))
            for start in range(0, len(rows), step):
                some = rows[start : start + step]
                observed[some] = _draw_other(self._scores(flat, some, weights), int(label), u[some])
        return observed

    def _scores(self, flat: npt.NDArray[Any], rows: Labels, weights: npt.NDArray[np.float32]) -> Matrix:
        """a = x W of some rows, shape (len(rows), K)."""
        chunk = flat[rows].astype(np.float32)
        if flat.dtype == np.uint8:
            chunk /= SCALES[self.scale]
        with np.errstate(invalid="ignore", over="ignore"):
            scores = (chunk @ weights).astype(np.float64)
        if not np.isfinite(scores).all():
            raise InputError("the inputs are too large; expected finite numbers, best within [0, 1]")
        return scores


def truncated_normal(u: Matrix, mean: float, std: float) -> Matrix:
    """Normal(mean, std) truncated to [0, 1], by the inverse CDF at uniform numbers `u`.

    Mean in [0, 1].
    """
    if std == 0:
        return np.full_like(u, mean)
    from scipy.special import ndtr, ndtri

    low, high = ndtr(-mean / std), ndtr((1.0 - mean) / std)
    return np.clip(mean + std * ndtri(low + u * (high - low)), 0.0, 1.0)


def _check_finite(flat: npt.NDArray[Any]) -> None:
    # A sum is NaN or infinite if any input is; a mask would take as much memory as the inputs.
    with np.errstate(invalid="ignore", over="ignore"):
        total = float(flat.sum(dtype=np.float64))
    if not math.isfinite(total):
        bad = next((i for i, row in enumerate(flat) if not np.isfinite(row).all()), None)
        where = "are too large" if bad is None else f"have NaN or infinity in row {bad}"
        raise InputError(f"the inputs {where}; expected finite numbers, best within [0, 1]")


def _draw_other(scores: Matrix, label: int, u: Matrix) -> Labels:
    """One draw a row from softmax(scores) without `label`, by the inverse CDF."""
    scores[:, label] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    cumulated = np.cumsum(weights, axis=1)
    # u < 1, so some cumulated weight exceeds u times the total; an entry of weight 0 is never the
    # first.
    return (cumulated > (u * cumulated[:, -1])[:, None]).argmax(axis=1)
