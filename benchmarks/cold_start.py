"""CPU seconds of a first fit in a fresh process: noisegate beside scikit-learn's MLPClassifier.

    taskset -c 0 python benchmarks/cold_start.py            writes results/cold_start.md

200 rows of 10 numbers, two classes. Every process is a new one; imports count. CPU seconds are those of
the process, user and system, with one thread. The commands read and write the same rows as CSV.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from in_turn import machine, write

ROWS, FEATURES = 200, 10
HEAD = f"""
import warnings
import numpy as np
x = np.random.default_rng(0).normal(size=({ROWS}, {FEATURES}))
y = (x[:, 0] > 0).astype(int)
warnings.simplefilter("ignore")
"""
MLP = "scikit-learn's MLPClassifier"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", HEAD + code]


def estimator(method: str) -> list[str]:
    return python(f"import noisegate as ng\nng.NoisyLabelClassifier({method!r}, random_state=0).fit(x, y)")


def commands(folder: Path) -> dict[str, list[str]]:
    """The processes to compare, in the order in which they run."""
    table, ours = str(folder / "small.csv"), [sys.executable, "-m", "noisegate"]
    found = {
        MLP: python(
            "from sklearn.neural_network import MLPClassifier\nMLPClassifier(random_state=0).fit(x, y)"
        ),
        "import torch": python("import torch"),
        "import torch and sklearn.base": python("import torch\nimport sklearn.base"),
    }
    for method in ("auto", "ce", "ln"):
        found[f"NoisyLabelClassifier({method!r}).fit"] = estimator(method)
    for method in ("auto", "ce"):
        model = str(folder / f"model-{method}")
        fit = ["fit", table, "--label", "label", "--out", model, "--method", method]
        found[f"noisegate fit --method {method}"] = [*ours, *fit]
        found[f"noisegate predict ({method})"] = [*ours, "predict", model, table, "--out", f"{model}.csv"]
    found["noisegate --help"] = [*ours, "--help"]
    return found


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_table(path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).round(4)
    head = ",".join([*(f"c{place}" for place in range(FEATURES)), "label"])
    lines = [",".join([*map(str, row.tolist()), "yes" if row[0] > 0 else "no"]) for row in x]
    path.write_text("\n".join([head, *lines]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_table(Path(name) / "small.csv")
        sides = commands(Path(name))
        times: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(asked.turns):
            for side, command in sides.items():
                times[side].append(cpu_seconds(command))
    rows = [
        f"| {side} | {statistics.median(found):.2f} | "
        f"{statistics.median(a / b for a, b in zip(found, times[MLP], strict=True)):.2f} |"
        for side, found in times.items()
    ]
    write(
        "cold_start",
        [
            "# A first fit of a small table from a cold start",
            "",
            f"`python benchmarks/cold_start.py --turns {asked.turns}`: {ROWS} rows of {FEATURES} numbers, "
            f"one thread, {machine('torch', 'scikit-learn', 'numpy')}; load {os.getloadavg()[0]:.0f}.",
            "",
            "Wanted: a fit of at most 1.2 times scikit-learn's, and at most 2.5 s for a command.",
            "",
            "| process | CPU seconds | to scikit-learn's |",
            "|---|---|---|",
            *rows,
        ],
    )


if __name__ == "__main__":
    main()
