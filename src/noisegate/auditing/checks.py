"""Whether the files of an audit folder hold what an audit writes, so that whoever uses them need not ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.forms import mismatch
from noisegate.errors import DamagedFileError

_NUMBER = int | float
_INTERVAL = {"value": _NUMBER, "low?": _NUMBER, "high?": _NUMBER}
_PERHAPS = {"value?": _NUMBER, "low?": _NUMBER, "high?": _NUMBER}
_MATRICES = {"value": [[_NUMBER]], "low": [[_NUMBER]], "high": [[_NUMBER]]}
#: What audit.json holds, see `noisegate._io.forms`.
FORM: Mapping[str, Any] = {
    "audit_id": str,
    "source": {
        "kind": str,
        "path?": str,
        "label?": str,
        "options?": {},
        "fingerprint?": str,
        "rows?": int,
        "image_shape?": [int],
        "texts?": [str],
    },
    "classes": [str],
    "label_values": [str | int | float | bool],
    "task?": str,
    "unit?": str,
    "noise_rate?": _INTERVAL,
    "errors?": _INTERVAL,
    "precision?": {"look?": _PERHAPS, "sure?": _PERHAPS},
    "transition?": _MATRICES,
    "confused?": [{"true": int, "given": int, "count": _NUMBER, "share?": _NUMBER}],
    "curve?": {"looked": [_NUMBER], "found": [_NUMBER], "low?": [_NUMBER], "high?": [_NUMBER]},
    "instance_dependence?": {"p_value": _NUMBER, "conclusion": str},
    "duplicates?": [{"rows": [int], "labels": [int]}],
    "duplicates_total?": int,
    "notes?": [str],
    "settings?": {},
    "truth?": {},
    "cleaning?": {
        "difference": _NUMBER,
        "accuracy_before": _NUMBER,
        "accuracy_after": _NUMBER,
        "how": str,
        "judged_by": str,
    },
    "decided?": {"rows": [int], "labels": [int], "wrong?": int},
    "images?": {"total": int, "flagged": int, "agreement?": _NUMBER, "majority?": _NUMBER},
    "pairs?": {},
    "coding?": {},
    "colours?": [[int]],
}


def check_info(info: Mapping[str, Any], n: int, what: str) -> None:
    """Raise DamagedFileError unless the content of audit.json has its form and fits `n` rows."""
    told = mismatch(info, FORM)
    k = 0 if told else len(info["classes"])
    if told is None and len(set(info["classes"])) < k:
        told = "two classes have the same name"
    if told is None and len(info["label_values"]) != k:
        told = f"label_values should have {k} entries, one a class"
    if told is None:
        pairs, groups = info.get("confused") or [], info.get("duplicates") or []
        codes = [pair[end] for pair in pairs for end in ("true", "given")]
        codes += [code for group in groups for code in group["labels"]]
        rows = [row for group in groups for row in group["rows"]]
        if not _within(codes, k) or not _within(rows, n):
            told = "it names classes or rows that do not exist"
    if told is None and len({_shape(column) for column in (info.get("curve") or {}).values()}) > 1:
        told = "the columns of curve differ in length"
    if told is None and info.get("transition"):
        shapes = {_shape(matrix) for matrix in info["transition"].values()}
        told = None if shapes == {(k, k)} else f"transition should hold matrices of {k} times {k} numbers"
    if told is not None:
        raise DamagedFileError(f"{what} is not what an audit writes: {told}; audit the data again")


def _shape(nested: Any) -> tuple[int, ...] | None:
    """The shape of nested lists; None if their lengths differ."""
    try:
        return np.shape(nested)
    except ValueError:
        return None


def _within(numbers: Sequence[int], end: int) -> bool:
    return not numbers or 0 <= min(numbers) <= max(numbers) < end


def check_matrices(matrices: Mapping[str, npt.NDArray[Any]], k: int, what: str) -> None:
    """Raise DamagedFileError unless an array file holds the transition matrices of `k` classes."""
    for name in ("value", "low", "high"):
        _check_array(matrices.get(name), (k, k), "f", f"{what}: {name}")


def check_probs(probs: npt.NDArray[Any], n: int, k: int, what: str) -> None:
    """Raise DamagedFileError unless the probabilities are those of `n` rows and `k` classes.

    Their values are not looked at: they stay on disk until they are used.
    """
    _check_array(probs, (n, k), "f", what, values=False)


def check_neighbours(near: Mapping[str, npt.NDArray[Any]], n: int, what: str) -> None:
    """Raise DamagedFileError unless an array file holds neighbours among `n` rows."""
    rows = near.get("rows")
    m = 0 if rows is None else rows.size
    k = near["neighbours"].shape[-1] if "neighbours" in near and near["neighbours"].ndim == 2 else 0
    for name, shape, kind in (("rows", (m,), "i"), ("neighbours", (m, k), "i"), ("similarity", (m, k), "f")):
        _check_array(near.get(name), shape, kind, f"{what}: {name}")
        if kind == "i" and near[name].size and not (0 <= near[name].min() and near[name].max() < n):
            raise DamagedFileError(f"{what}: {name} names rows that do not exist; audit the data again")


def _check_array(
    array: npt.NDArray[Any] | None, shape: tuple[int, ...], kind: str, what: str, values: bool = True
) -> None:
    found = "nothing" if array is None else f"{array.dtype} {array.shape}"
    if array is None or array.shape != shape or array.dtype.kind != kind:
        expected = "fractions" if kind == "f" else "whole numbers"
        raise DamagedFileError(f"{what} should hold {expected} {shape}, found {found}; audit the data again")
    if values and kind == "f" and not np.isfinite(array).all():
        raise DamagedFileError(f"{what} holds NaN or infinity; audit the data again")
