"""Studies that any machine does in minutes, on the digits that ship with scikit-learn and on two moons."""

from __future__ import annotations

from noisegate.studies.papers.demo.story import STORY, caption, findings, picture
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Figure, Smoke, Study, Value

_RATES = (0.0, 0.2, 0.4)
_METHODS = {"CE": "ce", "LS": "ls", "GCE": "gce", "Mixup": "mixup", "ELR": "elr", "LN": "ln"}


def _cell(row: str, method: str, rate: float) -> Cell:
    settings = RunSettings(
        data={"name": "digits"},
        method=method,
        network="mlp-256-256",
        noise={"name": "symmetric", "rate": rate, "include_self": False} if rate else None,
        recipe={"epochs": 40, "batch_size": 32, "lr": 1e-3},
        evidence=("test", "train"),
    )
    return Cell(row=row, column=f"symmetric {rate:.0%}", settings=settings)


def _digits(row: str, method: str) -> Cell:
    """Long enough for a network to learn the wrong labels by heart, and without rows held out."""
    settings = RunSettings(
        data={"name": "digits"},
        method=method,
        network="mlp",
        noise={"name": "symmetric", "rate": 0.4, "include_self": False},
        recipe={"epochs": 80, "batch_size": 128, "lr": 1e-3},
        validation=None,
        evidence=("test", "train"),
        probes=({"name": "predictions"},),
    )
    return Cell(row=row, column=STORY[0], settings=settings)


def _auto(column: str, rate: float) -> Cell:
    """The default method as it comes: it chooses its models and how long to train them."""
    settings = RunSettings(
        data={"name": "digits"},
        method="auto",
        network="auto",
        noise={"name": "symmetric", "rate": rate, "include_self": False} if rate else None,
        recipe={},
        validation=None,
        evidence=("test", "train"),
        evaluate_every=0,
    )
    return Cell(row="auto", column=column, settings=settings)


def _moons(row: str, method: str) -> Cell:
    settings = RunSettings(
        data={"name": "moons", "n": 600, "noise": 0.12},
        method=method,
        network="mlp-128-128-128",
        noise={"name": "symmetric", "rate": 0.3, "include_self": False},
        recipe={"epochs": 200, "batch_size": 100, "lr": 4e-3},
        validation=None,
        evaluate_every=0,
        probes=({"name": "boundary"},),
    )
    return Cell(row=row, column=STORY[1], settings=settings)


STUDIES = (
    Study(
        name="demo",
        title="What wrong labels do to a classifier",
        reference="no paper: a first look",
        cells=(
            *(_cell(row, method, rate) for row, method in _METHODS.items() for rate in _RATES),
            *(_auto(f"symmetric {rate:.0%}", rate) for rate in _RATES),
            *(_digits(row, method) for row, method in _METHODS.items()),
            _auto(STORY[0], 0.4),
            *(_moons(row, _METHODS[row]) for row in ("CE", "LN")),
        ),
        values=(
            Value(),
            Value(name="test_ece", title="calibration error", higher_is_better=False),
        ),
        seeds=3,
        bold="welch",
        notes=(
            "Wrong digits' labels are drawn from the other nine classes, those of moons are flipped.",
            "Methods see only the given labels; the clean ones serve to measure.",
            "Nothing was tuned, and nothing stops early, except in auto, the default, which averages many models "
            "and chooses among them and their lengths by held-out given labels.",
            "The moons' network and length were chosen to show the effect.",
        ),
        figures=tuple(
            Figure(
                name=f"demo-{name}",
                draw=picture(name),
                caption=caption(name),
                column=STORY[name == "moons"],
            )
            for name in ("accuracy", "memorised", "moons", "reliability", "wrong-digits")
        ),
        findings=findings,
        smoke=Smoke(data=None, epochs=2, recipe={"batch_size": 64}),
    ),
)
