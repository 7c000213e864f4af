"""Figures of the label-smoothing paper."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.reporting.plots import CLASS_COLORS, INK, PALETTE, method_style, panels
from noisegate.studies.papers.sweep import dress, sweep
from noisegate.studies.probes.logit_gaps import LABELS, PARTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from noisegate.studies.results import Results
    from noisegate.studies.study import Cell

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

#: The smoothing of figure 1.
FIGURE1_ALPHA = 0.2
_PART_TITLES = {"full": "all rows", "clean": "rightly labelled", "mislabelled": "wrongly labelled"}
_LABEL_TITLES = {"maximum": "largest", "true": "true label's", "noisy": "noisy label's"}


# -- figure 1: closed forms ------------------------------------------------------------------------


def figure1(results: Results) -> Figure:
    """Cost of the positive label against the margin, by the objectives themselves."""
    margin = np.linspace(-8, 8, 401)
    figure, (ax,) = panels(1, size=(5.4, 4.0))
    names = {
        "ce": "logistic loss",
        "ls": "smoothing",
        "bc": "backward correction",
        "fc": "forward correction",
    }
    for method, costs in losses(margin, FIGURE1_ALPHA).items():
        ax.plot(margin, costs, label=names[method], linewidth=2, **method_style(method))
    level = -math.log(FIGURE1_ALPHA / 2)
    ax.axhline(level, color=INK, linewidth=0.9, linestyle=":")
    ax.text(7.9, level + 0.12, "$-\\log(α/2)$", ha="right", fontsize=9, color=INK)
    ax.axhline(0, color=INK, linewidth=0.9)
    dress(ax, f"α = {FIGURE1_ALPHA:g}", "margin $f_{+} - f_{-}$", "cost of the positive label")
    ax.legend(frameon=False, fontsize=9)
    return figure


def losses(margin: Array, alpha: float) -> dict[str, Array]:
    """Cost of label 1 of two, at outputs (-m/2, m/2), by method: ce, ls, bc, fc.

    Arrays like `margin`.
    """
    import torch

    from noisegate.methods.named import symmetric_transition
    from noisegate.objectives import BackwardCorrection, CrossEntropy, ForwardCorrection, LabelSmoothing

    transition = symmetric_transition(2, alpha)
    objectives = {
        "ce": CrossEntropy(2),
        "ls": LabelSmoothing(2, alpha),
        "bc": BackwardCorrection(2, transition),
        "fc": ForwardCorrection(2, transition),
    }
    outputs = torch.from_numpy(np.stack([-margin / 2, margin / 2], 1))
    return {name: objective.costs(outputs)[:, 1].numpy() for name, objective in objectives.items()}


# -- figures 2 and 6: accuracy against alpha -------------------------------------------------------


def figure2(results: Results) -> Figure:
    """Test accuracy against alpha, one panel a dataset, one line a method, the baseline as a level."""
    return _against_alpha(results, "α")


def figure6(results: Results) -> Figure:
    """Test accuracy of the student against the teacher's alpha."""
    return _against_alpha(results, "α of the teacher")


def _against_alpha(results: Results, xlabel: str) -> Figure:
    found = {group: _accuracies(results, group) for group in _groups(results)}
    found = {group: lines for group, lines in found.items() if lines}
    if not found:
        raise InputError(f"{results.study.name}: no run has finished yet, so there is no accuracy to draw")
    figure, axes = panels(len(found), size=(4.8, 3.8))
    for ax, (group, lines) in zip(axes, found.items(), strict=True):
        baseline = next((points[0.0] for points in lines.values() if 0.0 in points), [])
        sweep(
            ax,
            lines,
            xlabel=xlabel,
            ylabel="test accuracy",
            percent=True,
            title=group,
            references={"baseline (α = 0)": baseline},
            styles={row: method_style(row.lower() if len(row) == 2 else "ls") for row in lines}
            | {"baseline (α = 0)": {"color": INK, "linestyle": "--"}},
        )
    return figure


def _groups(results: Results) -> list[str]:
    return list(dict.fromkeys(cell.group for cell in results.study))


def _accuracies(results: Results, group: str) -> dict[str, dict[float, Sequence[float]]]:
    """Accuracies of the finished runs by row and alpha.

    Rows and alphas without any are left out.
    """
    lines: dict[str, dict[float, Sequence[float]]] = {}
    for cell in results.study:
        runs = list(results.values(cell, "test_accuracy").values())
        if cell.group == group and runs:
            lines.setdefault(cell.row, {})[float(cell.settings.params.get("alpha", 0.0))] = runs
    return lines


# -- figures 3 and 7: densities of logits ----------------------------------------------------------


def figure3(results: Results) -> Figure:
    """Logits of the true and of the noisy label on the wrongly labelled rows."""
    return _gap_figure(results, "logit", ("mislabelled",), ("true", "noisy"))


def figure3_probabilities(results: Results) -> Figure:
    """Probabilities of the true and of the noisy label on the wrongly labelled rows."""
    return _gap_figure(results, "prob", ("mislabelled",), ("true", "noisy"))


def figure7(results: Results) -> Figure:
    """The largest logit, and those of the true and of the noisy label, on every part of the training rows."""
    return _gap_figure(results, "logit", PARTS, LABELS)


def figure7_probabilities(results: Results) -> Figure:
    """The same of probabilities."""
    return _gap_figure(results, "prob", PARTS, LABELS)


def _gap_figure(results: Results, kind: str, parts: Sequence[str], labels: Sequence[str]) -> Figure:
    stored = {cell.row: arrays for cell, arrays in _first(results, f"gap_{kind}_counts")}
    figure, axes = panels(len(parts) * len(labels), columns=len(labels), size=(4.4, 3.2))
    places = [(part, label) for part in parts for label in labels]
    word = "logit" if kind == "logit" else "probability"
    for ax, (part, label) in zip(axes, places, strict=True):
        place = PARTS.index(part), LABELS.index(label)
        ends = []
        for row, arrays in stored.items():
            edges, counts = arrays[f"gap_{kind}_edges"], arrays[f"gap_{kind}_counts"][place]
            if counts.sum():
                x, y = density(edges, counts, bounded=kind == "prob")
                ax.plot(x, y, label=row, linewidth=1.8, **method_style(row.lower()))
                ends.append(edges[[0, -1]] if kind == "prob" else _bulk(edges, counts))
        dress(ax, _PART_TITLES[part], f"{_LABEL_TITLES[label]} {word} minus the mean", "density")
        ax.set_ylim(bottom=0)
        if ends:
            ax.set_xlim(min(low for low, _ in ends), max(high for _, high in ends))
    axes[0].legend(frameon=False, fontsize=9)
    return figure


def _bulk(edges: Array, counts: Array) -> Array:
    """Where all but the outermost half per cent at either end lies, and a little more."""
    low, high = np.searchsorted(np.cumsum(counts), np.array([0.005, 0.995]) * counts.sum())
    margin = 0.1 * (edges[high + 1] - edges[low])
    return np.array([edges[low] - margin, edges[high + 1] + margin])


def density(edges: Array, counts: Array, *, bounded: bool = False) -> tuple[Array, Array]:
    """Centres of bins and a density, from a histogram smoothed by a Gaussian; it integrates to one.

    What the kernel spreads beyond the histogram is kept, or, where the values are `bounded` by its
    ends, reflected at them.

    >>> x, y = density(np.linspace(0, 1, 11), np.array([0, 0, 0, 0, 5, 0, 0, 0, 0, 0]))
    >>> round(float(y.sum() * (x[1] - x[0])), 6), round(float(x[y.argmax()]), 6)
    (1.0, 0.45)
    """
    width = float(edges[1] - edges[0])
    deviation = bandwidth(counts)
    reach = min(len(counts), math.ceil(4 * deviation))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    smooth = np.convolve(counts / (counts.sum() * width), kernel / kernel.sum())
    if bounded:
        inside = smooth[reach:-reach].copy()
        inside[:reach] += smooth[:reach][::-1]
        inside[-reach:] += smooth[-reach:][::-1]
        return edges[:-1] + width / 2, inside
    return edges[0] + width * (np.arange(len(smooth)) - reach + 0.5), smooth


def bandwidth(counts: Array) -> float:
    """Silverman's rule, 0.9 min(deviation, interquartile range / 1.34) n^(-1/5), in bins and at least one."""
    places, n = np.arange(len(counts)), counts.sum()
    mean = (places * counts).sum() / n
    deviation = math.sqrt(((places - mean) ** 2 * counts).sum() / n)
    low, high = np.searchsorted(np.cumsum(counts), [0.25 * n, 0.75 * n])
    return max(1.0, 0.9 * min(deviation, float(high - low) / 1.34) * float(n) ** -0.2)


# -- figures 4, 8 and 9: pre-logits ----------------------------------------------------------------


def prelogits(results: Results) -> Figure:
    """Pre-logits of three classes, one panel a cell, one row of panels a network."""
    stored = list(_first(results, "prelogits"))
    columns = list(dict.fromkeys(cell.column for cell, _ in stored))
    widest = max(sum(cell.column == column for cell, _ in stored) for column in columns)
    figure, axes = panels(len(columns) * widest, columns=widest, size=(3.6, 3.6))
    for row, column in enumerate(columns):
        inside = [(cell, arrays) for cell, arrays in stored if cell.column == column]
        for place in range(widest):
            ax = axes[row * widest + place]
            if place < len(inside):
                cell, arrays = inside[place]
                _cloud(ax, arrays, f"{cell.row}, {column}")
            else:
                ax.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


def _cloud(ax: Axes, arrays: Arrays, title: str) -> None:
    points, given, clean = (arrays[f"prelogits{part}"] for part in ("", "_given", "_clean"))
    classes = arrays["prelogits_classes"]
    right = given == clean
    for place, k in enumerate(classes):
        own = points[(given == k) & right]
        ax.scatter(
            own[:, 0], own[:, 1], s=7, color=CLASS_COLORS[place], linewidths=0, alpha=0.7, label=f"class {k}"
        )
    wrong = points[np.isin(given, classes) & ~right]
    ax.scatter(
        wrong[:, 0], wrong[:, 1], s=9, color="black", linewidths=0, alpha=0.8, label="wrong label", zorder=3
    )
    dress(ax, title, "", "")
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_xticks([])
    ax.set_yticks([])


# -- figure 5: separators --------------------------------------------------------------------------


def figure5(results: Results) -> Figure:
    """Separators of label smoothing (a) and of L2 regularisation (b), over the noisy points."""
    stored = [(c, a) for c, a in _first(results, "separator_normal") if c.settings.noise is not None]
    if not stored:
        raise InputError(
            f"{results.study.name}: no run on noisy labels has finished yet: no separator to draw"
        )
    plain = [pair for pair in stored if not _strength(pair[0]) and not _smoothing(pair[0])]
    smoothed = [pair for pair in stored if _smoothing(pair[0])]
    shrunk = [pair for pair in stored if _strength(pair[0])]
    figure, axes = panels(2, size=(5.4, 4.4))
    for ax, title, lines in (
        (axes[0], "(a) label smoothing", plain + smoothed),
        (axes[1], "(b) L2 regularisation", plain + shrunk),
    ):
        _points(ax, stored[0][1])
        _separator(ax, np.ones(2), 0.0, label="optimum", color="black", linewidth=2.2)
        for place, (cell, arrays) in enumerate(lines):
            _separator(
                ax,
                arrays["separator_normal"],
                float(arrays["separator_constant"][0]),
                label=_name(cell),
                color=PALETTE[place % (len(PALETTE) - 1)],
                linewidth=1.6,
            )
        dress(ax, title, "$x_1$", "$x_2$")
        ax.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal")
        ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def _smoothing(cell: Cell) -> float:
    return float(cell.settings.params.get("alpha", 0.0))


def _strength(cell: Cell) -> float:
    return float(cell.settings.recipe.get("weight_decay", 0.0))


def _name(cell: Cell) -> str:
    if _strength(cell):
        return f"λ = {_strength(cell):g}"
    return f"α = {_smoothing(cell):g}" if _smoothing(cell) else "none"


def _points(ax: Axes, arrays: Arrays) -> None:
    points, given = arrays["separator_points"], arrays["separator_given"]
    wrong = given != arrays.get("separator_clean", given)
    for k in (0, 1):
        right = points[(given == k) & ~wrong]
        ax.scatter(right[:, 0], right[:, 1], s=7, color=CLASS_COLORS[k], linewidths=0, alpha=0.5)
    off = points[wrong]
    ax.scatter(off[:, 0], off[:, 1], s=22, color=CLASS_COLORS[1], marker="x", linewidths=1.2, zorder=3)


def _separator(ax: Axes, normal: Array, constant: float, **style: Any) -> None:
    """The line w.x + b = 0: from its point nearest to the origin, both ways."""
    foot = -constant * normal / (normal @ normal)
    along = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
    ends = np.stack([foot - 5 * along, foot + 5 * along])
    ax.plot(*ends.T, **style)


def _first(results: Results, needed: str) -> list[tuple[Cell, Arrays]]:
    """What the probes of the first finished run of every cell stored.

    An InputError if there is none.
    """
    found: list[tuple[Cell, Arrays]] = [
        (cell, next(iter(results.arrays(cell)), {})) for cell in results.study
    ]
    ready = [(cell, arrays) for cell, arrays in found if needed in arrays]
    if not ready:
        raise InputError(f"{results.study.name}: no finished run has stored {needed} yet")
    return ready
