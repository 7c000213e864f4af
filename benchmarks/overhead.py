"""What the trainer adds to a bare PyTorch loop, on the CPU: LeNet-5, MNIST's size, batch 256.

    python benchmarks/overhead.py              prints its measurements and writes them all to results/overhead.md

The bare loop does what the trainer's step does and nothing else: it draws batches by index from bytes in memory,
scales them, and takes Adam steps on cross-entropy. Short epochs are taken in turn, and the median of the pairs'
ratios counts. One run may be some per cent slower than another of the same kind, all the time (why is not known;
where its memory happens to lie, perhaps): so there are many, each against a network of its own, and what counts is
the median over them.
"""

from __future__ import annotations

import math
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.training.run import Run

RESULTS = Path(__file__).parent / "results" / "overhead.md"
ROWS, BATCH, EPOCHS, RUNS = 1_280, 256, 51, 12


def bare_epoch(
    network: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> float:
    """Seconds of one epoch of the plain loop."""
    started = time.perf_counter()
    for index in torch.randperm(ROWS).split(BATCH):
        outputs = network(x[index].float() / 255)
        loss = nn.functional.cross_entropy(outputs, y[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    loss.item()
    return time.perf_counter() - started


def measurement(data: Dataset) -> tuple[float, float, float]:
    """Milliseconds a step of a run and of the bare loop, and their ratio."""
    recipe = {"epochs": EPOCHS, "batch_size": BATCH, "schedule": "constant", "normalize": "none"}
    network = ng.networks.build("lenet5", (1, 28, 28), 10)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    x, y = (torch.from_numpy(np.asarray(each)) for each in (data.train.x, data.train.y))
    bare, ours = [], []
    with Run(data, "ce", "lenet5", ng.Recipe().replace(**recipe), 0, "cpu", evaluate_every=0) as run:
        for epoch in run:
            ours.append(epoch.metrics["seconds"])
            bare.append(bare_epoch(network, optimizer, x, y))
    # The first epochs warm up.
    medians = [statistics.median(seconds[1:]) / (ROWS // BATCH) * 1e3 for seconds in (ours, bare)]
    ratio = statistics.median(a / b for a, b in zip(ours[1:], bare[1:], strict=True))
    return medians[0], medians[1], ratio


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median of what they are drawn from lies with a probability of 95 %, whatever the distribution."""
    n = len(values)
    # Below the median lie n/2 of them, give or take 1.96 deviations of a binomial number.
    aside = 0.98 * n**0.5
    ordered = sorted(values)
    return ordered[max(0, int(n / 2 - aside) - 1)], ordered[min(n - 1, math.ceil(n / 2 + aside))]


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (ROWS, 1, 28, 28), dtype=np.uint8)
    data = Dataset("random", Split(x, rng.integers(0, 10, ROWS)), classes=tuple("0123456789"))
    found = [measurement(data) for _ in range(RUNS)]
    low, high = interval([ratio for *_, ratio in found])
    median = statistics.median(ratio for *_, ratio in found)
    text = (
        "# The trainer's overhead\n\n"
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}; LeNet-5 on 28 x 28 "
        f"images, batch {BATCH}, fp32, Adam, cross-entropy. Milliseconds a step, medians of {EPOCHS - 1} epochs; "
        "and the median of their ratios, pair by pair. A row a run, all of one call:\n\n"
        "| trainer | bare PyTorch loop | ratio |\n|---|---|---|\n"
    )
    text += "".join(f"| {ours:.2f} | {bare:.2f} | {ratio:.3f} |\n" for ours, bare, ratio in found)
    text += (
        f"\nMedian of the runs **{median:.3f}** (95 %: {low:.3f} to {high:.3f}); at most 1.05 is wanted.\n"
    )
    print(text)
    RESULTS.write_text(text)


if __name__ == "__main__":
    main()
