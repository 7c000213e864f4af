"""The current state of decisions: arrays for all rows, the log in an audit's folder, changed labels."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from noisegate.auditing.decisions import FILE, Decisions
from noisegate.auditing.records import CODES, DECISIONS, Decided
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import InputError


class State:
    """The last decision about every row, as arrays kept up to date with the log.

    Attributes
    ----------
    decision : uint8 array (N,)
        Codes of `DECISIONS`.
    label : int32 array (N,)
        Codes of classes, -1 where none is decided.
    version : int64 array (N,)
    reviewer : int32 array (N,)
        Places in `reviewers`, -1 for nobody.
    revision : int
        Number of the last decision included in the arrays.
    """

    def __init__(self, log: Decisions, n: int) -> None:
        self._log = log
        self._guard = threading.Lock()
        self.decision = np.zeros(n, np.uint8)
        self.label = np.full(n, -1, np.int32)
        self.version = np.zeros(n, np.int64)
        self.reviewer = np.full(n, -1, np.int32)
        self.reviewers: list[str] = []
        self.at: dict[int, str] = {}
        self.revision = 0
        self.refresh()

    def refresh(self) -> int:
        """Read new decisions from the log; return their number."""
        with self._guard:
            new = self._log.since(self.revision)
            for decided in new:
                row = decided.row
                if decided.reviewer not in self.reviewers:
                    self.reviewers.append(decided.reviewer)
                self.decision[row] = CODES[decided.decision]
                self.label[row] = decided.label
                self.version[row] = decided.id
                self.reviewer[row] = self.reviewers.index(decided.reviewer)
                self.at[row] = decided.at
                self.revision = decided.id
            return len(new)

    def of(self, row: int) -> Decided:
        """The state of one row; decision "" where nothing is decided."""
        place = int(self.reviewer[row])
        return Decided(
            int(self.version[row]),
            row,
            DECISIONS[self.decision[row]],
            int(self.label[row]),
            self.reviewers[place] if place >= 0 else "",
            self.at.get(row, ""),
        )

    @property
    def answered(self) -> npt.NDArray[np.bool_]:
        """Rows with a decided label; skipped rows do not count."""
        return (self.decision != CODES[""]) & (self.decision != CODES["skip"])


def open_log(audit: StoredAudit) -> Decisions:
    """The log in the audit's folder."""
    if audit.folder is None:
        raise InputError("the audit is not stored yet; write it to a folder first")
    log = Decisions(audit.folder / FILE, audit.audit_id)
    try:
        log.check(len(audit), len(audit.classes))
    except BaseException:
        log.close()
        raise
    return log


def labels_after(audit: StoredAudit, decided: Iterable[Decided]) -> Mapping[int, int]:
    """The rows whose label changes, with the code of the new label."""
    given = np.empty(len(audit), np.int64)
    given[audit.rows["row"].to_numpy()] = audit.rows["given_label"].to_numpy()
    return {d.row: d.label for d in decided if d.label >= 0 and d.label != given[d.row]}
