"""A picture for the page of each method, drawn from the library's own functions in a moment.

Objectives are drawn for two classes: what a label costs, and how hard it pulls, against the margin by
which the network agrees with it. Methods are drawn by the rule that makes them what they are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import noisegate as ng
from noisegate.methods.co_teaching import kept_share
from noisegate.methods.dividemix import clean_probability
from noisegate.methods.mentornet import self_paced_weights
from noisegate.methods.transition import importance
from noisegate.objectives import Objective

MARGINS = torch.linspace(-6, 6, 241)
#: Twenty per cent of flips to the next of three classes.
FLIPS = torch.tensor([[0.8, 0.2, 0.0], [0.0, 0.8, 0.2], [0.2, 0.0, 0.8]])
#: Drawn in black for comparison.
PLAIN = "cross-entropy"


def write(folder: Path) -> None:
    """Draw every picture that is not there yet, or that is older than this file."""
    folder.mkdir(parents=True, exist_ok=True)
    style = {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "noisegate",
    }
    for name, draw in PICTURES.items():
        path = folder / f"{name}.svg"
        if path.exists() and path.stat().st_mtime > Path(__file__).stat().st_mtime:
            continue
        with plt.rc_context(style):
            torch.manual_seed(0)
            figure = draw()
            figure.savefig(path, metadata={"Date": None})
            plt.close(figure)


# -- objectives ------------------------------------------------------------------------------------


def curves(objective: Objective) -> tuple[torch.Tensor, torch.Tensor]:
    """Cost of label 1, and the slope in its margin, where the logits are (-m/2, m/2)."""
    margins = MARGINS.clone().requires_grad_()
    outputs = torch.stack([-margins / 2, margins / 2], dim=1)
    cost = objective(outputs, torch.ones(len(margins), dtype=torch.long), reduction="none")
    (slope,) = torch.autograd.grad(cost.sum(), margins)
    return cost.detach(), slope


def _pair() -> tuple[Figure, Axes, Axes]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 2.7), layout="constrained")
    return figure, left, right


def losses(objectives: dict[str, Objective]) -> Figure:
    """Costs on the left, pulls on the right, cross-entropy in black."""
    figure, left, right = _pair()
    for name, objective in {PLAIN: ng.CrossEntropy(2), **objectives}.items():
        cost, slope = curves(objective)
        colour = {"color": "black", "linestyle": "--"} if name == PLAIN else {}
        left.plot(MARGINS, cost, label=name, **colour)
        right.plot(MARGINS, -slope, **colour)
    left.set(xlabel="margin of the given label", title="what the label costs", ylim=(-3, 6.2))
    right.set(xlabel="margin of the given label", title="how hard it pulls")
    left.legend(frameon=False, fontsize=8)
    return figure


def _named(values: dict[str, Objective]) -> Callable[[], Figure]:
    return lambda: losses(values)


def _symmetric(alpha: float) -> list[list[float]]:
    return [[1 - alpha / 2, alpha / 2], [alpha / 2, 1 - alpha / 2]]


def nan() -> Figure:
    objective = ng.NoiseAgainstNoise(2, sigma=0.5)
    figure, left, right = _pair()
    draws = [curves(objective) for _ in range(4)]
    for cost, slope in draws:
        left.scatter(MARGINS[::6], cost[::6], s=4, alpha=0.6, color="tab:blue")
        right.scatter(MARGINS[::6], -slope[::6], s=4, alpha=0.6, color="tab:blue")
    cost, slope = curves(ng.CrossEntropy(2))
    left.plot(MARGINS, cost, "--", color="black", label=PLAIN)
    right.plot(MARGINS, -slope, "--", color="black")
    left.set(xlabel="margin of the given label", title="cost at 4 x 41 steps, sigma = 0.5")
    right.set(xlabel="margin of the given label", title="pull at these steps")
    left.legend(frameon=False, fontsize=8)
    return figure


def _noisy_logits(kinds: dict[str, tuple[float, float]]) -> Figure:
    """Heteroscedastic costs for given (temperature, deviation) of the logits."""
    figure, left, right = _pair()
    margins = MARGINS.clone().requires_grad_()
    label = torch.ones(len(margins), dtype=torch.long)
    for name, (temperature, deviation) in kinds.items():
        objective = ng.Heteroscedastic(2, temperature=temperature).eval()
        scale = torch.full_like(margins, float(np.log(np.expm1(deviation - 1e-3))))
        cost = objective(torch.stack([margins, scale], dim=1), label, reduction="none")
        (slope,) = torch.autograd.grad(cost.sum(), margins)
        left.plot(MARGINS, cost.detach(), label=name)
        right.plot(MARGINS, -slope)
    left.set(xlabel="mean logit of the given label", title="what the label costs", ylim=(-0.2, 6.2))
    right.set(xlabel="mean logit of the given label", title="how hard it pulls")
    left.legend(frameon=False, fontsize=8)
    return figure


def het() -> Figure:
    return _noisy_logits({f"deviation {d}": (1.0, max(d, 0.01)) for d in (0, 2, 6)})


def het_tau() -> Figure:
    return _noisy_logits({f"tau = {tau}": (tau, 2.0) for tau in (0.2, 1.0, 5.0)})


def het_full() -> Figure:
    """Draws of the noise: independent, and correlated by one factor."""
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.9), layout="constrained", sharex=True, sharey=True)
    eps, eta = torch.randn(600, 2), torch.randn(600, 1)
    for ax, title, noise in (
        (axes[0], "diagonal: d * eps", 1.5 * eps),
        (axes[1], "low-rank: d * eps + V eta", 0.5 * eps + eta * torch.tensor([1.5, 1.4])),
    ):
        ax.scatter(*noise.T, s=4, alpha=0.5)
        ax.set(title=title, xlabel="noise on the logit of cats", aspect="equal")
    axes[0].set_ylabel("noise on the logit of dogs")
    return figure


def ln() -> Figure:
    """The cost of a residual r once the network has chosen the best variance for it (figure 2 of the paper)."""
    figure, left, right = _pair()
    residual = torch.linspace(0, 5, 251)
    left.plot(residual, residual**2 / 2, "--", color="black", label="variance fixed at 1")
    for scale in (0.5, 1.0, 2.0):
        explained = residual > scale
        best = torch.where(explained, residual, torch.full_like(residual, scale))  # s = lambda + |c|^2
        quadratic = torch.where(explained, torch.ones_like(residual), (residual / scale) ** 2)
        left.plot(residual, quadratic / 2 + best.log(), label=f"lambda = {scale:g}")
        pull = torch.where(explained, 1 / residual, residual / scale**2)
        right.plot(residual, pull)
    right.plot(residual, residual, "--", color="black")
    left.set(xlabel="residual |r|", title="cost at the best variance", ylim=(-1, 6))
    right.set(xlabel="residual |r|", title="how hard it pulls", ylim=(0, 3))
    left.legend(frameon=False, fontsize=8)
    return figure


# -- methods ---------------------------------------------------------------------------------------


def _matrix(
    ax: Axes, matrix: torch.Tensor, title: str, rows: str = "clean", columns: str = "observed"
) -> None:
    ax.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
    for (i, j), value in np.ndenumerate(matrix.numpy()):
        ax.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.5 else "black")
    ax.set(title=title, xlabel=columns, ylabel=rows, xticks=range(3), yticks=range(3))


def forward() -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.6), layout="constrained", width_ratios=[1.1, 1, 1])
    _matrix(axes[0], FLIPS, "T")
    p = torch.tensor([0.7, 0.2, 0.1])
    for ax, values, title in ((axes[1], p, "p: clean class"), (axes[2], FLIPS.T @ p, "T'p: given label")):
        ax.bar(range(3), values)
        ax.set(title=title, ylim=(0, 1), xticks=range(3))
    return figure


def backward() -> Figure:
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.8), layout="constrained", width_ratios=[1, 1.6])
    _matrix(axes[0], torch.linalg.inv(FLIPS), "inv(T): weights of the costs", "given label", "cost of class")
    cost, _ = curves(ng.BackwardCorrection(2, _symmetric(0.4)))
    plain, _ = curves(ng.CrossEntropy(2))
    axes[1].plot(MARGINS, plain, "--", color="black", label=PLAIN)
    axes[1].plot(MARGINS, cost, label="backward, 20 % flips")
    axes[1].axhline(0, color="grey", linewidth=0.6)
    axes[1].set(xlabel="margin of the given label", title="the cost has no lower bound")
    axes[1].legend(frameon=False, fontsize=8)
    return figure


def reweight() -> Figure:
    figure, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
    share = torch.linspace(0, 1, 101)
    probs = torch.stack([1 - share, share], dim=1)
    for rate in (0.1, 0.2, 0.4):
        matrix = torch.tensor([[1 - rate, rate], [rate, 1 - rate]])
        ax.plot(
            share, importance(probs, matrix, torch.ones(101, dtype=torch.long)), label=f"{rate:.0%} flips"
        )
    ax.set(xlabel="p: how far the network believes the label", ylabel="weight of the label")
    ax.legend(frameon=False, fontsize=8)
    return figure


def t_revision() -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.7), layout="constrained")
    delta = torch.tensor([[-0.06, 0.02, 0.04], [0.03, -0.05, 0.02], [0.01, 0.02, -0.03]])
    start = torch.tensor([[0.86, 0.1, 0.04], [0.05, 0.85, 0.1], [0.12, 0.05, 0.83]])
    _matrix(axes[0], start, "T: one example a class")
    axes[1].imshow(delta, cmap="RdBu_r", vmin=-0.1, vmax=0.1)
    for (i, j), value in np.ndenumerate(delta.numpy()):
        axes[1].text(j, i, f"{value:+.2f}", ha="center", va="center")
    axes[1].set(title="delta: learnt (an example)", xticks=range(3), yticks=range(3))
    _matrix(axes[2], start + delta, "R = T + delta")
    return figure


def co_teaching() -> Figure:
    figure, left, right = _pair()
    epochs = torch.arange(0, 25)
    for rate in (0.2, 0.4):
        left.step(
            epochs, [float(kept_share(e, rate, 10)) for e in epochs], where="post", label=f"rate {rate}"
        )
    left.set(xlabel="epoch", title="share of a batch that is kept", ylim=(0, 1.05))
    left.legend(frameon=False, fontsize=8)
    generator = np.random.default_rng(0)
    good, bad = generator.gamma(1.5, 0.25, 600), generator.gamma(6, 0.35, 400)
    right.hist([good, bad], bins=30, stacked=True, label=["right labels", "wrong labels"])
    right.axvline(
        np.quantile(np.r_[good, bad], 0.6), color="black", linestyle="--", label="kept: to the left"
    )
    right.set(xlabel="loss under the other network", title="an example, 40 % wrong")
    right.legend(frameon=False, fontsize=8)
    return figure


def decoupling() -> Figure:
    figure, ax = plt.subplots(figsize=(4.2, 3), layout="constrained")
    points = np.random.default_rng(0).uniform(-1, 1, (260, 2))
    first, second = points @ [1.0, 0.35] > 0.05, points @ [1.0, -0.25] > -0.05
    ax.scatter(*points[first == second].T, s=8, color="lightgrey", label="agree: not used")
    ax.scatter(*points[first != second].T, s=12, color="tab:red", label="disagree: both learn")
    line = np.linspace(-1, 1, 2)
    ax.plot(0.05 - 0.35 * line, line, 0.25 * line - 0.05, line, color="tab:blue")
    ax.set(xticks=[], yticks=[], title="boundaries of two networks", xlim=(-1, 1), ylim=(-1, 1.35))
    ax.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
    return figure


def mentornet() -> Figure:
    figure, ax = plt.subplots(figsize=(5, 2.7), layout="constrained")
    loss = torch.linspace(0, 4, 400)
    for second in (0.0, 0.5, 2.0):
        ax.plot(loss, self_paced_weights(loss, torch.tensor(1.2), second), label=f"lambda 2 = {second:g}")
    ax.set(xlabel="loss (lambda 1 = 1.2)", ylabel="weight of the label")
    ax.legend(frameon=False, fontsize=8)
    return figure


def mixup() -> Figure:
    figure, left, right = _pair()
    share = np.linspace(0.005, 0.995, 200)
    for alpha in (0.2, 1.0, 8.0):
        density = (share * (1 - share)) ** (alpha - 1)
        left.plot(share, density / (density.sum() * (share[1] - share[0])), label=f"alpha = {alpha:g}")
    left.set(xlabel="s", title="Beta(alpha, alpha)", ylim=(0, 5))
    left.legend(frameon=False, fontsize=8, loc="upper center", ncols=3)
    digits = ng.data.load("digits", as_images=True).train
    images = torch.as_tensor(digits.x[[0, 5], 0]).float()
    right.imshow(torch.cat([images[0], 0.6 * images[0] + 0.4 * images[1], images[1]], dim=1), cmap="gray_r")
    right.set_axis_off()
    right.set_title(f"a {digits.y[0]}, 60 % of it and 40 % of a {digits.y[5]}, a {digits.y[5]}")
    return figure


def distillation() -> Figure:
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.4), layout="constrained", sharey=True)
    logits = torch.tensor([4.0, 1.5, 0.5, -1.0])
    bars = (
        ("the given label", torch.tensor([0.0, 1.0, 0.0, 0.0])),
        ("the teacher", logits.softmax(0)),
        ("the student's target, t = 2", (logits / 2).softmax(0)),
    )
    for ax, (title, values) in zip(axes, bars, strict=True):
        ax.bar(range(4), values)
        ax.set(title=title, xticks=range(4))
    return figure


def elr() -> Figure:
    """What a network that is already right does with a wrong label, and with the term that resists."""
    figure, left, right = _pair()
    p = torch.linspace(0.01, 0.99, 99)
    left.plot(p, torch.log1p(-p), label="target t = (1, 0)")
    left.plot(p, torch.log1p(-(0.8 * p + 0.2 * (1 - p))), label="t = (0.8, 0.2)")
    left.set(xlabel="probability of the class it has predicted so far", title="log(1 - <p, t>)")
    left.legend(frameon=False, fontsize=8)
    epochs = np.arange(1, 31)
    early = 0.9 - 0.6 / (1 + np.exp(-(epochs - 15) / 3))
    mean, path = 0.0, []
    for value in early:
        mean = 0.7 * mean + 0.3 * value
        path.append(mean)
    right.plot(epochs, early, "--", color="black", label="p of the right class, an example")
    right.plot(epochs, path, label="t: its running mean, beta 0.7")
    right.set(xlabel="epoch", ylim=(0, 1), title="the memory of a row")
    right.legend(frameon=False, fontsize=8)
    return figure


def dividemix() -> Figure:
    figure, ax = plt.subplots(figsize=(5.2, 2.8), layout="constrained")
    generator = np.random.default_rng(0)
    loss = np.sort(np.r_[generator.gamma(3, 0.15, 600), generator.normal(3, 0.6, 400)]).astype(np.float32)
    ax.hist(loss, bins=40, color="lightgrey", density=True)
    chance = clean_probability(torch.as_tensor(loss), torch.ones(len(loss)))
    ax.plot(loss, chance, label="w: probability of a right label")
    ax.axhline(0.5, color="black", linewidth=0.6, linestyle="--")
    ax.set(xlabel="loss of a row under one network", title="below 0.5 the label is not used")
    ax.legend(frameon=False, fontsize=8)
    return figure


def _boxes(
    ax: Axes, boxes: dict[str, tuple[float, float]], arrows: list[tuple[str, str]], circle: bool
) -> None:
    ax.set_axis_off()
    shape = "circle,pad=0.35" if circle else "round,pad=0.4"
    told = {
        name: ax.text(
            x, y, name, ha="center", va="center", bbox={"boxstyle": shape, "fc": "white", "ec": "black"}
        )
        for name, (x, y) in boxes.items()
    }
    for start, end in arrows:
        ax.annotate(
            "", xytext=boxes[start], xy=boxes[end],
            arrowprops={
                "arrowstyle": "-|>", "patchA": told[start].get_bbox_patch(), "patchB": told[end].get_bbox_patch(),
                "shrinkA": 2, "shrinkB": 2,
            },
        )  # fmt: skip


def causalnl() -> Figure:
    figure, ax = plt.subplots(figsize=(4.6, 2.2), layout="constrained")
    ax.set(xlim=(0, 4), ylim=(0, 2))
    spots = {"y": (0.6, 1.5), "z": (0.6, 0.4), "x": (2, 0.95), "ỹ": (3.4, 1.5)}
    _boxes(ax, spots, [("y", "x"), ("z", "x"), ("y", "ỹ"), ("x", "ỹ")], circle=True)
    ax.text(2, 0.3, "x: input, ỹ: given label\ny: clean label, z: all else", ha="left", fontsize=8)
    return figure


def auto() -> Figure:
    figure, ax = plt.subplots(figsize=(7.6, 2.2), layout="constrained")
    ax.set(xlim=(0, 10), ylim=(0, 2))
    spots = {
        "linear\nkernel\ntrees\nnetworks": (0.9, 1.0),
        "keep those that repeat\nheld-out labels best": (3.3, 1.0),
        "weigh the labels,\nfit again": (6.2, 1.55),
        "judge every label": (6.2, 0.45),
        "ensemble": (9.1, 1.55),
        "label_issues_": (9.1, 0.45),
    }
    names = list(spots)
    pairs = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 5)]
    _boxes(ax, spots, [(names[i], names[j]) for i, j in pairs], circle=False)
    return figure


def house() -> Figure:
    """The layers of the import contract, from the bottom up; neighbours side by side."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    figure, ax = plt.subplots(figsize=(7.2, 0.34 * len(layers)), layout="constrained")
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(len(layers), 0))
    for row, layer in enumerate(layers):
        names = [name.strip() for name in layer.replace("|", ":").split(":")]
        for place, name in enumerate(names):
            left = place / len(names)
            ax.add_patch(
                plt.Rectangle(
                    (left + 0.004, row + 0.06), 1 / len(names) - 0.008, 0.88, fc="#e8f1f6", ec="#0b5f8a"
                )
            )
            ax.text(left + 0.5 / len(names), row + 0.52, name, ha="center", va="center")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "auto": auto,
    "ce": _named({}),
    "ls": _named({f"alpha = {a}": ng.LabelSmoothing(2, alpha=a) for a in (0.1, 0.4)}),
    "fc": _named({f"alpha = {a}": ng.ForwardCorrection(2, _symmetric(a)) for a in (0.1, 0.4)}),
    "bc": _named({f"alpha = {a}": ng.BackwardCorrection(2, _symmetric(a)) for a in (0.1, 0.4)}),
    "gce": _named({f"q = {q}": ng.GCE(2, q=q) for q in (0.3, 0.7, 1.0)}),
    "bi-tempered": _named(
        {f"t1 = {a}, t2 = {b}": ng.BiTempered(2, a, b) for a, b in ((0.7, 1.3), (0.2, 4.0))}
    ),
    "nan": nan,
    "bootstrap": _named({kind: ng.Bootstrap(2, kind=kind) for kind in ("hard", "soft")}),
    "het": het,
    "het-tau": het_tau,
    "het-full": het_full,
    "ln": ln,
    "forward": forward,
    "backward": backward,
    "reweight": reweight,
    "t-revision": t_revision,
    "co-teaching": co_teaching,
    "decoupling": decoupling,
    "mentornet": mentornet,
    "mixup": mixup,
    "distillation": distillation,
    "causalnl": causalnl,
    "dividemix": dividemix,
    "elr": elr,
    "house": house,
}
