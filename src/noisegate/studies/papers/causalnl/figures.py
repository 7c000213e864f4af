"""Figure 2 of the CausalNL paper: two moons with wrong labels, and what methods make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from noisegate.errors import InputError
from noisegate.reporting.plots import CLASS_COLORS, FAINT, INK, PALETTE, panels
from noisegate.studies.papers.boundary import Arrays, boundary_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from noisegate.studies.results import Results
    from noisegate.studies.store import Result

ACCURACY = "test_accuracy_last10"


def moons(results: Results, group: str = "") -> Figure:
    """The training data, one boundary a method on the same typical seed, and the accuracies of all seeds.

    Of the cells of one group of columns, if one is given.
    """
    cells = [cell for cell in results.study if not group or cell.group == group]
    found = {cell.row: results.results(cell) for cell in cells}
    found = {row: [run for run in runs if ACCURACY in run.metrics] for row, runs in found.items()}
    found = {row: runs for row, runs in found.items() if runs}
    if not found:
        raise InputError(
            f"{results.study.name}: no run that was tested as it went on has finished, so there is nothing to draw"
        )
    # Boundaries may have been kept of some seeds only.
    drawable = {row: [run for run in runs if results.store.arrays(run.key)] for row, runs in found.items()}
    shown = typical({row: runs for row, runs in drawable.items() if runs})
    if not shown:
        raise InputError(f"{results.study.name}: no boundary of a run is stored; do one again to draw it")
    figure, axes = panels(len(shown) + 2, columns=3, size=(4.3, 3.5))
    arrays = {row: results.store.arrays(run.key) for row, run in shown.items()}
    data_panel(axes[0], next(iter(arrays.values())))
    for letter, ax, (row, run) in zip("bcdefgh", axes[1:-1], shown.items(), strict=False):
        boundary_panel(ax, arrays[row], f"({letter}) {row}: {run.metrics[ACCURACY]:.1%}")
    all_seeds_panel(axes[-1], found)
    return figure


def typical(found: Mapping[str, Sequence[Result]]) -> dict[str, Result]:
    """One run a method, all of the seed whose accuracies lie nearest to the methods' medians.

    Methods that have no seed in common show their first one.
    """
    scores = {row: {run.seed: run.metrics[ACCURACY] for run in runs} for row, runs in found.items()}
    common = set.intersection(*(set(by_seed) for by_seed in scores.values()))
    medians = {row: float(np.median(list(by_seed.values()))) for row, by_seed in scores.items()}
    seed = min(
        sorted(common),
        key=lambda seed: sum(abs(scores[row][seed] - medians[row]) for row in scores),
        default=None,
    )
    return {row: next((run for run in runs if run.seed == seed), runs[0]) for row, runs in found.items()}


def all_seeds_panel(ax: Axes, found: Mapping[str, Sequence[Result]]) -> None:
    """One dot a run, a bar at the mean."""
    for place, runs in enumerate(found.values()):
        values = [100 * run.metrics[ACCURACY] for run in runs]
        color = PALETTE[place % len(PALETTE)]
        ax.plot(values, [place] * len(values), "o", color=color, alpha=0.6, markersize=6)
        ax.plot(np.mean(values), place, "|", color=INK, markersize=16, markeredgewidth=2)
    ax.set_yticks(range(len(found)), list(found))
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.grid(axis="x", color=FAINT, linewidth=0.7)
    count = max(map(len, found.values()))
    _dress(ax, f"all runs ({count} seed{'s' if count > 1 else ''}), and their means")
    ax.set_xlabel("clean test accuracy (%)", fontsize=10, color=INK)


def data_panel(ax: Axes, arrays: Arrays) -> None:
    """(a): the training points in the colour of their given label."""
    points, given, clean = (arrays[f"boundary_{name}"] for name in ("points", "given", "clean"))
    for label in sorted(set(given.tolist())):
        mine = points[given == label]
        color = CLASS_COLORS[label % len(CLASS_COLORS)]
        ax.scatter(mine[:, 0], mine[:, 1], s=10, color=color, alpha=0.85, linewidths=0)
    _dress(ax, f"(a) training data, {(given != clean).mean():.0%} wrong")
    ax.set_xlabel("$x_1$", fontsize=10, color=INK)
    ax.set_ylabel("$x_2$", fontsize=10, color=INK)
    ax.set_xlim(arrays["boundary_x"][0], arrays["boundary_x"][-1])
    ax.set_ylim(arrays["boundary_y"][0], arrays["boundary_y"][-1])


def _dress(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    ax.tick_params(labelsize=9, color="#999999", labelcolor=INK)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#999999")
