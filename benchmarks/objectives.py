"""Time and peak memory of every objective, forward and backward, as a ratio to torch's own cross-entropy.

    python benchmarks/objectives.py            prints the table and writes results/objectives.md

Batch 256, float32. Both losses are timed in one process, in turn, each hot and alone (see `in_turn`): the
first call after the other loss's, which finds its memory out of the caches, is not timed. CPU time.
Peak memory counts the bytes of all tensors alive at once that the call made, gradients included. Beside ours
stand torch's LowRankMultivariateNormal (lambda^2 I + c c', another model than LN's) and its dense
MultivariateNormal at the same targets.
"""

from __future__ import annotations

import argparse
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from in_turn import in_turn, machine, ratio
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


def call_of(loss: Loss, n_outputs: int, k: int) -> Callable[[], None]:
    """Forward and backward of a loss, as a call."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(BATCH, n_outputs, generator=generator).requires_grad_()
    y = torch.randint(0, k, (BATCH,), generator=generator)

    def call() -> None:
        outputs.grad = None
        loss(outputs, y).backward()

    return call


def peak_of(call: Callable[[], None]) -> float:
    """Peak bytes of one call."""
    call()
    with PeakMemory() as memory:
        call()
    return float(memory.peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows: dict[str, list[str]] = {}
    for k in arguments.sizes:
        baseline = call_of(nn.CrossEntropyLoss(), k, k)
        bytes_of_one = peak_of(baseline)
        for name, contender in contenders(k).items():
            cell = "-"
            if contender is not None:
                call = call_of(*contender, k)
                times = in_turn({"torch": baseline, "ours": call}, arguments.turns, 0.05)
                cell = f"{ratio(times, 'ours', 'torch'):.1f} / {peak_of(call) / bytes_of_one:.1f}"
            rows.setdefault(name, []).append(cell)
            print(f"K = {k:6d}  {name:34s} {cell}", flush=True)
    lines = [
        "# Objectives: time / peak memory, forward and backward, as a ratio to torch's cross-entropy",
        "",
        f"`python benchmarks/objectives.py --threads {arguments.threads} --turns {arguments.turns}`: "
        f"batch {BATCH}, float32, {arguments.threads} CPU threads, {machine('torch')}, "
        f"noisegate {ng.__version__}; load {os.getloadavg()[0]:.0f}. Each hot and alone. A dash: left out.",
        "",
        "| objective | " + " | ".join(f"K = {k:,}" for k in arguments.sizes) + " |",
        "|---" * (len(arguments.sizes) + 1) + "|",
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()),
    ]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
