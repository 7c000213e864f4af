"""The size of two cores for the label smoothing paper: LeNet-5 on pictures of clothes."""

from __future__ import annotations

from noisegate.studies.laptop import Laptop, reduced
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell

# The paper's networks end with a part of the wrong labels learnt by heart. LeNet-5 on 10,000 rows is
# there after 20 epochs; after 100 it knows all of them whatever alpha is, and with crops and flips
# none, so that either way smoothing has nothing to mend.
RECIPE = {
    **{"epochs": 20, "optimizer": "adam", "lr": 1e-3, "schedule": "constant", "weight_decay": 0.0},
    **{"crop": 0, "crop_to": None, "flip": False, "decay_norm_and_bias": True, "warmup": 0.0},
    **{"milestones": (), "batch_size": 128, "precision": "tf32"},
}
ALPHAS = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8)


def on_clothes(run: RunSettings) -> RunSettings:
    """LeNet-5 on 10,000 pictures of clothes, with the paper's proportions of the schedule."""
    probes = tuple(
        {**probe, "classes": (0, 1, 2)} if probe["name"] == "prelogits" else probe for probe in run.probes
    )
    run = run.replace(probes=probes)
    run = run.replace(data={"name": "fashion-mnist"}, network="lenet5", rows=10_000, evaluate_every=10)
    return reduced(run, recipe=RECIPE)


def sweep(cell: Cell) -> bool:
    """Half of the strengths, on one dataset."""
    return cell.group in ("", "CIFAR-10") and float(cell.column[-3:]) in ALPHAS


def one_network(cell: Cell) -> bool:
    """One of the four pairs of dataset and network, which the reduction makes the same."""
    return cell.row == "CIFAR-10 ResNet-32"


TABLE = Laptop(change=on_clothes)
SWEEP = Laptop(change=on_clothes, keep=sweep, seeds=2)
COMPARISON = Laptop(change=on_clothes, keep=one_network, seeds=3)
