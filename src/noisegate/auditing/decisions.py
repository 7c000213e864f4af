"""The reviewers' decisions: an append-only log in SQLite that survives kills and detects conflicts.

It has three tables; lines are added, never changed:

    actions    what somebody did: decide, undo, redo or import, when, and which action it takes back
    decisions  what an action said about each of its rows, the decision it replaced (previous),
               and the decision whose state it has (origin: its own number, but for undo and redo
               the one they bring back, or 0 for none)
    facts      the audit the log belongs to

The state of a row is its last decision; the number of that decision is the row's *version*. A new
decision states the version that the reviewer has seen. If the row has another version by now, it is
returned as a conflict, and nobody's work is overwritten silently. Actions carry a key chosen by the
client, so a request that is sent twice (because the answer was lost) is carried out once.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from noisegate._io.foreign import regular_size
from noisegate.auditing.records import CODES, DECISIONS, Choice, Decided, Line, Outcome
from noisegate.auditing.stored import now
from noisegate.errors import DamagedFileError, InputError, shown

FILE = "decisions.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS actions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('decide', 'undo', 'redo', 'import')),
    target INTEGER REFERENCES actions (id),
    reviewer TEXT NOT NULL,
    at TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    action INTEGER NOT NULL REFERENCES actions (id),
    item INTEGER NOT NULL,
    decision INTEGER NOT NULL,
    label INTEGER NOT NULL,
    previous INTEGER NOT NULL,
    origin INTEGER NOT NULL,
    reviewer TEXT NOT NULL,
    at TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS decisions_item ON decisions (item, id);
CREATE INDEX IF NOT EXISTS decisions_action ON decisions (action);
CREATE INDEX IF NOT EXISTS actions_target ON actions (target, id);
CREATE INDEX IF NOT EXISTS actions_reviewer ON actions (reviewer, kind, id);
CREATE TRIGGER IF NOT EXISTS decisions_stay BEFORE UPDATE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are only ever added'); END;
CREATE TRIGGER IF NOT EXISTS decisions_kept BEFORE DELETE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are only ever added'); END;
"""
# Whether an action is in force: never undone, or redone since.
_IN_FORCE = (
    "coalesce((SELECT t.kind FROM actions t WHERE t.target = a.id ORDER BY t.id DESC LIMIT 1), '') != 'undo'"
)
_BUSY_SECONDS = 10.0


class Decisions:
    """The log of an audit's decisions.

    Parameters
    ----------
    path : path
        The SQLite file; created if it does not exist.
    audit_id : str
        The audit that the decisions belong to; the log of another audit raises InputError.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> log = Decisions(Path(folder.name) / "decisions.sqlite", "0123456789ab")
    >>> outcome = log.decide([Choice(7, "keep", label=2, seen=0)], reviewer="ana", key="k1")
    >>> outcome = log.decide([Choice(7, "accept", label=1, seen=0)], reviewer="bo", key="k2")
    >>> outcome.conflicts[0].reviewer
    'ana'
    >>> log.undo(reviewer="ana", key="k3").changed[0].decision
    ''
    >>> log.close(); folder.cleanup()
    """

    def __init__(self, path: Path, audit_id: str) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        if self.path.exists():
            regular_size(self.path, "a log of decisions")
        self._db = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            found = self._open(audit_id)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # messages quote the file's bytes
            self.close()
            raise DamagedFileError(
                f"{self.path} cannot be used as a log of decisions ({shown(error)})"
            ) from None
        except BaseException:
            self.close()
            raise
        if found != audit_id:
            self.close()
            raise InputError(
                f"{self.path} holds the decisions of audit {shown(found, 40)}, not of {audit_id}; "
                "export them from the audit they belong to and import them here"
            )

    def _open(self, audit_id: str) -> Any:
        """Prepare the file, or check that it is one that was prepared; the audit it belongs to."""
        db = self._db
        db.text_factory = lambda text: text.decode("utf-8", "replace")
        # Views and triggers of somebody else's would run whenever the tables are used.
        db.execute("PRAGMA trusted_schema = OFF")
        if not _schema(db) <= _own_schema():
            raise sqlite3.DatabaseError("it holds other tables")
        if (told := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(told)
        db.execute("PRAGMA journal_mode = WAL")
        # Every commit is on disk before the request is answered, so that it survives a power failure.
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_SCHEMA)
        db.execute("INSERT OR IGNORE INTO facts VALUES ('audit_id', ?)", (audit_id,))
        return db.execute("SELECT value FROM facts WHERE name = 'audit_id'").fetchone()[0]

    def check(self, n_rows: int, n_classes: int) -> None:
        """Raise DamagedFileError if a decision names rows, classes or kinds of decisions that do not exist."""
        within = {
            "item": (0, n_rows - 1),
            "decision": (0, len(DECISIONS) - 1),
            "label": (-1, n_classes - 1),
            "previous": (0, 2**62),
            "origin": (0, 2**62),
        }
        wrong = [
            f"typeof({name}) != 'integer' OR {name} NOT BETWEEN {low} AND {high}"
            for name, (low, high) in within.items()
        ]
        wrong += [f"typeof({name}) != 'text'" for name in ("reviewer", "at")]
        with self._lock:
            found = self._db.execute(
                f"SELECT id FROM decisions WHERE {' OR '.join(wrong)} LIMIT 1"
            ).fetchone()
        if found is not None:
            raise DamagedFileError(
                f"{self.path} is damaged: decision {found[0]} is about a row or class that the audit has not"
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction that takes the write lock first, so that values read inside cannot change."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # -- writing -----------------------------------------------------------------------------------

    def decide(
        self,
        choices: Iterable[Choice],
        *,
        reviewer: str,
        key: str,
        kind: str = "decide",
        at: str | None = None,
    ) -> Outcome:
        """Store decisions in one transaction; rows that changed since they were seen become conflicts.

        Parameters
        ----------
        choices : iterable of Choice
        reviewer : str
        key : str
            Identifies this action: a second call with the same key stores nothing and returns the first outcome.
        kind : {"decide", "import"}
        at : str, default=None
            Time of the decision; default: now.
        """
        choices = list(choices)
        at = now() if at is None else at
        with self._transaction() as db:
            done = self._repeated(db, key)
            if done is not None:
                return done
            current = self._last(db, [choice.row for choice in choices])
            lines, conflicts = [], []
            for c in choices:
                last = current.get(c.row)
                version = 0 if last is None else last.id
                if version == c.seen:
                    lines.append(Line(c.row, CODES[c.decision], c.label, version, None, c.reviewer, c.at))
                elif last is not None:
                    conflicts.append(last)
            return self._append(db, kind, None, key, reviewer, at, lines, conflicts)

    def undo(self, *, reviewer: str, key: str) -> Outcome:
        """Undo the reviewer's last action (skips included); rows that others changed since are left alone."""
        return self._step("undo", reviewer, key)

    def redo(self, *, reviewer: str, key: str) -> Outcome:
        """Redo the reviewer's last undone action, unless they have decided something since."""
        return self._step("redo", reviewer, key)

    def _step(self, kind: str, reviewer: str, key: str) -> Outcome:
        with self._transaction() as db:
            done = self._repeated(db, key)
            if done is not None:
                return done
            target = self._undoable(db, reviewer) if kind == "undo" else self._redoable(db, reviewer)
            if target is None:
                return Outcome(None)
            lines, conflicts = [], []
            for number, item, decision, label, previous in db.execute(
                "SELECT id, item, decision, label, previous FROM decisions WHERE action = ?", (target,)
            ).fetchall():
                last = self._last(db, [item])[item]
                before = self._origin(db, previous)
                # The state that the row must have now, and the one it gets: before and after the action.
                there, goal = (number, before) if kind == "undo" else (before, number)
                if self._origin(db, last.id) != there:
                    conflicts.append(last)
                    continue
                if kind == "undo":
                    decision, label = self._state(db, previous)
                lines.append(Line(item, decision, label, last.id, goal))
            return self._append(db, kind, target, key, reviewer, now(), lines, conflicts)

    def _append(
        self,
        db: sqlite3.Connection,
        kind: str,
        target: int | None,
        key: str,
        reviewer: str,
        at: str,
        lines: Sequence[Line],
        conflicts: list[Decided],
    ) -> Outcome:
        """Add an action and its decisions; one that changes nothing is not added."""
        # An undo is added even if others have changed all of its rows: otherwise it would block the next undo.
        if not lines and target is None:
            return Outcome(None, [], conflicts)
        refused = json.dumps([decided.id for decided in conflicts])
        action = db.execute(
            "INSERT INTO actions (key, kind, target, reviewer, at, result) VALUES (?, ?, ?, ?, ?, ?)",
            (key, kind, target, reviewer, at, refused),
        ).lastrowid
        assert action is not None  # SQLite numbers every new line
        number = db.execute("SELECT coalesce(max(id), 0) FROM decisions").fetchone()[0]
        db.executemany(
            "INSERT INTO decisions (id, action, item, decision, label, previous, origin, reviewer, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    place,
                    action,
                    line.row,
                    line.decision,
                    line.label,
                    line.previous,
                    place if line.origin is None else line.origin,
                    line.reviewer or reviewer,
                    line.at or at,
                )
                for place, line in enumerate(lines, number + 1)
            ),
        )
        return Outcome(action, self._of_action(db, action), conflicts)

    # -- reading -----------------------------------------------------------------------------------

    def _repeated(self, db: sqlite3.Connection, key: str) -> Outcome | None:
        """The outcome of the action that already has this key."""
        found = db.execute("SELECT id, result FROM actions WHERE key = ?", (key,)).fetchone()
        if found is None:
            return None
        ids = json.loads(found[1])
        return Outcome(found[0], self._of_action(db, found[0]), self._by_id(db, ids))

    def _of_action(self, db: sqlite3.Connection, action: int) -> list[Decided]:
        return _decided(
            db.execute(
                "SELECT id, item, decision, label, reviewer, at FROM decisions WHERE action = ? ORDER BY id",
                (action,),
            )
        )

    def _by_id(self, db: sqlite3.Connection, ids: Sequence[int]) -> list[Decided]:
        return [
            found
            for number in ids
            for found in _decided(
                db.execute(
                    "SELECT id, item, decision, label, reviewer, at FROM decisions WHERE id = ?", (number,)
                )
            )
        ]

    def _last(self, db: sqlite3.Connection, items: Sequence[int]) -> dict[int, Decided]:
        """The last decision of each of some rows."""
        found: dict[int, Decided] = {}
        for item in items:
            lines = db.execute(
                "SELECT id, item, decision, label, reviewer, at FROM decisions WHERE item = ? "
                "ORDER BY id DESC LIMIT 1",
                (item,),
            )
            for decided in _decided(lines):
                found[item] = decided
        return found

    @staticmethod
    def _state(db: sqlite3.Connection, number: int) -> tuple[int, int]:
        """(decision, label) of a decision by its number; nothing decided for 0."""
        found = db.execute("SELECT decision, label FROM decisions WHERE id = ?", (number,)).fetchone()
        return (0, -1) if found is None else (found[0], found[1])

    @staticmethod
    def _origin(db: sqlite3.Connection, number: int) -> int:
        """The decision whose state a decision has; 0 for none."""
        found = db.execute("SELECT origin FROM decisions WHERE id = ?", (number,)).fetchone()
        return 0 if found is None else int(found[0])

    @staticmethod
    def _undoable(db: sqlite3.Connection, reviewer: str) -> int | None:
        found = db.execute(
            f"SELECT a.id FROM actions a WHERE a.reviewer = ? AND a.kind = 'decide' AND {_IN_FORCE} "
            "ORDER BY a.id DESC LIMIT 1",
            (reviewer,),
        ).fetchone()
        return None if found is None else int(found[0])

    @staticmethod
    def _redoable(db: sqlite3.Connection, reviewer: str) -> int | None:
        found = db.execute(
            "SELECT u.target FROM actions u WHERE u.reviewer = ? AND u.kind = 'undo' "
            "AND u.id > coalesce((SELECT max(id) FROM actions WHERE reviewer = ? AND kind = 'decide'), 0) "
            "AND NOT EXISTS (SELECT 1 FROM actions t WHERE t.target = u.target AND t.id > u.id) "
            "ORDER BY u.id DESC LIMIT 1",
            (reviewer, reviewer),
        ).fetchone()
        return None if found is None else int(found[0])

    def can(self, reviewer: str) -> dict[str, bool]:
        """Whether there is something to undo and to redo."""
        with self._lock:
            return {
                "undo": self._undoable(self._db, reviewer) is not None,
                "redo": self._redoable(self._db, reviewer) is not None,
            }

    def revision(self) -> int:
        """Number of the last decision in the log, 0 in an empty one."""
        with self._lock:
            return int(self._db.execute("SELECT coalesce(max(id), 0) FROM decisions").fetchone()[0])

    def since(self, revision: int, limit: int = -1) -> list[Decided]:
        """Decisions with a number above `revision`, in the order in which they were stored."""
        with self._lock:
            return _decided(
                self._db.execute(
                    "SELECT id, item, decision, label, reviewer, at FROM decisions WHERE id > ? "
                    "ORDER BY id LIMIT ?",
                    (revision, limit),
                )
            )

    def last(self) -> list[Decided]:
        """The last decision of every row that has one in force, by row."""
        with self._lock:
            lines = self._db.execute(
                "SELECT id, item, decision, label, reviewer, at FROM decisions WHERE id IN "
                "(SELECT max(id) FROM decisions GROUP BY item) AND decision != 0 ORDER BY item"
            )
            return _decided(lines)

    def reviewers(self) -> list[str]:
        """Everybody who decided something."""
        with self._lock:
            return [line[0] for line in self._db.execute("SELECT DISTINCT reviewer FROM actions ORDER BY 1")]


def _schema(db: sqlite3.Connection) -> set[tuple[str, str, str]]:
    """(type, name, statement) of every table, index, view and trigger."""
    lines = db.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {line for line in lines if not (line[0] == "table" and line[1] == "sqlite_sequence")}


@functools.cache
def _own_schema() -> set[tuple[str, str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(_SCHEMA)
        return _schema(db)


def _decided(lines: Iterable[tuple[Any, ...]]) -> list[Decided]:
    return [
        Decided(number, item, DECISIONS[decision], label, reviewer, at)
        for number, item, decision, label, reviewer, at in lines
    ]
