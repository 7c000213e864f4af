"""Apply decisions: the corrected data, with a log of changes; the original is never touched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noisegate._io.files import check_writable, write_bytes
from noisegate.auditing import formats, stored
from noisegate.auditing.exchange import as_csv, decisions_frame
from noisegate.auditing.formats import Correction
from noisegate.auditing.records import Decided
from noisegate.auditing.regions import MASKS
from noisegate.auditing.state import labels_after, open_log
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import DamagedFileError, InputError, MissingDataError


@dataclass(frozen=True)
class Applied:
    """What `apply` wrote.

    Attributes
    ----------
    changed : int
        Rows with another label.
    decided : int
        Rows with a decision, including those whose given label was kept.
    out : path
    log : path
        A CSV file with one line per changed row.
    """

    changed: int
    decided: int
    out: Path
    log: Path


def apply(folder: str | Path, out: str | Path, *, list_moves: bool = False, force: bool = False) -> Applied:
    """Write the data of an audit with the reviewers' labels.

    Parameters
    ----------
    folder : path
        An audit folder.
    out : path
        Where to write, in the format of the original: a file, or a folder of images (and masks). It
        must not exist yet.
    list_moves : bool, default=False
        For folders of images: write a CSV file of moves (from, to) instead of a copy.
    force : bool, default=False
        Continue even if the data have changed since the audit; rows are matched by their position.
    """
    audit, out = stored.read(folder), Path(out)
    _check(audit, out, list_moves, force)
    log = open_log(audit)
    try:
        decided = [d for d in log.last() if d.label >= 0]
    finally:
        log.close()
    what = Correction.of(audit, labels_after(audit, decided))
    if list_moves:
        formats.write_moves(what, out)
    else:
        formats.write(what, out)
        _check_written(what, out)
    changes = log_path(out)
    _write_log(what, decided, changes)
    return Applied(len(what.changes), len(decided), out, changes)


def log_path(out: Path) -> Path:
    """Return the path of the log of changes, beside the data.

    >>> log_path(Path("data/new.csv.gz")).name, log_path(Path("images")).name
    ('new.changes.csv', 'images.changes.csv')
    """
    name = out.name
    for suffix in (".gz", ".csv", ".tsv", ".parquet", ".pq", ".npz"):
        name = name[: -len(suffix)] if name.lower().endswith(suffix) else name
    return out.with_name(f"{name}.changes.csv")


def _check(audit: StoredAudit, out: Path, list_moves: bool, force: bool) -> None:
    """Check before writing that `out` can be written and does not touch the original."""
    kind, path = audit.source["kind"], audit.source.get("path")
    if kind not in ("table", "npz", "folder", MASKS):
        raise InputError(
            "the audited data did not come from a file or folder, so their format is not known; "
            "export the decisions instead (--decisions FILE.csv)"
        )
    if list_moves and kind != "folder":
        raise InputError("a list of moves is for folders of images; use --out for a table or an .npz file")
    source = Path(str(path))
    if not source.exists():
        raise MissingDataError(f"the audited data are not at {source} any more")
    real, target = os.path.realpath(source), os.path.realpath(out)
    if target == real or target.startswith(real + os.sep):
        raise InputError(f"the original {source} is never changed; choose a place outside of it")
    if out.exists() or log_path(out).exists():
        raise InputError(f"{out if out.exists() else log_path(out)} exists already; choose another name")
    if not force and audit.source.get("fingerprint") not in (None, stored.fingerprint(source)):
        raise InputError(
            f"{source} has changed since it was audited, so decisions may be about other rows; "
            "audit it again, or go on with --force"
        )
    check_writable(out.parent)


def _check_written(what: Correction, out: Path) -> None:
    """Read the labels back: a wrong file is worse than none."""
    kind = what.audit.source["kind"]
    if kind in ("folder", MASKS):
        return
    if kind == "npz":
        from noisegate.data.arrays import _Y_NAMES, _pick, label_array, read_npz

        labels = label_array(_pick(read_npz(out), _Y_NAMES, out), str(out))
    else:
        from noisegate.data.tables import read_labels

        labels = read_labels(out, what.audit.source["label"])
    expected = np.asarray([str(value) for value in what.audit.label_values])[what.after()]
    found = np.asarray([str(value) for value in labels.tolist()])
    if not np.array_equal(found, expected):
        out.unlink()
        raise DamagedFileError(
            f"the labels written to {out} were not those decided, so it was removed; "
            f"has {what.source} changed since it was audited?"
        )


def _write_log(what: Correction, decided: list[Decided], path: Path) -> None:
    """Write one line per changed row: old and new label, who decided it and when."""
    changed = [d for d in decided if d.row in what.changes]
    frame = decisions_frame(what.audit, changed)
    frame.insert(0, "row", [d.row for d in changed])
    if what.audit.source["kind"] == "folder" and not formats._key_file(what.source):
        new = formats.moves(what)
        frame["path"] = [new[name] for name in frame["id"]]
    write_bytes(path, as_csv(frame))
