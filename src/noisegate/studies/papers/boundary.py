"""Decision boundaries in the plane, from what the probe "boundary" stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.reporting import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from noisegate.studies.results import Results
    from noisegate.studies.study import Cell

Arrays = Mapping[str, npt.NDArray[Any]]
_NEEDED = ("x", "y", "probs", "points", "given", "clean")


def boundary_panel(ax: Axes, arrays: Arrays, title: str) -> None:
    """Class probabilities as colours, the boundary as a line, training points by given label.

    Crosses are points whose given label is wrong.
    """
    lacking = [name for name in _NEEDED if f"boundary_{name}" not in arrays]
    if lacking:
        raise InputError(f"{title}: no boundary_{lacking[0]} is stored; the runs need the probe 'boundary'")
    x, y, probs, points, given, clean = (arrays[f"boundary_{name}"] for name in _NEEDED)
    wrong = np.asarray(given != clean)
    plots.probability_map(x, y, np.asarray(probs, np.float64), points, given, wrong=wrong, title=title, ax=ax)


def boundary_of(results: Results, cell: Cell) -> Arrays | None:
    """The stored boundary of the first seed that has finished, or None."""
    return next(iter(results.arrays(cell)), None)
