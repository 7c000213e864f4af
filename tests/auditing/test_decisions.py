"""The log: undo and redo, conflicts, requests sent twice, several connections, kills."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noisegate.auditing import stored
from noisegate.auditing.decisions import Decisions
from noisegate.auditing.records import Choice
from noisegate.auditing.state import State, open_log
from noisegate.errors import DamagedFileError, InputError, NoisegateError


@pytest.fixture
def log(tmp_path):
    log = Decisions(tmp_path / "decisions.sqlite", "a" * 12)
    yield log
    log.close()


def states(log):
    return {d.row: (d.decision, d.label) for d in log.last()}


def decide(log, row, label, seen=0, reviewer="ana", decision="choose", key=None):
    key = key or os.urandom(8).hex()
    return log.decide([Choice(row, decision, label, seen)], reviewer=reviewer, key=key)


def key():
    return os.urandom(8).hex()


def test_undo_and_redo_walk_through_everything(log):
    version = 0
    for label in (1, 2, 0):
        version = decide(log, 5, label, version).changed[0].id
    decide(log, 6, -1, decision="skip")
    seen = []
    for _ in range(5):
        log.undo(reviewer="ana", key=key())
        seen.append(states(log))
    assert seen == [{5: ("choose", 0)}, {5: ("choose", 2)}, {5: ("choose", 1)}, {}, {}]
    assert not log.can("ana")["undo"]
    for _ in range(4):
        log.redo(reviewer="ana", key=key())
    assert states(log) == {5: ("choose", 0), 6: ("skip", -1)}
    assert log.redo(reviewer="ana", key=key()).action is None


def test_a_new_decision_ends_redo(log):
    decide(log, 1, 0)
    log.undo(reviewer="ana", key=key())
    assert log.can("ana") == {"undo": False, "redo": True}
    decide(log, 2, 0)
    assert log.can("ana") == {"undo": True, "redo": False}
    log.undo(reviewer="ana", key=key())
    assert states(log) == {}
    assert log.undo(reviewer="ana", key=key()).action is None


def test_a_stale_version_is_a_conflict(log):
    first = decide(log, 3, 1, reviewer="ana").changed[0]
    outcome = decide(log, 3, 2, reviewer="bo")
    assert outcome.action is None
    assert outcome.conflicts == [first]
    assert states(log) == {3: ("choose", 1)}
    assert decide(log, 3, 2, seen=first.id, reviewer="bo").changed[0].label == 2


def test_undo_leaves_what_others_changed(log):
    first = log.decide([Choice(1, "keep", 0, 0), Choice(2, "keep", 0, 0)], reviewer="ana", key="k").changed
    other = decide(log, 1, 2, seen=first[0].id, reviewer="bo").changed[0]
    outcome = log.undo(reviewer="ana", key=key())
    assert outcome.conflicts == [other]
    assert states(log) == {1: ("choose", 2)}
    outcome = log.redo(reviewer="ana", key=key())
    assert outcome.conflicts == [other]
    assert states(log) == {1: ("choose", 2), 2: ("keep", 0)}


def test_reviewers_undo_their_own(log):
    decide(log, 1, 0, reviewer="ana")
    decide(log, 2, 0, reviewer="bo")
    log.undo(reviewer="ana", key=key())
    assert states(log) == {2: ("choose", 0)}
    assert log.reviewers() == ["ana", "bo"]


def test_the_same_request_twice_is_one_action(log):
    choices = [Choice(row, "keep", 0, 0) for row in range(3)]
    first = log.decide(choices, reviewer="ana", key="same")
    assert log.decide(choices, reviewer="ana", key="same") == first
    undone = log.undo(reviewer="ana", key="undo")
    assert log.undo(reviewer="ana", key="undo") == undone
    assert len(log.since(0)) == 6


def test_lines_cannot_be_changed(log):
    decide(log, 1, 0)
    with sqlite3.connect(log.path) as db:
        for statement in ("UPDATE decisions SET label = 9", "DELETE FROM decisions"):
            with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
                db.execute(statement)
    db.close()


def test_two_connections_see_each_other(log):
    other = Decisions(log.path, "a" * 12)
    state = State(other, 10)
    decided = decide(log, 4, 2).changed[0]
    assert state.refresh() == 1
    assert state.of(4) == decided
    assert decide(other, 4, 1, reviewer="bo").conflicts == [decided]
    log.undo(reviewer="ana", key=key())
    state.refresh()
    assert state.of(4).decision == ""
    assert not state.answered.any()
    other.close()


def test_other_audits_and_damage_are_refused(log, tmp_path):
    with pytest.raises(InputError, match="decisions of audit a"):
        Decisions(log.path, "b" * 12)
    (tmp_path / "x.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(DamagedFileError, match="cannot be used"):
        Decisions(tmp_path / "x.sqlite", "a" * 12)


BAD = {
    "row": "INSERT INTO decisions VALUES (1, 1, 999999, 1, 0, 0, 1, 'ana', '')",
    "row below": "INSERT INTO decisions VALUES (1, 1, -1, 1, 0, 0, 1, 'ana', '')",
    "kind": "INSERT INTO decisions VALUES (1, 1, 0, 99, 0, 0, 1, 'ana', '')",
    "class": "INSERT INTO decisions VALUES (1, 1, 0, 1, 99, 0, 1, 'ana', '')",
    "text": "INSERT INTO decisions VALUES (1, 1, 'a', 1, 0, 0, 1, 'ana', '')",
    "bytes": "INSERT INTO decisions VALUES (1, 1, 0, 1, 0, 0, 1, x'ff', '')",
    "trigger": "CREATE TRIGGER t AFTER INSERT ON actions BEGIN DELETE FROM facts; END",
    "endless": "DROP TABLE decisions; CREATE VIEW decisions AS WITH RECURSIVE n(id) AS "
    "(SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 1 AS action, id AS item FROM n",
}


@pytest.mark.parametrize("statement", BAD.values(), ids=BAD)
def test_a_log_that_was_tampered_with_is_refused(table_audit, statement):
    folder, _ = table_audit()
    audit = stored.read(folder)
    open_log(audit).close()
    with contextlib.closing(sqlite3.connect(folder / "decisions.sqlite")) as db:
        db.executescript(statement)
    with pytest.raises(DamagedFileError, match=r"decisions\.sqlite"):
        open_log(audit)


def test_pipes_and_changed_bytes_in_place_of_a_log_are_refused(table_audit):
    folder, _ = table_audit()
    audit, path = stored.read(folder), folder / "decisions.sqlite"
    with contextlib.closing(open_log(audit)) as log:
        for row in range(40):
            log.decide([Choice(row, "keep", 0, 0)], reviewer="ana", key=f"key-{row}")
    sound, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        content = bytearray(sound)
        for place in rng.integers(0, len(content), 40):
            content[place] = rng.integers(256)
        path.write_bytes(content)
        for beside in folder.glob("decisions.sqlite-*"):
            beside.unlink()
        with contextlib.suppress(NoisegateError), contextlib.closing(open_log(audit)) as log:
            state = State(log, len(audit))
            assert [state.of(row).row for row in range(len(audit))] == list(range(len(audit)))
            log.last(), log.reviewers(), log.can("ana")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="pipe"):
        open_log(audit)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("dur"), st.integers(0, 3), st.integers(0, 2)), max_size=25))
def test_one_reviewer_is_a_plain_history(steps):
    """Against a list of states: undo goes back one, redo forward, a decision cuts what lies ahead."""
    log = Decisions(":memory:", "a" * 12)
    history, place = [{}], 0
    for what, row, label in steps:
        if what == "d":
            version = {d.row: d.id for d in log.since(0)}.get(row, 0)
            decide(log, row, label, version)
            history = [*history[: place + 1], history[place] | {row: ("choose", label)}]
            place += 1
        elif what == "u":
            log.undo(reviewer="ana", key=key())
            place = max(place - 1, 0)
        else:
            log.redo(reviewer="ana", key=key())
            place = min(place + 1, len(history) - 1)
        assert states(log) == history[place]
        assert log.can("ana") == {"undo": place > 0, "redo": place < len(history) - 1}
    log.close()


WRITER = """
import sys
from pathlib import Path
from noisegate.auditing.decisions import Decisions
from noisegate.auditing.records import Choice
log = Decisions(Path(sys.argv[1]), "a" * 12)
for row in range(10_000):
    log.decide([Choice(row, "keep", 0, 0)], reviewer="ana", key=str(row))
    print(row, flush=True)
"""


def test_a_kill_loses_nothing_that_was_answered(tmp_path):
    path = tmp_path / "decisions.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        said = [int(child.stdout.readline()) for _ in range(50)]
        child.send_signal(signal.SIGKILL)
        said += [int(line) for line in child.stdout.read().split()]
    log = Decisions(path, "a" * 12)
    kept = [d.row for d in log.last()]
    assert kept[: len(said)] == said
    assert len(kept) <= len(said) + 1  # one may be stored whose answer was cut off
    state = State(log, 10_000)
    assert np.flatnonzero(state.answered).tolist() == kept
    log.close()
