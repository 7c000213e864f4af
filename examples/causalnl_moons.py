"""Figure 2 of the CausalNL paper: two moons, 45 % of the labels wrong, and who finds the moons all the same.

python examples/causalnl_moons.py                      # ten seeds, about half an hour on one core
python examples/causalnl_moons.py --seeds 1 --epochs 50 --picture moons.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import noisegate as ng
from noisegate.reporting.plots import CLASS_COLORS, decision_boundary, method_style, panels, png

RATE = 0.45
FIRST_SEED = 100  # the settings below were chosen on seeds 0 to 7
EPOCHS = 400
RECIPE = ng.Recipe(batch_size=128, lr=1e-3)
NETWORK = "mlp-64-64"
# The bound counts three times against co-teaching; the four weights stay equal, so it stays a bound.
THRICE = dict.fromkeys(("reconstruction_weight", "label_weight", "prior_weight", "kl_weight"), 3.0)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "cross-entropy": ("ce", {}),
    "co-teaching": ("co-teaching", {"noise_rate": RATE}),
    "mixup": ("mixup", {}),
    "CausalNL, paper": ("causalnl", {"noise_rate": RATE}),
    "CausalNL, elbo": ("causalnl", {"noise_rate": RATE, "variant": "elbo", "warmup_epochs": 30, **THRICE}),
}


def noisy_moons(seed: int) -> ng.data.Dataset:
    """1000 training points with noisy labels, 1000 test points with clean ones."""
    return ng.data.load("moons", seed=seed).corrupt(ng.noise.InstanceDependent(RATE), seed=seed)


def accuracy(fitted: ng.Fitted) -> float:
    """Mean clean test accuracy over the last ten epochs, as the paper reports it."""
    return float(np.mean([epoch["test_accuracy"] for epoch in fitted.history[-1][-10:]]))


def main(seeds: int = 10, epochs: int = EPOCHS) -> dict[str, list[ng.Fitted]]:
    """Every method on the same data, network and recipe; one `Fitted` a seed."""
    found: dict[str, list[ng.Fitted]] = {name: [] for name in METHODS}
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        data = noisy_moons(seed)
        for name, (method, params) in METHODS.items():
            chosen = ng.methods.get(method, **params)
            recipe = RECIPE.replace(epochs=epochs)
            found[name].append(ng.train(data, chosen, NETWORK, recipe, seed, "cpu", progress=False))
            print(f"seed {seed}  {name:16s} {accuracy(found[name][-1]):.3f}", flush=True)
    return found


def table(found: dict[str, list[ng.Fitted]]) -> str:
    """Markdown: mean, standard deviation, all seeds, and for CausalNL the information in z."""
    lines = ["| method | mean | sd | seeds | KL of z (nats) |", "|---|---|---|---|---|"]
    for name, fits in found.items():
        scores = [accuracy(fitted) for fitted in fits]
        spread = f"{100 * np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
        each = " ".join(f"{100 * score:.1f}" for score in scores)
        kl = [fitted.extras["kl"] for fitted in fits if "kl" in fitted.extras]
        information = f"{np.mean(kl):.2f}" if kl else ""
        lines.append(f"| {name} | {100 * np.mean(scores):.1f} | {spread} | {each} | {information} |")
    return "\n".join(lines)


def draw(found: dict[str, list[ng.Fitted]]) -> bytes:
    """The training data, what every method made of them on the first seed, and all seeds side by side.

    Points are test points in the colour of their clean label; crosses are on the wrong side.
    """
    figure, axes = panels(len(found) + 2, columns=4, size=(3.9, 3.3))
    data = noisy_moons(FIRST_SEED)
    x, y = data.train.x, data.train.y
    for label in (0, 1):
        axes[0].scatter(*x[y == label].T, s=10, color=CLASS_COLORS[label], alpha=0.8, linewidths=0)
    wrong = (y != data.train.clean).mean()
    axes[0].set_title(f"training data, {wrong:.0%} wrong", loc="left", fontsize=11, fontweight="bold")
    for ax, (name, fits) in zip(axes[1:-1], found.items(), strict=True):
        missed = fits[0].predict_proba(data.test.x).argmax(1) != data.test.y
        title = f"{name}: {accuracy(fits[0]):.1%}"
        decision_boundary(fits[0].predict_proba, data.test.x, data.test.y, wrong=missed, title=title, ax=ax)
    for place, (name, fits) in enumerate(found.items()):
        scores = [100 * accuracy(fitted) for fitted in fits]
        color = method_style(METHODS[name][0])["color"]
        axes[-1].plot(scores, [place] * len(scores), "o", color=color, alpha=0.6, markersize=6)
        axes[-1].plot(np.mean(scores), place, "|", color="black", markersize=16, markeredgewidth=2)
    axes[-1].set_yticks(range(len(found)), list(found), fontsize=9)
    axes[-1].invert_yaxis()
    axes[-1].grid(axis="x", color="#DDDDDD")
    axes[-1].set_xlabel("clean test accuracy (%)")
    runs = len(next(iter(found.values())))
    axes[-1].set_title(f"all {runs} seeds, mean", loc="left", fontsize=11, fontweight="bold")
    return png(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--picture", type=Path, default=Path("benchmarks/results/causalnl_moons.png"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    fits = main(options.seeds, options.epochs)
    print(table(fits))
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_bytes(draw(fits))
