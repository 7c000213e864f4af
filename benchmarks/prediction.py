"""Predicting vectors: `predict_proba` beside the network's forward pass and scikit-learn's own.

    taskset -c 0 python benchmarks/prediction.py            writes results/prediction.md

The forward pass is that of the fitted network alone in the precision that `predict_proba` uses for vectors
(float64), in batches of 4096 rows, without probabilities; float32 stands beside it. scikit-learn's
MLPClassifier has the same hidden layers. Memory is the most that the process held above what it held
before the call, measured in a process of its own, as a share of the result.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import subprocess
import sys
import threading
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import psutil
import torch
from in_turn import in_turn, machine, ratio, write
from sklearn.neural_network import MLPClassifier

import noisegate as ng

#: Features, classes, rows to predict, method.
CASES = (
    (20, 3, 1, "ce"),
    (20, 3, 200, "ce"),
    (64, 10, 20_000, "ce"),
    (64, 10, 20_000, "ln"),
    (300, 1000, 5_000, "ce"),
)
#: The case whose memory is measured.
LARGE = (64, 10_000, 20_000)


def trained(d: int, k: int, method: str = "ce") -> tuple[ng.NoisyLabelClassifier, MLPClassifier]:
    """Two classifiers with the hidden layers 256-256; how well they predict does not matter here."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(max(500, k), d)), np.arange(max(500, k)) % k
    ours = ng.NoisyLabelClassifier(method, recipe={"epochs": 1}, random_state=0, device="cpu").fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = MLPClassifier((256, 256), max_iter=1, random_state=0).fit(x, y)
    return ours, theirs


def compare(d: int, k: int, n: int, method: str, turns: int) -> str:
    """A row of the table."""
    ours, theirs = trained(d, k, method)
    x = np.random.default_rng(1).normal(size=(n, d))
    given = torch.from_numpy(x)
    networks = {
        "float64": copy.deepcopy(ours.fitted_.network).double().eval(),
        "float32": ours.fitted_.network,
    }

    def forward(name: str) -> list[torch.Tensor]:
        with torch.inference_mode():
            return [networks[name](batch) for batch in given.split(4096)]

    times = in_turn(
        {
            "ours": lambda: ours.predict_proba(x),
            "fitted": lambda: ours.fitted_.predict_proba(x),
            "float64": lambda: forward("float64"),
            "float32": lambda: forward("float32"),
            "sklearn": lambda: theirs.predict_proba(x),
        },
        turns,
    )
    found = " | ".join(
        f"{1e3 * statistics.median(times[name]):.3f}"
        for name in ("ours", "fitted", "float64", "float32", "sklearn")
    )
    ratios = " | ".join(f"{ratio(times, 'ours', name):.2f}" for name in ("float64", "float32", "sklearn"))
    return f"| {n:,} x {d} | {k:,} | {method} | {found} | {ratios} |"


def peak() -> float:
    """The most memory above that before the call, as a share of the result."""
    d, k, n = LARGE
    network = torch.nn.Sequential(torch.nn.Linear(d, 64), torch.nn.ReLU(), torch.nn.Linear(64, k))
    fitted = ng.Fitted(network.double().eval(), ng.CrossEntropy(k))
    x = np.random.default_rng(1).normal(size=(n, d))
    fitted.predict_proba(x[:300])
    process, most, over = psutil.Process(), [0], threading.Event()

    def watch() -> None:
        while not over.is_set():
            most[0] = max(most[0], process.memory_info().rss)
            time.sleep(0.002)

    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    found = fitted.predict_proba(x)
    over.set()
    watcher.join()
    return (most[0] - before) / found.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--peak", action="store_true", help="only measure memory, and print it")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.peak:
        print(peak())
        return
    rows = [compare(*case, asked.turns) for case in CASES]
    memory = float(subprocess.check_output([sys.executable, __file__, "--peak"], text=True))
    _d, k, n = LARGE
    write(
        "prediction",
        [
            "# Predicting vectors",
            "",
            f"`python benchmarks/prediction.py --turns {asked.turns}`: one thread, "
            f"{machine('torch', 'scikit-learn', 'numpy')}; load {os.getloadavg()[0]:.0f}.",
            "",
            "Milliseconds of CPU time for a call, median of turns; and the median of the turns' ratios of the",
            "estimator's `predict_proba` to the others. A forward pass makes no probabilities.",
            "",
            "| rows | classes | method | `clf.predict_proba` | `Fitted.predict_proba` | forward float64 "
            "| forward float32 | scikit-learn's MLP | to float64 | to float32 | to scikit-learn |",
            "|" + "---|" * 11,
            *rows,
            "",
            f"Peak memory of {n:,} rows of {k:,} classes, above what the process held before: "
            f"**{memory:.2f}** times the result.",
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
