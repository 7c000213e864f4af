import io

import pytest

from noisegate.studies.board import Board, clock
from noisegate.studies.execute import Event


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress(epoch):
    return {"phase": "training", "epoch": epoch, "n_epochs": 10, "accuracy": 0.9125}


def test_plain_lines_where_nobody_watches(tiny):
    stream = io.StringIO()
    with Board("tiny", total=4, done=1, stream=stream) as board:
        board(Event("started", tiny))
        board(Event("epoch", tiny, progress=progress(1)))
        board(Event("finished", tiny))
        board(Event("crashed", tiny.replace(seed=1), "ValueError: no"))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("[2/4] moons symmetric 0.2 ce seed 0: done in 0 s, about")
    assert lines[1].startswith("[3/4] moons symmetric 0.2 ce seed 1: crashed: ValueError: no")


def test_one_table_on_a_terminal(tiny):
    stream = Terminal()
    with Board("tiny", total=4, stream=stream) as board:
        board(Event("started", tiny))
        board(Event("epoch", tiny, progress=progress(3)))
        board(Event("diverged", tiny.replace(seed=1), "not finite"))
        text = _drawn(board)
    for part in ("0 of 4 runs done, 1 running, 1 failed", "3/10", "91.25%", "diverged: not finite"):
        assert part in text


def test_the_last_known_accuracy_stays(tiny):
    board = Board("tiny", total=4, stream=io.StringIO())
    board(Event("started", tiny))
    board(Event("epoch", tiny, progress=progress(3) | {"accuracy": None}))
    assert "3/10" in _drawn(board)
    board(Event("epoch", tiny, progress=progress(5)))
    board(Event("epoch", tiny, progress=progress(6) | {"accuracy": None}))
    assert "6/10" in _drawn(board)
    assert "91.25%" in _drawn(board)


def _drawn(board):
    from rich.console import Console

    console = Console(file=io.StringIO(), width=200)
    console.print(board._table())
    return console.file.getvalue()


def test_the_time_left_follows_the_pace(tiny, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    board = Board("tiny", total=5, done=1, seconds=77.0, stream=io.StringIO())
    assert board.left() == 77.0
    board(Event("started", tiny))
    now[0] += 10
    board(Event("finished", tiny))
    assert board.left() == pytest.approx(30.0)


def test_the_time_left_counts_runs_under_way(tiny, monkeypatch):
    """Sixteen beside each other: after half of their epochs half of the time is over, though none has ended."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    board = Board("tiny", total=32, seconds=77.0, stream=io.StringIO())
    runs = [tiny.replace(seed=seed) for seed in range(16)]
    for run in runs:
        board(Event("started", run))
    assert board.left() == 77.0
    now[0] = 50.0
    for run in runs:
        board(Event("epoch", run, progress=progress(5) | {"epoch": 0}))
        board(Event("epoch", run, progress=progress(5)))
    assert board.left() == pytest.approx(150.0)
    now[0] = 100.0
    for run in runs:
        board(Event("finished", run))
    assert board.left() == pytest.approx(100.0)


def test_the_time_left_knows_of_resumed_runs(tiny, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    board = Board("tiny", total=2, stream=io.StringIO())
    board(Event("epoch", tiny, progress=progress(8)))
    now[0] = 10.0
    board(Event("finished", tiny))
    # A fifth of a run took ten seconds, so a whole one takes fifty.
    assert board.left() == pytest.approx(50.0)


def test_a_busy_run_is_not_counted(tiny):
    board = Board("tiny", total=5, stream=io.StringIO())
    board(Event("busy", tiny))
    assert (board.done, board.failed) == (0, 0)


def test_clock():
    assert [clock(s) for s in (0.4, 59.6, 3599, 3600)] == ["0 s", "1 min 0 s", "59 min 59 s", "1 h 0 min"]
