"""Heteroscedastic beside plain Monte Carlo and beside the exponentials that any sampling needs.

    taskset -c 0 python benchmarks/sampling.py            writes results/sampling.md

Forward and backward of the loss, batch 256, S = 1000, float32, one thread. "Plain" draws S independent
samples for each row, takes their softmax and its mean, and leaves the gradient to autograd. "Exponentials"
is torch.exp of as many numbers, in parts that stay in a cache.
"""

from __future__ import annotations

import argparse
import os
import statistics

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from in_turn import in_turn, machine, ratio, write
from torch import nn
from torch.nn import functional as F

import noisegate as ng

BATCH, SAMPLES, TEMPERATURE = 256, 1000, 0.5
PART = 2**16


def compare(k: int, turns: int) -> str:
    """A row of the table."""
    objective = ng.Heteroscedastic(k, n_samples=SAMPLES, temperature=TEMPERATURE)
    torch.manual_seed(0)
    outputs, y = torch.randn(BATCH, objective.n_outputs).requires_grad_(), torch.randint(0, k, (BATCH,))
    numbers = -10 * torch.rand(PART)
    into = torch.empty_like(numbers)
    logits, cross_entropy = torch.randn(BATCH, k).requires_grad_(), nn.CrossEntropyLoss()

    def ours() -> None:
        outputs.grad = None
        objective(outputs, y).backward()

    def plain() -> None:
        outputs.grad = None
        mu, raw = outputs.chunk(2, 1)
        sampled = (mu + F.softplus(raw) * torch.randn(SAMPLES, BATCH, k)) / TEMPERATURE
        F.nll_loss(sampled.softmax(-1).mean(0).log(), y).backward()

    def exponentials() -> None:
        for _ in range(BATCH * SAMPLES * k // PART):
            torch.exp(numbers, out=into)

    def base() -> None:
        logits.grad = None
        cross_entropy(logits, y).backward()

    sides = {"ours": ours, "plain": plain, "exponentials": exponentials, "cross-entropy": base}
    times = in_turn(sides, turns)
    found = " | ".join(f"{1e3 * statistics.median(times[name]):.2f}" for name in sides)
    ratios = f"{ratio(times, 'plain', 'ours'):.1f} | {ratio(times, 'ours', 'exponentials'):.2f}"
    return f"| {k} | {found} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=(10, 100))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = [compare(k, asked.turns) for k in asked.sizes]
    write(
        "sampling",
        [
            "# Sampling: Heteroscedastic beside plain Monte Carlo and the exponentials alone",
            "",
            f"`python benchmarks/sampling.py --turns {asked.turns}`: batch {BATCH}, S = {SAMPLES}, one thread, "
            f"{machine('torch')}; load {os.getloadavg()[0]:.0f}.",
            "",
            "Milliseconds of CPU time, medians of turns; and the medians of the turns' ratios. Wanted at K = 100:",
            "20 times as fast as plain sampling, and 1.5 times the exponentials.",
            "",
            "| K | ours | plain | exponentials | cross-entropy | times as fast as plain | times the exponentials |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ],
    )


if __name__ == "__main__":
    main()
