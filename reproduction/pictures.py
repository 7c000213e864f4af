"""What the figures of label smoothing show, in numbers: logits of labels, and where wrongly labelled rows lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.studies.report.words import column_name
from noisegate.studies.store import Store
from noisegate.studies.study import Study

Array = npt.NDArray[Any]
#: Places in the counts of the probe `logit_gaps`: part of the rows, label.
RIGHT, WRONG = 1, 2
TRUE, NOISY = 1, 2


def gaps(study: Study, store: Store) -> list[str]:
    """Medians of f_k - mean_j f_j and means of p_k, as Markdown: figures 3 and 7."""
    lines = [
        "| method | right rows: label | wrong rows: true label | wrong rows: noisy label |",
        "|---|---|---|---|",
    ]
    for cell in study:
        arrays = store.arrays(cell.settings)
        if arrays and "gap_logit_counts" in arrays:
            places = (RIGHT, TRUE), (WRONG, TRUE), (WRONG, NOISY)
            lines.append(f"| {cell.row} | {' | '.join(_gap(arrays, *place) for place in places)} |")
    return [*lines, ""] if len(lines) > 2 else ["Not run yet.", ""]


def _gap(arrays: Mapping[str, Array], part: int, label: int) -> str:
    """The median of the logit's distance and the mean probability, from their histograms."""
    logit, prob = (arrays[f"gap_{name}_counts"][part, label] for name in ("logit", "prob"))
    edges = arrays["gap_logit_edges"]
    median = np.interp(0.5, np.concatenate([[0], np.cumsum(logit)]) / logit.sum(), edges)
    places = (arrays["gap_prob_edges"][1:] + arrays["gap_prob_edges"][:-1]) / 2
    mean = float(places @ prob) / prob.sum() - float(arrays["gap_prob_edges"][0])
    return f"{median:.1f}; {mean:.2f}" if abs(median) < 1e4 else f"{median:.1e}; {mean:.2f}"


def prelogits(study: Study, store: Store) -> list[str]:
    """Where the rows of figures 4, 8 and 9 lie, as Markdown."""
    lines = [
        "| network | method | spread of right rows | wrong rows: of the way to the given label's class |",
        "|---|---|---|---|",
    ]
    for cell in study:
        arrays = store.arrays(cell.settings)
        if arrays and "prelogits" in arrays:
            spread, way = _places(arrays)
            place = column_name(cell.group, cell.column)
            lines.append(f"| {place} | {cell.row} | {spread:.2f} | {way} |")
    return [*lines, ""] if len(lines) > 2 else ["Not run yet.", ""]


def _places(arrays: Mapping[str, Array]) -> tuple[float, str]:
    """How wide the clusters are, in distances between them, and how far from the middle wrong rows are drawn.

    The way is 1 at the centre of the rightly labelled rows of the given class and 0 at the mean of
    the three centres.
    """
    at, given, clean = (arrays[name] for name in ("prelogits", "prelogits_given", "prelogits_clean"))
    classes = arrays["prelogits_classes"]
    centres = np.stack([at[(given == k) & (clean == k)].mean(0) for k in classes])
    between = np.mean([np.linalg.norm(centres[i] - centres[j]) for i, j in ((0, 1), (1, 2), (2, 0))])
    right = [at[(given == k) & (clean == k)] - centres[i] for i, k in enumerate(classes)]
    spread = float(np.sqrt(np.mean(np.concatenate(right) ** 2))) / float(between)
    middle = centres.mean(0)
    ways = [
        (at[(given == k) & (clean != k)] - middle)
        @ (centres[i] - middle)
        / ((centres[i] - middle) @ (centres[i] - middle))
        for i, k in enumerate(classes)
    ]
    low, median, high = np.percentile(np.concatenate(ways), (10, 50, 90))
    return spread, f"{median:.2f} ({low:.2f} to {high:.2f})"
