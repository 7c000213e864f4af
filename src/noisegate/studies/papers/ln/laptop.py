"""The size of two cores for the Logistic-Normal paper: LeNet-5, few rows, and pairs of digits for CIFAR-100."""

from __future__ import annotations

import functools
from typing import Any

from noisegate.studies.laptop import Laptop, reduced
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell

SAMPLES = {"n_samples": 100, "n_samples_eval": 100}
ADAM = {
    **{"epochs": 50, "batch_size": 128, "optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0},
    **{"crop": 0, "flip": False, "precision": "tf32"},
}
#: The paper's recipe for MNIST.
DIGITS = {
    **{"epochs": 100, "batch_size": 256, "optimizer": "adam", "lr": 1e-3, "eps": 1e-7},
    **{"normalize": "none", "precision": "tf32"},
}
#: About the rate of CIFAR-100N.
MANY = {"name": "symmetric", "rate": 0.402, "include_self": False}


def small(run: RunSettings, rows: int = 10_000, pairs: int = 10_000) -> RunSettings:
    """LeNet-5 on few rows, and pairs of digits where the data have 100 classes."""
    name = run.data["name"]
    changes: dict[str, Any] = {"network": "lenet5", "rows": rows, "recipe": ADAM, "evaluate_every": 1}
    if name in ("cifar100", "cifar100n"):
        changes |= {"data": {"name": "digit-pairs"}, "rows": pairs}
    if name == "cifar100n":
        changes["noise"] = MANY
    return reduced(run, params=SAMPLES, **changes)


def fewer_digits(run: RunSettings) -> RunSettings:
    """A tenth of MNIST, in smaller batches, long enough to learn wrong labels by heart."""
    return reduced(run, rows=6000, recipe={"epochs": 40, "batch_size": 128}, params=SAMPLES)


def whole_mnist(run: RunSettings) -> RunSettings:
    """MNIST as it is, the rest small."""
    return run if run.data["name"] == "mnist" else small(run)


def worst_and_many(cell: Cell) -> bool:
    """The noisiest labels by people, and many classes."""
    return cell.column in ("Worst", "CIFAR-100N")


def digits_for_photos(run: RunSettings) -> RunSettings:
    """All of MNIST, with its own wrong labels and recipe, for CIFAR-10."""
    return run.replace(
        data={"name": "mnist"},
        network="lenet5",
        noise={**(run.noise or {}), "mapping": "mnist"},
        recipe=DIGITS,
        evaluate_every=1,
    )


MNIST = Laptop(change=fewer_digits, seeds=2)
CIFAR = Laptop(change=functools.partial(small, rows=5000, pairs=5000), seeds=1)
NATURAL = Laptop(change=small, keep=worst_and_many, seeds=2)
ABLATION = Laptop(change=functools.partial(small, pairs=20_000), seeds=3)
TERMS = Laptop(change=digits_for_photos)
OTHER_TERMS = Laptop(change=whole_mnist)
