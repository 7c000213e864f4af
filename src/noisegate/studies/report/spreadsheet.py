"""The report as CSV: one line per number of the table, one line per run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from noisegate.studies.report.table import CellRuns, Entry, Table, all_runs
from noisegate.studies.results import Results
from noisegate.studies.store import Result

TABLE_COLUMNS = (
    *("study", "row", "group", "column", "value", "n", "mean", "std", "paper_mean", "paper_std"),
    *("difference_sd", "bold", "p_against_best", "stars", "failed", "seeds"),
)
_RUN_COLUMNS = (
    *(
        "key",
        "study",
        "row",
        "group",
        "column",
        "also_in",
        "part",
        "method",
        "params",
        "seed",
        "status",
        "error",
    ),
    *("seconds", "own_seconds", "train_seconds", "peak_memory", "hardware", "device"),
    *("noisegate", "python", "torch", "numpy"),
    *("train_rows", "validation_rows", "noise_rate"),
)


def table_csv(table: Table) -> str:
    """Every entry in long format, in the unit in which the paper prints it."""
    return _csv(TABLE_COLUMNS, (_entry_line(table, entry) for entry in table.entries))


def _entry_line(table: Table, entry: Entry) -> dict[str, Any]:
    cell, paper = entry.of.cell, entry.paper
    return {
        "study": table.study.name,
        "row": cell.row,
        "group": cell.group,
        "column": cell.column,
        "value": entry.value.name,
        "n": entry.n,
        "mean": entry.mean,
        "std": entry.std,
        "paper_mean": None if paper is None else paper.mean,
        "paper_std": None if paper is None else paper.std,
        "difference_sd": entry.difference,
        "bold": "true" if entry.bold else "false",
        "p_against_best": entry.p_best,
        "stars": entry.stars,
        "failed": sum(entry.of.failed.values()),
        "seeds": entry.of.seeds,
    }


def runs_csv(results: Results, cells: Sequence[CellRuns]) -> str:
    """Every run that is finished or failed, with all its metrics.

    `part` says whether a run fills a cell or only judged a candidate of a search; `also_in` names
    further cells that the same run fills.
    """
    lines: dict[str, dict[str, Any]] = {}
    metrics: dict[str, None] = {}
    for of, run, part in all_runs(results, cells):
        names = {"row": of.cell.row, "group": of.cell.group, "column": of.cell.column}
        if run.key in lines:
            line = lines[run.key]
            if part == "cell" and any(line[name] != names[name] for name in names):
                line["also_in"] = "; ".join(filter(None, [line["also_in"], " / ".join(names.values())]))
            continue
        result, failure = results.store.result(run), results.store.failure(run)
        if result is None and failure is None:
            continue
        line = {"key": run.key, "study": results.study.name, **names, "also_in": "", "part": part}
        line |= {
            "method": run.method,
            "params": json.dumps(dict(run.params), sort_keys=True),
            "seed": run.seed,
        }
        line |= _failed_line(failure or {}) if result is None else _finished_line(result)
        metrics |= dict.fromkeys(sorted(result.metrics)) if result is not None else {}
        lines[run.key] = line
    return _csv(dict.fromkeys((*_RUN_COLUMNS, *metrics)), lines.values())


def _finished_line(result: Result) -> dict[str, Any]:
    about = result.about
    versions, rows = about.get("versions", {}), about.get("rows", {})
    return {
        **result.metrics,
        "status": "finished",
        "seconds": result.seconds,
        "own_seconds": result.own_seconds,
        "train_seconds": about.get("train_seconds"),
        "peak_memory": about.get("peak_memory"),
        "hardware": about.get("hardware"),
        "device": about.get("device"),
        "noisegate": about.get("noisegate"),
        **{name: versions.get(name) for name in ("python", "torch", "numpy")},
        "train_rows": rows.get("train"),
        "validation_rows": rows.get("validation"),
        "noise_rate": about.get("noise", {}).get("train_rate"),
    }


def _failed_line(failure: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": failure.get("status", "crashed"),
        "error": failure.get("error", ""),
        "noisegate": failure.get("noisegate"),
    }


def _csv(columns: Collection[str], lines: Iterable[Mapping[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        writer.writerow([_cell(line.get(name)) for name in columns])
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    return f"{value:.10g}" if isinstance(value, float) else value
