"""The sections of a study's report, as a `Page`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from noisegate.reporting.page import Page, Span
from noisegate.studies.report.figures import Drawn
from noisegate.studies.report.search import Searched
from noisegate.studies.report.table import LEVEL, CellRuns, Table
from noisegate.studies.report.words import (
    clock,
    column_name,
    counted,
    headings,
    many,
    place,
    table_rows,
    tally,
    unit,
    with_deviation,
)
from noisegate.studies.results import Results
from noisegate.studies.store import Result
from noisegate.studies.study import Study, Value

#: Longer lists are cut to this many items; the CSV files are complete.
LISTED = 30
#: The heading of each accuracy.
_ACCURACIES = {
    "test_accuracy_last": (Span("last epoch"),),
    "test_accuracy_best_validation": (
        Span("best validation"),
        Span("epoch chosen by noisy validation labels", soft=True, below=True),
    ),
    "test_accuracy_oracle": (
        Span("ORACLE"),
        Span("not available in practice: epoch chosen by clean test labels", soft=True, below=True),
    ),
}


@dataclass(frozen=True)
class Content:
    """The content of a report. It is read completely before anything is written."""

    results: Results
    cells: list[CellRuns]
    table: Table | None
    figures: list[Drawn]
    searches: list[Searched]
    runs: list[Result]
    planned: int
    scale: str
    changes: Mapping[str, Any]
    command: str

    @property
    def study(self) -> Study:
        """The study."""
        return self.results.study

    @property
    def smoke(self) -> bool:
        """Whether this is the smoke size. Studies without training have a single size."""
        return self.scale == "smoke" and bool(self.study.cells)

    @property
    def laptop(self) -> bool:
        """Whether the protocol was reduced to what two cores do."""
        return self.scale == "laptop" and self.study.laptop.reduces

    @property
    def size(self) -> str:
        """The label of a reduced size; empty for the paper's."""
        if self.smoke:
            return "smoke size: no reproduction"
        return "laptop size: reduced" if self.laptop else ""

    @cached_property
    def incomplete(self) -> list[str]:
        """Descriptions of the cells that lack runs."""
        found = []
        for of in self.cells:
            if not of.runs:
                found.append(f"{place(of)}: {of.waiting}")
            elif len(of.results) < of.seeds:
                failed = "".join(f"; {count} {status}" for status, count in of.failed.items())
                found.append(f"{place(of)}: {len(of.results)} of {of.seeds} runs{failed}")
        return found

    @cached_property
    def failures(self) -> dict[str, tuple[CellRuns, int, Mapping[str, Any]]]:
        """Failed runs by key; a run that several cells share appears once."""
        return {run.key: (of, run.seed, failure) for of in self.cells for run, failure in of.failures}


def title(content: Content) -> str:
    """The title, with the size where that is not the paper's."""
    name = content.study.title
    return f"{name} ({content.size})" if content.size else name


def lead(content: Content) -> str:
    """The lead: what to know before reading any number."""
    study = content.study
    parts = [f"Study {study.name}; {study.reference}."]
    has_paper = content.table is not None and content.table.has_paper
    if content.smoke:
        parts.append(
            "This is the smoke size, which shows that everything runs: small data, small networks, few epochs. "
            "It is no reproduction"
        )
        parts[-1] += ", and the paper's numbers are not comparable with these." if has_paper else "."
    if content.laptop:
        parts.append(
            "This is the laptop size: the paper's protocol on real data, reduced to what two cores do in two hours "
            f"at most. {study.notes[0]} Effects can be compared with the paper's, numbers only with care."
        )
    if content.changes and not content.smoke:
        parts.append("Settings were changed (below), so this is not the study's own protocol.")
    if content.incomplete:
        parts.append(
            f"It is not complete: {many(len(content.incomplete), 'cell')} of {len(content.cells)} "
            f"{'lacks' if len(content.incomplete) == 1 else 'lack'} runs, listed below."
        )
    return " ".join(parts)


def compose(content: Content) -> Page:
    """Build the report from all sections that are not empty."""
    page = Page(title(content), lead(content))
    page.facts(_facts(content))
    if content.table is not None:
        _results(page, content.table, content)
        _findings(page, content)
        _accuracies(page, content)
    _figures(page, content)
    _searches(page, content)
    if content.study.notes:
        page.section("Protocol: what is our choice, or differs from the paper's words")
        page.bullets(content.study.notes)
    _missing(page, content)
    page.section("To run it again")
    return page.text("Stored runs are not repeated.").code(content.command)


def _facts(content: Content) -> list[tuple[str, Any]]:
    study, runs = content.study, content.runs
    facts: list[tuple[str, Any]] = [("study", study.name), ("reference", study.reference)]
    facts.append(("scale", content.size.replace(" size", "") or content.scale))
    if content.changes:
        facts.append(("changed", ", ".join(f"{name} = {value}" for name, value in content.changes.items())))
    if not study.cells:
        return [*facts, ("runs", "none: this study needs no training")]
    if any(cell.search for cell in study):
        chosen = "searched on noisy validation labels" if content.results.search else "the paper's choice"
        facts.append(("hyper-parameters", chosen))
    seeds = "0" if study.seeds == 1 else f"0 to {study.seeds - 1}"
    facts += [("seeds", seeds), ("runs", f"{len(runs):,} of {content.planned:,} done")]
    if runs:
        facts += [
            ("versions", tally(_versions(run) for run in runs)),
            ("hardware", tally(_hardware(run) for run in runs)),
            ("time of all runs", clock(sum(run.own_seconds for run in runs))),
        ]
    return facts


def _versions(run: Result) -> str:
    versions = {"noisegate": run.about.get("noisegate", "unknown"), **run.about["versions"]}
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _hardware(run: Result) -> str:
    kind = str(run.about.get("device", "")).partition(":")[0]
    return f"{run.about['hardware']} ({kind})" if kind else str(run.about["hardware"])


# -- tables ----------------------------------------------------------------------------------------


def _results(page: Page, table: Table, content: Content) -> None:
    page.section("Results")
    groups, header = headings(table.study)
    values = ", ".join(unit(value) for value in table.study.values)
    caption = f"{values[:1].upper()}{values[1:]}: mean ± standard deviation over seeds."
    if content.size:
        caption += f" {content.size[:1].upper()}{content.size[1:]}."
    page.table(table_rows(table), header, caption=caption, groups=groups, row_headers=True)
    page.bullets(_how_to_read(table, content))


def _findings(page: Page, content: Content) -> None:
    """Sentences about the numbers; none for a smoke run, because they could be mistaken for results."""
    sentences = (
        [] if content.smoke or content.study.findings is None else content.study.findings(content.results)
    )
    if sentences:
        page.section("What happened").bullets(sentences)


def _how_to_read(table: Table, content: Content) -> list[str]:
    study = table.study
    within = "column" if study.compete == "rows" else "row"
    items = ["Standard deviations are those of a sample (n - 1); n is the number of runs, one a seed."]
    if study.bold == "welch":
        items.append(
            f"Bold: the best mean of a {within}, and every other without significant difference to it "
            f"(Welch's t-test, two-sided, p ≥ {LEVEL:g})."
        )
    elif study.bold == "best":
        items.append(f"Bold: the best mean of a {within}, and those equal to it at the printed digits.")
    if study.stars_against is not None:
        items.append(
            f"Stars: paired two-sided t-test over common seeds against {study.stars_against} in the same "
            "column: * p < .05, † p < .01, ‡ p < .001."
        )
    if table.has_paper and content.smoke:
        items.append("The paper's numbers only show where they would stand; no difference is computed.")
    elif table.has_paper:
        items.append(
            "sd: (ours - paper) / sqrt((s² + s_paper²) / 2), how many standard deviations of single runs lie "
            "between the means; where only one of the two deviations is known, that one is taken."
        )
        items.append("The paper's numbers are bold, or have stars, where the paper prints them so.")
    return [*items, *table.notes]


def _accuracies(page: Page, content: Content) -> None:
    """Accuracy at the last epoch, at the best by noisy validation, and at the oracle's."""
    found = [of for of in content.cells if any(of.values(name) for name in _ACCURACIES)]
    shown = [name for name in _ACCURACIES if any(of.values(name) for of in found)]
    if not found:
        return
    names = ["row", "column"]
    if content.study.compete == "rows":
        # Group the rows that compete with each other.
        order = {column: place for place, column in enumerate(content.study.columns)}
        found.sort(key=lambda of: order[of.cell.group, of.cell.column])
        names.reverse()
    rows: list[list[Any]] = []
    for of in found:
        labels = {"row": of.cell.row, "column": column_name(of.cell.group, of.cell.column)}
        rows.append([*(labels[name] for name in names), *(_accuracy(of, metric) for metric in shown)])
    page.section("Last epoch, epoch chosen by noisy validation, and oracle")
    page.table(
        rows,
        [*names, *(_ACCURACIES[name] for name in shown)],
        caption="Test accuracy (%) on clean labels, mean ± standard deviation, of the epochs that were measured. "
        "The oracle looks at the clean test labels to choose its epoch, which is impossible in practice: it shows "
        "what perfect stopping would give.",
        row_headers=True,
    )


def _accuracy(of: CellRuns, metric: str) -> tuple[Span, ...] | str:
    samples = list(of.values(metric, 100.0).values())
    if not samples:
        return "-"
    std = float(np.std(samples, ddof=1)) if len(samples) > 1 else None
    spans = [
        Span(with_deviation(float(np.mean(samples)), std, Value()), soft=metric == "test_accuracy_oracle")
    ]
    if len(samples) != of.seeds:
        spans.append(Span(f" ({len(samples)} of {of.seeds})", soft=True))
    return tuple(spans)


def _searches(page: Page, content: Content) -> None:
    if not content.searches:
        return
    select = content.study.select
    by = "the first seed" if select.seeds == "first" else "the mean over all seeds"
    rows = []
    for search in content.searches:
        cell = search.of.cell
        rows.append(
            [
                cell.row,
                column_name(cell.group, cell.column),
                "not chosen yet" if search.chosen is None else _choice(search.chosen),
                "" if search.score is None else f"{search.score:.4f}",
                _choice(search.paper),
                ", ".join(f"{count} {state}" for state, count in search.states.items()),
            ]
        )
    page.section("Hyper-parameters")
    header = ["row", "column", "chosen", select.metric.replace("_", " "), "the paper's choice", "candidates"]
    page.table(
        rows,
        header,
        caption=f"Chosen by {select.metric.replace('_', ' ')} on noisy labels, by {by}.",
        row_headers=True,
    )


def _choice(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in params.items())


# -- the rest --------------------------------------------------------------------------------------


def _figures(page: Page, content: Content) -> None:
    if not content.figures:
        return
    page.section("Figures")
    for drawn in content.figures:
        figure = drawn.figure
        if drawn.missing:
            page.text(f"{figure.name} could not be drawn: {drawn.missing}")
            continue
        small = f" {content.size[:1].upper()}{content.size[1:]}." if content.size else ""
        paper = f" What the paper's figure shows: {figure.paper}" if figure.paper else ""
        caption = f"{figure.caption}{small}{paper}"
        page.figure(drawn.png, caption, alt=figure.caption, path=drawn.path, natural=True)


def _missing(page: Page, content: Content) -> None:
    if content.incomplete:
        page.section("What is missing")
        page.bullets(_listed(content.incomplete, "cell"))
    if content.failures:
        page.section("Failed runs")
        failures = list(content.failures.values())
        rows = [
            [place(of), seed, failure.get("status", "crashed"), _first_line(failure)]
            for of, seed, failure in failures[:LISTED]
        ]
        more = len(failures) - len(rows)
        caption = "They are tried again on request: --retry."
        caption += f" And {many(more, 'more failed run')}, in runs.csv." if more > 0 else ""
        page.table(rows, ["cell", "seed", "status", "error"], caption=caption)
    if content.results.store.set_aside:
        page.section("Damaged files")
        page.bullets(_listed(content.results.store.set_aside, "file"))
    if content.table is not None:
        lacking = [
            f"{place(e.of)}: {e.value.title}: {counted(e)}"
            for e in content.table.entries
            if e.n < len(e.of.results)
        ]
        if lacking:
            page.section("Numbers that finished runs do not have").bullets(_listed(lacking, "place"))


def _first_line(failure: Mapping[str, Any]) -> str:
    line = next(iter(str(failure.get("error", "")).strip().splitlines()), "")
    return line if len(line) <= 300 else line[:297] + "..."


def _listed(items: list[str], word: str) -> list[str]:
    more = len(items) - LISTED
    return items if more <= 0 else [*items[:LISTED], f"and {many(more, f'more {word}')}"]
