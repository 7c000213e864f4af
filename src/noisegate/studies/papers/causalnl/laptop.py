"""The size of two cores for the CausalNL paper: LeNet-5 on 10,000 rows for 40 epochs, narrow causal networks."""

from __future__ import annotations

from typing import Any

from noisegate.studies.laptop import Laptop, reduced
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell

WIDTHS = (16, 32, 64, 64)
#: Of the labels of CIFAR-10N "worst".
WORST_RATE = 0.4021


def small(run: RunSettings) -> RunSettings:
    """LeNet-5 in every place; CIFAR-10N for Clothing1M, and pairs of digits for CIFAR-100."""
    changes: dict[str, Any] = {"rows": 10_000, "network": "lenet5"}
    params: dict[str, Any] = {"z_dim": 25} | ({"warmup": 4} if run.params.get("warmup") else {})
    if run.data["name"] == "cifar100":
        changes["data"] = {"name": "digit-pairs"}
    if run.data["name"] == "clothing1m":
        changes |= {"data": {"name": "cifar10n-worst"}, "weights": None}
        if run.params.get("noise_rate") is not None:
            params["noise_rate"] = WORST_RATE
    if run.method == "causalnl":
        run = run.replace(params={**run.params, "widths": WIDTHS})
    recipe = {"epochs": 40, "batch_size": 128, "crop_to": None, "precision": "tf32"}
    return reduced(run, params=params, recipe=recipe, **changes)


def heavy(cell: Cell) -> bool:
    """Where the paper's method has its lead."""
    return cell.column in ("IDN-45%", "IDN-50%")


TABLE = Laptop(change=small, keep=heavy, seeds=1)
CLOTHING = Laptop(change=small)
