"""The data set: inputs, observed labels and, where known, clean labels, kept apart."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.noise.base import VOID

if TYPE_CHECKING:
    from noisegate.noise import NoiseReport

Labels = npt.NDArray[np.int64]


@runtime_checkable
class LazyInputs(Protocol):
    """Inputs that are read on demand: image files, a torch Dataset.

    `shape` and `dtype` describe one example. `fetch(index)` returns an array `(len(index), *shape)` and may be
    called from several threads at once. `take(index)` returns the inputs of some rows, without reading them.

    Two attributes are optional. `fingerprint()` returns a string that changes with the inputs; a folder of
    checkpoints is matched to its data by it. If `random` is true, a row may differ between two reads (random
    transforms): batches are then read one after the other, with the global random states of `random`, numpy
    and torch seeded for each batch, so that a run with the same seed gives the same result.

    >>> class Squares:  # 0, 1, 4, ... as vectors of one element, computed on demand
    ...     shape, dtype = (1,), np.dtype(np.float32)
    ...     def __init__(self, rows):
    ...         self.rows = np.asarray(rows)
    ...     def __len__(self):
    ...         return len(self.rows)
    ...     def fetch(self, index):
    ...         return (self.rows[index, None] ** 2).astype(self.dtype)
    ...     def take(self, index):
    ...         return Squares(self.rows[index])
    >>> isinstance(Squares(range(5)), LazyInputs)
    True
    >>> Split(Squares(range(5)), [0, 0, 1, 1, 1]).take([1, 4]).x.fetch([1]).tolist()
    [[16.0]]
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def fetch(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]: ...

    def take(self, index: npt.NDArray[np.int64]) -> LazyInputs: ...


Inputs = npt.NDArray[Any] | LazyInputs


class Reader(Protocol):
    """Converts a file or folder to inputs, as the training data were converted.

    `read(path)` returns the inputs, `names(path)` the names of its rows (file names, or row numbers).
    `to_dict()` returns JSON-compatible data; `noisegate.data.reader_from_dict` is its inverse.

    >>> import pandas as pd
    >>> import noisegate as ng
    >>> frame = pd.DataFrame({"size": [1.0, 2.0], "kind": ["a", "b"]})
    >>> reader = ng.data.from_frame(frame, label="kind").reader
    >>> reader.read(pd.DataFrame({"size": [3.0, 4.0]})).shape, reader.to_dict()["kind"]
    ((2, 1), 'table')
    """

    def read(self, path: Any) -> Inputs: ...

    def names(self, path: Any) -> list[str]: ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of a dataset.

    Attributes
    ----------
    x : array (N, d) or (N, C, H, W), or LazyInputs
        Images are uint8, channels first; vectors are float32.
    y : int64 array (N,), or maps (N, H, W) of any integer type
        Observed labels, the only ones that training and model selection use. -100 marks pixels without a label.
    clean : array like y, or None
        Clean labels, if they are known. They are used only to evaluate, never to train.

    Examples
    --------
    >>> rows = Split(np.eye(3, dtype=np.float32), [0, 1, 1], clean=[0, 1, 0])
    >>> len(rows), rows.input_shape, rows.wrong.tolist()
    (3, (3,), [False, False, True])
    >>> rows.take([2]).y.tolist()
    [1]
    """

    x: Inputs
    y: npt.NDArray[Any]
    clean: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        for name in ("y", "clean"):
            labels = getattr(self, name)
            if labels is not None:
                object.__setattr__(self, name, as_labels(labels))
                if len(labels) != len(self.x):
                    raise InputError(f"{len(self.x)} inputs but {len(labels)} labels in {name!r}")

    def __len__(self) -> int:
        return len(self.y)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return tuple(self.x.shape[1:]) if isinstance(self.x, np.ndarray) else tuple(self.x.shape)

    @property
    def maps(self) -> bool:
        """Whether there is a label for every pixel."""
        return self.y.ndim == 3

    @property
    def wrong(self) -> npt.NDArray[np.bool_] | None:
        """Which observed labels differ from the clean ones; None if there are no clean labels."""
        return None if self.clean is None else self.y != self.clean

    def take(self, index: npt.ArrayLike) -> Split:
        """The rows `index`, in that order; or the rows where a mask `(N,)` is true."""
        rows = row_numbers(index, len(self))
        x = self.x[rows] if isinstance(self.x, np.ndarray) else self.x.take(rows)
        return Split(x, self.y[rows], None if self.clean is None else self.clean[rows])


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training rows, and optionally validation rows (labelled like the training rows) and test rows.

    Attributes
    ----------
    name : str
    train : Split
    test : Split or None
    validation : Split or None
        Set by `hold_out` or by the data's own split; the observed labels are as noisy as those for training.
    classes : tuple of str
        One name per class, in the order of the integers in `y`.
    reader : Reader or None
        Converts new files to inputs of the same kind; only for data read from files.
    info : mapping
        Facts to store with results: the origin of the labels, the realised noise.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
    >>> len(data.train), len(data.test), data.n_classes, data.input_shape
    (1347, 450, 10, (64,))
    >>> held = data.hold_out(0.1, seed=0)
    >>> len(held.train), len(held.validation)
    (1212, 135)
    """

    name: str
    train: Split
    test: Split | None = None
    validation: Split | None = None
    classes: tuple[str, ...] = ()
    reader: Reader | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_classes(self) -> int:
        """Number of classes K; labels are 0 .. K-1."""
        return len(self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example."""
        return self.train.input_shape

    @property
    def label_values(self) -> list[Any]:
        """The original label values, in the order of the classes. Classifiers predict these.

        If `info` has none, these are the names of the classes, or numbers if the names are 0 to K-1.
        """
        if "label_values" in self.info:
            return list(self.info["label_values"])
        plain = list(range(self.n_classes))
        return plain if self.classes == tuple(map(str, plain)) else list(self.classes)

    def with_labels(self, y: npt.ArrayLike, **info: Any) -> Dataset:
        """Return a copy with other observed training labels; the present ones become the clean labels.

        Clean labels that are already known are kept.
        """
        y = np.asarray(y)
        if y.shape != self.train.y.shape:
            raise InputError(f"expected {self.train.y.shape} training labels, got {y.shape}")
        check_range(y, self.n_classes, "labels")
        clean = self.train.y if self.train.clean is None else self.train.clean
        return replace(self, train=Split(self.train.x, y, clean), info={**self.info, **info})

    def corrupt(self, noise: Any, seed: int = 0) -> Dataset:
        """Corrupt the observed training labels by `noise`; `info` records how.

        Call it before `hold_out`, so that the validation rows are corrupted like the training rows.

        >>> import noisegate as ng
        >>> data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
        >>> round(float((data.train.y != data.train.clean).mean()), 2)
        0.36
        """
        if self.validation is not None:
            raise InputError("corrupt() comes before hold_out(): the validation labels would stay clean")
        x = self.train.x if isinstance(self.train.x, np.ndarray) else None
        if x is None and getattr(noise, "needs_x", False):
            x = self.train.x.fetch(np.arange(len(self.train)))  # type: ignore[union-attr]
        y = noise.corrupt(self.train.y, x, n_classes=self.n_classes, seed=seed)
        return self.with_labels(y, noise=noise.to_dict(), noise_seed=seed)

    def noise_report(self) -> NoiseReport:
        """Measure the noise of the training labels: rate, transition matrix, rate of every class.

        >>> import noisegate as ng
        >>> data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
        >>> round(data.noise_report().rate, 3), data.noise_report().transition.shape
        (0.359, (10, 10))
        """
        from noisegate.noise import describe

        if self.train.clean is None:
            raise InputError("the clean training labels are not known, so neither is the noise")
        return describe(self.train.clean, self.train.y, self.n_classes)

    def hold_out(self, size: float | int = 0.1, seed: int = 0) -> Dataset:
        """Move random training rows to validation: a fraction, or a number of rows.

        The choice depends only on the number of rows and the seed, not on the labels.
        """
        if self.validation is not None:
            raise InputError("the dataset already has validation rows")
        held, kept = held_out_rows(len(self.train), size, seed)
        return replace(self, train=self.train.take(kept), validation=self.train.take(held))


def as_labels(labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """Convert labels to int64; maps keep their integer type, to save memory."""
    found = np.asarray(labels)
    if found.ndim == 3 and found.dtype.kind in "iu":
        return found
    return found.astype(np.int64, copy=False)


def check_range(labels: npt.NDArray[Any], n_classes: int, what: str) -> None:
    """Raise InputError for labels outside 0..K-1. In maps, `VOID` marks pixels without a label."""
    found = distinct(labels) if labels.ndim == 3 else labels
    if found.size and not (found.min() >= 0 and found.max() < n_classes):
        raise InputError(f"{what} must lie in 0..{n_classes - 1}, got {found.min()}..{found.max()}")


def distinct(maps: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The classes in maps of labels, sorted, without `VOID`; one map at a time, since maps fill memory.

    >>> distinct(np.array([[[3, VOID]], [[0, 3]]]))
    array([0, 3])
    """
    seen: set[int] = set()
    for labels in maps:
        seen.update(np.unique(labels).tolist())
    return np.array(sorted(seen - {VOID}), np.int64)


def row_numbers(index: npt.ArrayLike, n: int) -> Labels:
    """Convert row numbers, or a mask of `n` rows, to row numbers.

    >>> row_numbers([True, False, True], 3)
    array([0, 2])
    """
    rows = np.asarray(index)
    if rows.dtype == bool:
        if rows.shape != (n,):
            raise InputError(f"a mask of {n} rows has the shape ({n},), got {rows.shape}")
        return np.flatnonzero(rows).astype(np.int64)
    if rows.size and rows.dtype.kind not in "iu":
        raise InputError(f"rows are chosen by whole numbers or a mask, got {rows.dtype}")
    return rows.astype(np.int64)


def held_out_rows(n: int, size: float | int, seed: int) -> tuple[Labels, Labels]:
    """Split the row numbers 0..n-1 into those to hold out (a fraction or a count) and the others; both sorted."""
    if isinstance(size, bool | np.bool_) or not isinstance(size, numbers.Real):
        raise InputError(f"a part to hold out is a fraction or a number of rows, got {size!r}")
    count = int(size) if isinstance(size, numbers.Integral) else round(float(size) * n)
    if not 0 < count < n:
        raise InputError(f"cannot hold out {size} of {n} training rows")
    order = np.random.default_rng([seed, 0x5EED]).permutation(n)
    return np.sort(order[:count]), np.sort(order[count:])


def as_inputs(x: npt.ArrayLike) -> npt.NDArray[Any]:
    """Convert vectors `(N, d)` or images `(N, C, H, W)` to the networks' types. NaN raises InputError.

    uint8 stays uint8 and other numbers become float32, except that vectors of types wider than float32 (float64,
    int32, int64) become float64: columns far from zero would lose digits before they are standardised.

    >>> as_inputs([[1, 2], [3, 4]]).dtype, as_inputs(np.zeros((5, 28, 28), np.uint8)).shape
    (dtype('float64'), (5, 1, 28, 28))
    """
    array = np.asarray(x)
    if array.ndim == 3:
        array = array[:, None]
    if array.ndim not in (2, 4):
        raise InputError(f"expected inputs of shape (N, d), (N, H, W) or (N, C, H, W), got {array.shape}")
    if array.dtype == np.uint8:
        return array
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == bool) or np.iscomplexobj(array):
        raise InputError(f"expected numbers as inputs, got {array.dtype}")
    narrow = array.ndim == 4 or np.can_cast(array.dtype, np.float32)
    array = array.astype(np.float32 if narrow else np.float64, copy=False)
    if not np.isfinite(array).all():
        bad = int(np.argwhere(~np.isfinite(array))[0][0])
        raise InputError(f"inputs must be finite numbers; row {bad} has NaN or infinity: drop or fill it")
    return array
