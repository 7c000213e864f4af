"""Lukasik et al. 2020: does label smoothing mitigate label noise?

Studies of the CIFAR networks ask for the same runs wherever they can, with the same probes, so that
a run that serves several tables and figures is done once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noisegate.studies.papers.smoothing.numbers import TABLE2, TABLE3, TABLE4, TABLE5, TABLE7
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Number

if TYPE_CHECKING:
    pass


# -- the paper's numbers ---------------------------------------------------------------------------


# -- the protocol ----------------------------------------------------------------------------------

_NOISE = {"name": "symmetric", "rate": 0.2, "include_self": False}

_CIFAR_RECIPE = {
    "steps": 64_000,
    "batch_size": 128,
    "optimizer": "nesterov",
    "momentum": 0.9,
    "lr": 0.1,
    "schedule": "step",
    "milestones": (32_000, 48_000),
    "gamma": 0.1,
    "weight_decay": 1e-4,
    "crop": 4,
    "flip": True,
    "precision": "bf16",
}

_IMAGENET_RECIPE = {
    "steps": 32_768,
    "batch_size": 3500,
    "optimizer": "lars",
    "momentum": 0.9,
    "lr": 8.5,
    "schedule": "cosine",
    "warmup": 1830,
    "weight_decay": 2e-4,
    "decay_norm_and_bias": False,
    "crop_to": 224,
    "flip": True,
    "precision": "bf16",
}

# One step of the whole sample an epoch, at a constant rate: the separator ends within 1e-5 of the
# optimum. With the strongest penalty a rate of 1 would not settle.
_TOY_RECIPE = {
    "epochs": 2000,
    "batch_size": 10_000,
    "optimizer": "nesterov",
    "momentum": 0.95,
    "lr": 0.5,
    "normalize": "none",
}

_DATA = {"CIFAR-100": "cifar100", "CIFAR-10": "cifar10"}
_NETWORKS = {"ResNet-32": "resnet32", "ResNet-56": "resnet56"}
# Beaver, dolphin and otter; airplane, automobile and bird.
_CLASSES = {"CIFAR-100": (4, 30, 55), "CIFAR-10": (0, 1, 2)}

#: The sweep of figures 2 and 6.
ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Figure 5.
TOY_ALPHAS = (0.0, 0.1, 0.4, 0.8)
TOY_STRENGTHS = (0.001, 0.01, 0.1, 1.0)

_DISTILLED: Mapping[str, Mapping[str, str]] = {
    "Vanilla distillation": {"teacher": "ce", "student": "ce"},
    "LS on teacher": {"teacher": "ls", "student": "ce"},
    "LS on student": {"teacher": "ce", "student": "ls"},
    "FC on teacher": {"teacher": "fc", "student": "ce"},
    "FC on student": {"teacher": "ce", "student": "fc"},
}

_SMEARED: Mapping[str, tuple[str, float]] = {
    "Baseline": ("ce", 0.0),
    "LS": ("ls", 0.1),
    "FC smoothing": ("fc", 0.1),
    "BC smoothing": ("bc", 0.1),
}

# -- cells -----------------------------------------------------------------------------------------


def _smear(method: str, alpha: float) -> dict[str, Any]:
    """Method and parameters of ls, fc or bc; at alpha = 0 all of them are cross-entropy."""
    return {"method": method, "params": {"alpha": alpha}} if alpha else {"method": "ce", "params": {}}


def _cifar(dataset: str, network: str, **settings: Any) -> RunSettings:
    return RunSettings(
        data={"name": _DATA[dataset]},
        network=_NETWORKS[network],
        noise=_NOISE,
        recipe=_CIFAR_RECIPE,
        validation=None,
        **settings,
    )


def _smeared(dataset: str, network: str, method: str, alpha: float) -> RunSettings:
    """A run of ce, ls, fc or bc; what any study of it measures is measured in all of them."""
    probes = (
        {"name": "calibration", "bins": 100},
        {"name": "logit_gaps"},
        {"name": "prelogits", "classes": _CLASSES[dataset]},
    )
    return _cifar(dataset, network, probes=probes, **_smear(method, alpha))


def _alpha(alpha: float) -> str:
    return f"α = {alpha:.1f}"


def figure2_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row=method.upper(),
            column=_alpha(alpha),
            group=dataset,
            settings=_smeared(dataset, "ResNet-32", method, alpha),
        )
        for dataset in _DATA
        for method in ("ls", "fc", "bc")
        for alpha in ALPHAS
    )


def gap_cells() -> tuple[Cell, ...]:
    methods = {"CE": ("ce", 0.0), "LS": ("ls", 0.2), "FC": ("fc", 0.2), "BC": ("bc", 0.2)}
    return tuple(
        Cell(
            row=row,
            column="CIFAR-100 ResNet-32",
            settings=_smeared("CIFAR-100", "ResNet-32", method, alpha),
        )
        for row, (method, alpha) in methods.items()
    )


def prelogit_cells(dataset: str, network: str, alphas: tuple[float, ...]) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row=_alpha(alpha),
            column=f"{dataset} {network}",
            settings=_smeared(dataset, network, "ls", alpha),
        )
        for alpha in alphas
    )


def figure9_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row=method.upper(),
            column="CIFAR-100 ResNet-32",
            settings=_smeared("CIFAR-100", "ResNet-32", method, 0.2),
        )
        for method in ("bc", "fc")
    )


def _toy_cell(
    row: str, column: str, *, noisy: bool = True, alpha: float = 0.0, strength: float = 0.0
) -> Cell:
    settings = RunSettings(
        data={"name": "gaussians", "n": 10_000},
        network="linear",
        noise={"name": "transition", "matrix": [[0.95, 0.05], [0.0, 1.0]]} if noisy else None,
        recipe={**_TOY_RECIPE, "weight_decay": strength},
        validation=None,
        evaluate_every=0,
        probes=({"name": "separator"},),
        **_smear("ls", alpha),
    )
    return Cell(row=row, column=column, settings=settings)


def figure5_cells() -> tuple[Cell, ...]:
    column = "separator"
    return (
        _toy_cell("clean labels", column, noisy=False),
        *(_toy_cell(f"LS, {_alpha(alpha)}", column, alpha=alpha) for alpha in TOY_ALPHAS),
        *(_toy_cell(f"L2, λ = {strength:g}", column, strength=strength) for strength in TOY_STRENGTHS),
    )


def figure6_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row="LS on teacher",
            column=_alpha(alpha),
            settings=_cifar(
                "CIFAR-100",
                "ResNet-32",
                method="distillation",
                params={"teacher": "ls", "student": "ce", "alpha": alpha, "temperature": 1.0},
            ),
        )
        for alpha in ALPHAS
    )


def table2_cells() -> tuple[Cell, ...]:
    cells = []
    for row, numbers in TABLE2.items():
        for column, number in numbers.items():
            settings = RunSettings(
                data={"name": "imagenet", "size": 256},
                network="resnet-v2-50",
                noise=_NOISE,
                recipe=_IMAGENET_RECIPE,
                validation=None,
                **_smear(row.lower(), float(column[-3:])),
            )
            cells.append(_cell(row, column, settings, test_accuracy=number))
    return tuple(cells)


def table3_cells() -> tuple[Cell, ...]:
    return tuple(
        _cell(
            row, "CIFAR-100 ResNet-32", _smeared("CIFAR-100", "ResNet-32", "ls", float(row[-3:])), **numbers
        )
        for row, numbers in TABLE3.items()
    )


def table4_cells() -> tuple[Cell, ...]:
    return tuple(
        _cell(
            row,
            column,
            _smeared("CIFAR-100", "ResNet-32", column.lower(), float(row[-3:])),
            test_ece100=number,
        )
        for row, numbers in TABLE4.items()
        for column, number in numbers.items()
    )


def table5_cells() -> tuple[Cell, ...]:
    cells = []
    for row, numbers in TABLE5.items():
        for column, number in numbers.items():
            params = {**_DISTILLED[column], "alpha": 0.1, "temperature": 2.0}
            settings = _cifar(*row.split(), method="distillation", params=params)
            cells.append(_cell(row, column, settings, test_accuracy=number))
    return tuple(cells)


def table7_cells() -> tuple[Cell, ...]:
    cells = []
    for row, numbers in TABLE7.items():
        for column, number in numbers.items():
            dataset, network = row.split()
            if column in _SMEARED:
                settings = _smeared(dataset, network, *_SMEARED[column])
            else:
                method = "forward" if column.startswith("FC") else "backward"
                settings = _cifar(dataset, network, method=method, params={"percentile": 99.9})
            cells.append(_cell(row, column, settings, test_accuracy=number))
    return tuple(cells)


def _cell(row: str, column: str, settings: RunSettings, **paper: Number) -> Cell:
    return Cell(row=row, column=column, settings=settings, paper=paper)
