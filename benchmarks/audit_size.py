"""Time and memory of large audits, each in a process of its own.

    python benchmarks/audit_size.py            writes results/audit_size.md
    python benchmarks/audit_size.py --only 0   one line, printed

Made-up rows around the centres of their classes; a fifth of the labels is drawn anew. "own" hands over
made-up out-of-sample probabilities (float32), as `noisegate.audit(X, y, probs=...)` takes them; other
lines train. Then the audit folder and the report are written. Memory is the peak of the whole process, the
data and the probabilities included.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import noisegate as ng
from noisegate.auditing.report import write_report

RESULTS = Path(__file__).parent / "results"
#: Rows, numbers a row, classes, what gives the probabilities.
SIZES: tuple[tuple[int, int, int, str], ...] = (
    (1_000_000, 100, 10, "own"),
    (200_000, 20, 1000, "own"),
    (1_000_000, 100, 10, "ce, in-training"),
    # A million rows would take about 50 times as long, two hours of processor time.
    (20_000, 100, 10, "auto, cross-fitted"),
)
BLOCK = 10_000_000


def made(n: int, d: int, k: int, own: bool) -> tuple[Any, Any, Any]:
    """Inputs, given labels, and probabilities or None."""
    rng = np.random.default_rng(0)
    true = rng.integers(k, size=n)
    centres = rng.normal(size=(k, d)).astype(np.float32) / 2
    x = rng.standard_normal((n, d), dtype=np.float32)
    for rows in (slice(start, start + BLOCK // d) for start in range(0, n, BLOCK // d)):
        x[rows] += centres[true[rows]]
    y = np.where(rng.random(n) < 0.2, rng.integers(k, size=n), true)
    if not own:
        return x, y, None
    probs = np.empty((n, k), dtype=np.float32)
    for rows in (slice(start, start + BLOCK // k) for start in range(0, n, BLOCK // k)):
        logits = rng.standard_normal((len(true[rows]), k), dtype=np.float32)
        logits[np.arange(len(logits)), true[rows]] += 2.0 + np.log(k)
        np.exp(logits, out=logits)
        probs[rows] = logits / logits.sum(axis=1, keepdims=True)
    return x, y, probs


def measure(n: int, d: int, k: int, how: str) -> dict[str, Any]:
    """Time and memory of one audit."""
    x, y, probs = made(n, d, k, how == "own")
    clock = [_now()]
    if probs is not None:
        report = ng.audit(x, y, probs=probs)
    else:
        method, detector = how.split(", ")
        report = ng.audit(x, y, method=method, detector=detector)
    clock.append(_now())
    with tempfile.TemporaryDirectory() as folder:
        write_report(report.save(folder))
        clock.append(_now())
        stored = sum(path.stat().st_size for path in Path(folder).iterdir())
    import torch

    return {
        "n": n, "d": d, "k": k, "how": how,
        "data": (x.nbytes + (0 if probs is None else probs.nbytes)) / 2**30,
        "audit": clock[1][0] - clock[0][0], "written": clock[2][0] - clock[1][0],
        "audit_cpu": clock[1][1] - clock[0][1], "written_cpu": clock[2][1] - clock[1][1],
        "stored": stored / 2**30,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "flagged": int(report.issues.is_label_issue.sum()), "rate": float(report.noise_rate),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "cores": os.cpu_count(), "python": platform.python_version(), "torch": torch.__version__,
        "numpy": np.__version__,
    }  # fmt: skip


def _now() -> tuple[float, float]:
    """Time on the clock, and of the processor in this process."""
    return time.perf_counter(), time.process_time()


def _seconds(found: dict[str, Any], name: str) -> str:
    processor = found.get(f"{name}_cpu")
    return f"{'–' if processor is None else f'{processor:,.0f} s'} ({found[name]:,.0f} s)"


def line(found: dict[str, Any]) -> str:
    return (
        f"| {found['n']:,} x {found['d']}, {found['k']:,} classes | {found['how']} | {found['data']:.1f} GiB | "
        f"{_seconds(found, 'audit')} | {_seconds(found, 'written')} | {found['stored']:.1f} GiB | "
        f"{found['memory']:.1f} GiB | {found['flagged']:,} | {100 * found['rate']:.1f} % |"
    )


def render(lines: list[dict[str, Any]]) -> str:
    """The page of all lines."""
    machine = lines[0]
    return "\n".join(
        [
            "# Time and memory of large audits", "",
            f"`python benchmarks/audit_size.py`: {machine['cores']} cores, one thread for torch and BLAS "
            f"(OMP_NUM_THREADS=1), {machine['device']}; Python {machine['python']}, torch {machine['torch']}, "
            f"numpy {machine['numpy']}. One run of each, beside much other work on both cores: the seconds are "
            "those of the processor (–: not measured), and in brackets those on the clock.", "",
            "Made-up rows; of the labels a fifth is drawn anew, so 18 % are wrong with 10 classes and 20 % with "
            "1,000. own: `ng.audit(X, y, probs=...)` with out-of-sample probabilities of the user's, so "
            "nothing is trained; the other lines train. audit is everything up to the report object: training, "
            "flags, intervals, the test of dependence, neighbours of the worst flagged rows, near duplicates. "
            "Memory is the peak of the whole process.", "",
            "| data | probabilities | data and probabilities | audit | folder and report | on disk | peak memory | "
            "flagged | estimated noise rate |",
            "|---|---|---|---|---|---|---|---|---|", *map(line, lines),
        ]
    ) + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", type=int, help="one size by its number, printed as JSON")
    parser.add_argument("--size", type=int, nargs=3, help="rows, numbers a row, classes; printed as JSON")
    parser.add_argument("--how", default="own", help="with --size")
    parser.add_argument("--render", type=Path, help="a file of such lines: write the table from it")
    arguments = parser.parse_args()
    if arguments.size or arguments.only is not None:
        size = (*arguments.size, arguments.how) if arguments.size else SIZES[arguments.only]
        print(json.dumps(measure(*size)), flush=True)
        return
    if arguments.render:
        lines = [
            json.loads(text) for text in arguments.render.read_text().splitlines() if text.startswith("{")
        ]
    else:
        lines = []
        for number in range(len(SIZES)):
            command = [sys.executable, __file__, "--only", str(number)]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            lines.append(json.loads(told.splitlines()[-1]))
            print(line(lines[-1]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audit_size.md").write_text(render(lines))


if __name__ == "__main__":
    main()
