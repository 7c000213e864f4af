"""Every method on several kinds of noise: accuracy on clean test labels with default parameters.

    NOISEGATE_DATA=... python benchmarks/methods_by_noise.py --jobs 2     writes results/methods_by_noise.*
    python benchmarks/methods_by_noise.py --render                        the table anew; needs no data

This is what docs/which-method.md and the pages of the methods quote. Every method gets the same vectors,
the default network and recipe, and its default parameters: nothing is searched. Problems and rows are
those of real_noise.py, and digits with half of the labels wrong; a seed draws rows, noise and the
method's own randomness.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import textwrap
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from real_problems import PROBLEMS, Problem

RESULTS = Path(__file__).parent / "results"


def _half_wrong(seed: int) -> Problem:
    import noisegate as ng

    clean = PROBLEMS["digits, clean"](seed)
    noisy = ng.noise.Symmetric(0.5, include_self=False).corrupt(clean.y, n_classes=10, seed=seed)
    return clean._replace(y=noisy)


COLUMNS = {
    "no noise": PROBLEMS["digits, clean"],
    "at random, 30 %": PROBLEMS["digits, symmetric"],
    "at random, 50 %": _half_wrong,
    "next class, 30 %": PROBLEMS["digits, next class"],
    "near the boundary, 25 %": PROBLEMS["digits, boundary"],
    "people, photographs": PROBLEMS["CIFAR-10N worst, 5,000"],
    "people, sentences": PROBLEMS["sentences, one worker"],
}


def cell(column: str, seed: int, method: str) -> dict[str, Any]:
    """Train one method once."""
    import torch

    import noisegate as ng

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given = COLUMNS[column](seed)
    found: dict[str, Any] = {"column": column, "seed": seed, "method": method}
    found["wrong"] = float((given.y != given.clean).mean())
    started = time.process_time()
    try:
        model = ng.NoisyLabelClassifier(method, device="cpu", random_state=seed).fit(given.x, given.y)
    except Exception as error:
        return found | {"error": f"{type(error).__name__}: {error}"}
    found["seconds"] = time.process_time() - started
    return found | {"accuracy": float((np.asarray(model.predict(given.x_test)) == given.y_test).mean())}


def render(found: dict[str, Any]) -> str:
    """The page: one row a method, the best means of a column in bold."""
    cells = [c for c in found["cells"] if "accuracy" in c]
    columns = [name for name in COLUMNS if any(c["column"] == name for c in cells)]
    methods = list(dict.fromkeys(c["method"] for c in found["cells"]))

    def values(method: str, column: str, key: str) -> list[float]:
        return [c[key] for c in cells if c["method"] == method and c["column"] == column]

    best = {c: max(np.mean(v) for m in methods if (v := values(m, c, "accuracy"))) for c in columns}
    lines = [
        "# Every method on several kinds of noise: accuracy on clean test labels, in per cent",
        "",
        *textwrap.wrap(
            f"`{found['command']}`: {found['about']}. Default parameters, nothing searched; mean ± standard "
            "deviation over n seeds; one thread a fit. Bold: within half a point of the best of a column. "
            "Seconds are of CPU, for one fit, mean over the columns.",
            100,
        ),
        "",
        f"| method | n | {' | '.join(columns)} | seconds |",
        "|---|---|" + "---|" * (len(columns) + 1),
    ]
    for method in methods:
        row, counts, seconds = [], [], []
        for column in columns:
            scores = [100 * value for value in values(method, column, "accuracy")]
            counts.append(len(scores))
            seconds += values(method, column, "seconds")
            if not scores:
                row.append("-")
                continue
            mean = f"{np.mean(scores):.1f}"
            close = np.mean(scores) >= 100 * best[column] - 0.5
            row.append(f"{f'**{mean}**' if close else mean} ± {np.std(scores):.1f}")
        n = f"{min(counts)} to {max(counts)}" if min(counts) != max(counts) else str(max(counts))
        shown = f"{np.mean(seconds):.1f}" if seconds else "-"
        lines.append(f"| {method} | {n} | {' | '.join(row)} | {shown} |")
    failed = [c for c in found["cells"] if "error" in c]
    lines += ["", *(f"Failed: {c['method']}, {c['column']}, seed {c['seed']}: {c['error']}" for c in failed)]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--columns", nargs="+", default=list(COLUMNS))
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing after so long")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true", help="write the table of the stored cells")
    arguments = parser.parse_args()
    import torch

    import noisegate as ng

    path = arguments.out / "methods_by_noise.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cells": []}
    if not arguments.render:
        arguments.out.mkdir(parents=True, exist_ok=True)
        found["command"] = " ".join(["python", "benchmarks/methods_by_noise.py", *sys.argv[1:]])
        found["about"] = (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch "
            f"{torch.__version__}, noisegate {ng.__version__}"
        )
        _measure(found, arguments, path)
    (arguments.out / "methods_by_noise.md").write_text(render(found))
    print(render(found))


def _measure(found: dict[str, Any], arguments: Any, path: Path) -> None:
    """Train what is not stored yet; cells are stored as they come."""
    from noisegate.methods import METHODS

    methods = arguments.methods or list(METHODS)
    found["cells"] = [c for c in found["cells"] if "error" not in c]
    known = {(c["column"], c["seed"], c["method"]) for c in found["cells"]}
    todo = [
        (column, seed, method)
        for seed in range(arguments.seeds)
        for column in arguments.columns
        for method in methods
        if (column, seed, method) not in known
    ]
    deadline = time.monotonic() + 60 * arguments.minutes
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(cell, *one) for one in todo]
        for future in as_completed(futures):
            if future.cancelled():
                continue
            one = future.result()
            found["cells"].append(one)
            path.write_text(json.dumps(found, indent=0) + "\n")
            score = one.get("accuracy", one.get("error"))
            print(one["column"], one["seed"], one["method"], score, flush=True)
            if time.monotonic() > deadline:
                for other in futures:
                    other.cancel()
    order = list(METHODS)
    found["cells"].sort(key=lambda c: (order.index(c["method"]), list(COLUMNS).index(c["column"]), c["seed"]))
    path.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
