"""The size of two cores for the temperature paper: LeNet-5 for the nine layers, on MNIST and Fashion-MNIST."""

from __future__ import annotations

from noisegate.studies.laptop import Laptop, reduced
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell

TEMPERATURES = (0.2, 0.6, 1.0, 2.2, 5.0, 10.0, 20.0, 50.0)
SEARCH = {"temperature": TEMPERATURES, "lambda_2": (0.0, 1.0), "burn_in": (0, 5)}


def lenet(run: RunSettings) -> RunSettings:
    """LeNet-5 for the nine layers, and clothes for CIFAR-10."""
    data = {"name": "fashion-mnist"} if run.data["name"] == "cifar10" else run.data
    # The test rows are looked at when training is over: in every epoch, with 1000 samples, they
    # would cost as much.
    return reduced(run, data=data, network="lenet5", recipe={"precision": "tf32"}, evaluate_every=0)


def grey(cell: Cell) -> bool:
    """All but SVHN."""
    return cell.group != "SVHN"


def part_of_figures(cell: Cell) -> bool:
    """One dataset, the two ends of the numbers of samples, and about half of the temperatures."""
    shown = {"no τ", *(f"τ = {temperature:g}" for temperature in TEMPERATURES)}
    return cell.group == "MNIST" and cell.row not in ("S = 10", "S = 100") and cell.column in shown


TABLE = Laptop(change=lenet, keep=grey, seeds=2, search=SEARCH)
FIGURE = Laptop(change=lenet, keep=part_of_figures, seeds=2)
