"""Map-style torch Datasets of (input, label) pairs: labels are read once, inputs on demand."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.data.arrays import Classes, images_first, label_array
from noisegate.data.dataset import Dataset, Inputs, Split
from noisegate.errors import InputError


class TorchInputs:
    """Inputs of a torch Dataset, read on demand (a `LazyInputs`).

    uint8 stays uint8, other numbers become float32; PIL images become (C, H, W), grey ones (1, H,
    W).
    """

    def __init__(self, dataset: Any, rows: npt.NDArray[np.int64] | None = None) -> None:
        self._dataset = dataset
        self._rows = np.arange(len(dataset)) if rows is None else rows
        # A dataset may not be thread-safe (open files, a shared decoder), so reads hold a lock.
        self._lock = threading.Lock()
        first = as_example(dataset[int(self._rows[0])][0])
        self._shape, self._dtype = first.shape, first.dtype

    @functools.cached_property
    def random(self) -> bool:
        """Whether one of the first 32 rows differs when read twice, because of random transforms."""
        from noisegate.data.loader import seeded

        few = np.arange(min(32, len(self)))
        with seeded(0):
            return bool((self.fetch(few) != self.fetch(few)).any())

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, index: npt.NDArray[np.int64]) -> TorchInputs:
        """The rows `index`, still unread."""
        new = object.__new__(TorchInputs)
        new.__dict__.update(self.__dict__, _rows=self._rows[np.asarray(index, np.int64)])
        return new

    def fetch(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Read the rows `index`: (len(index), *shape)."""
        out = np.empty((len(index), *self._shape), self._dtype)
        with self._lock:
            for place, row in enumerate(self._rows[np.asarray(index, np.int64)].tolist()):
                example = as_example(self._dataset[row][0])
                if example.shape != self._shape:
                    raise InputError(
                        f"example {row} of the torch dataset has shape {example.shape}, the first "
                        f"{self._shape}; let its transform bring all to one size"
                    )
                if example.dtype != self._dtype:
                    raise InputError(
                        f"example {row} of the torch dataset is of type {example.dtype}, the first of "
                        f"{self._dtype}; let its transform make pixels (uint8) or numbers of all"
                    )
                out[place] = example
        if out.dtype != np.uint8 and not np.isfinite(out).all():
            raise InputError("the torch dataset yields NaN or infinity; inputs must be finite numbers")
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def as_example(value: Any) -> npt.NDArray[Any]:
    """One input as an array: a vector, or an image with its channels first."""
    channels_last = not hasattr(value, "detach")  # arrays and PIL images; tensors have their channels first
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and channels_last and array.shape[0] not in (1, 3) and array.shape[2] in (1, 3):
        array = np.moveaxis(array, 2, 0)
    if array.ndim not in (1, 3) or array.dtype.kind not in "biuf":
        raise InputError(
            f"a torch dataset should yield vectors or images as inputs, got {type(value).__name__} "
            f"of shape {array.shape}; give it a transform"
        )
    return array if array.dtype == np.uint8 else array.astype(np.float32)


def _plain_labels(dataset: Any) -> Any:
    """Return all labels if the dataset has them in one array or list, else None."""
    if getattr(dataset, "target_transform", None) is not None:
        return None
    if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):  # torch.utils.data.Subset
        inner = _plain_labels(dataset.dataset)
        return None if inner is None else np.asarray(inner)[np.asarray(dataset.indices)]
    for name in ("targets", "labels"):
        value = getattr(dataset, name, None)
        if value is not None and hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        if (
            isinstance(value, list | tuple | np.ndarray)
            and np.ndim(value) == 1
            and len(value) == len(dataset)
        ):
            return np.asarray(value)
    return None


def _labels(dataset: Any) -> npt.NDArray[Any]:
    found = _plain_labels(dataset)
    if found is None:
        found = [
            y.item() if hasattr(y, "item") else y
            for y in (_pair(dataset, row)[1] for row in range(len(dataset)))
        ]
    return label_array(found, "labels of the torch dataset")


def _pair(dataset: Any, row: int) -> Any:
    example = dataset[row]
    if not isinstance(example, tuple | list) or len(example) < 2:
        raise InputError(f"a torch dataset should yield (input, label) pairs, got {type(example).__name__}")
    return example


def _inputs(dataset: Any) -> Inputs:
    from torch.utils.data import TensorDataset

    if isinstance(dataset, TensorDataset):
        return images_first(dataset.tensors[0].detach().cpu().numpy())
    return TorchInputs(dataset)


def _check(dataset: Any) -> None:
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise InputError(
            f"expected a dataset with rows and a length, got {type(dataset).__name__}; "
            "an iterable dataset has no rows to hold out or to look at again: collect it first"
        )
    if len(dataset) == 0:
        raise InputError("the torch dataset is empty")
    _pair(dataset, 0)


def from_torch(
    dataset: Any, *, test: Any = None, classes: Sequence[str] | None = None, name: str = "torch"
) -> Dataset:
    """Make a data set from a map-style torch Dataset of (input, label) pairs.

    Labels are read once: from `.targets` or `.labels` if there are any, else row by row. Inputs are
    read when they are needed; those of a TensorDataset are in memory already.

    Parameters
    ----------
    dataset, test : torch.utils.data.Dataset
        Inputs are tensors, arrays or PIL images, all of one shape.
    classes : sequence of str, optional
        Names of the classes; default: the dataset's `.classes`, else the labels themselves.

    >>> import torch
    >>> pairs = torch.utils.data.TensorDataset(torch.eye(4), torch.tensor([0, 1, 0, 1]))
    >>> from_torch(pairs).train.x.shape
    (4, 4)
    """
    _check(dataset)
    given = _labels(dataset)
    named = classes if classes is not None else getattr(dataset, "classes", None)
    if (
        named is not None
        and given.dtype.kind in "iu"
        and len(given)
        and given.min() >= 0
        and given.max() < len(named)
    ):
        coding, names = Classes(np.arange(len(named))), tuple(map(str, named))
    else:
        coding = Classes.of(given, "labels of the torch dataset")
        names = coding.names
    held_out = None
    if test is not None:
        _check(test)
        held_out = Split(_inputs(test), coding.number(_labels(test), "labels of the torch test dataset"))
    train = Split(_inputs(dataset), coding.number(given, "labels of the torch dataset"))
    return Dataset(name, train, held_out, classes=names, info={"label_values": coding.values.tolist()})
