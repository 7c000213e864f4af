"""Runs of the study ln-table1-mnist with the gradients that widespread TensorFlow code makes of two methods.

    python reproduction/other_gradients.py nan --root DATA    trains runs so, adds them to other_gradients.json
    python reproduction/other_gradients.py nan --draw         draws nan.png from there and from results/

*nan*: the targets t = onehot(y) + sigma eps do not sum to one. The gradient of -sum_k t_k log p_k in the logits u
is (sum_k t_k) p - t. TensorFlow's softmax cross-entropy asks for targets that do, and returns p - t whatever they
are: the gradient of another cost, -log p_y - sigma sum_k eps_k u_k. Where p is nearly onehot(y) the noise on logit
y then has the variance sigma^2 instead of (K - 1) sigma^2.

*bi-tempered*: the code published with the method normalises the tempered softmax by five fixed-point steps unless
told otherwise. For t2 = 4 they are too few, the probabilities q sum to more than one, and the gradient it computes
from them, g_k = q_k^(t2 - t1) (q_k - onehot(y)_k) less (sum_j g_j) q_k^t2 / sum_j q_j^t2, is not quite the cost's.

(What is published of the paper's own code uses TensorFlow; these two methods are not in it.)
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from ledger import unpack
from torch import Tensor
from torch.nn import functional as F

import noisegate as ng
from noisegate._device import resolve_device
from noisegate.runs.run import Run
from noisegate.runs.side_by_side import side_by_side
from noisegate.studies import papers
from noisegate.studies.execute import load_data
from noisegate.studies.store import Store
from noisegate.studies.study import slug
from noisegate.training.trainer import Epoch

HERE = Path(__file__).parent
FOUND = HERE / "other_gradients.json"


class TargetsTakenToSumToOne(ng.NoiseAgainstNoise):
    """NAN by the gradient p - t."""

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        costs = F.cross_entropy(outputs, targets, reduction="none")
        return costs - self.sigma * (torch.randn_like(outputs) * outputs).sum(1) if self.training else costs


class FiveSteps(ng.BiTempered):
    """Bi-tempered with a normaliser of five fixed-point steps, for t2 > 1."""

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        q, gradient = five_steps(outputs.detach(), targets, self.t1, self.t2)
        # The value is the cost at q, the gradient the one above.
        costs = self._spread(q.log()) - ng.objectives.robust.tempered_log(q.log(), self.t1).gather(
            1, targets.unsqueeze(1)
        ).squeeze(1)
        surrogate = (gradient * outputs).sum(1)
        return costs + surrogate - surrogate.detach()


def five_steps(
    outputs: Tensor, targets: Tensor, t1: float, t2: float, steps: int = 5
) -> tuple[Tensor, Tensor]:
    """Probabilities [N, K] by so many fixed-point steps, and the gradient of the cost that is made of them."""

    def exp_t(u: Tensor) -> Tensor:
        return (1 + (1 - t2) * u).clamp(min=0) ** (1 / (1 - t2))

    below = outputs - outputs.amax(1, keepdim=True)
    scaled = below
    for _ in range(steps):
        scaled = below * exp_t(scaled).sum(1, keepdim=True) ** (1 - t2)
    total = exp_t(scaled).sum(1, keepdim=True)
    q = exp_t(below + ((1 / total) ** (1 - t2) - 1) / (1 - t2))
    g = q ** (t2 - t1) * (q - F.one_hot(targets, q.shape[1]))
    escorts = q**t2 / (q**t2).sum(1, keepdim=True)
    return q, g - escorts * g.sum(1, keepdim=True)


#: By the method's name in the library: its row in the study, the objective, what to call it in the picture.
METHODS: dict[str, tuple[str, type[ng.Objective], str]] = {
    "nan": ("NAN", TargetsTakenToSumToOne, "p - t"),
    "bi-tempered": ("Bi-tempered", FiveSteps, "normalised in five steps"),
}


def cell_of(method: str, column: str) -> Any:
    row = METHODS[method][0]
    return next(c for c in papers.get("ln-table1-mnist") if c.row == row and c.column == column)


def make_run(method: str, column: str, seed: int, device: str, root: str | None) -> Run:
    """The study's run of this method in this column with this seed, with the other gradient."""
    settings = cell_of(method, column).settings.replace(seed=seed)
    data = load_data(settings, root)
    objective = METHODS[method][1](data.n_classes, **settings.params)
    recipe = ng.Recipe.from_dict(settings.recipe)
    return Run(data, objective, settings.network, recipe, seed, device, evidence=("test",))


def measure(
    method: str, columns: Sequence[str], seeds: Sequence[int], device: str, root: str | None
) -> Iterator[dict[str, Any]]:
    """Train these runs, on a GPU beside each other, and yield each one's test accuracies when it has ended."""
    which = [(column, seed) for column in columns for seed in seeds]
    makers = [functools.partial(make_run, method, column, seed, device, root) for column, seed in which]
    width = 1 if resolve_device(device).type == "cpu" else len(makers)
    for number, run, what in side_by_side(makers, width):
        column, seed = which[number]
        if isinstance(what, Exception):
            raise what
        if isinstance(what, Epoch):
            print(
                f"{column}, seed {seed}, {what.epoch}: {100 * what.metrics['test_accuracy']:.2f}", flush=True
            )
        elif run is not None:
            about = {
                "method": method,
                "column": column,
                "seed": seed,
                **cell_of(method, column).settings.params,
            }
            about |= {"device": run.record["hardware"], "torch": run.record["versions"]["torch"]}
            yield {**about, "test": [round(100 * e["test_accuracy"], 2) for e in run.fitted.history[0]]}


def stored(method: str, column: str) -> list[list[float]]:
    """Test accuracies of the study's own runs, epoch by epoch."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(Path(scratch), pattern=f"ln-table1-mnist-{slug(METHODS[method][0])}.*tar.xz")
        store = Store(scratch)
        runs = [store.result(cell_of(method, column).settings.replace(seed=seed)) for seed in range(5)]
    return [[100 * e["test_accuracy"] for e in run.history[-1]] for run in runs if run is not None]


def draw(method: str) -> None:
    """Test accuracy against epochs: the gradient of the cost, the other one, and the paper's end."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    row, _, other = METHODS[method]
    known = [run for run in json.loads(FOUND.read_text()) if run["method"] == method]
    columns = sorted({run["column"] for run in known})
    figure, axes = plt.subplots(
        1, len(columns), figsize=(4 * len(columns), 3.4), constrained_layout=True, squeeze=False
    )
    for axis, column in zip(axes[0], columns, strict=True):
        for curve, colour, label in [
            *((each, "tab:blue", "the cost's gradient, five seeds") for each in stored(method, column)),
            *((r["test"], "tab:orange", other) for r in known if r["column"] == column),
        ]:
            axis.plot(range(1, len(curve) + 1), curve, color=colour, linewidth=1, label=label)
        paper = cell_of(method, column).paper["test_accuracy"]
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
        axis.set_title(f"{row}, {column[0].lower()}{column[1:-1]} % noise")
        axis.set_xlabel("epoch")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("test accuracy, %")
    labels = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    axes[0][0].legend(labels.values(), labels.keys(), fontsize=8, loc="lower left")
    figure.savefig(HERE / f"{method}.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--root", help="where data sets lie; NOISEGATE_DATA if left out")
    parser.add_argument("--columns", nargs="+", default=["Symmetric 40%"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--draw", action="store_true")
    args = parser.parse_args()
    if args.draw:
        draw(args.method)
        return
    for found in measure(args.method, args.columns, args.seeds, args.device, args.root):
        known = [*(json.loads(FOUND.read_text()) if FOUND.exists() else []), found]
        FOUND.write_text("[\n" + ",\n".join(json.dumps(each) for each in known) + "\n]\n")


if __name__ == "__main__":
    main()
