"""Why LN's full covariance does not learn 100 classes at the size of a laptop: LeNet-5's last units die.

    python reproduction/ln_many_classes.py --root DATA     trains, writes ln_many_classes.json and prints its table
    python reproduction/ln_many_classes.py                 prints the table of the stored numbers

Runs of ln-table3 (pairs of digits, 40 % of the labels wrong, seed 0) with other optimisers, a few epochs each. On
2,000 test images: how many of the 84 units before the last layer are zero on all of them, and the accuracy. A
network without units can only say the same of every image; the best it can say then is the mean of all targets,
with c = 0 where the targets vary by less than lambda in every direction.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noisegate import networks
from noisegate.data.loader import Rows
from noisegate.evaluation.passes import Passes
from noisegate.runs.run import Run
from noisegate.studies import papers
from noisegate.studies.execute import make_run

FOUND = Path(__file__).parent / "ln_many_classes.json"
EPOCHS = 5
IMAGES = 2000
#: Name of a way of training: the row of the study, changes of its recipe, changes of its parameters.
WAYS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "full, Adam 1e-3 (the study)": ("Full", {}, {}),
    "full, Adam 1e-4": ("Full", {"lr": 1e-4}, {}),
    "full, Adam 1e-3, warm-up over one epoch": ("Full", {"warmup": 1.0}, {}),
    "full, Nesterov 1e-2 (the paper's)": ("Full", {"optimizer": "nesterov", "lr": 1e-2}, {}),
    "full, Nesterov 1e-2, gradient clipped at 1": (
        "Full",
        {"optimizer": "nesterov", "lr": 1e-2, "clip_norm": 1.0},
        {},
    ),
    "full, Adam 1e-3, λ = 1": ("Full", {}, {"min_scale": 1.0}),
    "full, without dummy, Adam 1e-3": ("Full, without dummy", {}, {}),
    "isotropic, Adam 1e-3": ("Isotropic", {}, {}),
    "identity, Adam 1e-3": ("Identity", {}, {}),
}


class Units:
    """Looks at the last units of a network after each epoch, like the evidence of a run."""

    def __init__(self, run: Run) -> None:
        test = run.data.test
        assert test is not None
        x, y = np.asarray(test.x)[:IMAGES], np.asarray(test.y)[:IMAGES]
        self.x, self.y = torch.as_tensor(x).to(run.device), torch.as_tensor(y).to(run.device)
        self.rows, self.parts = {"test": Rows(x, y, run.device, resident=False)}, ("test",)

    def measure(self, passes: Passes) -> dict[str, torch.Tensor]:
        """The numbers; `passes` has network and objective in evaluation mode."""
        network, objective = passes.network, passes.objective
        seen: list[torch.Tensor] = []
        head = networks.find_head(network, objective.n_outputs)
        hook = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
        outputs = torch.cat([network(x) for x in self.x.split(500)])
        hook.remove()
        units = torch.cat(seen)
        return {
            "test_accuracy": (objective.probs(outputs).argmax(1) == self.y).double().mean(),
            "dead": (units <= 0).all(0).double().mean(),
        }


def measure(way: str, device: str, root: str | None) -> dict[str, Any]:
    """Train one way, and return what was seen after each epoch."""
    row, recipe, params = WAYS[way]
    study = papers.get("ln-table3").at_scale("laptop")
    settings = next(c for c in study if c.row == row and c.column == "CIFAR-100N").settings
    settings = settings.replace(
        recipe={**settings.recipe, "epochs": EPOCHS, **recipe}, params={**settings.params, **params}
    )
    with make_run(settings, device, root) as run:
        run._trainer.evidence = Units(run)
        for epoch in run:
            print(way, epoch.epoch, {k: round(v, 3) for k, v in epoch.metrics.items()}, flush=True)
        names = ("loss", "dead", "test_accuracy")
        history = [{name: round(epoch[name], 4) for name in names} for epoch in run.fitted.history[0]]
        about = {"device": run.record["hardware"], "torch": run.record["versions"]["torch"]}
    return {**about, "history": history}


def table(found: Mapping[str, Any]) -> list[str]:
    """The stored numbers as Markdown."""
    lines = [
        f"| LN, 100 classes | dead units after epoch 1 | after epoch {EPOCHS} | cost | accuracy |",
        "|---|---|---|---|---|",
    ]
    for way, run in found.items():
        first, last = run["history"][0], run["history"][-1]
        lines.append(
            f"| {way} | {first['dead']:.0%} | {last['dead']:.0%} | {last['loss']:.1f} | "
            f"{100 * last['test_accuracy']:.1f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--root", help="where mnist lies; without it the stored numbers are printed")
    parser.add_argument("--device", default="auto", help="the stored ones were trained on cpu")
    arguments = parser.parse_args()
    if arguments.root is not None:
        found = {way: measure(way, arguments.device, arguments.root) for way in WAYS}
        FOUND.write_text(json.dumps(found) + "\n")
    print("\n".join(table(json.loads(FOUND.read_text()))))


if __name__ == "__main__":
    main()
