"""The base class of label noise: corrupts labels, and has a transition matrix if one exists."""

from __future__ import annotations

import json
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisegate._registry import Registry
from noisegate.errors import InputError

Labels = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

#: The label of a pixel that does not count: `ignore_index` of every objective.
VOID = -100

# Separates the noise's random numbers from others that the caller seeds with the same number.
_STREAM = 0x401_5E


class Noise(ABC):
    """How labels go wrong.

    A subclass is a frozen dataclass that checks its settings in `__post_init__` and draws labels in
    `draw`. Two noises are equal if their settings are.

    Attributes
    ----------
    kind : str
        Its name on the command line, in studies and in files.
    needs_x : bool
        Whether `corrupt` needs the inputs as well as the labels.

    Examples
    --------
    >>> import noisegate as ng
    >>> noise = ng.noise.Symmetric(0.4)
    >>> noise.corrupt(np.zeros(8, int), n_classes=3, seed=0)
    array([0, 1, 0, 0, 0, 0, 0, 0])
    >>> noise.to_dict()
    {'name': 'symmetric', 'rate': 0.4, 'include_self': True}
    >>> ng.noise.Noise.from_dict(noise.to_dict()) == noise
    True
    """

    kind: ClassVar[str]
    needs_x: ClassVar[bool] = False
    #: Every noise class by its kind. A subclass that sets `kind` is registered when it is defined.
    classes: ClassVar[Registry[type[Noise]]] = Registry("noise")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            Noise.classes.add(cls.kind, cls, cls.__module__)

    def corrupt(
        self, y: npt.ArrayLike, x: npt.ArrayLike | None = None, n_classes: int | None = None, *, seed: int = 0
    ) -> Labels:
        """Draw observed labels for the clean labels `y`.

        Parameters
        ----------
        y : integer array (N,)
            Clean labels in 0..K-1. The array is not modified.
        x : array (N, ...), optional
            Inputs, for noise that depends on them; other noise ignores them.
        n_classes : int, optional
            K; by default the largest label plus one.
        seed : int
            The same seed gives the same labels.

        Returns
        -------
        int64 array (N,)
            A new array, even if no label changed.
        """
        labels, k = check_labels(y, n_classes)
        inputs = None
        if self.needs_x:
            if x is None:
                raise InputError(f"{self.kind} noise depends on the inputs: call corrupt(y, x)")
            inputs = np.asarray(x)
            if len(inputs) != len(labels):
                raise InputError(f"{len(inputs)} inputs but {len(labels)} labels")
        return self.draw(labels, inputs, k, check_seed(seed))

    @abstractmethod
    def draw(self, y: Labels, x: npt.NDArray[Any] | None, n_classes: int, seed: int) -> Labels:
        """Draw observed labels for checked clean labels; return a new array.

        Take random numbers from `stream(seed)`.
        """

    def transition(self, n_classes: int) -> Matrix:
        """The matrix T with T[i, j] = P(observed j | clean i). InputError if there is none.

        Returns
        -------
        float64 array (K, K)
            Rows sum to one.
        """
        raise InputError(
            f"{self.kind} noise has no transition matrix; describe(clean, observed) gives the realised one"
        )

    def to_dict(self) -> dict[str, Any]:
        """The registry name and the settings, ready for JSON; `Noise.from_dict` is the inverse."""
        settings = {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.kind, **settings}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Noise:
        """Make a noise from the result of `to_dict`."""
        from noisegate.noise import build

        return build(description)

    @classmethod
    def _from_settings(cls, settings: Mapping[str, Any]) -> Self:
        return cls(**settings)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(json.dumps(self.to_dict(), sort_keys=True))


def stream(seed: int, *key: int) -> np.random.Generator:
    """Make the random generator of `seed`; different keys give independent streams.

    >>> bool(stream(0).random() == stream(0).random())
    True
    >>> bool(stream(0, 1).random() == stream(0, 2).random())
    False
    """
    return np.random.default_rng([_STREAM, seed, *key])


def plain(value: Any) -> Any:
    """Convert arrays, tuples and mappings to JSON's types; keys become strings."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def check_labels(y: npt.ArrayLike, n_classes: int | None, what: str = "labels") -> tuple[Labels, int]:
    """Check labels; return them as int64, with the number of classes."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InputError(f"expected {what} of shape (N,), got {labels.shape}")
    if labels.size and not np.issubdtype(labels.dtype, np.integer):
        raise InputError(f"expected integer {what} 0..K-1, got {labels.dtype}; number the classes first")
    labels = labels.astype(np.int64)
    if n_classes is None:
        if not labels.size:
            raise InputError(f"there are no {what}: give n_classes")
        n_classes = int(labels.max()) + 1
    k = check_n_classes(n_classes)
    if labels.size and not (labels.min() >= 0 and labels.max() < k):
        raise InputError(f"{what} must lie in 0..{k - 1}, got {labels.min()}..{labels.max()}")
    return labels, k


def check_n_classes(n_classes: int) -> int:
    """`n_classes` as an int of at least 1."""
    try:
        k = operator.index(n_classes)
    except TypeError:
        raise InputError(f"n_classes must be an integer, got {n_classes!r}") from None
    if k < 1:
        raise InputError(f"n_classes must be at least 1, got {k}")
    return k


def check_seed(seed: int) -> int:
    """`seed` as an int of at least 0."""
    try:
        value = operator.index(seed)
    except TypeError:
        raise InputError(f"seed must be an integer, got {seed!r}") from None
    if value < 0:
        raise InputError(f"seed must not be negative, got {value}")
    return value


def check_rate(rate: float, what: str = "rate") -> float:
    """`rate` as a float in [0, 1]."""
    try:
        value = float(rate)
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a number in [0, 1], got {rate!r}") from None
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{what} must lie in [0, 1], got {value}")
    return value


def check_matrix(matrix: npt.ArrayLike) -> Matrix:
    """Check a row-stochastic matrix; return it as read-only float64.

    Errors name the first bad row.
    """
    try:
        t = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("a transition matrix must be a square array of numbers") from None
    if t.ndim != 2 or t.shape[0] != t.shape[1] or not t.size:
        raise InputError(f"a transition matrix must be square (K, K), got shape {t.shape}")
    if not np.isfinite(t).all() or (t < 0).any():
        i, j = np.argwhere(~np.isfinite(t) | (t < 0))[0]
        raise InputError(f"a transition matrix holds probabilities, got {t[i, j]} at row {i}, column {j}")
    off = np.abs(t.sum(axis=1) - 1.0)
    if (off > 1e-6).any():
        i = int(off.argmax())
        hint = "; its columns do: transpose it" if np.allclose(t.sum(axis=0), 1.0) else ""
        raise InputError(
            f"rows of a transition matrix must sum to one, row {i} sums to {t[i].sum():.6g}{hint}"
        )
    t.flags.writeable = False
    return t
