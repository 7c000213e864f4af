"""The audit folder: the findings as files, read by the report, the review page and `apply`.

    audit.json       everything small: classes, noise, curve, settings
    rows.parquet     one line per row of the data, worst first
    probs.npy        (N, K) out-of-fold probabilities in the order of the data, optional
    neighbours.npz   the rows that disagree with a flagged row, optional
    inputs.*         the worst rows of data that came from memory, optional

Reading needs neither torch nor the original data.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import atomic, read_json, write_json
from noisegate._io.foreign import reading, regular_size
from noisegate._version import __version__
from noisegate.auditing.checks import check_info, check_matrices, check_neighbours, check_probs
from noisegate.errors import DamagedFileError, InputError, MissingDataError, shown

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
KIND = "noisegate-audit"
#: Required columns of rows.parquet, with their types. `row` counts from 0 in the order of
#: the data; `id` is what people call the row (`row_names`).
COLUMNS = {
    "row": "int64",
    "id": "str",
    "given_label": "int32",
    "suggested_label": "int32",
    "suggested_probability": "float32",
    "quality": "float32",
    "p_wrong": "float32",
    "is_label_issue": "bool",
    "is_sure": "bool",
}
_REQUIRED = ("audit_id", "source", "classes", "label_values")
#: Matrices of more classes than this are stored in matrices.npz: as JSON they would take tens of megabytes.
MOST_CLASSES_IN_JSON = 100
#: Probabilities with more numbers than this are stored in half precision.
_HALF_ABOVE = 50_000_000
_BLOCK = 1 << 20
#: How far a stored probability may lie outside of 0 to 1.
_ROUNDING = 1e-3


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The rows nearest to some rows in the network's last layer.

    Attributes
    ----------
    rows : int64 array (M,)
        Rows of the data that have neighbours here, in increasing order.
    neighbours : int64 array (M, k)
        Their nearest rows, the nearest first.
    similarity : float32 array (M, k)
    """

    rows: npt.NDArray[np.int64]
    neighbours: npt.NDArray[np.int64]
    similarity: npt.NDArray[np.float32]

    def of(self, row: int) -> list[tuple[int, float]]:
        """(row, similarity) of the neighbours of one row; empty if they are not known.

        >>> near = Neighbours(np.array([3, 7]), np.array([[1, 2], [4, 5]]), np.array([[0.5, 0.25], [1.0, 0.5]]))
        >>> near.of(7), near.of(4)
        ([(4, 1.0), (5, 0.5)], [])
        """
        place = int(np.searchsorted(self.rows, row))
        if place == len(self.rows) or self.rows[place] != row:
            return []
        return list(zip(self.neighbours[place].tolist(), self.similarity[place].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class StoredAudit:
    """The content of an audit folder.

    Attributes
    ----------
    info : mapping
        The content of audit.json.
    rows : DataFrame
        The columns of `COLUMNS`, one line per row of the data, worst first; labels are codes of classes.
    probs : array (N, K) or None
        Out-of-fold probabilities in the order of the data.
    neighbours : Neighbours or None
    folder : path or None
        Where it was read from.
    """

    info: Mapping[str, Any]
    rows: pd.DataFrame
    probs: npt.NDArray[Any] | None = None
    neighbours: Neighbours | None = None
    folder: Path | None = field(default=None, compare=False)

    @property
    def classes(self) -> list[str]:
        """Names of the classes; label codes count them from 0."""
        return list(self.info["classes"])

    @property
    def label_values(self) -> list[Any]:
        """Labels as they stand in the data, in the order of the classes."""
        return list(self.info["label_values"])

    @property
    def audit_id(self) -> str:
        return str(self.info["audit_id"])

    @property
    def source(self) -> Mapping[str, Any]:
        """Where the data are: kind, path, label, options, fingerprint, rows."""
        source: Mapping[str, Any] = self.info["source"]
        return source

    def __len__(self) -> int:
        return len(self.rows)


def new_audit_id() -> str:
    """A random name for an audit, 12 hexadecimal digits: decisions carry it."""
    return secrets.token_hex(6)


def now() -> str:
    """The time in UTC, to the millisecond, as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- where the data came from ----------------------------------------------------------------------


def source_of(
    kind: str,
    path: str | os.PathLike[str] | None,
    rows: int,
    *,
    label: str | None = None,
    options: Mapping[str, Any] | None = None,
    image_shape: Sequence[int] | None = None,
    texts: Sequence[str] = (),
) -> dict[str, Any]:
    """Describe where audited data are, so that they can be shown and corrected later.

    Parameters
    ----------
    kind : {"table", "npz", "folder", "masks", "named", "memory"}
    path : path or None
        The file or folder, or the name of a named data set; None for data from memory.
    rows : int
        Number of audited rows N.
    label : str, default=None
        The column of labels of a table.
    options : mapping, default=None
        Options of the loader, as they were given.
    image_shape : sequence of int, default=None
        For vectors that are pictures: (height, width) or (height, width, 3).
    texts : sequence of str, default=()
        Columns that hold long texts.

    >>> source_of("memory", None, 100)["fingerprint"] is None
    True
    """
    kinds = ("table", "npz", "folder", "masks", "named", "memory")
    if kind not in kinds:
        raise InputError(f"the kind of a source is one of {', '.join(kinds)}, got {kind!r}")
    files = kind in ("table", "npz", "folder", "masks")
    place = None if path is None else os.path.abspath(path) if files else os.fspath(path)
    return {
        "kind": kind,
        "path": place,
        "label": label,
        "options": dict(options or {}),
        "fingerprint": fingerprint(Path(place)) if files and place is not None else None,
        "rows": int(rows),
        "image_shape": None if image_shape is None else [int(n) for n in image_shape],
        "texts": list(texts),
    }


def row_names(source: Mapping[str, Any]) -> list[str]:
    """Names of the rows for people: their numbers in the file, as a spreadsheet shows them.

    The first row of a CSV file is 2, since its header is 1; of a Parquet file 1. Arrays count from 0, as
    Python does. Images have the names of their files instead.

    >>> row_names({"kind": "table", "path": "shop.csv", "rows": 2}), row_names({"kind": "npz", "rows": 2})
    (['2', '3'], ['0', '1'])
    """
    first = 0
    if source["kind"] == "table":
        first = 1 if str(source["path"]).lower().endswith((".parquet", ".pq")) else 2
    return [str(number) for number in range(first, first + int(source["rows"]))]


def called(source: Mapping[str, Any]) -> str:
    """What the names of the rows are, for a column heading.

    >>> called({"kind": "table"}), called({"kind": "masks"}), called({"kind": "memory"})
    ('row of the file', 'file', 'row')
    """
    return {"table": "row of the file", "folder": "file", "masks": "file"}.get(source["kind"], "row")


def fingerprint(path: Path) -> str:
    """A string that changes with a file's bytes, or with the names and sizes of a folder's files."""
    digest = hashlib.sha256()
    if path.is_dir():
        for here, folders, files in os.walk(path):
            folders.sort()
            for name in sorted(files):
                file = os.path.join(here, name)
                digest.update(os.fsencode(os.path.relpath(file, path)) + b"\0")
                digest.update(str(os.lstat(file).st_size).encode() + b"\0")
        return digest.hexdigest()
    if path.exists():
        regular_size(path, "data")
    try:
        with open(path, "rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        raise MissingDataError(f"there is no file or folder {path}") from None
    return digest.hexdigest()


# -- writing ---------------------------------------------------------------------------------------


def write(folder: str | os.PathLike[str], audit: StoredAudit) -> Path:
    """Write an audit to a folder; audit.json comes last, so a folder that has it is complete.

    Further columns of `rows` are stored too. Files of an earlier audit in the folder are replaced; decisions
    are kept.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"expected a folder for the audit at {folder}, found a file")
    rows = _checked(audit.rows, len(audit.info["classes"]), "the audit")
    with atomic(folder / "rows.parquet") as file:
        rows.to_parquet(file, index=False)
    _write_probs(folder / "probs.npy", audit.probs)
    near = audit.neighbours
    _write_arrays(
        folder / "neighbours.npz",
        None
        if near is None
        else {"rows": near.rows, "neighbours": near.neighbours, "similarity": near.similarity},
    )
    info: dict[str, Any] = {
        "format": FORMAT,
        "kind": KIND,
        "version": __version__,
        "created_at": now(),
    } | dict(audit.info)
    matrices = {key: np.asarray(value) for key, value in (info.get("transition") or {}).items()}
    large = bool(matrices) and len(info["classes"]) > MOST_CLASSES_IN_JSON
    _write_arrays(folder / "matrices.npz", matrices if large else None)
    info["transition"] = (
        {key: value.tolist() for key, value in matrices.items()} if matrices and not large else None
    )
    write_json(folder / "audit.json", info)
    return folder


def _write_probs(path: Path, probs: npt.NDArray[Any] | None) -> None:
    if probs is None:
        path.unlink(missing_ok=True)
        return
    narrow = np.float16 if probs.size > _HALF_ABOVE else np.float32
    with atomic(path) as file:
        np.save(file, np.asarray(probs, narrow), allow_pickle=False)


def _write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]] | None) -> None:
    if arrays is None:
        path.unlink(missing_ok=True)
        return
    with atomic(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _checked(rows: pd.DataFrame, n_classes: int, what: str) -> pd.DataFrame:
    """Check the rows and return their required columns."""
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        raise DamagedFileError(f"{what} lacks the columns {', '.join(missing)} in its rows")
    for name, kind in COLUMNS.items():
        if (kind == "bool" and len(rows) and rows[name].dtype != bool) or (
            kind == "str" and rows[name].isna().any()
        ):
            raise DamagedFileError(f"{what} has other values than {kind} in the column {name} of its rows")
    try:
        numbers = {name: kind for name, kind in COLUMNS.items() if kind != "str"}
        with np.errstate(over="ignore"):  # a number too large becomes infinity, which is refused below
            rows = rows.astype(numbers).reset_index(drop=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedFileError(f"{what} has rows that cannot be read ({shown(error)})") from None
    order = np.sort(rows["row"].to_numpy())
    if not np.array_equal(order, np.arange(len(rows))):
        raise DamagedFileError(f"{what} must name every row from 0 to {len(rows) - 1} once")
    for name in ("given_label", "suggested_label"):
        codes = rows[name].to_numpy()
        if len(codes) and not (0 <= codes.min() and codes.max() < n_classes):
            raise DamagedFileError(f"{what} has codes outside 0..{n_classes - 1} in {name}")
    for name in ("suggested_probability", "quality", "p_wrong"):
        values = rows[name].to_numpy()
        if not ((values > -_ROUNDING) & (values < 1 + _ROUNDING)).all():
            raise DamagedFileError(f"{what} has values in {name} that are no probabilities")
    return rows


# -- reading ---------------------------------------------------------------------------------------


def read(folder: str | os.PathLike[str]) -> StoredAudit:
    """Read an audit folder; probabilities stay on disk until they are used."""
    folder = Path(folder)
    if not (folder / "audit.json").is_file():
        raise MissingDataError(
            f"there is no audit in {folder} (no audit.json); make one with `noisegate audit DATA --out {folder}`"
        )
    info = read_json(folder / "audit.json")
    if not isinstance(info, dict) or info.get("kind") != KIND:
        raise DamagedFileError(f"{folder / 'audit.json'} does not describe an audit")
    if info.get("format") != FORMAT:
        raise DamagedFileError(
            f"{folder} has format {info.get('format')!r}, expected {FORMAT}; audit the data again"
        )
    lacking = [key for key in _REQUIRED if key not in info]
    if lacking:
        raise DamagedFileError(f"{folder / 'audit.json'} lacks {', '.join(lacking)}")
    rows = _read_rows(folder / "rows.parquet", info)
    if info.get("transition") is None and (folder / "matrices.npz").exists():
        info["transition"] = _arrays(folder / "matrices.npz")
        check_matrices(info["transition"], len(info["classes"]), str(folder / "matrices.npz"))
    near = _arrays(folder / "neighbours.npz") if (folder / "neighbours.npz").exists() else None
    if near is not None:
        check_neighbours(near, len(rows), str(folder / "neighbours.npz"))
    return StoredAudit(
        info,
        rows,
        _read_probs(folder / "probs.npy", len(rows), len(info["classes"])),
        None if near is None else Neighbours(near["rows"], near["neighbours"], near["similarity"]),
        folder,
    )


def _read_rows(path: Path, info: Mapping[str, Any]) -> pd.DataFrame:
    """The rows, once it is known that they and audit.json belong together."""
    from noisegate.data.tables.parquet import read_parquet

    with reading(path, "audit the data again"):
        rows = read_parquet(path).to_pandas()
    check_info(info, len(rows), str(path.with_name("audit.json")))
    return _checked(rows, len(info["classes"]), str(path.parent))


def _read_probs(path: Path, n: int, k: int) -> npt.NDArray[Any] | None:
    if not path.exists():
        return None
    regular_size(path, "probabilities")
    with reading(path, "audit the data again"):
        probs: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    check_probs(probs, n, k, str(path))
    return probs


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    from noisegate.data.arrays import read_npz

    return read_npz(path)
