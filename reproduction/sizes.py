"""What was run of every study, at which size; and the tables of the size of a laptop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from noisegate.evaluation.significance import difference_in_deviations, paired
from noisegate.studies import papers
from noisegate.studies.report.words import column_name, with_deviation
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Result, Store
from noisegate.studies.study import Cell, Study, Value, slug

#: Seeds of a run at the size of a laptop that are looked for: those asked for by --seeds count too.
SEEDS = 25
#: Changes of a laptop's size that were run too, by the words they are stored under: of which
#: studies, what was changed, and how the coverage calls it.
CHANGED: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "long": (
        "smoothing",
        {"recipe.epochs": 100, "recipe.milestones": [50, 75], "recipe.schedule": "step"},
        "100 epochs",
    ),
    "cropped": (
        "causalnl-table1-variants",
        {"recipe.crop": 4, "recipe.flip": True},
        "CausalNL's crops for all",
    ),
    "nesterov": (
        "ln-table3",
        {"recipe.optimizer": "nesterov", "recipe.lr": 0.01, "recipe.epochs": 20},
        "the paper's optimiser, 20 epochs",
    ),
}
PAPERS = {
    "ln": "Logistic-Normal",
    "temperature": "softmax temperature",
    "smoothing": "label smoothing",
    "causalnl": "CausalNL",
}


def reduced_studies() -> Iterator[Study]:
    """The studies at the size of a laptop, where that differs from the paper's."""
    for study in papers.studies().values():
        if study.laptop.reduces:
            yield study.at_scale("laptop")


def changed_studies() -> Iterator[tuple[str, Study]]:
    """The studies that were run with a change, each with the words of the change."""
    for words, (paper, changes, _) in CHANGED.items():
        for study in reduced_studies():
            if study.name.startswith(paper):
                yield words, study.with_changes(changes)


def runs(study: Study, cell: Cell) -> Iterator[RunSettings]:
    """Whatever could be run of a cell: every setting of its search, with many seeds."""
    for settings in [cell.settings, *(cell.candidates() if cell.search else [])]:
        for seed in range(max(SEEDS, study.seeds)):
            yield settings.replace(seed=seed)


def found(settings: RunSettings, store: Store) -> dict[int, Result]:
    """The finished runs of settings, by seed."""
    each = (store.result(settings.replace(seed=seed)) for seed in range(SEEDS))
    return {result.seed: result for result in each if result is not None}


def chosen(study: Study, cell: Cell, store: Store) -> tuple[dict[int, Result], str]:
    """The runs that fill a cell, and what a search chose: by the mean over all seeds, if all candidates have some.

    The seeds are those that all candidates have.
    """
    own = found(cell.settings, store)
    if not cell.search or study.select.seeds != "all":
        return own, ""
    grids = {candidate.key: (candidate, found(candidate, store)) for candidate in cell.candidates()}
    there = [of_one for _, of_one in grids.values()]
    if not all(there):
        return own, ""
    common = set.intersection(*(set(of_one) for of_one in there))
    if not common:
        return own, ""

    def score(of_one: Mapping[int, Result]) -> float:
        return float(np.mean([of_one[seed].metrics[study.select.metric] for seed in common]))

    best, results = max(grids.values(), key=lambda pair: score(pair[1]))
    words = ", ".join(f"{name} {best.params[name]:g}" for name in cell.search)
    return results, f", searched: {words}"


def seconds(results: Sequence[Result]) -> float:
    """What runs took together, each one's share of its process."""
    return sum(result.own_seconds for result in results)


def sized(study: Study, changed: str = "") -> Study:
    """A study at the size of a laptop, with one of the changes if that is named."""
    small = study.at_scale("laptop")
    return small.with_changes(CHANGED[changed][1]) if changed else small


def table(
    study: Study, store: Store, rows: Sequence[str] = (), changed: str = "", epoch: int = 0
) -> list[str]:
    """Every cell that was run at the size of a laptop, or at the paper's where nothing is reduced, as Markdown.

    At the end of training, or at an epoch.
    """
    small = sized(study, changed)
    filled = {
        (cell.row, cell.group, cell.column): (cell, *chosen(small, cell, store))
        for cell in small
        if not rows or slug(cell.row) in rows
    }
    filled = {place: of for place, of in filled.items() if of[1]}
    if not filled:
        return ["Not run yet.", ""]
    head = "| scale | row | column | paper | ours | n | difference, sd | s | single runs |"
    against = small.stars_against
    if against is not None:
        head = head.replace("| s |", "| p in pairs | s |")
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for (_, group, column), (cell, results, words) in filled.items():
        for value in small.values:
            rival = filled.get((against or "", group, column))
            then = {seed: at_epoch(result, epoch) for seed, result in results.items()}
            lines.append(_line(study, small, (cell, then, words), value, rival and rival[1]))
    everything = [result for _, results, _ in filled.values() for result in results.values()]
    return [*lines, "", *about(everything), ""]


def at_epoch(result: Result, epoch: int) -> Result:
    """A result with the metrics of an epoch of its last phase; 0 for those of its end."""
    return dataclasses.replace(result, metrics=result.history[-1][epoch - 1]) if epoch else result


def _line(
    study: Study,
    small: Study,
    of: tuple[Cell, Mapping[int, Result], str],
    value: Value,
    rival: Mapping[int, Result] | None,
) -> str:
    cell, results, words = of
    unit = 100.0 if value.percent else 1.0
    numbers = {seed: unit * r.metrics[value.name] for seed, r in results.items() if value.name in r.metrics}
    mean = float(np.mean(list(numbers.values()))) if numbers else None
    std = float(np.std(list(numbers.values()), ddof=1)) if len(numbers) > 1 else None
    paper = cell.paper.get(value.name)
    difference = None
    # Where no run differs from another there is nothing to measure the distance in.
    if mean is not None and paper is not None and (std is None or paper.std or std > 1e-9):
        difference = difference_in_deviations(mean, std, paper.mean, paper.std)
    title = f" {value.title}" if len(small.values) > 1 else ""
    digits = value.digits if value.digits > 2 else 1
    cells = [
        "laptop" if study.laptop.reduces else "paper",
        cell.row + words,
        column_name(cell.group, cell.column) + title,
        "-" if paper is None else with_deviation(paper.mean, paper.std, value),
        "-" if mean is None else with_deviation(mean, std, value),
        str(len(numbers)),
        "-" if difference is None else f"{difference:+.1f}",
        f"{seconds(list(results.values())):.0f}",
        " ".join(f"{numbers[seed]:.{digits}f}" for seed in sorted(numbers)),
    ]
    if small.stars_against is not None:
        cells.insert(
            -2, "-" if rival is None or cell.row == small.stars_against else _p(numbers, rival, value)
        )
    return f"| {' | '.join(cells)} |"


def _p(numbers: Mapping[int, float], rival: Mapping[int, Result], value: Value) -> str:
    unit = 100.0 if value.percent else 1.0
    common = sorted(numbers.keys() & rival.keys())
    p = paired(
        [numbers[seed] for seed in common], [unit * rival[seed].metrics[value.name] for seed in common]
    )
    return "-" if p is None else f"{p:.2g}"


def about(results: Sequence[Result]) -> Iterator[str]:
    """How many runs there are, how long they took, on what and with which versions."""
    distinct = {result.key: result for result in results}.values()
    versions = {", ".join(f"{k} {v}" for k, v in r.about["versions"].items()) for r in distinct}
    hardware = sorted(
        {f"{r.about['hardware']} ({str(r.about.get('device', '')).split(':')[0]})" for r in distinct}
    )
    yield (
        f"{len(distinct)} runs, {seconds(list(distinct)):,.0f} s; {'; '.join(hardware)}; "
        f"noisegate {', '.join(sorted({r.about['noisegate'] for r in distinct}))}, {'; '.join(sorted(versions))}."
    )


# -- coverage --------------------------------------------------------------------------------------


def coverage(store: Store, beside: Sequence[tuple[str, str, Study]] = ()) -> list[str]:
    """Every table and figure of the papers: how many of its cells were run, at which size, with how many seeds.

    And studies beside those, of the size of a laptop: (paper, words, study).
    """
    sizes = ("the paper's size", "seeds", "a laptop's size", "seeds", "a laptop's size, changed", "seeds")
    lines = [f"| paper | study | cells | {' | '.join(sizes)} |", "|---" * (3 + len(sizes)) + "|"]
    changed: dict[str, list[tuple[str, Study]]] = {}
    for words, study in changed_studies():
        changed.setdefault(study.name, []).append((words, study))
    for study in papers.studies().values():
        paper = PAPERS.get(study.name.split("-")[0])
        if paper is None:
            continue
        own = _counted(study, store)
        small = _counted(study.at_scale("laptop"), store) if study.laptop.reduces else ("the same", "")
        other = _counted_changes(changed.get(study.name, []), store)
        cells = str(len(study.cells)) if study.cells else "none: nothing is trained"
        lines.append(f"| {paper} | `{study.name}` | {cells} | {' | '.join((*own, *small, *other))} |")
    for paper, words, study in beside:
        small = _counted(study, store)
        lines.append(f"| {paper} | {words} | {len(study.cells)} | - |  | {' | '.join(small)} |  |  |")
    return [*lines, ""]


def _counted_changes(changed: Sequence[tuple[str, Study]], store: Store) -> tuple[str, str]:
    """The same of the changes of a study that were run, without the cells that a change leaves as they are."""
    counted = []
    for words, study in changed:
        usual = {cell.settings.key for cell in papers.get(study.name).at_scale("laptop")}
        cells = tuple(cell for cell in study if cell.settings.key not in usual)
        counted.append((CHANGED[words][2], _counted(dataclasses.replace(study, cells=cells), store)))
    there = [(f"{of[0]}: {words}", of[1]) for words, of in counted if of[1]]
    return "; ".join(of for of, _ in there), "; ".join(seeds for _, seeds in there)


def _counted(sized: Study, store: Store) -> tuple[str, str]:
    """How many of a study's cells have a run, and how many seeds those have."""
    if not sized.cells:
        return "-", ""
    counts = [len(chosen(sized, cell, store)[0]) for cell in sized]
    there = [count for count in counts if count]
    if not there:
        return f"0 of {len(sized.cells)}", ""
    seeds = str(min(there)) if min(there) == max(there) else f"{min(there)} to {max(there)}"
    return f"**{len(there)}** of {len(sized.cells)}", seeds


# -- searches --------------------------------------------------------------------------------------


def search(study: Study, store: Store, rows: Sequence[str] = ()) -> list[str]:
    """The candidates of every search that was made, as Markdown: what they were chosen by, and what they gave."""
    first = study.select.seeds == "first"
    titles = " | ".join(value.title for value in study.values)
    metric = study.select.metric.replace("_", " ")
    lines = [f"| column | candidate | n | {metric} | {titles} |", "|---" * (4 + len(study.values)) + "|"]
    for cell in study:
        if not cell.search or (rows and slug(cell.row) not in rows):
            continue
        runs_of = [(candidate, found(candidate, store)) for candidate in cell.candidates()]
        if first:
            runs_of = [(candidate, {0: of[0]} if 0 in of else {}) for candidate, of in runs_of]
        if not all(of for _, of in runs_of):
            continue
        scores = [_average(of, study.select.metric) for _, of in runs_of]
        for (candidate, of), score in zip(runs_of, scores, strict=True):
            words = ", ".join(f"{name} {candidate.params[name]:g}" for name in cell.search)
            chosen_one = "**" if score == max(scores) else ""
            numbers = [
                f"{(100 if value.percent else 1) * _average(of, value.name):.{value.digits}f}"
                for value in study.values
            ]
            place = column_name(cell.group, cell.column)
            lines.append(
                f"| {place} | {chosen_one}{words}{chosen_one} | {len(of)} | {score:.4f} | {' | '.join(numbers)} |"
            )
    return [*lines, ""] if len(lines) > 2 else ["Not run yet.", ""]


def _average(of: Mapping[int, Result], metric: str) -> float:
    return float(np.mean([result.metrics[metric] for result in of.values()]))


# -- label terms -----------------------------------------------------------------------------------


def terms(study: Study, store: Store) -> list[str]:
    """Percentiles of the label term r' Sigma^-1 r of rightly and wrongly labelled training rows, as Markdown."""
    lines = [
        "| trained with | noise | term under | right: 10, 50, 90 % | wrong: 10, 50, 90 % |",
        "|---|---|---|---|---|",
    ]
    for cell in study.at_scale("laptop"):
        arrays = store.arrays(cell.settings)
        for kind, words in (("identity", "I"), ("learnt", "Σ_θ")) if arrays else ():
            term, wrong = arrays[f"label_term_{kind}"], arrays["label_term_wrong"]
            right, other = (
                ", ".join(f"{q:.2g}" for q in np.percentile(of, (10, 50, 90)))
                for of in (term[~wrong], term[wrong])
            )
            lines.append(f"| {cell.row} | {cell.column} | {words} | {right} | {other} |")
    return [*lines, ""] if len(lines) > 2 else ["Not run yet.", ""]
