"""Figures of Englesson et al. 2023 (Logistic-Normal), from closed forms and stored results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.reporting.plots import CLASS_COLORS, INK, PALETTE, RIGHT, WRONG, panels
from noisegate.studies.papers.boundary import boundary_of, boundary_panel
from noisegate.studies.papers.sweep import dress, sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from noisegate.studies.results import Results
    from noisegate.studies.study import Cell

Array = npt.NDArray[Any]

# -- figure 1 --------------------------------------------------------------------------------------

MEAN, LAMBDA = (0.6, 3.2), 0.8
#: Corners of the triangle of probabilities: classes 1, 2 and 3.
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])


def densities(results: Results) -> Figure:
    """Figure 1: a normal over logits with the optimal covariance, and what it is on the simplex."""
    from noisegate.objectives.logistic_normal import target_logit

    c = target_logit(3, 0.01, False)
    targets = np.array([[c, 0.0], [0.0, c], [-c, -c]])
    figure, (left, right) = panels(2, size=(5.2, 4.6))
    _logit_panel(left, targets)
    _simplex_panel(right, targets)
    return figure


def _direction(targets: Array) -> Array:
    """c of the optimal covariance for the target of class 1: parallel to r, with |c|² = |r| - λ."""
    residual = targets[0] - np.array(MEAN)
    length = float(np.linalg.norm(residual))
    return residual / length * math.sqrt(length - LAMBDA)


def _ellipse(targets: Array, share: float) -> Array:
    """The line that holds a share of the mass of the normal, `(200, 2)`: |Σ^-1/2 (z - μ)|² = -2 log(1 - share)."""
    along = _direction(targets)
    root = np.outer(along, along) + LAMBDA * np.eye(2)
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    return np.array(MEAN) + math.sqrt(-2 * math.log(1 - share)) * (root @ circle).T


def _simplex(logits: Array) -> Array:
    """softmax([z, 0]) as places in the triangle, `(N, 2)`."""
    extended = np.concatenate([logits, np.zeros((len(logits), 1))], 1)
    exps = np.exp(extended - extended.max(1, keepdims=True))
    return exps / exps.sum(1, keepdims=True) @ CORNERS


def _log_density(targets: Array, points: Array) -> Array:
    """Log-density on the simplex at its points `(N, 3)`."""
    import torch

    from noisegate.objectives.distribution import LogisticNormalDistribution

    mu, c = (torch.tensor(v, dtype=torch.float64) for v in (MEAN, _direction(targets)))
    return LogisticNormalDistribution(mu, c, LAMBDA).log_prob(torch.as_tensor(points)).numpy()


def _logit_panel(ax: Axes, targets: Array) -> None:
    # The normal from the same class: its density is that on the simplex times the Jacobian, prod_k
    # s_k.
    across, up = np.linspace(-11.5, 12.5, 240), np.linspace(-8.5, 11.5, 200)
    mesh = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)
    extended = np.concatenate([mesh, np.zeros((len(mesh), 1))], 1)
    logs = extended - np.logaddexp.reduce(extended, axis=1, keepdims=True)
    density = np.exp(_log_density(targets, np.exp(logs)) + logs.sum(1)).reshape(len(up), -1)
    ax.contourf(across, up, density, levels=density.max() * np.linspace(0.02, 1, 13), cmap="Blues", zorder=1)
    for share, dash in ((0.5, "-"), (0.9, "--")):
        ax.plot(*_ellipse(targets, share).T, color=INK, linewidth=1.2, linestyle=dash, label=f"{share:.0%}")
    for k, target in enumerate(targets):
        ax.plot(*target, "o", color=CLASS_COLORS[k], markersize=8)
        ax.annotate(f"$y_{k + 1}$", target, (6, 6), textcoords="offset points", fontsize=11, color=INK)
    ax.plot(*MEAN, "x", color=INK, markersize=8, markeredgewidth=2)
    ax.annotate("μ", MEAN, (4, 8), textcoords="offset points", fontsize=11, color=INK)
    ax.set_aspect("equal")
    dress(ax, "Logits: a normal in ℝ²", "$z_1$", "$z_2$")
    ax.legend(frameon=False, fontsize=9, title="share of the mass", title_fontsize=9, loc="lower right")


def _simplex_panel(ax: Axes, targets: Array) -> None:
    # Steps that grow fine towards the borders, where the density has its ridges: a grid of logits.
    axis = np.linspace(-9, 9, 260)
    mesh = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    extended = np.concatenate([mesh, np.zeros((len(mesh), 1))], 1)
    points = np.exp(extended - np.logaddexp.reduce(extended, axis=1, keepdims=True))
    x, y = (points @ CORNERS).T
    log_density = np.clip(_log_density(targets, points), -6, 6)
    shape = (len(axis), len(axis))
    parts = (a.reshape(shape) for a in (x, y, log_density))
    drawn = ax.contourf(*parts, levels=np.linspace(-6, 6, 13), cmap="Blues", zorder=0)
    ax.figure.colorbar(drawn, ax=ax, shrink=0.7, label="log-density")
    ax.plot(*CORNERS[[0, 1, 2, 0]].T, color=INK, linewidth=1)
    for share, dash in ((0.5, "-"), (0.9, "--")):
        ax.plot(*_simplex(_ellipse(targets, share)).T, color=INK, linewidth=1.2, linestyle=dash)
    for k, place in enumerate(_simplex(targets)):
        ax.plot(*place, "o", color=CLASS_COLORS[k], markersize=8, zorder=4)
        away = 14 * (CORNERS[k] - CORNERS.mean(0)) / np.linalg.norm(CORNERS[k] - CORNERS.mean(0))
        text = f"class {k + 1}"
        ax.annotate(text, CORNERS[k], away, textcoords="offset points", ha="center", va="center", fontsize=10)
    ax.plot(*_simplex(np.array([MEAN]))[0], "x", color=INK, markersize=8, markeredgewidth=2)
    ax.set_aspect("equal")
    ax.margins(0.08)
    ax.set_axis_off()
    ax.set_title(
        "Probabilities: Logistic-Normal on Δ²", loc="left", fontsize=11, color=INK, fontweight="bold"
    )


# -- figure 2 --------------------------------------------------------------------------------------


def label_term(residual: Array, min_scale: float) -> Array:
    """r²/σ² with the best σ = c² + λ: r²/λ² up to |r| = λ, one above (appendix A.4).

    >>> label_term(np.array([0.5, 1.0, 3.0]), 1.0)
    array([0.25, 1.  , 1.  ])
    """
    return np.minimum(np.square(residual) / min_scale**2, 1.0)


def attenuation(results: Results, lambdas: Sequence[float] = (0.1, 0.5, 1.0, 2.0)) -> Figure:
    """Figure 2: the label term against the residual for several λ."""
    figure, (ax,) = panels(1, size=(6.4, 3.6))
    residual = np.linspace(-3, 3, 1201)
    for place, lam in enumerate(lambdas):
        term = label_term(residual, lam)
        ax.plot(residual, term, linewidth=2, color=PALETTE[place], label=f"λ = {lam:g}")
    ax.plot(residual, residual**2, linewidth=1.2, linestyle=":", color=INK, label="r² (σ² = 1)", zorder=1)
    ax.set_ylim(-0.03, 1.5)
    dress(ax, "Attenuation begins at |r| = λ", "residual r = y - μ", "label term r²/σ²")
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


# -- figure 3 --------------------------------------------------------------------------------------


def boundaries(results: Results) -> Figure:
    """Figure 3: what CE and LN say in the plane."""
    found = [(cell, boundary_of(results, cell)) for cell in results.study]
    drawn = [(cell, arrays) for cell, arrays in found if arrays is not None]
    _something(results, drawn, "boundaries")
    figure, axes = panels(len(drawn), size=(4.8, 4.2))
    for ax, (cell, arrays) in zip(axes, drawn, strict=True):
        accuracy = np.mean(list(results.values(cell, "test_accuracy").values()))
        boundary_panel(ax, arrays, f"{cell.row}: {accuracy:.1%} of clean test points")
    return figure


def _something(results: Results, found: Sequence[Any], what: str) -> None:
    if not found:
        raise InputError(f"{results.study.name}: no finished run to draw {what} from; run the study first")


# -- figure 4 --------------------------------------------------------------------------------------


def evolution(results: Results) -> Figure:
    """Figure 4: clean validation accuracy above, agreement with given training labels below."""
    rows = results.study.rows
    drawn = [cell for cell in results.study if results.results(cell)]
    _something(results, drawn, "curves")
    figure, axes = panels(2 * len(rows), columns=len(rows), size=(4.8, 3.4))
    above, below = axes[: len(rows)], axes[len(rows) :]
    colours = {column: PALETTE[i] for i, (_, column) in enumerate(results.study.columns)}
    for place, row in enumerate(rows):
        for cell in (cell for cell in drawn if cell.row == row):
            color, label = colours[cell.column], cell.column
            _curve(above[place], results, cell, "validation_clean_accuracy", color=color, label=label)
            _curve(below[place], results, cell, "train_right_accuracy", color=color)
            _curve(below[place], results, cell, "train_memorised", color=color, linestyle="--")
        dress(above[place], row, "epoch", "clean validation accuracy")
        dress(
            below[place],
            f"{row}: right (solid), wrong labels (dashed)",
            "epoch",
            "agreement with given label",
        )
    for ax in axes:
        _percent(ax)
    first = next(ax for ax in above if ax.lines)
    first.legend(frameon=False, fontsize=9)
    return figure


def _curve(ax: Axes, results: Results, cell: Cell, name: str, **style: Any) -> None:
    """Mean over the runs at every epoch that was looked at, with a band of one standard deviation."""
    values: dict[int, list[float]] = {}
    for result in results.results(cell):
        for epoch, numbers in enumerate(result.history[-1], 1):
            if name in numbers:
                values.setdefault(epoch, []).append(numbers[name])
    if not values:
        raise InputError(f"{results.study.name}: the runs of {cell.row}, {cell.column} have no {name}")
    epochs = sorted(values)
    mean = np.array([np.mean(values[e]) for e in epochs])
    ax.plot(epochs, mean, linewidth=1.8, **style)
    if any(len(values[e]) > 1 for e in epochs):
        std = np.array([np.std(values[e], ddof=1) if len(values[e]) > 1 else 0.0 for e in epochs])
        ax.fill_between(epochs, mean - std, mean + std, color=style["color"], alpha=0.15, linewidth=0)


def _percent(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylim(-0.02, 1.02)


# -- figure 5 --------------------------------------------------------------------------------------


def sensitivity(results: Results) -> Figure:
    """Figure 5: test accuracy against τ, one line a λ."""
    series: dict[str, dict[float, list[float]]] = {}
    for cell in results.study:
        tau = float(cell.settings.params["temperature"])
        runs = list(results.values(cell, "test_accuracy").values())
        series.setdefault(cell.row, {})[tau] = runs
    figure, (ax,) = panels(1, size=(5.6, 4.0))
    sweep(ax, series, xlabel="temperature τ", ylabel="test accuracy", log=True, percent=True)
    taus = sorted({tau for points in series.values() for tau in points})
    ax.set_xticks(taus, [f"{tau:g}" for tau in taus])
    ax.minorticks_off()
    return figure


# -- figures 6 and 7 -------------------------------------------------------------------------------

#: Row of the study, and covariance of the evaluation.
VIEWS = (
    ("Σ_train = I", "identity", r"$\Sigma_{train} = I,\ \Sigma_{eval} = I$"),
    ("Σ_train = Σ_θ", "identity", r"$\Sigma_{train} = \Sigma_\theta,\ \Sigma_{eval} = I$"),
    ("Σ_train = Σ_θ", "learnt", r"$\Sigma_{train} = \Sigma_\theta,\ \Sigma_{eval} = \Sigma_\theta$"),
)


def histograms(results: Results) -> Figure:
    """Figure 6: three views of the label term side by side."""
    (column,) = [column for _, column in results.study.columns]
    return _views(results, [column], columns=3)


def noise_type_histograms(results: Results) -> Figure:
    """Figure 7, appendix E.1: a column for every kind of noise, a row for every view."""
    kinds = [column for _, column in results.study.columns if not column.startswith("MNIST")]
    return _views(results, kinds, columns=len(kinds))


def _views(results: Results, kinds: Sequence[str], columns: int) -> Figure:
    """The views of some columns of the study; those without a finished run are left out."""
    found = [
        (kind, view, terms)
        for view in VIEWS
        for kind in kinds
        if (terms := _terms(results, view[0], kind, view[1])) is not None
    ]
    _something(results, found, "histograms")
    whole = len(found) == len(VIEWS) * len(kinds)
    figure, axes = panels(len(found), columns=columns if whole else 3, size=(4.0, 2.9))
    bins = _bins([terms for _, _, terms in found])
    for ax, (kind, view, terms) in zip(axes, found, strict=True):
        title = view[2] if len(kinds) == 1 else f"{kind}\n{view[2]}"
        _histogram(ax, terms, bins, title)
    axes[0].legend(frameon=False, fontsize=9)
    return figure


def mnist_histograms(results: Results) -> Figure:
    """Figure 7: the label term with and without the covariance that was learnt."""
    cell = "MNIST Symmetric 40%"
    views = [("with the learnt covariance", "learnt"), ("without it", "identity")]
    found = [(title, _terms(results, VIEWS[1][0], cell, kind)) for title, kind in views]
    drawn = [(title, terms) for title, terms in found if terms is not None]
    _something(results, drawn, "histograms of MNIST")
    figure, axes = panels(len(drawn), size=(4.6, 3.4))
    bins = _bins([terms for _, terms in drawn])
    for ax, (title, terms) in zip(axes, drawn, strict=True):
        _histogram(ax, terms, bins, title)
    axes[0].legend(frameon=False, fontsize=9)
    return figure


@dataclass(frozen=True)
class _Terms:
    """Label terms of all finished runs of a cell, and where attenuation begins for them."""

    right: Array
    wrong: Array
    threshold: float | None


def _terms(results: Results, row: str, column: str, covariance: str) -> _Terms | None:
    cell = results.study.cell(row, column)
    arrays = [] if cell is None else results.arrays(cell)
    if cell is None or not arrays:
        return None
    # A term of zero has no logarithm; none is that small but by rounding.
    term = np.concatenate([a[f"label_term_{covariance}"] for a in arrays]).clip(min=1e-8)
    wrong = np.concatenate([a["label_term_wrong"] for a in arrays]).astype(bool)
    learnt = "min_scale" in cell.settings.params
    under_i = cell.settings.params["min_scale"] ** 2 if learnt else None
    return _Terms(term[~wrong], term[wrong], 1.0 if covariance == "learnt" else under_i)


def _bins(terms: Sequence[_Terms], count: int = 60) -> Array:
    """Shared edges in equal steps of the logarithm, thresholds within.

    A handful of tiny terms is left out.
    """
    values = np.concatenate([np.concatenate([t.right, t.wrong]) for t in terms])
    marks = [t.threshold for t in terms if t.threshold is not None]
    low, high = np.quantile(values, 0.0005), max(values.max(), *marks, 1e-7)
    return np.geomspace(min([low, *(0.9 * mark for mark in marks)]), 1.1 * high, count + 1)


def _histogram(ax: Axes, terms: _Terms, bins: Array, title: str) -> None:
    """Share of each part in every bin, by step of the logarithm."""
    for values, color, label in ((terms.right, RIGHT, "right labels"), (terms.wrong, WRONG, "wrong labels")):
        if len(values):
            weights = np.full(len(values), 1 / (len(values) * np.diff(np.log10(bins[:2]))[0]))
            inside = values.clip(bins[0], bins[-1])
            ax.hist(inside, bins=list(bins), weights=weights, color=color, alpha=0.55, label=label)
    if terms.threshold is not None:
        ax.axvline(terms.threshold, color=INK, linewidth=1.2, linestyle=":")
    ax.set_xscale("log")
    ax.set_xlim(bins[0], bins[-1])
    dress(ax, title, "label term r' Σ⁻¹ r", "density")
    ax.set_title(title, loc="left", fontsize=10, color=INK)
