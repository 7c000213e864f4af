"""The figures of the demo, drawn from stored results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate.errors import InputError
from noisegate.reporting import plots
from noisegate.studies.papers.boundary import boundary_of, boundary_panel
from noisegate.studies.papers.demo.story import STORY, TITLES, digits
from noisegate.studies.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

#: The methods whose calibration is drawn: the baseline and the one that predicts the shown digits.
DRAWN = ("CE", "LN")


def _curves(results: Results, metric: str) -> dict[str, list[float]]:
    found = {
        row.lower(): [epoch[metric] for epoch in run.history[-1] if metric in epoch]
        for row, run in digits(results).items()
    }
    return {name: curve for name, curve in found.items() if curve}


def accuracy(results: Results) -> Picture:
    """Test accuracy over the epochs."""
    return plots.learning_curves(
        _curves(results, "test_accuracy"), ylabel="accuracy on clean test labels", title="Accuracy"
    )


def memorised(results: Results) -> Picture:
    """The share of wrong labels that is repeated, over the epochs."""
    return plots.learning_curves(
        _curves(results, "train_memorised"), ylabel="share of wrong labels repeated", title="Memorised labels"
    )


def moons(results: Results) -> Picture:
    """What the methods make of two moons."""
    found = [(cell, boundary_of(results, cell)) for cell in results.study if cell.column == STORY[1]]
    drawn = [(cell, arrays) for cell, arrays in found if arrays is not None]
    if not drawn:
        raise InputError("no run on the two moons is done yet")
    figure, axes = plots.panels(len(drawn), columns=2, size=(4.7, 4.0))
    for ax, (cell, arrays) in zip(axes, drawn, strict=True):
        accuracies = list(results.values(cell, "test_accuracy").values())
        boundary_panel(ax, arrays, f"{TITLES.get(cell.row, cell.row)}: {accuracies[0]:.1%}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    return figure


def _predictions(results: Results) -> dict[str, dict[str, Any]]:
    """What the probe "predictions" stored, by row of `DRAWN`."""
    runs = digits(results)
    found = {row: results.store.arrays(runs[row].key) for row in DRAWN if row in runs}
    found = {row: arrays for row, arrays in found.items() if "test_probs" in arrays}
    if not found:
        raise InputError(f"no run of {' or '.join(DRAWN)} on the digits is done yet")
    return found


def reliability(results: Results) -> Picture:
    """Calibration on the test digits."""
    found = _predictions(results)
    figure, axes = plots.panels(len(found), columns=2, size=(4.4, 3.9))
    for ax, (row, arrays) in zip(axes, found.items(), strict=True):
        color = plots.method_style(row.lower())["color"]
        plots.reliability(arrays["test_probs"], arrays["test_labels"], title=TITLES[row], color=color, ax=ax)
    return figure


def digits_grid(row: str, arrays: dict[str, Any]) -> Picture:
    """The first digits with a wrong label, not a choice of fine ones."""
    probs, given, clean = arrays["wrong_probs"], arrays["wrong_given"], arrays["wrong_clean"]
    said = probs.argmax(axis=1)
    captions = [
        f"given {g}, clean {c}\n{row} says {s} ({p:.0%}) {'✓' if s == c else '✗'}"
        for g, c, s, p in zip(given, clean, said, probs.max(axis=1), strict=True)
    ]
    images = np.asarray(arrays["wrong_inputs"]).reshape(-1, 8, 8)
    return plots.image_grid(images, captions, right=list(said == clean), columns=6, invert=True)


def wrong_digits(results: Results) -> Picture:
    row, arrays = list(_predictions(results).items())[-1]
    return digits_grid(row, arrays)
