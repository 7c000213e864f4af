"""The examples run; those that need another library run where it is installed and say so otherwise."""

import importlib.util
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest

import noisegate as ng

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_plain_loop():
    scores = runpy.run_path(EXAMPLES / "plain_loop.py")["main"](epochs=25)
    assert scores["LogisticNormal"] > 0.85
    assert scores["LogisticNormal"] > scores["CrossEntropy"]


@pytest.mark.parametrize(
    ("name", "library"), [("lightning_module", "lightning"), ("huggingface_trainer", "transformers")]
)
def test_examples_with_other_libraries(name, library):
    # In a process of its own: what those libraries warn of when they are imported is not our concern.
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False
    )
    if importlib.util.find_spec(library) is None:
        assert done.returncode == 1
        assert f"pip install {library}" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert float(done.stdout.split()[-1]) > 0.8


def test_causalnl_on_moons():
    found = runpy.run_path(EXAMPLES / "causalnl_moons.py")["main"](seeds=1, epochs=4)
    assert all(len(fits) == 1 and fits[0].metrics["test_accuracy"] > 0.3 for fits in found.values())


def test_tracking_by_tensorboard(monkeypatch, tmp_path):
    written = []

    class SummaryWriter:
        """Stands in for TensorBoard's, with the methods that the example uses."""

        def __init__(self, folder):
            self.folder = folder

        def __enter__(self):
            return self

        def __exit__(self, *error):
            written.append("closed")

        def add_scalar(self, name, value, step):
            written.append((name, float(value), step))

    monkeypatch.setitem(
        sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter)
    )
    data = ng.data.load("moons")
    follow = runpy.run_path(EXAMPLES / "tracking.py")["tensorboard"]
    follow(data, str(tmp_path), method="forward", network="linear", recipe={"epochs": 2}, device="cpu")
    assert written.pop() == "closed"
    losses = [(value, step) for name, value, step in written if name == "loss"]
    # Two phases of two epochs: the transition matrix is estimated first.
    assert [step for _, step in losses] == [0, 1, 2, 3]
    assert all(0 < value < 10 for value, _ in losses)
