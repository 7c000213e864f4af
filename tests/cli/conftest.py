"""Small files of every kind the command line reads, and a way to call it."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from noisegate.cli import main

QUICK = [
    "--method",
    "ln",
    "--recipe",
    "epochs=15",
    "--recipe",
    "lr=0.02",
    "--recipe",
    "batch_size=16",
    "--network",
    "mlp-16",
    "--device",
    "cpu",
]


@pytest.fixture(autouse=True)
def no_lines_of_progress(monkeypatch):
    """A busy machine makes no test's output longer."""
    monkeypatch.setattr("noisegate.runs.progress.EVERY_SECONDS", float("inf"))


@pytest.fixture
def call(capsys):
    """Run a command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def fails(call):
    """Run a command line that must fail in one line with exit code 2; the line is returned."""

    def run(*arguments):
        code, out, err = call(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("noisegate: error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err

    return run


def flowers(n=120, seed=0):
    """Two numbers that tell the species, a category that helps, gaps, and an id of no use."""
    rng = np.random.default_rng(seed)
    big = rng.random(n) < 0.5
    frame = pd.DataFrame(
        {
            "length": rng.normal(np.where(big, 6.0, 1.0), 0.5),
            "width": rng.normal(np.where(big, 2.0, 0.2), 0.2),
            "place": np.where(big, "hill", rng.choice(["lake", "wood"], n)),
            "species": np.where(big, "rose", "daisy"),
        }
    )
    frame.loc[rng.random(n) < 0.1, "length"] = np.nan
    frame.loc[rng.random(n) < 0.1, "place"] = None
    return frame


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "flowers.csv"
    flowers().to_csv(path, index=False)
    return path


@pytest.fixture
def fitted_table(table, tmp_path, call):
    """A model folder fitted on the table of flowers."""
    code, _, err = call("fit", table, "--label", "species", "--out", tmp_path / "model", *QUICK)
    assert (code, err) == (0, "")
    return tmp_path / "model"


def write_images(folder, n=12, names=("dark", "light"), seed=0):
    """One sub-folder a class: dark and light squares with some noise."""
    rng = np.random.default_rng(seed)
    for name, level in zip(names, (40, 200), strict=True):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            pixels = np.clip(rng.normal(level, 15, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:02d}.png")
    return folder
