"""Why a small temperature is the worst on CamVid: runs of `temperature-camvid` with one thing changed.

    python reproduction/camvid_temperature.py --root ROOT --part start      samples, start, learning rate
    python reproduction/camvid_temperature.py --root ROOT --part warm       fine-tuning of a trained network
    python reproduction/camvid_temperature.py --root ROOT --part long       2.5 times as many epochs
    python reproduction/camvid_temperature.py --root ROOT --part gradient   what the gradient varies by
    python reproduction/camvid_temperature.py --table               prints what is in camvid_temperature.json

Each part adds its results to camvid_temperature.json (or to --out). ROOT holds CamVid, as for the study; a part
takes two to four minutes of one H200.

"gradient" trains one network at each temperature as the study does, then takes the gradient in all its weights of
some batches, several times each with fresh samples: the variance between the means of batches is that of SGD
anyway, the variance within a batch is the price of sampling.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import noisegate as ng
from noisegate.networks import build
from noisegate.runs.run import Run
from noisegate.runs.side_by_side import side_by_side
from noisegate.studies.papers.temperature.maps import CAMVID_RECIPE, CAMVID_SAMPLES, SCALES
from noisegate.training.augment import random_scale_and_crop

FOUND = Path(__file__).parent / "camvid_temperature.json"
NETWORK, SMALL, SEEDS, WIDTH = "deeplab-resnet18", 0.05, (0, 1, 2), 16
METRICS = ("test_mean_iou", "validation_mean_iou", "test_accuracy", "test_log_likelihood", "loss")
#: Stage 3 of the paper, for as many epochs as the study has.
PAPER = {
    **{"optimizer": "sgd", "lr": 1e-3, "momentum": 0.9, "weight_decay": 4e-5, "clip_norm": None},
    **{"precision": "tf32"},
}


class SameStart(ng.Heteroscedastic):
    """Heteroscedastic whose mean and scale over temperature begin about where those of temperature 1 do."""

    @torch.no_grad()
    def init_head_(self, layer: torch.nn.Module) -> None:
        super().init_head_(layer)
        first = math.log(2) * self.temperature  # softplus(0) at temperature 1
        layer.weight[: self.n_classes] *= self.temperature
        layer.bias[self.n_classes : 2 * self.n_classes] = math.log(math.expm1(first))


def het(temperature: float, n_samples: int = 32, kind: type[ng.Heteroscedastic] = ng.Heteroscedastic) -> Any:
    """The objective of the study at a temperature."""
    samples = {**CAMVID_SAMPLES, "n_samples": n_samples}
    return kind(11, temperature, **samples)


def start() -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """Name, objective, network and changes of the recipe."""
    yield "τ = .05, 128 samples", het(SMALL, 128), NETWORK, {}
    yield "τ = .05, start of τ = 1", het(SMALL, kind=SameStart), NETWORK, {}
    yield "τ = .05, learning rate 3e-4", het(SMALL), NETWORK, {"lr": 3e-4}
    yield "τ = 1, learning rate 3e-4", het(1.0), NETWORK, {"lr": 3e-4}


def long() -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """The three models, trained longer."""
    for name, objective in models().items():
        yield f"{name}, 75 epochs", objective, NETWORK, {"epochs": 75}


def models() -> dict[str, Any]:
    return {"homoscedastic": ng.CrossEntropy(11), "τ = .05": het(SMALL), "τ = 1": het(1.0)}


def fine_tuned(trained: torch.nn.Module) -> Callable[[tuple[int, ...], int], torch.nn.Module]:
    """A network that starts from the weights of a trained one; its last layer is fresh."""
    state = {k: v for k, v in trained.state_dict().items() if not k.startswith("head.")}

    def make(input_shape: tuple[int, ...], n_outputs: int) -> torch.nn.Module:
        network = build(NETWORK, input_shape, n_outputs)
        missing, unknown = network.load_state_dict(state, strict=False)
        if unknown or any(not name.startswith("head.") for name in missing):
            raise RuntimeError(f"weights do not fit: {missing[:3]}, {unknown[:3]}")
        return network

    return make


def done(data: Any, jobs: list[tuple[str, int, Any, Any, dict[str, Any]]], device: str) -> dict[str, Any]:
    """Train every (name, seed, objective, network, changes) beside each other; the numbers by name."""
    makers = [
        lambda o=objective, n=network, c=changes, s=seed: Run(
            data, o, n, {**CAMVID_RECIPE, **c}, s, device, evaluate_every=1000
        )
        for _, seed, objective, network, changes in jobs
    ]
    found: dict[str, Any] = {}
    for number, run, what in side_by_side(makers, WIDTH):
        if isinstance(what, Exception):
            raise what
        if what is None:
            name, seed = jobs[number][:2]
            known = {**run.fitted.history[-1][-1], **run.fitted.metrics}
            row = {metric: known[metric] for metric in METRICS} | {"seed": seed}
            found.setdefault(name, []).append((row, run.fitted))
            print(f"{name}, seed {seed}: {row['test_mean_iou']:.3f}", flush=True)
    return {name: sorted(rows, key=lambda row: row[0]["seed"]) for name, rows in found.items()}


def numbers(found: dict[str, Any]) -> dict[str, Any]:
    return {name: [row for row, _ in rows] for name, rows in found.items()}


def warm(data: Any, device: str, change: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune trained homoscedastic networks: by Adam as in the study, and as in the paper."""
    plain = [("homoscedastic", seed, ng.CrossEntropy(11), NETWORK, change) for seed in SEEDS]
    first = done(data, plain, device)
    jobs = []
    for recipe, changes in (("Adam 3e-4", {"lr": 3e-4}), ("SGD 1e-3", PAPER)):
        for name, objective in models().items():
            for (_, fitted), seed in zip(first["homoscedastic"], SEEDS, strict=True):
                network = fine_tuned(inner(fitted.network))
                label = f"{name}, fine-tuned by {recipe}"
                jobs.append((label, seed, objective, network, changes | change))
    return {"homoscedastic, before": numbers(first)["homoscedastic"]} | numbers(done(data, jobs, device))


def inner(prepared: torch.nn.Module) -> torch.nn.Module:
    """The network inside of its preparation of inputs."""
    return next(m for m in prepared.modules() if hasattr(m, "pyramid"))


def gradient(data: Any, device: str, change: dict[str, Any]) -> dict[str, Any]:
    """Variance of the gradient between batches and, of one batch, between samples."""
    lengths = (change["epochs"],) if change else (5, CAMVID_RECIPE["epochs"])
    jobs = [
        (f"τ = {t:g}, {epochs} epochs", 0, het(t), NETWORK, {"epochs": epochs})
        for t in (SMALL, 0.2, 1.0)
        for epochs in lengths
    ]
    found = {}
    for name, ((_, fitted),) in done(data, jobs, device).items():
        for samples in (32, 128, 1000):
            found[f"{name}, {samples} samples"] = variances(fitted, data, samples)
            print(name, samples, found[f"{name}, {samples} samples"], flush=True)
    return found


def variances(fitted: Any, data: Any, samples: int, batches: int = 8, repeats: int = 4) -> dict[str, float]:
    """Squared norms: of the mean gradient, its variance between batches, and that of sampling."""
    network, device = fitted.network, next(fitted.network.parameters()).device
    objective = het(fitted.objective.temperature, samples).to(device).train()
    torch.manual_seed(0)
    means, within = [], []
    weights = [p for p in network.parameters() if p.requires_grad]
    for batch in range(batches):
        rows = np.random.default_rng(batch).choice(len(data.train), 8, replace=False)
        x, y = (torch.from_numpy(np.asarray(part[rows])).to(device) for part in (data.train.x, data.train.y))
        with torch.no_grad():
            x, y = random_scale_and_crop(x, y, SCALES, (160, 160))
        # In evaluation mode normalisation and dropout add nothing: what varies is the samples.
        outputs = network.eval()(x)
        every = []
        for _ in range(repeats):
            parts = torch.autograd.grad(objective(outputs, y.long()), weights, retain_graph=True)
            every.append(torch.cat([part.flatten() for part in parts]).double())
        stacked = torch.stack(every)
        means.append(stacked.mean(0))
        within.append(float(stacked.var(0).sum()))
    centre = torch.stack(means)
    sampling = float(np.mean(within))
    # The means of few repeats hold a share of the samples' variance, and the mean of few batches of both.
    between = max(0.0, float(centre.var(0).sum()) - sampling / repeats)
    signal = float(centre.mean(0).square().sum()) - (between + sampling / repeats) / batches
    return {"signal": signal, "between_batches": between, "sampling": sampling}


def table(content: dict[str, Any]) -> str:
    """The results in Markdown: mean and standard deviation in per cent."""
    lines = [
        "| run | test mean IoU | validation mean IoU | log-likelihood | training loss |",
        "|---|---|---|---|---|",
    ]
    for part in ("start", "warm", "long"):
        for name, rows in content.get(part, {}).get("found", {}).items():
            cells = []
            for metric in ("test_mean_iou", "validation_mean_iou", "test_log_likelihood", "loss"):
                values = np.array([row[metric] for row in rows])
                shown = (100, 1) if metric.endswith("iou") else (1, 3)
                spread = values.std(ddof=1) if len(values) > 1 else 0.0
                cells.append(f"{shown[0] * values.mean():.{shown[1]}f} ± {shown[0] * spread:.{shown[1]}f}")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| network | samples' share of the gradient's variance | signal / all variance |",
        "|---|---|---|",
    ]
    for name, each in content.get("gradient", {}).get("found", {}).items():
        whole = each["sampling"] + each["between_batches"]
        lines.append(f"| {name} | {each['sampling'] / whole:.2f} | {each['signal'] / whole:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root")
    parser.add_argument("--part", choices=("start", "warm", "long", "gradient"))
    parser.add_argument("--out", type=Path, default=FOUND)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, help="fewer, to try the script")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    content = json.loads(asked.out.read_text()) if asked.out.is_file() else {}
    if asked.part:
        data = ng.data.load("camvid", root=asked.root)
        change = {} if asked.epochs is None else {"epochs": asked.epochs}
        if asked.part in ("start", "long"):
            cells = {"start": start, "long": long}[asked.part]()
            jobs = [(name, s, o, n, c | change) for name, o, n, c in cells for s in SEEDS]
            found = numbers(done(data, jobs, asked.device))
        else:
            found = {"warm": warm, "gradient": gradient}[asked.part](data, asked.device, change)
        hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        content[asked.part] = {"found": found, "torch": torch.__version__, "hardware": hardware}
        asked.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(table(content))


if __name__ == "__main__":
    main()
