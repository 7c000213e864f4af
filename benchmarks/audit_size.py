"""Time and memory of an audit after its probabilities: flags, intervals, neighbours, duplicates, files.

    python benchmarks/audit_size.py            writes results/audit_size.md

Made-up inputs, labels and out-of-fold probabilities of two sizes. Memory is the peak of the whole process, the
data and the probabilities included; each size runs in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from noisegate.auditing import stored
from noisegate.auditing.audit import MOST_NEIGHBOURS, ranked
from noisegate.auditing.crossfit import CrossFit
from noisegate.auditing.findings import findings
from noisegate.data.dataset import Dataset, Split
from noisegate.quality import judge

RESULTS = Path(__file__).parent / "results"
#: Rows, numbers a row, classes.
SIZES = ((1_000_000, 100, 10), (200_000, 20, 1000))


def made(n: int, d: int, k: int) -> tuple[Dataset, CrossFit]:
    """Rows around the centres of their classes, a fifth of the labels drawn anew."""
    rng = np.random.default_rng(0)
    true = rng.integers(k, size=n)
    centres = rng.normal(size=(k, d)).astype(np.float32)
    x = rng.standard_normal((n, d), dtype=np.float32)
    probs = np.empty((n, k), dtype=np.float32)
    for start in range(0, n, max(1, 10_000_000 // k)):
        rows = slice(start, min(n, start + max(1, 10_000_000 // k)))
        x[rows] += centres[true[rows]]
        logits = rng.standard_normal((len(true[rows]), k), dtype=np.float32)
        logits[np.arange(len(logits)), true[rows]] += 2.0 + np.log(k)
        np.exp(logits, out=logits)
        probs[rows] = logits / logits.sum(axis=1, keepdims=True)
    y = np.where(rng.random(n) < 0.2, rng.integers(k, size=n), true)
    data = Dataset("made", Split(x, y), classes=tuple(map(str, range(k))))
    return data, CrossFit(probs)


def measure(n: int, d: int, k: int) -> str:
    """A line of the table."""
    data, fit = made(n, d, k)
    clock = [time.perf_counter()]
    found = judge(fit.probs, data.train.y)
    clock.append(time.perf_counter())
    content, near = findings(data, fit, found, neighbours=5, most=MOST_NEIGHBOURS, seed=0)
    clock.append(time.perf_counter())
    rows = ranked(found, data.train.y, None)
    content |= {"audit_id": "0" * 12, "classes": list(data.classes), "label_values": list(data.classes)}
    content |= {"source": stored.source_of("memory", None, n), "settings": {}}
    with tempfile.TemporaryDirectory() as folder:
        stored.write(folder, stored.StoredAudit(content, rows, fit.probs, near))
    clock.append(time.perf_counter())
    judged, rest, written = np.diff(clock)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = (data.train.x.nbytes + fit.probs.nbytes) / 2**30
    return (
        f"| {n:,} x {d}, {k:,} classes | {size:.1f} GiB | {judged:.0f} s | {rest:.0f} s | {written:.0f} s | "
        f"{memory:.1f} GiB | {int(found.is_label_issue.sum()):,} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, nargs=3, help="one size, printed; nothing is written")
    arguments = parser.parse_args()
    if arguments.size:
        print(measure(*arguments.size))
        return
    lines = []
    for size in SIZES:
        command = [sys.executable, __file__, "--size", *map(str, size)]
        lines.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
        print(lines[-1], flush=True)
    text = "\n".join(
        [
            "# Time and memory of an audit after its probabilities",
            "",
            f"`python benchmarks/audit_size.py`: one core of a shared machine, Python {platform.python_version()}, "
            f"numpy {np.__version__}.",
            "",
            "Data and probabilities are made up and in memory (float32); then flags, intervals with the test of",
            "dependence, neighbours of the worst flagged rows and near duplicates, and the audit folder.",
            "",
            "| rows, classes | data and probabilities | flags | intervals, neighbours, duplicates | writing | "
            "peak memory of the process | flagged |",
            "|---|---|---|---|---|---|---|",
            *lines,
        ]
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audit_size.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
