"""A number against a setting: the mean over runs, with a band of one standard deviation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import PercentFormatter

from noisegate.errors import InputError
from noisegate.evaluation.significance import bootstrap_interval
from noisegate.reporting.plots import FAINT, INK, PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Runs = Sequence[float]
_DASHES = ("-", "--", ":", "-.")


def sweep(
    ax: Axes,
    series: Mapping[str, Mapping[float, Runs]],
    *,
    xlabel: str,
    ylabel: str,
    log: bool = False,
    references: Mapping[str, Runs] | None = None,
    title: str | None = None,
    percent: bool = False,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    bootstrap: bool = False,
) -> None:
    """Draw one line a label: the mean of the runs at every x, shaded by their standard deviation.

    Points without runs are left out; so are labels without points. With one run there is no band.

    Parameters
    ----------
    series : mapping from label to {x: numbers of the runs}
    log : bool
        A logarithmic x axis, for positive x.
    references : mapping from label to numbers of the runs, optional
        Horizontal lines, dashed, with their own band: what does not depend on x.
    percent : bool
        The numbers are shares in [0, 1] and shown as percentages.
    bootstrap : bool
        Bands are bootstrapped 95 % intervals of the mean, not standard deviations.
    styles : mapping from label to colour and linestyle, optional
        For labels that have a style of their own.

    Raises
    ------
    InputError
        If there is nothing to draw, or x is not positive on a logarithmic axis.
    """
    lines = {label: _points(points, bootstrap) for label, points in series.items()}
    lines = {label: points for label, points in lines.items() if points}
    if not lines:
        raise InputError(f"no finished runs to draw {ylabel} against {xlabel} from")
    if log and min(x for points in lines.values() for x in points) <= 0:
        raise InputError(f"a logarithmic axis needs positive numbers for {xlabel}")
    for place, (label, points) in enumerate(lines.items()):
        _line(ax, label, points, _style(place, (styles or {}).get(label)))
    for place, (label, runs) in enumerate((references or {}).items()):
        if len(runs):
            _level(ax, label, runs, bootstrap, _style(len(lines) + place, (styles or {}).get(label)))
    if log:
        ax.set_xscale("log")
    if percent:
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    dress(ax, title, xlabel, ylabel)
    ax.legend(frameon=False, fontsize=9)


Point = tuple[float, float, float]


def _points(points: Mapping[float, Runs], bootstrap: bool) -> dict[float, Point]:
    """The mean and the ends of its band at every x that has runs, in order of x."""
    return {x: _mean_and_band(points[x], bootstrap) for x in sorted(points) if len(points[x])}


def _mean_and_band(runs: Runs, bootstrap: bool) -> Point:
    """The mean; and a standard deviation below and above it, or its bootstrapped interval. One run has no band."""
    values = np.asarray(runs, dtype=np.float64)
    mean = float(values.mean())
    if bootstrap:
        return mean, *bootstrap_interval(values.tolist())
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return mean, mean - std, mean + std


def _style(place: int, own: Mapping[str, Any] | None) -> dict[str, Any]:
    if own is not None:
        return dict(own)
    dash = _DASHES[place // len(PALETTE) % len(_DASHES)]
    return {"color": PALETTE[place % len(PALETTE)], "linestyle": dash}


def _line(ax: Axes, label: str, points: dict[float, Point], style: dict[str, Any]) -> None:
    x = np.array(list(points))
    mean, low, high = np.array(list(points.values())).T
    ax.plot(x, mean, label=label, linewidth=1.8, marker="o", markersize=3.5, **style)
    ax.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _level(ax: Axes, label: str, runs: Runs, bootstrap: bool, style: dict[str, Any]) -> None:
    mean, low, high = _mean_and_band(runs, bootstrap)
    ax.axhline(mean, label=label, linewidth=1.4, **{**style, "linestyle": "--"})
    ax.axhspan(low, high, color=style["color"], alpha=0.12, linewidth=0)


def dress(ax: Axes, title: str | None, xlabel: str, ylabel: str) -> None:
    """Labels in the style of `noisegate.reporting.plots`: a title to the left, two spines, a faint grid."""
    if title:
        ax.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    ax.set_xlabel(xlabel, fontsize=10, color=INK)
    ax.set_ylabel(ylabel, fontsize=10, color=INK)
    ax.tick_params(labelsize=9, color="#999999", labelcolor=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
