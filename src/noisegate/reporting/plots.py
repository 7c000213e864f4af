"""Plots: decision boundaries, learning curves, calibration, confusion matrices, image grids.

Every function draws into the axes it is given, or makes a figure of its own, and returns the
figure. There is no pyplot here: nothing is shown, and no global state is touched.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from noisegate.errors import InputError
from noisegate.evaluation.metrics import ece

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]

#: The palette of Okabe and Ito, which colour-blind people can tell apart, without its faint yellow.
PALETTE = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: Colours of classes: the first two are far apart in hue and in brightness.
CLASS_COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
RIGHT, WRONG, INK, FAINT = "#00795A", "#B94700", "#222222", "#DDDDDD"

_DASHES = ("-", "--", ":", "-.")
# The order fixes the colour of a method for good: add new names at the end.
_METHODS = (
    *(
        "ce",
        "ln",
        "ls",
        "gce",
        "elr",
        "mixup",
        "co-teaching",
        "bi-tempered",
        "het",
        "het-tau",
        "fc",
        "bc",
        "nan",
    ),
    *("bootstrap", "het-full", "forward", "backward", "reweight", "t-revision", "decoupling", "mentornet"),
    *("distillation", "causalnl", "dividemix"),
)


def method_style(name: str) -> dict[str, Any]:
    """Colour and dash of a method: the same in every plot, whichever methods stand beside it.

    >>> method_style("ce")
    {'color': '#D55E00', 'linestyle': '-'}
    >>> method_style("ln") == method_style("ce")
    False
    """
    place = _METHODS.index(name) if name in _METHODS else zlib.crc32(name.encode())
    dash = _DASHES[place // len(PALETTE) % len(_DASHES)]
    return {"color": PALETTE[place % len(PALETTE)], "linestyle": dash}


# -- figures and axes ------------------------------------------------------------------------------


def panels(
    n: int, *, columns: int | None = None, size: tuple[float, float] = (4.6, 3.6)
) -> tuple[Figure, list[Axes]]:
    """A figure with `n` axes of `size` inches each, in rows of `columns` (one row by default)."""
    columns = max(1, min(n, columns or n))
    rows = -(-n // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(rows, columns, place + 1) for place in range(n)]


def png(figure: Figure, *, dpi: int = 150) -> bytes:
    """The figure as a PNG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def _figure_of(ax: Axes) -> Figure:
    figure = ax.figure
    return figure if isinstance(figure, Figure) else figure.figure


def _own(ax: Axes | None, size: tuple[float, float] = (4.6, 3.6)) -> Axes:
    return panels(1, size=size)[1][0] if ax is None else ax


def _dress(ax: Axes, *, title: str | None, x: str | None, y: str | None, grid: bool = True) -> None:
    """Labels in one style: a title to the left, two spines, faint lines behind the data."""
    if title:
        ax.set_title(title, loc="left", fontsize=11, color=INK, fontweight="bold")
    if x:
        ax.set_xlabel(x, fontsize=10, color=INK)
    if y:
        ax.set_ylabel(y, fontsize=10, color=INK)
    ax.tick_params(labelsize=9, color="#999999", labelcolor=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color("#999999")
    if grid:
        ax.grid(color=FAINT, linewidth=0.7)
        ax.set_axisbelow(True)


# -- plots -----------------------------------------------------------------------------------------


def learning_curves(
    curves: Mapping[str, Sequence[float]],
    *,
    ylabel: str,
    title: str | None = None,
    names: Mapping[str, str] | None = None,
    percent: bool = True,
    first_epoch: int = 1,
    ax: Axes | None = None,
) -> Figure:
    """One line a method over the epochs, in the method's own colour.

    Parameters
    ----------
    curves : mapping from method to a number an epoch
    names : mapping, optional
        What the legend calls a method.
    percent : bool
        The numbers are shares in [0, 1] and shown as percentages.
    first_epoch : int
        The number of the first epoch.
    """
    if not curves or not all(len(values) for values in curves.values()):
        raise InputError("learning_curves needs at least one method with at least one epoch")
    ax = _own(ax)
    for method, values in curves.items():
        epochs = np.arange(first_epoch, first_epoch + len(values))
        label = (names or {}).get(method, method)
        mark = "o" if len(values) == 1 else None
        ax.plot(epochs, values, label=label, linewidth=2, marker=mark, **method_style(method))
    if percent:
        ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.margins(x=0.02)
    _dress(ax, title=title, x="epoch", y=ylabel)
    # A long legend would lie on the lines.
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)} if len(curves) > 5 else {}
    ax.legend(frameon=False, fontsize=9.5, **beside)
    return _figure_of(ax)


def decision_boundary(
    predict_proba: Callable[[Array], Array],
    x: Array,
    y: Array,
    *,
    wrong: npt.NDArray[np.bool_] | None = None,
    classes: Sequence[str] | None = None,
    title: str | None = None,
    resolution: int = 200,
    ax: Axes | None = None,
) -> Figure:
    """The decision boundary of a classifier of points in the plane.

    The background mixes the colours of the classes by their probabilities; the line is where the
    most probable class changes; points have the colour of their given label.

    Parameters
    ----------
    predict_proba : function from (N, 2) to probabilities (N, K)
    x : array (N, 2)
    y : integer array (N,)
        Given labels.
    wrong : bool array (N,), optional
        Which of them are wrong: drawn as crosses.
    classes : sequence of str, optional
        Names of the classes.
    resolution : int
        Points of the grid along either axis.
    """
    points, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(
            f"a decision boundary is drawn in the plane: expected x of shape (N, 2), got {points.shape}"
        )
    horizontal, vertical = (_range(points[:, axis], resolution) for axis in (0, 1))
    mesh = np.stack(np.meshgrid(horizontal, vertical), -1)
    probs = np.asarray(predict_proba(mesh.reshape(-1, 2)), dtype=np.float64).reshape(
        resolution, resolution, -1
    )
    return probability_map(
        horizontal, vertical, probs, points, labels, wrong=wrong, classes=classes, title=title, ax=ax
    )


def probability_map(
    horizontal: Array,
    vertical: Array,
    probs: Array,
    x: Array,
    y: Array,
    *,
    wrong: npt.NDArray[np.bool_] | None = None,
    classes: Sequence[str] | None = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """`decision_boundary` from probabilities that are known already.

    Parameters
    ----------
    horizontal, vertical : arrays (C,) and (R,)
        Where the grid lies, in equal steps.
    probs : array (R, C, K)
    x, y, wrong, classes
        As for `decision_boundary`.
    """
    ax = _own(ax, size=(4.6, 4.0))
    points, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
    colors = np.array([to_rgb(CLASS_COLORS[k % len(CLASS_COLORS)]) for k in range(probs.shape[2])])
    extent = (horizontal[0], horizontal[-1], vertical[0], vertical[-1])
    tint = 1 - 0.45 * (1 - probs @ colors)
    ax.imshow(
        tint.clip(0, 1), origin="lower", extent=extent, aspect="auto", interpolation="bilinear", zorder=0
    )
    _boundaries(ax, horizontal, vertical, probs)
    flagged = np.zeros(len(labels), dtype=bool) if wrong is None else np.asarray(wrong, dtype=bool)
    for k in range(probs.shape[2]):
        name = classes[k] if classes else str(k)
        _points(ax, points[(labels == k) & ~flagged], colors[k], f"given {name}", cross=False)
        _points(ax, points[(labels == k) & flagged], colors[k], f"given {name}, wrongly", cross=True)
    ax.set_xlim(extent[:2])
    ax.set_ylim(extent[2:])
    _dress(ax, title=title, x="$x_1$", y="$x_2$", grid=False)
    return _figure_of(ax)


def _range(values: Array, resolution: int) -> Array:
    margin = 0.08 * max(float(np.ptp(values)), 1e-9)
    return np.linspace(values.min() - margin, values.max() + margin, resolution)


def _boundaries(ax: Axes, horizontal: Array, vertical: Array, probs: Array) -> None:
    """The line p_k = max of the others, for every class; with two classes one line says it all."""
    for k in range(1 if probs.shape[2] == 2 else probs.shape[2]):
        lead = probs[:, :, k] - np.delete(probs, k, axis=2).max(axis=2)
        if lead.min() < 0 < lead.max():
            ax.contour(horizontal, vertical, lead, levels=[0.0], colors=INK, linewidths=1.6, zorder=2)


def _points(ax: Axes, points: Array, color: Array, label: str, *, cross: bool) -> None:
    if len(points):
        style: dict[str, Any] = (
            {"marker": "x", "s": 20, "linewidths": 1.2}
            if cross
            else {"marker": "o", "s": 14, "linewidths": 0.4, "edgecolors": "white"}
        )
        ax.scatter(points[:, 0], points[:, 1], color=[color], label=label, zorder=3, **style)


def reliability(
    probs: Any,
    y: Any,
    n_bins: int = 15,
    *,
    title: str | None = None,
    color: str = PALETTE[1],
    ax: Axes | None = None,
) -> Figure:
    """Accuracy against confidence in bins of equal width.

    Calibrated probabilities lie on the diagonal.

    The bars are as dark as their bin is full, a dot stands at the mean confidence of its bin, and
    the title tells the expected calibration error of as many bins.

    Parameters
    ----------
    probs : array (N, K)
    y : integer array (N,)
    """
    p, labels = np.asarray(probs, dtype=np.float64), np.asarray(y)
    error = ece(p, labels, n_bins)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    accuracy = np.bincount(bins, weights=right, minlength=n_bins) / np.maximum(counts, 1)
    mean = np.bincount(bins, weights=confidence, minlength=n_bins) / np.maximum(counts, 1)
    full = counts > 0
    ax = _own(ax, size=(4.2, 3.8))
    shades = 0.25 + 0.75 * (counts / counts.max())[full]
    edges = np.arange(n_bins)[full] / n_bins
    faces = [(*to_rgb(color), shade) for shade in shades]
    ax.bar(
        edges, accuracy[full], width=1 / n_bins, align="edge", color=faces, edgecolor="white", linewidth=0.8
    )
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1.2, linestyle="--")
    ax.plot(mean[full], accuracy[full], "o", color=INK, markersize=3.5)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    note = f"ECE {error:.1%}"
    _dress(ax, title=f"{title}: {note}" if title else note, x="confidence", y="accuracy")
    return _figure_of(ax)


def heat_map(
    matrix: Any,
    *,
    classes: Sequence[str] | None = None,
    title: str | None = None,
    rows: str = "clean label",
    columns: str = "given label",
    ax: Axes | None = None,
) -> Figure:
    """A transition or confusion matrix.

    Numbers are written in where there is room (up to 12 classes).

    Parameters
    ----------
    matrix : array (K, K)
        Shares (shown as percentages), or counts if the type is integer.
    """
    values = np.asarray(matrix)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise InputError(f"expected a square matrix, got shape {values.shape}")
    k = len(values)
    side = min(8.0, max(3.2, 0.5 * k + 1.4))
    ax = _own(ax, size=(side + 0.4, side))
    ramp = LinearSegmentedColormap.from_list("noisegate", ["#FFFFFF", "#56B4E9", "#0072B2", "#00304D"])
    top = max(float(values.max()), 1e-12)
    ax.imshow(values, cmap=ramp, vmin=0, vmax=top)
    names = [str(i) for i in range(k)] if classes is None else [str(name) for name in classes]
    step = max(1, k // 20)
    ticks = range(0, k, step)
    turned = max(map(len, names)) > 3
    ax.set_xticks(
        ticks, [names[i] for i in ticks], rotation=45 if turned else 0, ha="right" if turned else "center"
    )
    ax.set_yticks(ticks, [names[i] for i in ticks])
    if k <= 12:
        whole = np.issubdtype(values.dtype, np.integer)
        for (i, j), value in np.ndenumerate(values):
            text = str(value) if whole else f"{100 * value:.0f}"
            ink = "white" if value > 0.45 * top else (INK if text != "0" else "#AAAAAA")
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=ink)
    unit = "" if np.issubdtype(values.dtype, np.integer) else " (%)"
    _dress(ax, title=(title + unit) if title else None, x=columns, y=rows, grid=False)
    ax.tick_params(length=0)
    return _figure_of(ax)


def image_grid(
    images: Any,
    captions: Sequence[str] | None = None,
    *,
    right: Sequence[bool | None] | None = None,
    columns: int = 6,
    title: str | None = None,
    invert: bool = False,
) -> Figure:
    """Pictures in rows, each with a caption below it.

    Parameters
    ----------
    images : array (N, H, W), (N, 1, H, W) or (N, 3, H, W)
        uint8, or floats in [0, 1].
    captions : sequence of str, optional
    right : sequence of bool or None, optional
        Whether what the caption says is right: its colour, beside whatever the words say.
    invert : bool
        Draw grey pictures dark on light.
    """
    pixels = np.asarray(images)
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3) or not len(pixels):
        raise InputError(f"expected images (N, H, W), (N, 1, H, W) or (N, 3, H, W), got {pixels.shape}")
    lines = max((caption.count("\n") + 1 for caption in captions), default=0) if captions else 0
    figure, axes = panels(len(pixels), columns=columns, size=(1.45, 1.35 + 0.2 * lines))
    top = 255 if pixels.dtype == np.uint8 else 1.0
    for i, (ax, picture) in enumerate(zip(axes, pixels, strict=True)):
        if len(picture) == 1:
            ax.imshow(picture[0], cmap="gray_r" if invert else "gray", vmin=0, vmax=top)
        else:
            ax.imshow(np.moveaxis(picture, 0, 2))
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set_color(FAINT)
        if captions:
            verdict = None if right is None else right[i]
            ink = INK if verdict is None else (RIGHT if verdict else WRONG)
            ax.set_xlabel(captions[i], fontsize=9, color=ink)
    if title:
        figure.suptitle(title, fontsize=11, color=INK, fontweight="bold", x=0.01, ha="left")
    return figure
