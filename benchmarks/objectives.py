"""Time and peak memory of every objective, forward and backward, as a ratio to torch's own cross-entropy.

    python benchmarks/objectives.py            prints the table and writes results/objectives.md

Batch 256, float32. The ratio compares two timings of one run, taken in turn; each is the median of several.
Peak memory counts the bytes of all tensors alive at once that the call made, gradients included. Beside ours
stand torch's LowRankMultivariateNormal (lambda^2 I + c c', another model than LN's) and its dense
MultivariateNormal at the same targets.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import LowRankMultivariateNormal, MultivariateNormal
from torch.utils._python_dispatch import TorchDispatchMode

import noisegate as ng

BATCH = 256
SIZES = (10, 100, 1000, 21_843)
RESULTS = Path(__file__).parent / "results" / "objectives.md"
Loss = Callable[[Tensor, Tensor], Tensor]


class PeakMemory(TorchDispatchMode):
    """Bytes of the storages made inside that are alive at once, at their most."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.peak = 0, 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else [result]:
            if isinstance(value, Tensor):
                self._note(value.untyped_storage())
        return result

    def _note(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.live -= size


def low_rank_normal(k: int) -> Loss:
    """torch's low-rank normal at LN's target logits: Sigma = lambda^2 I + c c'."""
    target = ng.LogisticNormal(k).target

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        mu, c = outputs.chunk(2, 1)
        z = torch.zeros_like(mu).scatter(1, y[:, None], target)
        normal = LowRankMultivariateNormal(mu, c.unsqueeze(2), torch.full_like(mu, 0.25), validate_args=False)
        return -normal.log_prob(z).mean()

    return loss


def dense_normal(k: int) -> Loss:
    """torch's dense normal with LN's own Sigma^(1/2) = c c' + lambda I, by a Cholesky factor."""
    target = ng.LogisticNormal(k).target

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        mu, c = outputs.chunk(2, 1)
        z = torch.zeros_like(mu).scatter(1, y[:, None], target)
        root = c.unsqueeze(2) * c.unsqueeze(1) + 0.5 * torch.eye(k)
        normal = MultivariateNormal(mu, covariance_matrix=root @ root, validate_args=False)
        return -normal.log_prob(z).mean()

    return loss


def contenders(k: int) -> dict[str, tuple[Loss, int] | None]:
    """Every loss with the number of outputs it needs; None where it is left out for its cost."""
    t = ng.noise.Symmetric(0.2).transition(k) if k <= 1000 else None
    het: dict[str, Any] = {"temperature": 0.5}
    objectives: dict[str, ng.objectives.Objective | None] = {
        "CrossEntropy": ng.CrossEntropy(k),
        "LabelSmoothing": ng.LabelSmoothing(k),
        "ForwardCorrection": None if t is None else ng.ForwardCorrection(k, t),
        "BackwardCorrection": None if t is None else ng.BackwardCorrection(k, t),
        "GCE": ng.GCE(k),
        "BiTempered": ng.BiTempered(k),
        "NoiseAgainstNoise": ng.NoiseAgainstNoise(k),
        "Bootstrap": ng.Bootstrap(k),
        "LogisticNormal": ng.LogisticNormal(k),
        "LogisticNormal, diagonal": ng.LogisticNormal(k, covariance="diagonal"),
        "Heteroscedastic, S = 100": ng.Heteroscedastic(k, n_samples=100, **het) if k <= 1000 else None,
        "Heteroscedastic, S = 1000": ng.Heteroscedastic(k, n_samples=1000, **het) if k <= 100 else None,
        "Heteroscedastic, rank 4, S = 100": ng.Heteroscedastic(
            k, covariance="low-rank", rank=4, n_samples=100, **het
        )
        if k <= 1000
        else None,
    }
    found: dict[str, tuple[Loss, int] | None] = {
        name: None if o is None else (o, o.n_outputs) for name, o in objectives.items()
    }
    found["torch LowRankMultivariateNormal"] = (low_rank_normal(k), 2 * k) if k <= 1000 else None
    found["torch MultivariateNormal"] = (dense_normal(k), 2 * k) if k <= 100 else None
    return found


def measured(loss: Loss, n_outputs: int, k: int, baseline: Callable[[], None]) -> tuple[float, float, float]:
    """Seconds, their ratio to the baseline (both timed in turn), and the peak bytes of one call."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(BATCH, n_outputs, generator=generator).requires_grad_()
    y = torch.randint(0, k, (BATCH,), generator=generator)

    def call() -> None:
        outputs.grad = None
        loss(outputs, y).backward()

    call()
    started = time.perf_counter()
    call()
    once = time.perf_counter() - started
    repeats = max(3, min(50, int(2.0 / max(once, 1e-4))))
    times, bases = [], []
    for _ in range(repeats):
        for function, into in ((baseline, bases), (call, times)):
            started = time.perf_counter()
            function()
            into.append(time.perf_counter() - started)
    outputs.grad = None
    with PeakMemory() as memory:
        call()
    middle = sorted(times)[repeats // 2]
    return middle, middle / sorted(bases)[repeats // 2], float(memory.peak)


def cross_entropy(k: int) -> tuple[Callable[[], None], float]:
    """torch's own cross-entropy as a call, and its peak bytes."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(BATCH, k, generator=generator).requires_grad_()
    y = torch.randint(0, k, (BATCH,), generator=generator)
    loss = nn.CrossEntropyLoss()

    def call() -> None:
        outputs.grad = None
        loss(outputs, y).backward()

    call()
    outputs.grad = None
    with PeakMemory() as memory:
        call()
    return call, float(memory.peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows: dict[str, list[str]] = {}
    for k in arguments.sizes:
        baseline, bytes_of_one = cross_entropy(k)
        for name, contender in contenders(k).items():
            cell = "-"
            if contender is not None:
                _, ratio, peak = measured(*contender, k, baseline)
                cell = f"{ratio:.1f} / {peak / bytes_of_one:.1f}"
            rows.setdefault(name, []).append(cell)
            print(f"K = {k:6d}  {name:34s} {cell}", flush=True)
    lines = [
        "# Objectives: time / peak memory, forward and backward, as a ratio to torch's cross-entropy",
        "",
        f"`python benchmarks/objectives.py --threads {arguments.threads}`: batch {BATCH}, float32, "
        f"{arguments.threads} CPU threads ({platform.machine()}), torch {torch.__version__}, "
        f"noisegate {ng.__version__}. A dash: left out for its cost.",
        "",
        "| objective | " + " | ".join(f"K = {k:,}" for k in arguments.sizes) + " |",
        "|---" * (len(arguments.sizes) + 1) + "|",
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()),
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
