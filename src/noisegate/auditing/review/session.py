"""The operations of the review page, without HTTP: rows, progress, decisions."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from noisegate.auditing import words
from noisegate.auditing.content import Cached, open_content
from noisegate.auditing.learning import Learnt, learn_from
from noisegate.auditing.records import CODES, Choice, Decided, Outcome
from noisegate.auditing.review.filters import Filter, Selector
from noisegate.auditing.state import State, open_log
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import InputError

#: Maximum number of rows in an answer.
MOST_ROWS = 200
#: Number of classes whose probability is shown.
TOP = 5
#: Number of neighbours to show.
NEAR = 6
#: Minimum seconds between two corrections of the estimates, which take time for many rows.
_PATIENCE = 1.0
#: Keys that the page uses itself.
RESERVED = "jksugb"


class Review:
    """One audit under review.

    Parameters
    ----------
    audit : StoredAudit
        Read from a folder, which also holds its decisions.
    root : path, default=None
        Where named data sets lie.
    """

    def __init__(self, audit: StoredAudit, root: Path | None = None) -> None:
        self.audit = audit
        self.content = Cached(open_content(audit, root))
        self.log = open_log(audit)
        self.state = State(self.log, len(audit))
        self.selector = Selector(audit, self.state)
        self.rank = np.empty(len(audit), np.int64)
        self.rank[self.selector.row] = np.arange(len(audit))
        self._near_duplicates = {
            row: [other for other in group["rows"] if other != row]
            for group in audit.info.get("duplicates") or []
            for row in group["rows"]
        }
        self._guard = threading.Lock()
        self._learnt: tuple[int, float, Learnt] | None = None

    def close(self) -> None:
        """Close the log."""
        self.log.close()

    # -- what the page shows -----------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The constant facts: classes with their keys, counts, where the data are."""
        audit, flags = self.audit, self.selector.flags
        return {
            "audit_id": audit.audit_id,
            "title": words.data_name(audit),
            "row_word": words.row_word(audit),
            "classes": audit.classes,
            "keys": class_keys(audit.classes),
            "rows": len(audit),
            "look": int(flags["look"].sum()),
            "sure": int(flags["sure"].sum()),
        }

    def rows(
        self, wanted: Filter, *, after: int = -1, before: int | None = None, limit: int = 30
    ) -> dict[str, Any]:
        """Rows of a filter by rank: the first with a rank above `after`, or the last below `before`."""
        self.state.refresh()
        ranks = np.flatnonzero(self.selector.mask(wanted))
        limit = max(1, min(limit, MOST_ROWS))
        if before is None:
            first = int(np.searchsorted(ranks, after, side="right"))
            chosen = ranks[first : first + limit]
        else:
            last = int(np.searchsorted(ranks, before, side="left"))
            first = max(last - limit, 0)
            chosen = ranks[first:last]
        return {
            "total": len(ranks),
            "first": first,
            "rows": [self.row_at(int(rank)) for rank in chosen],
            "revision": self.state.revision,
        }

    def row_at(self, rank: int) -> dict[str, Any]:
        """Everything about the row of one rank."""
        at, row = self.selector, int(self.selector.row[rank])
        line = self.audit.rows.iloc[rank]
        return {
            "row": row,
            "rank": rank,
            "id": str(line["id"]),
            "given": int(at.given[rank]),
            "suggested": int(at.suggested[rank]),
            "suggested_probability": float(line["suggested_probability"]),
            "quality": float(at.quality[rank]),
            "p_wrong": float(line["p_wrong"]),
            "look": bool(at.flags["look"][rank]),
            "sure": bool(at.flags["sure"][rank]),
            "top": self._top(row),
            "view": self.content.view(row).to_dict(),
            "neighbours": self._neighbours(row),
            "duplicates": [self._brief(other) for other in self._near_duplicates.get(row, [])],
            "state": self._state(self.state.of(row)),
        }

    def _top(self, row: int) -> list[list[float]]:
        """The most probable classes: [code, probability]."""
        if self.audit.probs is None:
            return []
        p = np.asarray(self.audit.probs[row], np.float64)
        return [[int(k), float(p[k])] for k in np.argsort(-p, kind="stable")[:TOP]]

    def _neighbours(self, row: int) -> list[dict[str, Any]]:
        near = self.audit.neighbours
        found = [] if near is None else near.of(row)[:NEAR]
        return [self._brief(other) | {"similarity": similarity} for other, similarity in found]

    def _brief(self, row: int) -> dict[str, Any]:
        rank = int(self.rank[row])
        return {
            "row": row,
            "id": str(self.audit.rows["id"].iat[rank]),
            "given": int(self.selector.given[rank]),
            "state": self._state(self.state.of(row)),
            "view": self.content.view(row).to_dict(),
        }

    @staticmethod
    def _state(decided: Decided) -> dict[str, Any]:
        return {
            "version": decided.id,
            "decision": decided.decision,
            "label": decided.label,
            "reviewer": decided.reviewer,
            "at": decided.at,
        }

    def progress(self, wanted: Filter, since: int | None = None) -> dict[str, Any]:
        """The progress of the review, and the changes since a revision."""
        self.state.refresh()
        answered, skipped = self.state.answered, self.state.decision == CODES["skip"]
        look = self.selector.flags["look"]
        learnt = self._learn()
        changed = [] if since is None else self.log.since(since, MOST_ROWS)
        return {
            "revision": self.state.revision,
            "decided": int(answered.sum()),
            "skipped": int(skipped.sum()),
            "left": int((look & ~answered[self.selector.row]).sum()),
            "in_filter": int(self.selector.mask(wanted).sum()),
            "found": learnt.wrong,
            "errors_left": self._errors_left(learnt),
            "precision": {name: value.to_dict() for name, value in learnt.precision.items()},
            "changed": [{"row": d.row} | self._state(self.state.of(d.row)) for d in changed],
        }

    def _errors_left(self, learnt: Learnt) -> dict[str, float | None]:
        """Estimate the wrong labels left. Before the first answer, use the audit's own estimate and interval."""
        own = self.audit.info.get("errors")
        if own and not learnt.answered:
            return {key: float(own[key]) for key in ("value", "low", "high")}
        return learnt.errors_left.to_dict()

    def _learn(self) -> Learnt:
        """Estimates after the decisions so far, at most a second old."""
        with self._guard:
            kept = self._learnt
            if kept is not None and kept[0] == self.state.revision:
                return kept[2]
            if kept is not None and time.monotonic() - kept[1] < _PATIENCE:
                return kept[2]
            revision = self.state.revision
            learnt = learn_from(self.audit, self.state)
            self._learnt = (revision, time.monotonic(), learnt)
            return learnt

    # -- what the page does ------------------------------------------------------------------------

    def _choice(self, row: Any, decision: Any, label: Any, seen: Any) -> Choice:
        """A checked decision; the label follows from it, except where a class is chosen."""
        if not _whole(row) or not 0 <= row < len(self.audit):
            raise InputError(f"rows are numbers from 0 to {len(self.audit) - 1}, got {row!r}")
        if not _whole(seen) or not 0 <= seen < 2**62:
            raise InputError(f"the version that was seen is a number from 0, got {seen!r}")
        if not isinstance(decision, str) or decision not in CODES:
            raise InputError(f"a decision is one of {', '.join(filter(None, CODES))}, got {decision!r}")
        rank = self.rank[row]
        if decision == "choose":
            if not _whole(label) or not 0 <= label < len(self.audit.classes):
                raise InputError(
                    f"a class is a number from 0 to {len(self.audit.classes) - 1}, got {label!r}"
                )
            code = int(label)
        else:
            known = {"accept": self.selector.suggested[rank], "keep": self.selector.given[rank]}
            code = int(known.get(decision, -1))
        return Choice(row, decision, code, seen)

    def decide(self, choices: Sequence[Mapping[str, Any]], *, reviewer: str, key: str) -> dict[str, Any]:
        """Decide about single rows; each choice states the version of the row that was seen."""
        checked = [
            self._choice(c.get("row"), c.get("decision"), c.get("label"), c.get("seen")) for c in choices
        ]
        if len({choice.row for choice in checked}) < len(checked):
            raise InputError("a row can only be decided once at a time")
        return self._told(self.log.decide(checked, reviewer=reviewer, key=key))

    def decide_all(
        self, wanted: Filter, decision: str, label: Any, *, revision: int, reviewer: str, key: str
    ) -> dict[str, Any]:
        """Decide about every row of a filter; rows changed after `revision` are left, as conflicts."""
        self.state.refresh()
        rows = self.selector.row[self.selector.mask(wanted)].tolist()
        versions = self.state.version[rows]
        # An impossible version, so that such rows are returned as conflicts.
        choices = [
            self._choice(row, decision, label, int(version) if version <= revision else revision)
            for row, version in zip(rows, versions, strict=True)
        ]
        return self._told(self.log.decide(choices, reviewer=reviewer, key=key))

    def undo(self, *, reviewer: str, key: str) -> dict[str, Any]:
        """Undo the reviewer's last action."""
        return self._told(self.log.undo(reviewer=reviewer, key=key))

    def redo(self, *, reviewer: str, key: str) -> dict[str, Any]:
        """Redo the reviewer's last undone action."""
        return self._told(self.log.redo(reviewer=reviewer, key=key))

    def _told(self, outcome: Outcome) -> dict[str, Any]:
        self.state.refresh()

        def lines(decided: Sequence[Decided]) -> list[dict[str, Any]]:
            return [
                {"row": d.row, "rank": int(self.rank[d.row])} | self._state(d) for d in decided[:MOST_ROWS]
            ]

        return {
            "action": outcome.action,
            "changed": lines(outcome.changed),
            "n_changed": len(outcome.changed),
            "conflicts": lines(outcome.conflicts),
            "n_conflicts": len(outcome.conflicts),
            "revision": self.state.revision,
        }


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def class_keys(classes: Sequence[str]) -> list[str]:
    """Choose a key for each class: its digit if the classes are digits, else 1 to 9 and letters; "" for the rest.

    >>> class_keys(["0", "1", "cat"]), class_keys(["cat", "dog"])
    (['0', '1', '2'], ['1', '2'])
    """
    digits = {name: name for name in classes if len(name) == 1 and name in "0123456789"}
    free = [key for key in "123456789abcdefghijklmnopqrstuvwxyz" if key not in digits and key not in RESERVED]
    spare = iter(free)
    return [digits.get(name) or next(spare, "") for name in classes]
