"""Figures 1 and 6 of the softmax-temperature paper: noisy test metrics against the temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisegate.errors import InputError
from noisegate.reporting.plots import INK, PALETTE, panels
from noisegate.studies.papers.sweep import sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from noisegate.studies.results import Results

REFERENCE = "Homoscedastic"


def log_likelihood(results: Results) -> Figure:
    """Figure 1: noisy test log-likelihood."""
    return against_temperature(results, "noisy_test_log_likelihood", "noisy test log-likelihood")


def accuracy(results: Results) -> Figure:
    """Figure 6: noisy test accuracy."""
    return against_temperature(results, "noisy_test_accuracy", "noisy test accuracy")


def against_temperature(
    results: Results, metric: str, label: str, *, bootstrap: bool = False, percent: bool = False
) -> Figure:
    """One panel a dataset, one line a number of training samples, cross-entropy as a level.

    Datasets without a finished heteroscedastic run are left out; if none has one, an InputError says so.
    """
    found = {group: collect(results, group, metric) for group in groups(results)}
    ready = {group: lines for group, lines in found.items() if lines[0]}
    if not ready:
        raise InputError(
            f"{results.study.name}: there is no finished run with a temperature yet, which {label} could be "
            "drawn from"
        )
    figure, axes = panels(len(ready), size=(4.8, 3.8))
    for ax, (group, (series, level)) in zip(axes, ready.items(), strict=True):
        sweep(
            ax,
            series,
            xlabel="temperature τ",
            ylabel=label,
            log=True,
            references={REFERENCE: level} if level else None,
            title=group,
            styles=styles(results),
            bootstrap=bootstrap,
            percent=percent,
        )
    return figure


def groups(results: Results) -> list[str]:
    """The datasets, in the order of the study."""
    return list(dict.fromkeys(cell.group for cell in results.study))


def collect(
    results: Results, group: str, metric: str
) -> tuple[dict[str, dict[float, list[float]]], list[float]]:
    """Numbers of the runs by number of samples and temperature, and those of the homoscedastic model."""
    series: dict[str, dict[float, list[float]]] = {}
    level: list[float] = []
    for cell in results.study:
        if cell.group != group:
            continue
        values = list(results.values(cell, metric).values())
        if cell.row == REFERENCE:
            level += values
        elif values:
            series.setdefault(cell.row, {})[float(cell.settings.params["temperature"])] = values
    return series, level


def styles(results: Results) -> dict[str, dict[str, Any]]:
    """A colour for every number of samples, the same in all panels; the reference in black."""
    rows = [row for row in results.study.rows if row != REFERENCE]
    found = {
        row: {"color": PALETTE[place % len(PALETTE)], "linestyle": "-"} for place, row in enumerate(rows)
    }
    return {**found, REFERENCE: {"color": INK, "linestyle": "--"}}
