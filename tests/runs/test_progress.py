import io
import sys

import noisegate as ng
from noisegate.runs.progress import progress_bar
from noisegate.training.trainer import Epoch


def test_nothing_is_printed_of_a_short_run_where_nobody_watches(capsys, data):
    ng.train(data, "ce", recipe={"epochs": 2})
    out, err = capsys.readouterr()
    assert (out, err) == ("", "")


def test_the_bar_shows_phase_epoch_and_numbers(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    with progress_bar("ln", enabled=True) as show:
        show(Epoch(0, "training", 1, 2, {"loss": 1.5, "test_accuracy": 0.25}))
        show(Epoch(0, "training", 2, 2, {"loss": 1.25, "test_accuracy": 0.75}))
        show(Epoch(1, "correction", 1, 1, {"loss": 0.5}))
    text = stream.getvalue()
    assert "ln: correction" in text
    assert "2/2" in text
    assert "loss 1.250  clean test 0.750" in text


def test_a_long_run_prints_a_line_now_and_then_where_there_is_no_terminal(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 10.0, 10.0, 12.0, 21.0, 21.0])
    monkeypatch.setattr("noisegate.runs.progress.time.monotonic", lambda: next(clock))
    with progress_bar("ln") as show:
        for epoch in range(1, 5):
            show(Epoch(0, "training", epoch, 4, {"loss": 1.5}))
    assert capsys.readouterr().err.splitlines() == [
        "ln: training, epoch 2 of 4  loss 1.500",
        "ln: training, epoch 4 of 4  loss 1.500",
    ]
