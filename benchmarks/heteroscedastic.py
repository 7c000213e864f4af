"""How many samples the heteroscedastic objective needs: error of its gradient against S, for several estimators.

Run `python benchmarks/heteroscedastic.py` (some minutes on one core); it writes `results/heteroscedastic.md`
and `.png` beside itself. The error is the root mean square over repetitions of the Euclidean distance, over mu
and d, between a row's gradient and a reference, the library's own with 2^19 points (K = 100: 2^17). The table
has the median over rows, because a row whose label is very unlikely has an error larger than all others
together. "batch" is the error of the mean over rows times sqrt(rows), over the root mean square of the rows:
1 if the errors of the rows are uncorrelated.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import noisegate as ng
from noisegate.objectives.points import Points, sobol_directions

ROWS = 64
SAMPLES = (32, 64, 128, 256, 512, 1000, 2000)
TEMPERATURES = (0.1, 1.0, 5.0)
CLASSES = (10, 100)
REFERENCE = {10: 2**19, 100: 2**17}
RESULTS = Path(__file__).parent / "results"


def problem(k: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Means, scales and labels: logits N(0, 1), 2 more for the predicted class; 70 % of the labels agree."""
    g = torch.Generator().manual_seed(seed)
    mu, y = torch.randn(ROWS, k, generator=g), torch.randint(0, k, (ROWS,), generator=g)
    agrees = torch.rand(ROWS, generator=g) < 0.7
    predicted = torch.where(agrees, y, torch.randint(0, k, (ROWS,), generator=g))
    mu.scatter_add_(1, predicted.unsqueeze(1), torch.full((ROWS, 1), 2.0))
    return mu.double(), F.softplus(torch.randn(ROWS, k, generator=g)).double(), y


def gradient(mu: Tensor, d: Tensor, y: Tensor, normals: Tensor, temperature: float) -> Tensor:
    """Gradient of -log p_y in (mu, d), (ROWS, 2K), for normals (ROWS or 1, K, S)."""
    own = y.view(-1, 1, 1).expand(-1, 1, normals.shape[2])
    log_p = F.log_softmax((mu.unsqueeze(2) + d.unsqueeze(2) * normals) / temperature, 1)
    w = torch.softmax(log_p.gather(1, own), 2)
    q = log_p.exp().mul_(w)
    q.scatter_(1, own, q.gather(1, own) - w)
    return torch.cat([q.sum(2), (q * normals).sum(2)], 1) / temperature


def plain(k: int, s: int, g: torch.Generator) -> Tensor:
    return torch.randn(ROWS, k, s, generator=g, dtype=torch.float64)


def antithetic(k: int, s: int, g: torch.Generator) -> Tensor:
    half = torch.randn(ROWS, k, s // 2, generator=g, dtype=torch.float64)
    return torch.cat([half, -half], 2)


def kronecker(k: int, s: int, g: torch.Generator) -> Tensor:
    """A rank-1 lattice (multiples of the roots of primes), shifted for each row."""
    sieve = [n for n in range(2, 600) if all(n % m for m in range(2, int(n**0.5) + 1))]
    roots = torch.tensor(sieve[:k], dtype=torch.float64).sqrt()
    shift = torch.rand(ROWS, k, 1, generator=g, dtype=torch.float64)
    places = (roots.unsqueeze(1) * torch.arange(s) + shift) % 1
    return torch.special.ndtri(places.clamp(1e-12, 1 - 1e-12))


def sobol(k: int, s: int, g: torch.Generator) -> Tensor:
    """Scrambled Sobol points with a digital shift for each row."""
    directions = sobol_directions(k, 11)
    shifts = torch.randint(0, 2**30, (ROWS, k), generator=g)
    return torch.stack([_all(Points(directions, shift, s)) for shift in shifts])


def sobol_shared(k: int, s: int, g: torch.Generator) -> Tensor:
    """One shift for all rows; each row has its own signs and rotation of the classes: what the library does."""
    normals = _all(Points(sobol_directions(k, 11), torch.randint(0, 2**30, (k,), generator=g), s))
    index = (torch.arange(k) + torch.randint(0, k, (ROWS, 1), generator=g)) % k
    signs = 2.0 * torch.randint(0, 2, (ROWS, k, 1), generator=g) - 1
    return normals[index] * signs


def _all(points: Points) -> Tensor:
    return torch.cat(list(points.chunks(1024, torch.float64)), 1)


ESTIMATORS: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "independent": plain,
    "antithetic pairs": antithetic,
    "lattice": kronecker,
    "Sobol, shift per row": sobol,
    "Sobol, shared (used)": sobol_shared,
}


def reference(mu: Tensor, d: Tensor, y: Tensor, temperature: float) -> Tensor:
    """The library's own gradient in evaluation mode, with very many points, turned into one in (mu, d)."""
    k = mu.shape[1]
    objective = ng.Heteroscedastic(k, temperature, n_samples_eval=REFERENCE[k], reduction="sum").eval()
    raw = torch.log(torch.expm1((d - 1e-3).clamp_min(1e-9)))
    outputs = torch.cat([mu, raw], 1).requires_grad_()
    (found,) = torch.autograd.grad(objective(outputs, y), outputs)
    return torch.cat([found[:, :k], found[:, k:] / torch.sigmoid(raw)], 1)


def errors(k: int, temperature: float, repeats: int) -> dict[str, list[tuple[float, float, float]]]:
    """For every estimator and S: median over rows; over the easier half, root mean square and "batch"."""
    mu, d, y = problem(k)
    truth = reference(mu, d, y, temperature)
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ESTIMATORS}
    half: Tensor | None = None
    for name, estimator in ESTIMATORS.items():
        for s in SAMPLES:
            g = torch.Generator().manual_seed(1)
            runs = [gradient(mu, d, y, estimator(k, s, g), temperature) - truth for _ in range(repeats)]
            each = torch.stack(runs)
            rows = each.square().sum(2).mean(0)
            # The same rows for all: those that the first estimator finds easy.
            half = rows <= rows.median() if half is None else half
            kept = each[:, half]
            batch = kept.mean(1).square().sum(1).mean().sqrt() * kept.shape[1] ** 0.5
            found[name].append((rows.median().sqrt().item(), rows[half].mean().sqrt().item(), batch.item()))
    return found


def samples_for(errors_of: list[float], target: float) -> float:
    """The S at which a curve reaches the target, by interpolation between logarithms, within the range of S."""
    logs = np.minimum.accumulate(np.log(errors_of))
    return float(np.exp(np.interp(-np.log(target), -logs, np.log(SAMPLES))))


def timing(k: int, s: int = 1000, batch: int = 128, repeats: int = 15) -> tuple[float, float, float]:
    """Least milliseconds of a forward and backward: cross-entropy, integer targets, soft targets."""
    y = torch.randint(0, k, (batch,), generator=torch.Generator().manual_seed(0))
    soft = torch.full((batch, k), 1 / k)
    ce, het = ng.CrossEntropy(k), ng.Heteroscedastic(k, n_samples=s)
    return _best(ce, y, repeats * 5), _best(het, y, repeats), _best(het, soft, repeats)


def _best(objective: ng.objectives.Objective, targets: Tensor, repeats: int) -> float:
    outputs = torch.zeros(len(targets), objective.n_outputs, requires_grad=True)
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        objective(outputs, targets).backward()
        spent.append(time.perf_counter() - start)
    return 1e3 * min(spent[1:])


def write_table(
    found: dict[tuple[int, float], dict[str, list[tuple[float, float, float]]]], repeats: dict[int, int]
) -> None:
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, numpy {np.__version__}"
    lines = [
        "# Samples of the heteroscedastic objective",
        "",
        f"`python benchmarks/heteroscedastic.py`: {ROWS} rows, n = {repeats[10]} repetitions at K = 10 and "
        f"{repeats[100]} at K = 100, one CPU core, {versions}.",
        "",
        "Error of one row's gradient (median over rows) against the number of samples S. `fewer` is how many times "
        "fewer samples reach the error of 1000 independent ones (`< 1`: more are needed), `batch` the error of the "
        "mean over the easier half of the rows at S = 1000 as a multiple of what uncorrelated rows would have.",
        "",
    ]
    for (k, temperature), curves in found.items():
        lines += [f"## K = {k}, temperature {temperature:g}", ""]
        lines += ["| estimator | " + " | ".join(f"S = {s}" for s in SAMPLES) + " | fewer | batch |"]
        lines += ["|---" * (len(SAMPLES) + 3) + "|"]
        at = SAMPLES.index(1000)
        target = curves["independent"][at][0]
        for name, points in curves.items():
            needed = samples_for([p[0] for p in points], target)
            fewer = f"{'> ' * (needed <= SAMPLES[0])}{'< ' * (needed >= SAMPLES[-1])}{1000 / needed:.1f}"
            numbers = " | ".join(f"{p[0]:.2g}" for p in points)
            lines += [f"| {name} | {numbers} | {fewer} | {points[at][2] / points[at][1]:.2f} |"]
        lines += [""]
    lines += [
        "## Time",
        "",
        "Forward and backward of the loss alone, batch 128, S = 1000, float32, one core, least ",
    ]
    lines[-1] += "of 14 (ms; in brackets the ratio to cross-entropy)."
    lines += ["", "| K | cross-entropy | Heteroscedastic | soft targets |", "|---|---|---|---|"]
    for k in CLASSES:
        ce, hard, soft = timing(k)
        lines += [f"| {k} | {ce:.3f} | {hard:.1f} ({hard / ce:.0f}) | {soft:.1f} ({soft / ce:.0f}) |"]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "heteroscedastic.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def draw(found: dict[tuple[int, float], dict[str, list[tuple[float, float, float]]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        len(CLASSES), len(TEMPERATURES), figsize=(11, 6.5), sharex=True, layout="constrained"
    )
    for axis, ((k, temperature), curves) in zip(axes.flat, found.items(), strict=True):
        for (name, points), marker in zip(curves.items(), "os^dv", strict=True):
            axis.loglog(SAMPLES, [p[0] for p in points], marker=marker, markersize=4, label=name)
        axis.set_title(f"K = {k}, temperature {temperature:g}")
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("samples S")
    for axis in axes[:, 0]:
        axis.set_ylabel("error of a row's gradient")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(RESULTS / "heteroscedastic.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=12, help="at K = 10; a third of it at K = 100")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    repeats = {10: arguments.repeats, 100: max(arguments.repeats // 3, 2)}
    found = {(k, t): errors(k, t, repeats[k]) for k in CLASSES for t in TEMPERATURES}
    write_table(found, repeats)
    draw(found)


if __name__ == "__main__":
    main()
