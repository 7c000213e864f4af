"""What the study of audits found, in sentences computed from stored results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noisegate.studies.results import Results

_RULES = {"look": "our flags", "cleanlab": "cleanlab's", "argmax": "argmax differs"}


def findings(results: Results) -> list[str]:
    """How the rules compare on the same probabilities, and how the detectors compare on the same data."""
    sentences, rows = [], results.study.rows
    means = {row: {rule: _mean(results, row, f"{rule}_f1") for rule in _RULES} for row in rows}
    for row, found in means.items():
        n = found["look"][1]
        if n:
            numbers = ", ".join(f"{_RULES[rule]} {mean:.1%}" for rule, (mean, _) in found.items())
            sentences.append(f"{row}: mean F1 of {n} data sets and noises: {numbers}.")
    return sentences + _together(results)


def _mean(results: Results, row: str, name: str) -> tuple[float, int]:
    """The mean of a metric over the columns that are done, and how many these are."""
    columns = [results.values(cell, name) for cell in results.study if cell.row == row]
    found = [sum(values.values()) / len(values) for values in columns if values]
    return (sum(found) / len(found), len(found)) if found else (0.0, 0)


def _together(results: Results) -> list[str]:
    """The detectors on the columns that most of them have done."""
    done: dict[str, dict[tuple[str, str], float]] = {}
    for cell in results.study:
        values = results.values(cell, "look_f1")
        if values:
            done.setdefault(cell.row, {})[cell.group, cell.column] = sum(values.values()) / len(values)
    done = {row: found for row, found in done.items() if len(found) > 1}
    full = max((len(found) for found in done.values()), default=0)
    rows = {row: found for row, found in done.items() if len(found) == full}
    if len(rows) < 2:
        return []
    shared = set.intersection(*(set(found) for found in rows.values()))
    ranked = sorted(rows, key=lambda row: -sum(rows[row][place] for place in shared))
    if not shared:
        return []
    numbers = ", ".join(
        f"{row} {sum(rows[row][place] for place in shared) / len(shared):.1%}" for row in ranked
    )
    return [
        f"On the {len(shared)} data sets and noises that all of these have done, mean F1 of our flags: {numbers}."
    ]
