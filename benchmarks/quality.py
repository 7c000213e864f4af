"""Flagging wrong labels from probabilities: time and memory beside cleanlab, in one process, in turn.

    python benchmarks/quality.py            writes results/quality.md

Three sizes; both sides get the same float64 probabilities and their flags are compared one by one. Times
are medians of several turns, one thread, cleanlab with n_jobs=1. Memory is the peak of what is allocated
during the call (tracemalloc), the input not counted.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cleanlab
import numpy as np
from cleanlab.filter import find_label_issues

from noisegate import quality

RESULTS = Path(__file__).parent / "results"
SIZES = ((1_000_000, 10), (100_000, 1000), (20_000, 10_000))
RULES: dict[str, Callable[..., Any]] = {
    "confident_learning": quality.confident_learning,
    "prune_by_noise_rate": quality.prune_by_noise_rate,
}


def made_up(n: int, k: int, seed: int = 0) -> tuple[Any, Any]:
    """Probabilities that are right for about nine rows of ten, and labels of which a fifth is redrawn."""
    rng = np.random.default_rng(seed)
    true = rng.integers(k, size=n)
    p = np.empty((n, k))
    for start in range(0, n, max(1, 10_000_000 // k)):
        rows = slice(start, min(n, start + max(1, 10_000_000 // k)))
        logits = rng.normal(size=p[rows].shape)
        logits[np.arange(len(logits)), true[rows]] += 2.0 + np.log(k)
        np.exp(logits, out=logits)
        p[rows] = logits / logits.sum(axis=1, keepdims=True)
    return p, np.where(rng.random(n) < 0.2, rng.integers(k, size=n), true)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def peak(call: Callable[[], Any]) -> int:
    gc.collect()
    tracemalloc.start()
    call()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def compare(n: int, k: int, rule: str, turns: int) -> dict[str, Any]:
    p, y = made_up(n, k)
    sides = {
        "ours": lambda: RULES[rule](p, y),
        "cleanlab": lambda: find_label_issues(y, p, filter_by=rule, n_jobs=1),
    }
    sides["ours"]()
    times: dict[str, list[float]] = {name: [] for name in sides}
    flags: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(turns):
            for name, call in sides.items():
                seconds, flags[name] = timed(call)
                times[name].append(seconds)
        memory = {name: peak(call) for name, call in sides.items()}
    median = {name: float(np.median(values)) for name, values in times.items()}
    return {
        "n": n, "k": k, "rule": rule, "seconds": median, "memory": memory, "probabilities": p.nbytes,
        "differ": int((flags["ours"] != flags["cleanlab"]).sum()), "flagged": int(flags["ours"].sum()),
    }  # fmt: skip


def judged(n: int, k: int) -> tuple[float, int, int]:
    """Seconds, peak memory and size of the input of `judge`, which has no counterpart."""
    p, y = made_up(n, k)
    seconds, _ = timed(lambda: quality.judge(p, y))
    return seconds, peak(lambda: quality.judge(p, y)), p.nbytes


def table(rows: list[dict[str, Any]], whole: list[tuple[int, int, float, int, int]], turns: int) -> str:
    versions = f"Python {platform.python_version()}, numpy {np.__version__}, cleanlab {cleanlab.__version__}"
    lines = [
        "# Flagging wrong labels: time and memory",
        "",
        f"`python benchmarks/quality.py --turns {turns}`: median of {turns} turns, one CPU core, {versions}.",
        "",
        "Ours and cleanlab's rules on the same float64 probabilities. Memory is the peak of what the call",
        "allocates, as a share of the probabilities.",
        "",
        "| N x K | rule | cleanlab | ours | times as fast | cleanlab's memory | our memory | flags | that differ |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seconds, memory = row["seconds"], row["memory"]
        lines.append(
            f"| {row['n']:,} x {row['k']:,} | {row['rule']} | "
            f"{seconds['cleanlab']:.3f} s | {seconds['ours']:.3f} s | "
            f"{seconds['cleanlab'] / seconds['ours']:.1f} | {memory['cleanlab'] / row['probabilities']:.2f} | "
            f"{memory['ours'] / row['probabilities']:.3f} | {row['flagged']:,} | {row['differ']} |"
        )
    lines += [
        "",
        "`noisegate.quality.judge`, which fits a model of noise and gives each row a probability of being wrong:",
        "",
        "| N x K | time | memory |",
        "|---|---|---|",
    ]
    lines += [f"| {n:,} x {k:,} | {s:.2f} s | {m / size:.2f} |" for n, k, s, m, size in whole]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tenth of the rows; nothing is written")
    arguments = parser.parse_args()
    sizes = [(n // 10, k) if arguments.small else (n, k) for n, k in SIZES]
    rows = []
    for n, k in sizes:
        for rule in RULES:
            rows.append(compare(n, k, rule, arguments.turns))
            print(rows[-1], flush=True)
    whole = [(n, k, *judged(n, k)) for n, k in sizes]
    text = table(rows, whole, arguments.turns)
    print(text)
    if not arguments.small:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "quality.md").write_text(text)


if __name__ == "__main__":
    main()
