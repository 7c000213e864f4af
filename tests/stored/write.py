"""How the files of this folder were written, by noisegate 0.1.0; the tests take the settings from here."""

from pathlib import Path

import numpy as np

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.studies import Cell, RunSettings, Study

#: In the second of its phases the run has a moving average, and a best epoch to remember.
RECIPE = ng.Recipe(epochs=4, batch_size=16, lr=0.01, ema=0.9, keep="best")
STOPPED = (1, 2)
STUDY = Study(
    name="stored",
    title="Stored",
    reference="none",
    cells=(
        Cell(
            row="ELR",
            column="20 %",
            settings=RunSettings(
                data={"name": "moons", "n": 60, "n_test": 30},
                method="elr",
                network="mlp-4",
                noise={"name": "symmetric", "rate": 0.2},
                recipe={"epochs": 2, "batch_size": 16},
                probes=({"name": "boundary", "resolution": 8},),
            ),
        ),
    ),
    seeds=2,
)


class Stopped(Exception):
    """Raised where the run of the checkpoint is to end."""


def data():
    """Three blobs in the plane, drawn by operations that give the same bits everywhere."""
    rng = np.random.default_rng(3)
    clean = rng.integers(0, 3, 120)
    x = (np.eye(3, 2)[clean] * 2 + rng.uniform(-1, 1, (120, 2))).astype(np.float32)
    y = np.where(np.arange(120) % 5 == 0, (clean + 1) % 3, clean)
    splits = Split(x[:80], y[:80], clean[:80]), Split(x[80:], clean[80:])
    return Dataset("stored", *splits, classes=("a", "b", "c")).hold_out(0.2, seed=0)


def train(folder=None, on_epoch=None):
    return ng.train(data(), "forward", "mlp-8", RECIPE, 1, "cpu", folder=folder, on_epoch=on_epoch)


def table():
    """Rows of a table with numbers, texts and gaps."""
    rng = np.random.default_rng(4)
    rows = ["size,colour,kind"]
    for number in range(60):
        kind = number % 2
        size = "" if number % 11 == 0 else f"{rng.uniform(0, 1) + kind:.3f}"
        colour = ("red", "blue", "")[(number + kind * (number % 3 == 0)) % 3]
        rows.append(f"{size},{colour},{('cat', 'dog')[kind if number % 7 else 1 - kind]}")
    return "\n".join(rows) + "\n"


def make_checkpoint(folder):
    from noisegate.training import trainer

    trainer.CHECKPOINT_SECONDS = 0.0

    def stop(epoch):
        if (epoch.phase, epoch.epoch) == STOPPED:
            raise Stopped

    try:
        train(folder, stop)
    except Stopped:
        return


def make_estimator(folder):
    held = data()
    names = np.array(["a", "b", "c"])
    classifier = ng.NoisyLabelClassifier("gce", "mlp-4", {"epochs": 3}, device="cpu", random_state=0)
    classifier.fit(held.train.x, names[held.train.y]).save(folder)
    np.savetxt(folder / "probabilities.csv", classifier.predict_proba(held.test.x), fmt="%.6f", delimiter=",")


def make_study(folder):
    from noisegate import studies

    studies.run(STUDY, folder, workers=1, device="cpu")


if __name__ == "__main__":
    here = Path(__file__).parent
    make_checkpoint(here / "checkpoint")
    make_estimator(here / "estimator")
    make_study(here / "study")
    (here / "table.csv").write_text(table())
