"""Arrays in memory and in .npz files. Labels are numbered 0..K-1, and their values are kept."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.data.dataset import Dataset, Inputs, Labels, Split, as_inputs
from noisegate.data.sparse import is_sparse, sparse_inputs
from noisegate.errors import DamagedFileError, InputError

_X_NAMES = ("x", "X", "data", "images")
_Y_NAMES = ("y", "Y", "labels", "label", "target")


def label_array(raw: Any, what: str) -> npt.NDArray[Any]:
    """Return labels as an array of booleans, whole numbers or text; missing or fractional ones raise InputError.

    >>> label_array([2.0, 1.0], "y")
    array([2, 1])
    """
    array = np.asarray(raw)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{what}: expected one label a row, got an array of shape {array.shape}")
    if array.dtype == object:
        array = _from_objects(array, what)
    if array.dtype.kind == "f":
        array = _whole(array, what)
    if array.dtype.kind == "S":
        array = np.asarray([value.decode("utf-8", "replace") for value in array.tolist()], dtype=str)
    if array.dtype.kind not in "biuU":
        raise InputError(f"{what}: labels must be text, whole numbers or booleans, got {array.dtype}")
    return array


def _missing(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, float) and value != value)
        or type(value).__name__ in ("NAType", "NaTType")
    )


def _from_objects(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    values = array.tolist()
    _refuse_missing(sum(map(_missing, values)), len(values), what)
    kinds = {
        bool if isinstance(v, bool | np.bool_) else int if isinstance(v, int | np.integer) else type(v)
        for v in values
    }
    if kinds in ({bool}, {int}, {float}, {int, float}):
        return np.asarray(values)
    return np.asarray([str(value) for value in values], dtype=str)


def _whole(array: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    _refuse_missing(int(np.isnan(array).sum()), len(array), what)
    broken = array[array != np.round(array)] if np.isfinite(array).all() else array[~np.isfinite(array)]
    if len(broken):
        raise InputError(
            f"{what}: labels must name classes, but there are fractions such as {broken[0]}; "
            "noisegate classifies: choose another column, or cut the numbers into classes"
        )
    return array.astype(np.int64)


def _refuse_missing(count: int, n: int, what: str) -> None:
    if count:
        raise InputError(f"{what}: {count} of {n} labels are missing; drop these rows, or label them first")


@dataclass(frozen=True)
class Classes:
    """The sorted label values: value i is class i."""

    values: npt.NDArray[Any]

    @classmethod
    def of(cls, labels: npt.NDArray[Any], what: str, n_rows: int | None = None) -> Classes:
        """Find the classes. A single class, or one class per row, raises InputError.

        `labels` may be only the distinct labels of `n_rows` rows.
        """
        values = np.unique(labels)
        if len(values) < 2:
            only = f"only {values[0]!s}" if len(values) else "none"
            raise InputError(f"{what}: expected at least two classes, found {only}")
        if len(values) == (len(labels) if n_rows is None else n_rows) > 10:
            raise InputError(
                f"{what}: every row has a label of its own ({len(values)}); is this the right column?"
            )
        return cls(values)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.values.tolist()))

    def number(self, labels: npt.NDArray[Any], what: str) -> Labels:
        """Convert labels to class numbers. A number and the same number as text are the same label."""
        values = self.values
        if (labels.dtype.kind == "U") != (values.dtype.kind == "U"):
            labels, values = labels.astype(str), values.astype(str)
        order = np.argsort(values, kind="stable")
        place = np.minimum(np.searchsorted(values, labels, sorter=order), len(order) - 1)
        found = order[place].astype(np.int64)
        unknown = labels[values[found] != labels]
        if len(unknown):
            raise InputError(
                f"{what}: {len(unknown)} labels such as {str(unknown[0])!r} do not occur in the training "
                f"labels ({', '.join(self.names[:10])}{', ...' if len(self.names) > 10 else ''})"
            )
        return found


def from_arrays(
    x: Any,
    y: Any,
    *,
    x_test: Any = None,
    y_test: Any = None,
    clean: Any = None,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
) -> Dataset:
    """Make a data set from arrays in memory. `info["label_values"]` holds the original label values.

    Parameters
    ----------
    x : array (N, d), (N, H, W), (N, C, H, W) or (N, H, W, C)
        uint8 stays uint8 (pixels); other numbers become float32, except that vectors of wider types become float64.
    y : array (N,)
        Labels: text, whole numbers or booleans; they are numbered in sorted order.
    x_test, y_test : arrays, optional
        Test rows; their labels must be among those of `y`.
    clean : array (N,), optional
        Clean labels, if they are known.
    classes : sequence of str, optional
        Names of all classes in order, if some have no example or the numbers should have names;
        `y` then holds 0..K-1, or these names.

    Examples
    --------
    >>> data = from_arrays([[0.0], [1.0], [2.0]], ["no", "yes", "yes"])
    >>> data.classes, data.train.y.tolist(), data.info["label_values"]
    (('no', 'yes'), [0, 1, 1], ['no', 'yes'])
    """
    observed = label_array(y, "y")
    if classes is None:
        coding = Classes.of(observed, "y")
    else:
        coding = Classes(
            np.array(classes, dtype=str) if observed.dtype.kind == "U" else np.arange(len(classes))
        )
    true = None if clean is None else coding.number(label_array(clean, "clean"), "clean")
    train = Split(inputs_of(x), coding.number(observed, "y"), true)
    if (x_test is None) != (y_test is None):
        raise InputError("x_test and y_test come together; one of them is missing")
    test = (
        None
        if x_test is None
        else Split(inputs_of(x_test), coding.number(label_array(y_test, "y_test"), "y_test"))
    )
    if test is not None and test.input_shape != train.input_shape:
        raise InputError(f"x_test has rows of shape {test.input_shape}, x has {train.input_shape}")
    return Dataset(
        name,
        train,
        test,
        classes=coding.names if classes is None else tuple(map(str, classes)),
        reader=ArrayReader(train.input_shape),
        info={"label_values": coding.values.tolist()},
    )


def inputs_of(x: Any) -> Inputs:
    """Inputs of an array (`images_first`) or of a sparse matrix."""
    return sparse_inputs(x) if is_sparse(x) else images_first(x)


def images_first(x: Any) -> npt.NDArray[Any]:
    """`as_inputs`, also for images with the channels last: (N, H, W, 1 or 3) becomes (N, C, H, W)."""
    array = np.asarray(x)
    if array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3):
        array = np.ascontiguousarray(np.moveaxis(array, 3, 1))
    return as_inputs(array)


def read_npz(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of an .npz file.

    Arrays of Python objects, which need pickle, raise InputError.
    """
    path = Path(path)
    regular_size(path, "an .npz file")
    with reading(path, "it may be cut off"):
        if not zipfile.is_zipfile(path):
            raise DamagedFileError(f"{path} is not an .npz file: expected a zip archive of named arrays")
        with zipfile.ZipFile(path) as archive:
            # Check the declared sizes before reading: a small file can declare huge arrays.
            check_room(sum(entry.file_size for entry in archive.infolist()), path, "its arrays")
        with np.load(path, allow_pickle=False) as content:
            return {name: _stored_array(content, name, path) for name in content.files}


def _stored_array(content: Any, name: str, path: Path) -> npt.NDArray[Any]:
    try:
        return content[name]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DamagedFileError(
            f"{path} holds arrays of Python objects; save them as numbers or text"
        ) from None


def _pick(arrays: Mapping[str, Any], names: Sequence[str], path: Any) -> Any:
    found = [name for name in names if name in arrays]
    if not found:
        raise InputError(
            f"{path} has no array called {' or '.join(names)}; it has: {', '.join(arrays) or 'none'}"
        )
    return arrays[found[0]]


def load_npz(path: str | os.PathLike[str]) -> Dataset:
    """An .npz table: arrays x (X, data, images) and y (labels).

    Optional x_test, y_test, clean, classes.
    """
    arrays = read_npz(path)
    classes = arrays.get("classes")
    return from_arrays(
        _pick(arrays, _X_NAMES, path),
        _pick(arrays, _Y_NAMES, path),
        x_test=next((arrays[f"{n}_test"] for n in _X_NAMES if f"{n}_test" in arrays), None),
        y_test=next((arrays[f"{n}_test"] for n in _Y_NAMES if f"{n}_test" in arrays), None),
        clean=arrays.get("clean"),
        classes=None if classes is None else [str(name) for name in classes],
        name=Path(path).stem,
    )


def read_array(path: Any) -> npt.NDArray[Any]:
    """Inputs from an array, an .npy file, or the x (X, data, images) of an .npz file."""
    if not isinstance(path, str | os.PathLike):
        return images_first(path)
    path = Path(path)
    if path.suffix.lower() not in (".npz", ".npy"):
        raise InputError(f"expected an .npz or .npy file of arrays, got {path}")
    return images_first(
        read_npy(path) if path.suffix.lower() == ".npy" else _pick(read_npz(path), _X_NAMES, path)
    )


def read_npy(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read an .npy file, if it is as long as its header says and holds no Python objects."""
    check_room(regular_size(path, "an .npy file"), path, "the array")
    with reading(Path(path), "it may be cut off"):
        # A map is refused where the file is shorter than the array; reading would take the memory first.
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


@dataclass(frozen=True)
class ArrayReader:
    """Reads rows of one shape from an .npz or .npy file, or an array.

    >>> ArrayReader((2,)).read(np.zeros((3, 2))).shape
    (3, 2)
    """

    shape: tuple[int, ...]

    def read(self, path: Any) -> Inputs:
        """Inputs (N, *shape); other shapes are refused."""
        x: Inputs = inputs_of(path) if is_sparse(path) else read_array(path)
        shape = x.shape[1:] if isinstance(x, np.ndarray) else x.shape
        if shape != tuple(self.shape):
            raise InputError(f"expected rows of shape {tuple(self.shape)}, got {shape}")
        return x

    def names(self, path: Any) -> list[str]:
        """A name for every row: its number."""
        return [str(row) for row in range(len(self.read(path)))]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "arrays", "shape": list(self.shape)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ArrayReader:
        return cls(tuple(int(n) for n in content["shape"]))
