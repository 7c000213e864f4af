"""Sparse matrices as inputs: rows are made dense when they are needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError

#: Matrices that take fewer bytes than this when dense are made dense at once.
DENSE_BYTES = 2**28


def is_sparse(x: Any) -> bool:
    """Whether an object is a scipy sparse matrix or array.

    >>> is_sparse(np.eye(2))
    False
    """
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix as lazy inputs (`noisegate.data.LazyInputs`).

    Attributes
    ----------
    matrix : scipy.sparse matrix or array in CSR format, (N, d), float32
    """

    matrix: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return (int(self.matrix.shape[1]),)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def fetch(self, index: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """The rows `index`, dense."""
        return np.asarray(self.matrix[index].toarray())

    def take(self, index: npt.NDArray[np.int64]) -> SparseRows:
        """These rows alone, still sparse."""
        return SparseRows(self.matrix[index])

    def fingerprint(self) -> str:
        """A string that changes with the numbers."""
        digest = hashlib.sha256(repr(self.matrix.shape).encode())
        for part in (self.matrix.indptr, self.matrix.indices, self.matrix.data):
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()


def sparse_inputs(x: Any) -> npt.NDArray[Any] | SparseRows:
    """A sparse matrix as inputs: dense where that takes little memory, else row by row when needed.

    >>> from scipy.sparse import csr_array
    >>> sparse_inputs(csr_array([[0.0, 2.0]]))
    array([[0., 2.]], dtype=float32)
    """
    if x.ndim != 2:
        raise InputError(f"expected a sparse matrix of shape (N, d), got {x.shape}")
    if np.iscomplexobj(x.data) or x.dtype.kind not in "fiub":
        raise InputError(f"expected numbers as inputs, got {x.dtype}")
    rows = x.tocsr().astype(np.float32)
    if not np.isfinite(rows.data).all():
        bad = int(np.searchsorted(rows.indptr, np.argmin(np.isfinite(rows.data)), side="right")) - 1
        raise InputError(f"inputs must be finite numbers; row {bad} has NaN or infinity: drop or fill it")
    if rows.shape[0] * rows.shape[1] * 4 <= DENSE_BYTES:
        return np.asarray(rows.toarray())
    return SparseRows(rows)
