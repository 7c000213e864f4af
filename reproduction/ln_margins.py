"""Why single seeds of LN lose on MNIST with 40 % asymmetric noise: where its means lie, epoch by epoch.

    python reproduction/ln_margins.py --root DATA     trains one run of the study, writes ln_margins.json and .png
    python reproduction/ln_margins.py --draw          draws ln_margins.png anew from ln_margins.json
    python reproduction/ln_margins.py --root DATA --min-scale 1 --epochs 1      prints, stores nothing
    python reproduction/ln_margins.py --root DATA --device cpu --min-scale 1 --hold 5 --fall 0 --epochs 20
                                                      the same; lambda stays at 1 for five epochs and then falls,
                                                      here at once, to the paper's; on a CPU only

For test images of each class a that the noise turns into b (7 > 1, 2 > 7, 3 > 8, 5 <> 6): the median of
mu_a - mu_b, which decides between the two; how far mu is from the line through the two targets; the scale along
that line, s = lambda + |c|^2; and |cos| of the angle between c and the line. Labels a with probability p = 1 - rate
and b otherwise have their most likely mean at mu_a - mu_b = (2 p - 1) tau C.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noisegate.data.loader import Rows
from noisegate.evaluation.passes import Passes
from noisegate.noise.synthetic import MAPPINGS
from noisegate.runs.run import Run
from noisegate.studies import papers
from noisegate.studies.execute import make_run

HERE = Path(__file__).parent
FOUND, PICTURE = HERE / "ln_margins.json", HERE / "ln_margins.png"
RATE = 0.4


class Margins:
    """Looks at a network after each epoch, like the evidence of a run.

    Parameters
    ----------
    run : Run
    pairs : dict of int to int
        The class that each class is taken for.
    scales : sequence of float
        lambda in the second epoch, the third, ...; the last one stays. A captured step would not see it change.
    """

    def __init__(self, run: Run, pairs: dict[int, int], scales: Sequence[float] = ()) -> None:
        test = run.data.test
        assert test is not None
        self.x, self.y = torch.as_tensor(test.x).to(run.device), torch.as_tensor(test.y).to(run.device)
        self.pairs, self.scales = pairs, list(scales)

        # Rows that are not resident are evaluated eagerly: a captured evaluation would not change lambda.
        rows = Rows(np.asarray(test.x), np.asarray(test.y), run.device, resident=False)
        self.rows, self.parts = {"test": rows}, ("test",)

    def measure(self, passes: Passes) -> dict[str, torch.Tensor]:
        """The numbers; `passes` has network and objective in evaluation mode."""
        found = self._numbers(passes.network, passes.objective)
        return {name: torch.as_tensor(value, device=self.x.device) for name, value in found.items()}

    def _numbers(self, network: torch.nn.Module, objective: Any) -> dict[str, float]:
        outputs = torch.cat([network(x) for x in self.x.split(1000)])
        mu, c = (part.double() for part in objective.split(outputs))
        found = {"test_accuracy": float((mu.argmax(1) == self.y).double().mean())}
        for a, b in self.pairs.items():
            rows = self.y == a
            m, k = mu[rows], c[rows]
            line = torch.zeros(m.shape[1], dtype=m.dtype, device=m.device)
            line[a], line[b] = 2**-0.5, -(2**-0.5)
            middle = torch.zeros_like(line)
            middle[a] = middle[b] = objective.target / 2
            off = m - middle
            off = off - (off @ line)[:, None] * line
            length = k.norm(dim=1)
            found |= {
                f"margin_{a}": float((m[:, a] - m[:, b]).median()),
                f"off_line_{a}": float(off.norm(dim=1).median()),
                f"scale_{a}": float((objective.min_scale + length.square()).median()),
                f"cosine_{a}": float(((k @ line).abs() / length).median()),
                f"right_{a}": float((m.argmax(1) == a).double().mean()),
            }
        found["min_scale"] = objective.min_scale
        if self.scales:
            objective.min_scale = self.scales.pop(0)
        return found


def measure(
    seed: int,
    device: str,
    root: str | None,
    min_scale: float | None = None,
    epochs: int | None = None,
    falling: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Train the run of the study that has this seed, or one with another lambda or length.

    With `falling`, (hold, fall), lambda keeps that value for some epochs and then falls to the study's, by the same
    factor in each of so many epochs.
    """
    study = papers.get("ln-table1-mnist")
    cell = next(c for c in study if c.row == "LN" and c.column == f"Asymmetric {RATE:.0%}")
    pairs = dict(MAPPINGS["mnist"])
    settings = cell.settings.replace(seed=seed)
    scales: list[float] = []
    if falling is not None and min_scale is not None:
        (hold, fall), end = falling, float(settings.params["min_scale"])
        scales = (
            [min_scale] * (hold - 1)
            + [min_scale * (end / min_scale) ** (i / fall) for i in range(1, fall)]
            + [end]
        )
    if min_scale is not None:
        settings = settings.replace(params={**settings.params, "min_scale": min_scale})
    if epochs is not None:
        settings = settings.replace(recipe={**settings.recipe, "epochs": epochs})
    with make_run(settings, device, root) as run:
        run._trainer.evidence = Margins(run, pairs, scales)
        for epoch in run:
            print(epoch.epoch, {k: round(v, 3) for k, v in epoch.metrics.items()}, flush=True)
        seen = run.fitted.history[0]
        history = [{k: round(v, 4) for k, v in epoch.items() if "seconds" not in k} for epoch in seen]
        about = {"device": run.record["hardware"], "torch": run.record["versions"]["torch"]}
        target = run.fitted.objective.target  # type: ignore[attr-defined]
    return {"seed": seed, "pairs": pairs, "target": target, "rate": RATE, **about, "history": history}


def draw(found: dict[str, Any]) -> None:
    """Margins, accuracy, and distances from the line against epochs."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    history = found["history"]
    epochs = range(1, len(history) + 1)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    for colour, (a, b) in zip(plt.get_cmap("tab10").colors, found["pairs"].items(), strict=False):
        for axis, name in zip(axes[:2], ("margin", "off_line"), strict=True):
            axis.plot(epochs, [e[f"{name}_{a}"] for e in history], color=colour, label=f"{a} taken for {b}")
    wanted = (1 - 2 * found["rate"]) * found["target"]
    axes[0].axhline(wanted, color="black", linestyle="--", linewidth=1, label="most likely")
    axes[0].axhline(0, color="black", linewidth=0.5)
    axes[0].set_title("μ of the right minus μ of the confused class")
    axes[0].legend(fontsize=7)
    axes[1].set_title("distance of μ from the line")
    axes[1].set_yscale("log")
    axes[2].plot(epochs, [100 * e["test_accuracy"] for e in history], color="black")
    axes[2].set_title("test accuracy, %")
    for axis in axes:
        axis.set_xlabel("epoch")
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--device", default="auto", help="the stored one was trained on cpu")
    parser.add_argument("--root", help="where mnist lies")
    parser.add_argument("--min-scale", type=float, help="another lambda than the paper's 0.1")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--hold", type=int, default=1, help="epochs with that lambda, if it falls")
    parser.add_argument("--fall", type=int, help="epochs in which it then falls to the paper's")
    parser.add_argument("--draw", action="store_true", help="draw the stored numbers")
    arguments = parser.parse_args()
    if not arguments.draw:
        changes = arguments.min_scale, arguments.epochs
        falling = None if arguments.fall is None else (arguments.hold, arguments.fall)
        found = measure(arguments.seed, arguments.device, arguments.root, *changes, falling)
        if changes != (None, None):
            return
        FOUND.write_text(json.dumps(found) + "\n")
    draw(json.loads(FOUND.read_text()))


if __name__ == "__main__":
    main()
