"""Reports on noisy labels, and label files with a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io import files
from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.errors import DamagedFileError, InputError
from noisegate.noise.base import VOID, Labels, Matrix, Noise, check_labels

_MAGIC = "# noisegate-labels 1 "


@dataclass(frozen=True, eq=False)
class NoiseReport:
    """How observed labels differ from clean ones.

    Attributes
    ----------
    n : int
        Number of labels.
    rate : float
        Realised flip rate: the share of labels that differ.
    transition : float64 array (K, K)
        Realised T[i, j], the share of the labels of clean class i that are observed as j. A class
        without examples has the identity row.
    class_rates : float64 array (K,)
        Flip rate of each clean class, 1 - T[i, i].
    counts : int64 array (K,)
        Examples of each clean class.
    empty : tuple of int
        Classes without examples.

    Examples
    --------
    >>> report = describe([0, 0, 0, 1, 1], [0, 0, 1, 1, 1])
    >>> report.rate, report.class_rates.round(2).tolist()
    (0.2, [0.33, 0.0])
    """

    n: int
    rate: float
    transition: Matrix
    class_rates: Matrix
    counts: Labels
    empty: tuple[int, ...]

    def __str__(self) -> str:
        lines = [f"{self.n} labels, {self.rate:.2%} of them wrong"]
        for i, (count, rate) in enumerate(zip(self.counts, self.class_rates, strict=True)):
            if not count:
                continue
            others = np.delete(np.arange(len(self.counts)), i)
            top = others[np.argsort(-self.transition[i, others], kind="stable")[:3]]
            parts = [f"{j} {self.transition[i, j]:.1%}" for j in top if self.transition[i, j] > 0]
            taken = f"; taken for {', '.join(parts)}" if parts else ""
            lines.append(f"  class {i}: {count} labels, {rate:.2%} wrong{taken}")
        if self.empty:
            lines.append(f"  no examples of class {', '.join(map(str, self.empty))}")
        return "\n".join(lines)


def describe(clean: npt.ArrayLike, observed: npt.ArrayLike, n_classes: int | None = None) -> NoiseReport:
    """Compare observed labels with clean ones.

    >>> print(describe([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1], 3))
    6 labels, 16.67% of them wrong
      class 0: 4 labels, 25.00% wrong; taken for 1 25.0%
      class 1: 2 labels, 0.00% wrong
      no examples of class 2
    """
    if np.ndim(clean) == 3 and np.shape(clean) == np.shape(
        observed
    ):  # in maps, count only pixels with a label
        counted = (np.asarray(clean) != VOID) & (np.asarray(observed) != VOID)
        clean, observed = np.asarray(clean)[counted], np.asarray(observed)[counted]
    a, k = check_labels(clean, n_classes, "clean labels")
    b, other = check_labels(observed, n_classes, "observed labels")
    k = max(k, other)
    if len(a) != len(b):
        raise InputError(f"{len(a)} clean labels but {len(b)} observed labels")
    table = np.bincount(a * k + b, minlength=k * k).reshape(k, k)
    counts = table.sum(axis=1)
    empty = np.flatnonzero(counts == 0)
    t = table / np.maximum(counts, 1)[:, None]
    t[empty, empty] = 1.0
    rate = float((a != b).mean()) if len(a) else 0.0
    return NoiseReport(len(a), rate, t, 1.0 - t.diagonal(), counts, tuple(empty.tolist()))


def label_hash(labels: npt.ArrayLike) -> str:
    """SHA-256 of the labels in decimal, one a line.

    The same on every machine and for every integer type.

    >>> label_hash([3, 1, 4])[:12]
    '2611ee156db4'
    """
    labels = np.asarray(labels)
    if labels.ndim == 3:  # maps are too large to hash as text: hash their bytes
        return hashlib.sha256(np.ascontiguousarray(labels.astype(np.int16)).tobytes()).hexdigest()
    checked, _ = check_labels(labels, None if labels.size else 1)
    return hashlib.sha256("".join(f"{label}\n" for label in checked.tolist()).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class LabelFile:
    """The content of a file written by `save_labels`.

    Attributes
    ----------
    observed : int64 array (N,)
    clean : int64 array (N,) or None
    noise : dict or None
        Settings of the noise; `noisegate.noise.build` makes it again.
    seed : int or None
    classes : tuple of str
        Names of the classes; empty where they were not stored.
    sha256 : str
        `label_hash(observed)`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_labels(Path(folder, "labels.txt"), [0, 2, 1], clean=[0, 1, 1], seed=0)
    ...     file = load_labels(Path(folder, "labels.txt"))
    >>> file.observed.tolist(), file.clean.tolist(), file.seed
    ([0, 2, 1], [0, 1, 1], 0)
    """

    observed: Labels
    clean: Labels | None
    noise: Mapping[str, Any] | None
    seed: int | None
    classes: tuple[str, ...]
    sha256: str

    def __len__(self) -> int:
        return len(self.observed)


def save_labels(
    path: str | Path,
    observed: npt.ArrayLike,
    *,
    clean: npt.ArrayLike | None = None,
    noise: Noise | Mapping[str, Any] | None = None,
    seed: int | None = None,
    classes: Sequence[str] | None = None,
) -> str:
    """Write labels to a text file, atomically.

    The first line is a comment with a JSON header; then comes one line per label, the observed one
    and, where it is known, the clean one after a tab. `np.loadtxt(path, dtype=int)` reads it too.

    Returns
    -------
    str
        The SHA-256 of the observed labels: two people with the same one train on the same labels.
        It is that of the first column as text: ``tail -n +2 labels.txt | cut -f1 | sha256sum``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     digest = save_labels(f"{folder}/labels.txt", [0, 2, 1], clean=[0, 1, 1])
    >>> digest == label_hash([0, 2, 1])
    True
    """
    n_classes = None if classes is None else len(classes)
    labels, _ = check_labels(observed, n_classes, "observed labels")
    columns = [labels]
    if clean is not None:
        columns.append(check_labels(clean, n_classes, "clean labels")[0])
        if len(columns[1]) != len(labels):
            raise InputError(f"{len(labels)} observed labels but {len(columns[1])} clean labels")
    header = {
        "n": len(labels),
        "sha256": label_hash(labels),
        "clean_sha256": None if clean is None else label_hash(columns[1]),
        "noise": noise.to_dict() if isinstance(noise, Noise) else noise,
        "seed": seed,
        "classes": None if classes is None else [str(name) for name in classes],
    }
    if Path(path).is_dir():
        raise InputError(f"expected a file name for the labels, {path} is a folder")
    rows = zip(*(column.tolist() for column in columns), strict=True)
    body = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    files.write_text(
        Path(path), f"{_MAGIC}{json.dumps(header, allow_nan=False, default=files.plain)}\n{body}"
    )
    return str(header["sha256"])


def load_labels(path: str | Path, *, expect_length: int | None = None) -> LabelFile:
    """Read a file written by `save_labels` and check it against the hash in its header.

    Raises
    ------
    MissingDataError
        There is no such file.
    DamagedFileError
        The file is empty, truncated, changed since it was written, or of another kind.
    InputError
        `path` is a folder, or the file does not have `expect_length` labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = save_labels(f"{folder}/labels.txt", [0, 2, 1])
    ...     load_labels(f"{folder}/labels.txt", expect_length=3).observed
    array([0, 2, 1])
    """
    first, _, body = _read(Path(path)).partition("\n")
    header = _read_header(path, first)
    n_columns = 1 if header["clean_sha256"] is None else 2
    try:
        table = np.array(body.split(), dtype=np.int64).reshape(-1, n_columns)
    except (ValueError, OverflowError):
        raise DamagedFileError(f"{path} is damaged: its lines are not {n_columns} label(s) each") from None
    observed = np.ascontiguousarray(table[:, 0])
    clean = np.ascontiguousarray(table[:, 1]) if n_columns == 2 else None
    if len(observed) != header["n"]:
        raise DamagedFileError(f"{path} is damaged: it holds {len(observed)} of {header['n']} labels")
    for labels, key in ((observed, "sha256"), (clean, "clean_sha256")):
        if labels is not None and ((labels < 0).any() or label_hash(labels) != header[key]):
            raise DamagedFileError(f"{path} is damaged: its labels do not match the {key} in its first line")
    if expect_length is not None and len(observed) != expect_length:
        raise InputError(f"{path} has {len(observed)} labels, expected {expect_length}: it is for other data")
    classes = tuple(header["classes"] or ())
    return LabelFile(observed, clean, header["noise"], header["seed"], classes, header["sha256"])


def _read(path: Path) -> str:
    check_room(8 * regular_size(path, "a label file"), path)
    with reading(path):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise DamagedFileError(f"{path} is not a label file: it is not text") from None


def _read_header(path: str | Path, line: str) -> dict[str, Any]:
    """Read the header, and check that it is complete."""
    if not line:
        raise DamagedFileError(f"{path} is empty; expected labels written by save_labels")
    if not line.startswith(_MAGIC):
        raise DamagedFileError(f"{path} is not a label file: it does not start with {_MAGIC.strip()!r}")
    kinds: dict[str, type | tuple[type, ...]] = {
        "n": int,
        "sha256": str,
        "clean_sha256": (str, type(None)),
        "noise": (dict, type(None)),
        "seed": (int, type(None)),
        "classes": (list, type(None)),
    }
    try:
        header = json.loads(line[len(_MAGIC) :])
        sound = all(isinstance(header[key], kind) for key, kind in kinds.items())
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise DamagedFileError(f"{path} is damaged: its first line is not a whole header")
    return header
