"""Reading a large table: `ng.data.load` beside pandas and Arrow alone, in turn in one process.

    python benchmarks/tables.py [--rows 1000000]      writes results/tables.md

The file has 20 columns: ten numbers, a whole number, a boolean, four categories (8 to 40 values), a date, a time,
an id and a label of text; 2 % of two columns are missing. Arrow and pandas only parse it; noisegate also finds out
what each column is, encodes it as numbers and numbers the labels. Memory is what the process holds at most while it
reads, beyond what it held before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.csv

import noisegate as ng

RESULTS = Path(__file__).parent / "results" / "tables.md"


def write(path: Path, n: int) -> None:
    """A table of `n` rows."""
    rng = np.random.default_rng(0)
    columns = {f"x{i}": rng.normal(size=n).round(6) for i in range(10)}
    for name in ("x0", "x1"):
        columns[name][rng.random(n) < 0.02] = np.nan
    days = np.datetime64("2020-01-01") + rng.integers(0, 2000, n).astype("timedelta64[D]")
    columns |= {
        "count": rng.integers(0, 1000, n),
        "flag": rng.random(n) < 0.5,
        **{f"c{k}": np.char.add(f"value-{k}-", rng.integers(k, size=n).astype(str)) for k in (8, 10, 20, 40)},
        "day": days,
        "time": days + rng.integers(86400, size=n).astype("timedelta64[s]"),
        "id": np.arange(n) + 10**6,
        "label": np.where(columns["x2"] > 0, "yes", "no"),
    }
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    pa.csv.write_csv(table, path)


def measured(read: Callable[[], object]) -> tuple[float, float, float]:
    """Seconds, seconds of CPU of all threads, and the most memory beyond that of the start, in GB."""
    process, most, over = psutil.Process(), [0], threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not over.wait(0.01):
            most[0] = max(most[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started, busy = time.perf_counter(), time.process_time()
    kept = read()
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    over.set()
    watcher.join()
    del kept
    pa.default_memory_pool().release_unused()
    return seconds, busy, (most[0] - before) / 1e9


def main() -> None:
    """All three in turn, three times; the median of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        write(path, asked.rows)
        sides: dict[str, Callable[[], object]] = {
            "pyarrow.csv.read_csv": lambda: pa.csv.read_csv(path),
            "pandas.read_csv": lambda: pd.read_csv(path),
            "noisegate.data.load": lambda: ng.data.load(path, label="label"),
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
        for _ in range(asked.repeats):
            for name, read in sides.items():
                found[name].append(measured(read))
        size = path.stat().st_size / 1e6
    pandas = statistics.median(value[1] for value in found["pandas.read_csv"])
    lines = [
        "| what | seconds | CPU seconds | ratio of CPU to pandas | most memory, GB |",
        "|---|---|---|---|---|",
    ]
    for name, values in found.items():
        seconds, busy, memory = (statistics.median(value[i] for value in values) for i in range(3))
        lines.append(f"| {name} | {seconds:.2f} | {busy:.2f} | {busy / pandas:.2f} | {memory:.2f} |")
    text = (
        f"# Reading a table of {asked.rows:,} rows and 20 columns ({size:.0f} MB)\n\n"
        f"`python benchmarks/tables.py --rows {asked.rows}`, median of {asked.repeats} in turn, noisegate "
        f"{ng.__version__}, pandas {pd.__version__}, pyarrow {pa.__version__}, {psutil.cpu_count()} CPUs.\n\n"
        + "\n".join(lines)
        + "\n"
    )
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
