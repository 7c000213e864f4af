"""The size of two cores for the label smoothing paper: LeNet-5 on pictures of clothes."""

from __future__ import annotations

from noisegate.studies.laptop import Laptop, reduced
from noisegate.studies.study import Cell, RunSettings

# The paper's schedule on 100 epochs, with its crops, flips and weight decay: without them so small a network learns
# every wrong label by heart, and nothing is left for smoothing to mend.
RECIPE = {
    **{"epochs": 100, "optimizer": "adam", "lr": 1e-3, "schedule": "step", "milestones": (50, 75)},
    **{"crop": 4, "crop_to": None, "flip": True, "weight_decay": 1e-4, "decay_norm_and_bias": True},
    **{"warmup": 0.0, "batch_size": 128, "precision": "tf32"},
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
