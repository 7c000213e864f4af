"""What samples of a map cost and buy: error of the heteroscedastic gradient against its time; peak memory.

Run `python benchmarks/maps.py` (minutes on one core); it writes `results/maps.md` beside itself. Logits of
4 x 4 places are upsampled to 16 x 16 labels; the error is the root mean square of the distance to a
reference gradient (4 x 8,192 independent samples), over the norm of that. Cost is the time of one step on maps of
33 x 33 places and 129 x 129 labels with 21 classes, as a multiple of cross-entropy's in the same process.
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import noisegate as ng
from noisegate.cli.predict_maps import predict_map
from noisegate.networks.deeplab import DeepLab
from noisegate.objectives.points import HashedNormals

CLASSES, TEMPERATURES, SAMPLES = 11, (0.05, 0.2, 1.0), (8, 32, 128, 512)
RESULTS = Path(__file__).parent / "results"


def problem(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Outputs of 4 x 4 places whose class is 3 logits ahead, and labels of 16 x 16 pixels, nearest class."""
    g = torch.Generator().manual_seed(seed)
    mu, places = (
        torch.randn(1, CLASSES, 4, 4, generator=g),
        torch.randint(0, CLASSES, (1, 1, 4, 4), generator=g),
    )
    mu.scatter_add_(1, places, torch.full((1, 1, 4, 4), 3.0))
    outputs = torch.cat([mu, torch.randn(1, CLASSES, 4, 4, generator=g)], 1)
    return outputs, places[:, 0].repeat_interleave(4, 1).repeat_interleave(4, 2)


def independent(objective: ng.Heteroscedastic) -> ng.Heteroscedastic:
    """The objective with independent normals for every place and sample."""

    def points(outputs: Tensor) -> HashedNormals:
        shape = (objective.n_classes, outputs.shape[2], outputs.shape[3])
        return HashedNormals(torch.randint(0, 2**62, ()), shape, objective.n_samples, shared=False)

    objective._place_points = points
    return objective


def gradient(objective: ng.Objective, outputs: Tensor, y: Tensor) -> Tensor:
    leaf = outputs.clone().requires_grad_()
    return torch.autograd.grad(objective(leaf, y), leaf)[0]


def errors(temperature: float, repeats: int) -> dict[str, list[float]]:
    outputs, y = problem()
    many = independent(ng.Heteroscedastic(CLASSES, temperature, n_samples=8192))
    torch.manual_seed(0)
    truth = torch.stack([gradient(many, outputs, y) for _ in range(4)]).mean(0)
    found: dict[str, list[float]] = {"independent": [], "Sobol over tiles (used)": []}
    for name, values in found.items():
        for samples in SAMPLES:
            objective = ng.Heteroscedastic(CLASSES, temperature, n_samples=samples)
            objective = independent(objective) if name == "independent" else objective
            torch.manual_seed(1)
            far = torch.stack([(gradient(objective, outputs, y) - truth).norm() for _ in range(repeats)])
            values.append(float(far.square().mean().sqrt() / truth.norm()))
    return found


def seconds(step: Callable[[], object], repeats: int = 3) -> float:
    """The least of some times, after one to warm up: whatever else runs only adds."""
    step()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return min(times)


def costs() -> dict[int, float]:
    """The time of a step as a multiple of cross-entropy's."""
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 21, (1, 129, 129), generator=g)
    plain = torch.randn(1, 21, 33, 33, generator=g)
    sampled = torch.randn(1, 42, 33, 33, generator=g)
    unit = seconds(lambda: gradient(ng.CrossEntropy(21), plain, y))
    return {
        n: seconds(lambda n=n: gradient(ng.Heteroscedastic(21, n_samples=n), sampled, y)) / unit
        for n in (8, 32, 128)
    }


def peak(samples: int) -> float:
    """MiB that probabilities of one 2048 x 1024 image of 19 classes add to the process's peak."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    objective = ng.Heteroscedastic(19, 0.05, n_samples_eval=samples).eval()
    with torch.no_grad():
        objective.log_probs(torch.randn(1, 38, 256, 512), (1024, 2048))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def prediction_peak(samples: int) -> float:
    """MiB that predicting one such image adds as `noisegate predict` does: network, classes, entropy, variance."""
    objective = ng.Heteroscedastic(19, 0.5, n_samples_eval=samples).eval()
    network = DeepLab((3, 1024, 2048), objective.n_outputs, encoder="resnet18").eval()
    image = np.random.default_rng(0).random((3, 1024, 2048), np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    predict_map(types.SimpleNamespace(network=network, objective=objective), image)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def peaks(kind: str, counts: tuple[int, ...]) -> str:
    """The peaks for some numbers of samples, each in a process of its own: a peak never falls."""
    found = {}
    for samples in counts:
        command = [sys.executable, __file__, f"--{kind}", str(samples)]
        found[samples] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return ", ".join(f"S = {n}: {value:.0f} MiB" for n, value in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--peak", type=int, help="print the first peak alone, for so many samples")
    parser.add_argument("--prediction", type=int, help="print the second peak alone, for so many samples")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.peak:
        print(peak(asked.peak))
        return
    if asked.prediction:
        print(prediction_peak(asked.prediction))
        return
    lines = [
        "# Samples of maps",
        "",
        f"`python benchmarks/maps.py`: n = {asked.repeats} repetitions, one CPU core ({platform.machine()}), "
        f"Python {platform.python_version()}, torch {torch.__version__}.",
        "",
        "Error of the gradient as a share of its norm, by number of samples S (11 classes, 4 x 4 places, 16 x 16 "
        "labels):",
        "",
        "| temperature | points | " + " | ".join(f"S = {s}" for s in SAMPLES) + " |",
        "|---|---|" + "---|" * len(SAMPLES),
    ]
    for temperature in TEMPERATURES:
        for name, values in errors(temperature, asked.repeats).items():
            lines.append(f"| {temperature:g} | {name} | " + " | ".join(f"{v:.2g}" for v in values) + " |")
    times = costs()
    lines += [
        "",
        "Time of a step, forward and backward, as a multiple of cross-entropy's (21 classes, 129 x 129 labels, "
        "least of 3): " + ", ".join(f"S = {n}: {t:.0f}" for n, t in times.items()) + ".",
        "",
    ]
    lines += [
        "Peak memory that the log-probabilities of one 2048 x 1024 image with 19 classes add (they alone take 152 "
        f"MiB): {peaks('peak', (1, 4))}.",
        "",
        "Peak memory that a whole prediction of such an image adds, with a ResNet-18, classes, entropy and the "
        f"variance of every class: {peaks('prediction', (4, 16))}.",
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "maps.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
