"""What the estimator takes as X: arrays, sparse matrices, and frames of any kind of column."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_feature_names, _check_n_features, validate_data

from noisegate.data.dataset import Inputs, Labels, as_inputs
from noisegate.data.sparse import is_sparse, sparse_inputs
from noisegate.data.tables import Frame, TableReader, as_frame, is_frame
from noisegate.errors import InputError
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = False
        return tags

    def _read(self, X: Any, *, reset: bool) -> Inputs:
        """Check X and return its inputs; with `reset`, learn the columns that later frames must have."""
        if is_frame(X):
            return self._read_frame(X, reset=reset)
        reader = None if reset else getattr(self, "reader_", None)
        if reader is not None:
            return reader.read(self._framed(X, reader))
        checked = validate_data(
            self,
            X,
            reset=reset,
            allow_nd=True,
            accept_sparse="csr",
            ensure_min_samples=2 if reset else 1,
        )
        if reset:
            self.reader_ = None
        return sparse_inputs(checked) if is_sparse(checked) else as_inputs(checked)

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
                warnings.warn(f"columns that are not used: {columns}", UserWarning, stacklevel=5)
            return self.reader_.read(frame)
        if self.reader_ is None:  # it was trained on an array
            return self._read(_numbers(frame), reset=False)
        if _is_known_to_sklearn(X):
            _check_feature_names(self, X, reset=False)
        return self.reader_.read(frame)

    def _name_columns(self, X: Any, frame: Frame) -> None:
        self.n_features_in_ = len(frame.names)
        if _is_known_to_sklearn(X):
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
        names = getattr(self, "feature_names_in_", None)
        known = [c.name for c in reader.columns] + list(reader.dropped) if names is None else list(names)
        columns = [pa.array(array[:, place].tolist(), from_pandas=True) for place in range(array.shape[1])]
        return as_frame(pa.table(columns, names=list(map(str, known))))


def spread(found: Consensus) -> tuple[Labels, Labels, npt.NDArray[np.float64]]:
    """Turn the soft consensus of several annotators into weighted rows with hard labels.

    A row is repeated for every class that is not improbable, weighted by the class's probability, so
    that any method minimises the expected loss.
    """
    kept = np.where(found.probs >= LEAST_PROBABLE, found.probs, 0.0)
    kept /= kept.sum(1, keepdims=True)
    rows, classes = np.nonzero(kept)
    return rows.astype(np.int64), classes.astype(np.int64), kept[rows, classes]


def _is_known_to_sklearn(X: Any) -> bool:
    return type(X).__module__.split(".")[0] in ("pandas", "polars")


def _numbers(frame: Frame) -> npt.NDArray[np.float64]:
    """The columns of a frame as an array."""
    from noisegate.data.tables.columns import as_numbers

    return np.stack([as_numbers(frame, name, frame.column(name)) for name in frame.names], axis=1)
