"""What the estimator takes: as X arrays, sparse matrices, texts and frames; as y labels of any kind."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names, _check_n_features, validate_data

from noisegate.data.dataset import Inputs, Labels, as_inputs
from noisegate.data.sparse import is_sparse, sparse_inputs
from noisegate.data.tables import Frame, TableReader, as_frame, is_frame
from noisegate.data.tables.frames import text_array
from noisegate.errors import InputError, shown
from noisegate.quality import Consensus

#: Columns left out for these reasons are empty; those left out for other reasons are reported.
_EMPTY = ("constant", "all values are missing")

#: Classes of the soft consensus with a smaller probability than this are dropped.
LEAST_PROBABLE = 0.05


class TakesFrames(BaseEstimator):
    """An estimator whose X may be a frame, which is converted as the training frame was.

    Attributes
    ----------
    reader_ : TableReader or None
        How a frame becomes numbers; None after training on arrays.
    n_features_in_ : int
    feature_names_in_ : array of str
        Only where the columns have names.
    """

    reader_: TableReader | None
    feature_names_in_: npt.NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = False
        return tags

    def _read(self, X: Any, *, reset: bool) -> Inputs:
        """Check X and return its inputs; with `reset`, learn the columns that later frames must have."""
        reader = None if reset else getattr(self, "reader_", None)
        if (reset or (reader is not None and len(reader.order) == 1)) and _are_texts(X):
            X = _text_frame(X, None if reader is None else reader.order[0])
        if is_frame(X):
            return self._read_frame(X, reset=reset)
        if reader is not None:
            return reader.read(self._framed(X, reader))
        if not reset and self._needs_no_check(X):
            return as_inputs(X)
        try:
            checked = validate_data(
                self,
                X,
                reset=reset,
                allow_nd=True,
                accept_sparse="csr",
                ensure_min_samples=2 if reset else 1,
            )
        except (ValueError, TypeError) as error:
            raise _what_is_wrong(X) or error from None
        if reset:
            self.reader_ = None
        return sparse_inputs(checked) if is_sparse(checked) else as_inputs(checked)

    def _needs_no_check(self, X: Any) -> bool:
        """Whether X is an array that scikit-learn's checks, which take longer than predicting a row, let pass."""
        return (
            type(X) is np.ndarray
            and X.dtype.kind in "fiu"
            and X.ndim > 1
            and len(X) > 0
            and X.shape[1] == self.n_features_in_
            and not hasattr(self, "feature_names_in_")
            and bool(np.isfinite(X).all())
        )

    def _read_frame(self, X: Any, *, reset: bool) -> Inputs:
        frame = as_frame(X)
        if reset:
            if len(frame) < 2:
                raise InputError("the table has 1 row (sample); a minimum of 2 is required")
            self.reader_ = TableReader.fit(frame)
            self._name_columns(X, frame)
            told = {name: why for name, why in self.reader_.dropped.items() if why not in _EMPTY}
            if told:
                columns = "; ".join(f"{name!r} ({why})" for name, why in told.items())
                warnings.warn(f"columns that are not used: {columns}", UserWarning, stacklevel=4)
            return self.reader_.read(frame)
        if self.reader_ is None:  # it was trained on an array
            return self._read(_numbers(frame), reset=False)
        # A model of the command line knows no more than which columns it needs: others may be there.
        if _is_known_to_sklearn(X) and hasattr(self, "feature_names_in_"):
            _check_feature_names(self, X, reset=False)
        return self.reader_.read(frame)

    def _name_columns(self, X: Any, frame: Frame) -> None:
        self.n_features_in_ = len(frame.names)
        if hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_
        if _is_known_to_sklearn(X):
            if len({isinstance(name, str) for name in X.columns}) > 1:
                return  # scikit-learn names features only where all names are text
            _check_feature_names(self, X, reset=True)
        else:
            self.feature_names_in_ = np.array(frame.names, dtype=object)

    def _framed(self, X: Any, reader: TableReader) -> Frame:
        """Convert an array to a frame with the columns of the training frame, in the same order."""
        _check_feature_names(self, X, reset=False)  # warns that the columns have no names
        array = np.asarray(X.toarray() if is_sparse(X) else X)
        if array.ndim != 2:
            raise InputError(
                "Reshape your data: expected a table as in training, or a 2D array with its columns, "
                f"got an array of shape {array.shape}"
            )
        _check_n_features(self, array, reset=False)
        names = reader.order or getattr(self, "feature_names_in_", ())  # earlier versions stored no order
        if len(names) != array.shape[1]:
            raise InputError("the order of the columns in training is not known: give a table with names")
        columns = [pa.array(array[:, place].tolist(), from_pandas=True) for place in range(array.shape[1])]
        return as_frame(pa.table(columns, names=list(map(str, names))))


def labels_of(y: Any) -> npt.NDArray[Any]:
    """Labels as an array (N,), or (N, 1), of one kind; missing ones are refused by their row.

    Whole numbers and booleans stay what they are, however they came: nullable columns of pandas, Arrow, objects.
    Dates become those of NumPy; times of a zone, lengths of time and values of several kinds become text.

    >>> labels_of(pa.array([2, 1])).dtype.kind, labels_of(np.array([True, False], dtype=object)).dtype.kind
    ('i', 'b')
    """
    array = np.asarray(y)
    if array.dtype.kind not in "OfMm" or array.ndim != 1 or not len(array):
        return array
    objects = array.dtype.kind == "O"
    gaps = np.array([_is_gap(value) for value in array.tolist()]) if objects else np.isnan(array)
    if gaps.any():
        raise InputError(
            f"Input y contains NaN: {int(gaps.sum())} of {len(array)} labels are missing, the first in row "
            f"{int(np.argmax(gaps))}; drop these rows, or label them first"
        )
    if array.dtype.kind == "m":
        return array.astype(str)
    return _of_one_kind(array.tolist()) if objects else array


def _of_one_kind(values: list[Any]) -> npt.NDArray[Any]:
    kinds = {type(value) for value in values}
    if kinds <= {bool, np.bool_} or kinds <= {datetime.date}:
        return np.array(values, dtype="M8[D]" if datetime.date in kinds else bool)
    for row, value in enumerate(values):
        if isinstance(value, list | dict | set | tuple | bytes):
            raise InputError(
                f"y has a {type(value).__name__} in row {row}; labels must be text, whole numbers, booleans "
                "or dates"
            )
    if all(isinstance(value, int | float | np.number) for value in values):
        return np.array(values)
    return np.array([str(value) for value in values], dtype=object)


def _is_gap(value: Any) -> bool:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def spread(found: Consensus) -> tuple[Labels, Labels, npt.NDArray[np.float64]]:
    """Turn the soft consensus of several annotators into weighted rows with hard labels.

    A row is repeated for every class that is not improbable, weighted by the class's probability, so
    that any method minimises the expected loss.
    """
    kept = np.where(found.probs >= LEAST_PROBABLE, found.probs, 0.0)
    kept /= kept.sum(1, keepdims=True)
    rows, classes = np.nonzero(kept)
    return rows.astype(np.int64), classes.astype(np.int64), kept[rows, classes]


def _are_texts(X: Any) -> bool:
    """Whether X is one column of texts, as scikit-learn's vectorisers take it, and no table."""
    if is_frame(X) or is_sparse(X) or isinstance(X, str | Mapping) or not hasattr(X, "__len__"):
        return False
    if getattr(X, "ndim", 1) != 1 or getattr(getattr(X, "dtype", None), "kind", "O") not in "OU":
        return False
    given = [value for value in _listed(X) if not _is_gap(value)]
    return bool(given) and all(isinstance(value, str) for value in given)


def _listed(X: Any) -> list[Any]:
    return list(X.to_pylist() if hasattr(X, "to_pylist") else X)


def _text_frame(X: Any, name: str | None) -> Any:
    """One column of texts as a table."""
    texts = [None if _is_gap(value) else str(value) for value in _listed(X)]
    name = str(name or getattr(X, "name", None) or "text")
    return pa.table({name: text_array(name, texts)})


def _what_is_wrong(X: Any) -> InputError | None:
    """What to do about X that is no array of finite numbers; None where scikit-learn's words will do."""
    if isinstance(X, str | os.PathLike):
        return InputError(
            f"X is the text {shown(repr(X), 80)}, expected an array or a table; read a file first, by "
            "pandas.read_csv, or train on it by noisegate.train(noisegate.data.load(path, label=...))"
        )
    rows_are_named = isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Mapping)
    if isinstance(X, Mapping) or rows_are_named or getattr(getattr(X, "dtype", None), "names", None):
        return InputError(
            f"X is a {type(X).__name__} with named columns, expected an array or a table: "
            "give pandas.DataFrame(X)"
        )
    if is_sparse(X):
        return _not_finite(X.tocoo())
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different length
        return None
    if array.ndim != 2 or array.dtype.kind not in "OUf":
        return None
    return _not_finite(array) if array.dtype.kind == "f" else _text_in_numbers(array)


def _not_finite(X: Any) -> InputError | None:
    """Name the first value that is not finite in an array or a sparse matrix of coordinates."""
    values = X.data if is_sparse(X) else X
    bad = ~np.isfinite(values)
    if not bad.any():
        return None
    place = np.argwhere(bad)[0]
    row, column = (X.row[place[0]], X.col[place[0]]) if is_sparse(X) else place
    gap = bool(np.isnan(values[tuple(place)]))
    remedy = (
        "fill the gaps or give a table (pandas, Polars, Arrow), whose gaps are read" if gap else "mend it"
    )
    return InputError(
        f"Input X contains {'NaN' if gap else 'infinity'} in row {row}, column {column} ({bad.sum():,} such "
        f"{'value' if bad.sum() == 1 else 'values'} in all); an array must hold finite numbers: {remedy}"
    )


def _text_in_numbers(array: npt.NDArray[Any]) -> InputError | None:
    """What to do about the first text in an array that should hold numbers; None if there is none."""
    for row, values in enumerate(array.tolist()):
        for place, value in enumerate(values):
            if isinstance(value, str):
                return InputError(
                    f"X has the text {shown(repr(value), 80)} in row {row}, column {place}, but an array must hold "
                    "numbers; give categories, texts and dates as a table (pandas, Polars or Arrow)"
                )
    return None


def _is_known_to_sklearn(X: Any) -> bool:
    return type(X).__module__.split(".")[0] in ("pandas", "polars")


def _numbers(frame: Frame) -> npt.NDArray[np.float64]:
    """The columns of a frame as an array."""
    from noisegate.data.tables.columns import as_numbers

    return np.stack([as_numbers(frame, name, frame.column(name)) for name in frame.names], axis=1)
