import io
import sys

import noisegate as ng
from noisegate.runs.progress import progress_bar
from noisegate.training.trainer import Epoch


def test_nothing_is_printed_where_nobody_watches(capsys, data):
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
