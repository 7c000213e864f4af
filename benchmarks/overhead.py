"""What the trainer adds to a bare PyTorch loop on the CPU, and what it takes off.

    python benchmarks/overhead.py              prints its measurements and writes them all to results/overhead.md

The bare loop does what the trainer's step does and nothing else: it draws batches by index from bytes in memory,
scales them, and takes Adam steps on cross-entropy.

The overhead is taken against a bare loop in the same process whose network has the memory layout that the trainer
chooses (`noisegate.networks.layout`), LeNet-5 at MNIST's size. Short epochs are taken in turn, and the median of
the pairs' ratios counts; there are many runs, each against a network of its own, and the median over them counts.

The speed is taken against the loop as one writes it, in torch's default layout. Each is a process of its own, in
turn: the trainer's also keep freed memory, as the command line does (`noisegate.runs.memory`).
"""

from __future__ import annotations

import json
import math
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.runs.memory import memory_kept
from noisegate.runs.run import Run

RESULTS = Path(__file__).parent / "results" / "overhead.md"
ROWS, BATCH, EPOCHS, RUNS = 1_280, 256, 51, 12
#: Networks whose speed is taken: input shape, batch size, steps in an epoch; and epochs and pairs of processes.
NETWORKS = {
    "lenet5": ((1, 28, 28), 256, 20),
    "cnn9": ((3, 32, 32), 128, 2),
    "wrn-28-2": ((3, 32, 32), 128, 5),
    "resnet18": ((3, 32, 32), 128, 2),
}
SPEED_EPOCHS, PAIRS = 6, 5


def images(shape: tuple[int, ...], rows: int) -> Dataset:
    """Random bytes with random labels."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (rows, *shape), dtype=np.uint8)
    return Dataset("random", Split(x, rng.integers(0, 10, rows)), classes=tuple("0123456789"))


def bare_epochs(data: Dataset, name: str, batch: int, layout: torch.memory_format) -> Iterator[float]:
    """A plain loop without an end: seconds of every epoch."""
    network = ng.networks.build(name, data.input_shape, 10).to(memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
    x, y = (torch.from_numpy(np.asarray(each)) for each in (data.train.x, data.train.y))
    while True:
        started = time.perf_counter()
        for index in torch.randperm(len(x)).split(batch):
            outputs = network(x[index].float() / 255)
            loss = nn.functional.cross_entropy(outputs, y[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        loss.item()
        yield time.perf_counter() - started


def trained_epochs(data: Dataset, name: str, batch: int, epochs: int) -> Iterator[float]:
    """The same by the trainer."""
    recipe = {"epochs": epochs, "batch_size": batch, "schedule": "constant", "normalize": "none"}
    with Run(data, "ce", name, ng.Recipe().replace(**recipe), 0, "cpu", evaluate_every=0) as run:
        for epoch in run:
            yield epoch.metrics["seconds"]


def measurement(data: Dataset) -> tuple[float, float, float]:
    """Milliseconds a step of a run and of the bare loop in the same layout, and their ratio."""
    bare = bare_epochs(data, "lenet5", BATCH, torch.channels_last)
    pairs = [(ours, next(bare)) for ours in trained_epochs(data, "lenet5", BATCH, EPOCHS)]
    # The first epochs warm up.
    ours, theirs = (statistics.median(each) / (ROWS // BATCH) * 1e3 for each in zip(*pairs[1:], strict=True))
    return ours, theirs, statistics.median(a / b for a, b in pairs[1:])


def speed(who: str, name: str) -> float:
    """Milliseconds a step, in a process of its own."""
    call = [sys.executable, __file__, who, name]
    return json.loads(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def measure_speed(who: str, name: str) -> float:
    shape, batch, steps = NETWORKS[name]
    data = images(shape, batch * steps)
    if who == "bare":
        epochs = bare_epochs(data, name, batch, torch.contiguous_format)
        seconds = [next(epochs) for _ in range(SPEED_EPOCHS)]
    else:
        with memory_kept():
            seconds = list(trained_epochs(data, name, batch, SPEED_EPOCHS))
    return statistics.median(seconds[1:]) / steps * 1e3


def interval(values: list[float]) -> tuple[float, float]:
    """Where the median of what they are drawn from lies with a probability of 95 %, whatever the distribution."""
    n = len(values)
    # Below the median lie n/2 of them, give or take 1.96 deviations of a binomial number.
    aside = 0.98 * n**0.5
    ordered = sorted(values)
    return ordered[max(0, int(n / 2 - aside) - 1)], ordered[min(n - 1, math.ceil(n / 2 + aside))]


def overhead_section() -> str:
    data = images((1, 28, 28), ROWS)
    with memory_kept():
        found = [measurement(data) for _ in range(RUNS)]
    low, high = interval([ratio for *_, ratio in found])
    median = statistics.median(ratio for *_, ratio in found)
    text = (
        "## Against a bare loop in the same layout\n\n"
        f"LeNet-5 on 28 x 28 images, batch {BATCH}, fp32, Adam, cross-entropy. Milliseconds a step, medians of "
        f"{EPOCHS - 1} epochs; and the median of their ratios, pair by pair. A row a run, all of one call:\n\n"
        "| trainer | bare PyTorch loop | ratio |\n|---|---|---|\n"
    )
    text += "".join(f"| {ours:.2f} | {bare:.2f} | {ratio:.3f} |\n" for ours, bare, ratio in found)
    return (
        text
        + f"\nMedian of the runs **{median:.3f}** (95 %: {low:.3f} to {high:.3f}); at most 1.05 is wanted.\n"
    )


def speed_section() -> str:
    text = (
        "\n## Against a loop as one writes it\n\n"
        "That is in torch's default layout, and with memory given back after every step; the trainer does both "
        f"otherwise. Processes of their own, {PAIRS} of each in turn; milliseconds a step, medians of "
        f"{SPEED_EPOCHS - 1} epochs, the lowest to the highest process; and the median of the pairs' ratios:\n\n"
        "| network, batch | trainer | bare PyTorch loop | times as fast |\n|---|---|---|---|\n"
    )
    for name, (_, batch, _) in NETWORKS.items():
        pairs = [(speed("trainer", name), speed("bare", name)) for _ in range(PAIRS)]
        ours, theirs = (f"{min(each):.1f} to {max(each):.1f}" for each in zip(*pairs, strict=True))
        ratio = statistics.median(b / a for a, b in pairs)
        text += f"| {name}, {batch} | {ours} | {theirs} | {ratio:.2f} |\n"
        print(text.splitlines()[-1], flush=True)
    return text


def main() -> None:
    if len(sys.argv) > 1:
        print(measure_speed(*sys.argv[1:]))
        return
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    text = f"# The trainer's overhead\n\n{machine}.\n\n" + overhead_section() + speed_section()
    print(text)
    RESULTS.write_text(text)


if __name__ == "__main__":
    main()
