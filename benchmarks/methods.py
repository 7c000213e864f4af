"""Seconds an epoch of every method, as a ratio to cross-entropy on the same network.

    python benchmarks/methods.py               prints the table and writes results/methods.md

One batch of random CIFAR-sized images in the loop, resident, batch 64, fp32. For a method of several phases the
dearest phase counts. Each method's step is timed in turn with cross-entropy's, and the ratio of the medians is
reported, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.methods import METHODS
from noisegate.training.job import Job, make_job
from noisegate.training.phase_run import PhaseRun

RESULTS = Path(__file__).parent / "results" / "methods.md"
#: What keeps a method from spending its time on anything but its own step.
PARAMETERS: dict[str, dict[str, Any]] = {
    "co-teaching": {"noise_rate": 0.4},
    "mentornet": {"noise_rate": 0.4},
    "causalnl": {"noise_rate": 0.4},
}


def make(network: str, batch: int, size: int) -> Job:
    """A job over random images whose labels are noise: only the time matters."""
    rng = np.random.default_rng(0)
    n = 2 * batch
    x = rng.integers(0, 256, (n, 3, size, size)).astype(np.uint8)
    rows = Split(x, rng.integers(0, 10, n))
    data = Dataset("random", rows, validation=rows.take(range(batch)), classes=tuple("0123456789"))
    recipe = ng.Recipe(epochs=30, batch_size=batch, crop=4, flip=True, optimizer="nesterov", lr=0.01)
    return make_job(data, network, recipe, 0, torch.device("cpu"))


def runs(name: str, job: Job) -> Iterator[PhaseRun]:
    """Every phase of a method, set up and one step old; the next is asked for after it was timed."""
    phases = METHODS[name].create(PARAMETERS.get(name, {})).phases(job)
    history: Any = None
    while True:
        try:
            phase = phases.send(history)
        except StopIteration:
            return
        run = PhaseRun(phase, job, 0, None, 0)
        run.module.train()
        run.module.begin_epoch(0, job)
        run.step.on(rows_of(run), None)
        yield run
        history = [{"validation_accuracy": 0.1, "validation_log_likelihood": -2.0}]


def rows_of(run: PhaseRun) -> torch.Tensor:
    return torch.arange(run.batch_size)


def ratio(run: PhaseRun, baseline: PhaseRun, repeats: int) -> float:
    """Median step time over cross-entropy's, both timed in turn."""
    times: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(repeats):
        for key, timed in enumerate((baseline, run)):
            timed.step_number.zero_()  # the schedule's table is as long as the run, not as the timing
            started = time.perf_counter()
            timed.step(rows_of(timed), None)
            times[key].append(time.perf_counter() - started)
    middle = [sorted(values)[repeats // 2] for values in times.values()]
    return middle[1] / middle[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="wrn-16-1")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    job = make(arguments.network, arguments.batch, arguments.size)
    (baseline,) = runs("ce", job)
    rows = []
    for name in METHODS:
        torch.manual_seed(0)
        ratios = [ratio(run, baseline, arguments.repeats) for run in runs(name, job)]
        each = ", ".join(f"{r:.2f}" for r in ratios)
        rows.append((name, max(ratios), each))
        print(f"{name:14s} {max(ratios):5.2f}   phases: {each}", flush=True)
    lines = [
        "# Methods: time of a training step as a ratio to cross-entropy's",
        "",
        f"`python benchmarks/methods.py --network {arguments.network} --batch {arguments.batch} "
        f"--repeats {arguments.repeats} --threads {arguments.threads}`: {arguments.size}x{arguments.size} colour "
        f"images, crops and flips in the step, fp32, {arguments.threads} CPU threads ({platform.machine()}), "
        f"torch {torch.__version__}, noisegate {ng.__version__}, median of {arguments.repeats}.",
        "",
        "| method | dearest phase | each phase |",
        "|---|---|---|",
        *(f"| {name} | {most:.2f} | {each} |" for name, most, each in rows),
    ]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
