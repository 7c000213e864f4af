"""Pictures of the report as geometry: what lies where, in the units of an SVG's view box."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: More classes than this do not fit a picture: those most confused are shown.
MOST_CLASSES = 24
#: Up to so many classes numbers stand in the cells.
NUMBERED = 12
_CELL, _WIDTH, _HEIGHT = 44, 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 30, 26, 52
#: Characters of a class's name beside the matrix, and the room of one.
NAME_CHARACTERS = 17
_CHARACTER = 7.2


def chosen_classes(
    matrix: npt.NDArray[np.float64], confused: Sequence[Mapping[str, Any]], most: int = MOST_CLASSES
) -> list[int]:
    """Classes to show: all, or those in the pairs most confused, in their own order.

    >>> chosen_classes(np.eye(3), []), chosen_classes(np.eye(9), [{"true": 7, "given": 2}], most=2)
    ([0, 1, 2], [2, 7])
    """
    k = len(matrix)
    if k <= most:
        return list(range(k))
    found = dict.fromkeys(code for pair in confused for code in (pair["true"], pair["given"]))
    off = matrix - np.diag(np.diag(matrix))
    busiest = np.argsort(-(off.sum(axis=1) + off.sum(axis=0)), kind="stable").tolist()
    return sorted([*found, *(code for code in busiest if code not in found)][:most])


def heatmap(matrix: npt.NDArray[np.float64], names: Sequence[str]) -> dict[str, Any]:
    """Cells of a transition matrix; shades compare the confusions, not the bright diagonal."""
    k = len(matrix)
    room = round(16 + _CHARACTER * min(max(map(len, names), default=1), NAME_CHARACTERS))
    off = matrix - np.diag(np.diag(matrix))
    top = float(off.max()) or 1.0
    size = _CELL if k <= NUMBERED else max(14, round(_CELL * NUMBERED / k))
    cells = [
        {
            "x": room + j * size,
            "y": room + i * size,
            "shade": 0.0 if i == j else round(float(matrix[i, j]) / top * 0.92, 3),
            "diagonal": i == j,
            "text": _share(float(matrix[i, j])) if k <= NUMBERED else "",
            "i": i,
            "j": j,
        }
        for i in range(k)
        for j in range(k)
    ]
    middle = [room + i * size + size / 2 for i in range(k)]
    side = room + k * size + 4
    # Names above the columns lean to the right: the last one needs room there.
    wide = side + round(0.6 * room)
    return {"cells": cells, "size": size, "middle": middle, "labels": room - 8, "width": wide, "height": side}


def _share(value: float) -> str:
    return "" if value < 0.005 else f"{100 * value:.0f}"


def ticks(top: float, most: int = 5) -> list[float]:
    """Round whole numbers from 0 to about `top`: rows and errors are counted.

    >>> ticks(310), ticks(12), ticks(0)
    ([0.0, 100.0, 200.0, 300.0], [0.0, 5.0, 10.0], [0.0, 1.0])
    """
    if top < 1:
        return [0.0, 1.0]
    raw = max(top / most, 1.0)
    unit = 10 ** math.floor(math.log10(raw))
    steps = (unit * factor for factor in (1, 2, 2.5, 5, 10))
    step = next(step for step in steps if step >= raw and step == int(step))
    return [float(step * i) for i in range(math.floor(top / step + 1e-9) + 1)]


class _Axes:
    """From values to places in the view box."""

    def __init__(self, right: float, top: float) -> None:
        self.right, self.top = right or 1.0, top or 1.0

    def x(self, value: float) -> float:
        return round(_LEFT + value / self.right * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _BOTTOM - _TOP), 1)

    def frame(self, along: Sequence[float], up: Sequence[float]) -> dict[str, Any]:
        return {
            "width": _WIDTH,
            "height": _HEIGHT,
            "left": _LEFT,
            "right": _WIDTH - _RIGHT,
            "bottom": _HEIGHT - _BOTTOM,
            "along": [{"at": self.x(value), "text": f"{value:,.6g}"} for value in along],
            "up": [{"at": self.y(value), "text": f"{value:,.6g}"} for value in up],
        }


def histogram(counts: Sequence[tuple[float, float, int, int]]) -> dict[str, Any]:
    """Bars of (from, to, flagged, others) with the flagged part at the bottom.

    Heights are square roots of the counts: most rows are fine, and the few that are not must be seen.
    """
    top = math.sqrt(max((flagged + others for _, _, flagged, others in counts), default=1) or 1)
    axes = _Axes(1.0, top)
    bars = []
    for low, high, flagged, others in counts:
        both = math.sqrt(flagged + others)
        part = both * flagged / max(flagged + others, 1)
        x, width = axes.x(low) + 1, round(axes.x(high) - axes.x(low) - 2, 1)
        bars.append(
            {
                "x": x,
                "width": width,
                "flagged": {"y": axes.y(part), "height": round(axes.y(0) - axes.y(part), 1)},
                "others": {"y": axes.y(both), "height": round(axes.y(part) - axes.y(both), 1)},
            }
        )
    frame = axes.frame([0, 0.2, 0.4, 0.6, 0.8, 1.0], [])
    frame["up"] = [{"at": axes.y(math.sqrt(value)), "text": f"{value:,}"} for value in _marks(top**2)]
    return frame | {"bars": bars}


def _marks(most: float) -> list[int]:
    """Counts for an axis of square roots: each at most a third of the one above.

    >>> _marks(806), _marks(1)
    ([20, 100, 500], [1])
    """
    found: list[int] = []
    for value in (factor * 10**power for power in range(6, -1, -1) for factor in (5, 2, 1)):
        if value <= most and (not found or value <= found[-1] / 3) and len(found) < 3:
            found.append(value)
    return found[::-1]


def curve(data: Mapping[str, Any]) -> dict[str, Any]:
    """The review curve: a line, its band and the line of looking at random."""
    looked, found = data["looked"], data["found"]
    high = data.get("high") or found
    axes = _Axes(float(looked[-1]), float(max([*high, *found, 1.0])))

    def path(values: Sequence[float]) -> str:
        return " ".join(f"{axes.x(x)},{axes.y(y)}" for x, y in zip(looked, values, strict=True))

    band = ""
    if data.get("low") and data.get("high"):
        back = [f"{axes.x(x)},{axes.y(y)}" for x, y in zip(looked, data["low"], strict=True)]
        band = path(data["high"]) + " " + " ".join(reversed(back))
    chance = f"{axes.x(0)},{axes.y(0)} {axes.x(looked[-1])},{axes.y(found[-1])}"
    return axes.frame(ticks(float(looked[-1])), ticks(axes.top)) | {
        "line": path(found),
        "band": band,
        "chance": chance,
    }
