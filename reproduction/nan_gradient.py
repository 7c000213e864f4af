"""Whether the paper's numbers for NAN are those of a cross-entropy that takes targets to sum to one.

    python reproduction/nan_gradient.py --root DATA    trains one run of the study so, adds it to nan_gradient.json
    python reproduction/nan_gradient.py --draw         draws nan_gradient.png from there and from results/

NAN's targets t = onehot(y) + sigma eps do not sum to one. The gradient of -sum_k t_k log p_k in the logits u is
(sum_k t_k) p - t. TensorFlow's softmax cross-entropy asks for targets that do, and returns p - t whatever they are:
the gradient of another cost, -log p_y - sigma sum_k eps_k u_k. Where p is nearly onehot(y) the noise on logit y
then has the variance sigma^2 instead of (K - 1) sigma^2. (The paper's code, as far as it is published, uses
TensorFlow; its NAN is not published.)
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from ledger import unpack
from torch import Tensor
from torch.nn import functional as F

import noisegate as ng
from noisegate.studies import catalogue
from noisegate.studies.execute import load_data
from noisegate.studies.store import Store
from noisegate.training.run import Run

HERE = Path(__file__).parent
FOUND, PICTURE = HERE / "nan_gradient.json", HERE / "nan_gradient.png"


class TargetsTakenToSumToOne(ng.NoiseAgainstNoise):
    """NAN by the gradient p - t."""

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        costs = F.cross_entropy(outputs, targets, reduction="none")
        return costs - self.sigma * (torch.randn_like(outputs) * outputs).sum(1) if self.training else costs


def cell_of(column: str) -> Any:
    return next(c for c in catalogue.get("ln-table1-mnist") if c.row == "NAN" and c.column == column)


def measure(column: str, seed: int, device: str, root: str | None) -> dict[str, Any]:
    """Train the study's run of NAN in this column with this seed, with the other gradient."""
    settings = cell_of(column).settings.replace(seed=seed)
    data = load_data(settings, root)
    objective = TargetsTakenToSumToOne(data.n_classes, **settings.params)
    recipe = ng.Recipe.from_dict(settings.recipe)
    with Run(data, objective, settings.network, recipe, seed, device, evidence=("test",)) as run:
        for epoch in run:
            print(epoch.epoch, round(100 * epoch.metrics["test_accuracy"], 2), flush=True)
        accuracies = [round(100 * e["test_accuracy"], 2) for e in run.fitted.history[0]]
        about = {"device": run.record["hardware"], "torch": run.record["versions"]["torch"]}
    return {"column": column, "seed": seed, "sigma": settings.params["sigma"], **about, "test": accuracies}


def stored(column: str) -> list[list[float]]:
    """Test accuracies of the study's own runs of NAN, epoch by epoch."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(Path(scratch), pattern="ln-table1-mnist-nan.*tar.xz")
        store = Store(scratch)
        runs = [store.result(cell_of(column).settings.replace(seed=seed)) for seed in range(5)]
    return [[100 * e["test_accuracy"] for e in run.history[-1]] for run in runs if run is not None]


def draw() -> None:
    """Test accuracy against epochs: the gradient of the cost, the other one, and the paper's end."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    known = json.loads(FOUND.read_text())
    columns = sorted({run["column"] for run in known})
    figure, axes = plt.subplots(
        1, len(columns), figsize=(4 * len(columns), 3.4), constrained_layout=True, squeeze=False
    )
    for axis, column in zip(axes[0], columns, strict=True):
        for curve, colour, label in [
            *((each, "tab:blue", "the cost's gradient, five seeds") for each in stored(column)),
            *((r["test"], "tab:orange", "p - t") for r in known if r["column"] == column),
        ]:
            axis.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=1, label=label)
        paper = cell_of(column).paper["test_accuracy"]
        axis.errorbar(
            len(curve),
            paper.mean,
            paper.std,
            color="black",
            marker="o",
            markersize=4,
            capsize=3,
            label="the paper",
        )
        axis.set_title(f"NAN, {column[0].lower()}{column[1:-1]} % noise")
        axis.set_xlabel("epoch")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test accuracy, %")
    labels = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    axes[0][0].legend(labels.values(), labels.keys(), fontsize=8, loc="lower left")
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="where data sets lie; NOISEGATE_DATA if left out")
    parser.add_argument("--column", default="Symmetric 40%")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draw", action="store_true")
    args = parser.parse_args()
    if args.draw:
        draw()
        return
    known = json.loads(FOUND.read_text()) if FOUND.exists() else []
    known.append(measure(args.column, args.seed, args.device, args.root))
    FOUND.write_text("[\n" + ",\n".join(json.dumps(each) for each in known) + "\n]\n")


if __name__ == "__main__":
    main()
