"""A study that any machine does in minutes, on the digits that ship with scikit-learn."""

from __future__ import annotations

from noisegate.studies.study import Cell, RunSettings, Smoke, Study

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


STUDIES = (
    Study(
        name="demo",
        title="Six methods on 1,347 digits with wrong labels",
        reference="no paper: a first look",
        cells=tuple(_cell(row, method, rate) for row, method in _METHODS.items() for rate in _RATES),
        seeds=3,
        bold="welch",
        notes=("The wrong labels are drawn from the other nine classes.", "Nothing was tuned."),
        smoke=Smoke(data=None, epochs=2, recipe={"batch_size": 64}),
    ),
)
