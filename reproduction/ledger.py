"""The ledger of what was run on real data: results packed for the repository, and the tables of README.md.

    python reproduction/ledger.py unpack DIR     puts every packed result into DIR, from where a study goes on:
                                                 noisegate study run NAME --out DIR
    python reproduction/ledger.py pack DIR       packs the finished runs in DIR, one archive a study and row
    python reproduction/ledger.py write          writes the tables in README.md anew from the archives
    python reproduction/ledger.py jumps ARCHIVE  lists when the loss of each run had jumped, and its last tests
    python reproduction/ledger.py luck STUDY     what the seed on which settings were searched may gain by that
    python reproduction/ledger.py sums STUDY     how far each method is from the paper, all its cells together

Results are kept as `noisegate study run` left them. Runs that belong to no cell of a study, because a setting of
theirs was changed or their seed is not one of the study's, are packed as STUDY-ROW-changed.
"""

from __future__ import annotations

import argparse
import io
import math
import re
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import claims
import features
import numpy as np
import pictures
import sizes

from noisegate._io.files import read_json
from noisegate.studies import papers
from noisegate.studies.report.table import CellRuns, Entry, build_table, gather
from noisegate.studies.report.words import with_deviation
from noisegate.studies.results import Results
from noisegate.studies.store import Result, Store
from noisegate.studies.study import Study, Value, slug

HERE = Path(__file__).parent
ARCHIVES, README = HERE / "results", HERE / "README.md"
#: Bytes in an archive before it is compressed, which makes a sixth of them.
PART = 2_500_000
#: What a run leaves that is worth keeping.
ARRAYS = "arrays.safetensors"
KEPT = ("result.json", ARRAYS, "failed.json")
#: Bytes of arrays beyond which only the first seed's are kept: figures show one network.
LARGE = 40_000
#: The accuracies of a run: at its end, and at the epoch whose accuracy on the noisy validation rows is best.
LAST, CHOSEN = "test_accuracy", "test_accuracy_best_validation"
KINDS = "cells|changes|claims|coverage|features|gaps|prelogits|search|terms"
BLOCK = re.compile(
    rf"(<!-- (?P<kind>{KINDS})(?: of (?P<study>[\w-]+))?(?P<laptop> at laptop(?: (?P<changed>\w+))?)?"
    r"(?: rows (?P<rows>[\w,.-]+))?(?: epoch (?P<epoch>\d+))? -->\n).*?(<!-- end -->)",
    re.DOTALL,
)


def unpack(folder: Path, archives: Path = ARCHIVES, pattern: str = "*.tar.xz") -> int:
    """Put the packed runs into a folder of results; returns how many there are. Runs that are there stay."""
    Store(folder)
    count = 0
    for path in sorted(archives.glob(pattern)):
        with tarfile.open(path) as archive:
            for member in archive:
                target = folder / "runs" / member.name
                if member.isfile() and not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]
                    count += member.name.endswith("result.json")
    return count


def pack(folder: Path, archives: Path = ARCHIVES) -> dict[str, int]:
    """Add the finished and failed runs of a folder to the archives; returns how many each one holds."""
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch)
        unpack(whole, archives)
        for path in sorted((folder / "runs").glob("*/*")):
            if path.name in KEPT and not (path.name == ARRAYS and _is_spare(path)):
                target = whole / "runs" / path.parent.name / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
        groups = _groups(Store(whole))
        for name, keys in groups.items():
            for number, part in enumerate(_parts(sorted(keys), whole / "runs"), 1):
                file = f"{name}.tar.xz" if number == 1 else f"{name}.{number}.tar.xz"
                _write_archive(archives / file, whole / "runs", part)
    return {name: len(keys) for name, keys in groups.items()}


def _is_spare(path: Path) -> bool:
    """Whether these are large arrays of another than the first seed."""
    result = path.with_name("result.json")
    large = path.stat().st_size > LARGE
    return large and (not result.exists() or read_json(result)["settings"]["seed"] > 0)


def _parts(keys: Sequence[str], runs: Path) -> list[list[str]]:
    """As many runs together as make a file of less than about half a megabyte; in order."""
    parts: list[list[str]] = [[]]
    size = 0
    for key in keys:
        # Arrays compress less than JSON.
        own = sum((1 + 2 * (each.name == ARRAYS)) * each.stat().st_size for each in (runs / key).iterdir())
        if parts[-1] and size + own > PART:
            parts.append([])
            size = 0
        parts[-1].append(key)
        size += own
    return parts


def _write_archive(path: Path, runs: Path, keys: Sequence[str]) -> None:
    """The same runs always make the same file; one that has them already is left as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [each for key in keys for each in sorted((runs / key).iterdir())]
    if _members(path) == [(str(each.relative_to(runs)), each.stat().st_size) for each in files]:
        return
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for each in files:
            content = each.read_bytes()
            member = tarfile.TarInfo(str(each.relative_to(runs)))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _members(path: Path) -> list[tuple[str, int]]:
    """Names and sizes of what an archive has; nothing where there is none."""
    if not path.exists():
        return []
    with tarfile.open(path) as archive:
        return [(member.name, member.size) for member in archive]


def _groups(store: Store) -> dict[str, list[str]]:
    """The keys of all runs by archive: the first study that has the run, and its row there."""
    places: dict[str, str] = {}
    by_method: dict[tuple[str, str], str] = {}
    # Studies of a paper first: a run with a changed setting is named after the table it was changed from.
    for study in sorted(papers.studies().values(), key=lambda study: study.name == "audit-quality"):
        results = Results(study, store)
        of_a_paper = study.name.split("-")[0] in sizes.PAPERS
        for cell in study:
            name = f"{study.name}-{slug(cell.row)}"
            if of_a_paper:
                by_method.setdefault((cell.settings.data["name"], cell.settings.method), name)
            for run in results.runs(cell):
                places.setdefault(run.key, name)
    for study in sizes.reduced_studies():
        for cell in study:
            for run in sizes.runs(study, cell):
                places.setdefault(run.key, f"{study.name}-laptop-{slug(cell.row)}")
    for words, study in (*sizes.changed_studies(), ("", features.study())):
        for cell in study:
            for run in sizes.runs(study, cell):
                size = f"-laptop-{words}" if words else ""
                places.setdefault(run.key, f"{study.name}{size}-{slug(cell.row)}")
    groups: dict[str, list[str]] = defaultdict(list)
    for path in sorted((store.folder / "runs").iterdir()):
        result = store.result(path.name)
        if path.name in places:
            groups[places[path.name]].append(path.name)
        else:
            settings = (store.failure(path.name) or {}).get("settings") if result is None else result.settings
            if not settings:
                continue  # begun, not ended
            kind = settings["data"]["name"], settings["method"]["name"]
            groups[f"{by_method.get(kind, '-'.join(kind))}-changed"].append(path.name)
    return dict(groups)


# The tables.


def gpu_seconds(results: Sequence[Result]) -> float:
    """What runs took: each one's share of the time, or of a resumed one that of all its epochs if it is more."""
    epochs = [sum(e["seconds"] for phase in r.history for e in phase) for r in results]
    return sum(max(r.own_seconds, e / r.about["beside"]) for r, e in zip(results, epochs, strict=True))


def table(study: Study, store: Store, rows: Sequence[str] = ()) -> list[str]:
    """Every cell that was run, as lines of Markdown."""
    cells = [of for of in gather(Results(study, store)) if of.results or of.failures]
    cells = [of for of in cells if not rows or slug(of.cell.row) in rows]
    if not cells:
        return ["Not run yet.", ""]
    entries = build_table(study, cells).entries
    lines = [
        "| scale | method | column | paper | ours | n | difference, sd | in the paper's sd | GPU s "
        "| last 10 tests | epoch by noisy validation | single runs |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *(_line(entry) for entry in entries),
        "",
        *_about(cells),
    ]
    return [*lines, ""]


def _line(entry: Entry) -> str:
    of, value = entry.of, entry.value
    paper, ours = entry.paper, "-"
    if entry.mean is not None:
        ours = with_deviation(entry.mean, entry.std, value)
    failed = ", ".join(f"{count} {how}" for how, count in of.failed.items())
    return (
        "| "
        + " | ".join(
            (
                "paper",
                of.cell.row,
                of.cell.column,
                "-" if paper is None else with_deviation(paper.mean, paper.std, value),
                ours,
                f"{entry.n}{f' ({failed})' if failed else ''}",
                _difference(entry.difference),
                _difference(_in_theirs(entry)),
                f"{gpu_seconds(of.results):.0f}",
                _last_tests(of, value),
                _chosen(of, value),
                _list([entry.samples[seed] for seed in sorted(entry.samples)]),
            )
        )
        + " |"
    )


def _in_theirs(entry: Entry) -> float | None:
    if entry.mean is None or entry.paper is None or not entry.paper.std:
        return None
    return (entry.mean - entry.paper.mean) / entry.paper.std


def _difference(number: float | None) -> str:
    if number is None:
        return "-"
    return f"**{number:+.1f}**" if abs(number) > 2 else f"{number:+.1f}"


def _last_tests(of: CellRuns, value: Value, count: int = 10) -> str:
    """The mean of the last tests of a run, and how far single ones are from it: how much the last one is chance."""
    tests = [[e["test_accuracy"] for e in r.history[-1] if "test_accuracy" in e][-count:] for r in of.results]
    tests = [of_run for of_run in tests if len(of_run) > 1]
    if not tests:
        return "-"
    within = np.sqrt(np.mean([np.var(of_run, ddof=1) for of_run in tests]))
    return with_deviation(100 * float(np.mean([np.mean(t) for t in tests])), 100 * float(within), value)


def _chosen(of: CellRuns, value: Value) -> str:
    values = list(of.values(CHOSEN, 100.0).values())
    if not values:
        return "-"
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return with_deviation(float(np.mean(values)), deviation, value)


def _about(cells: Sequence[CellRuns]) -> Iterator[str]:
    results = [result for of in cells for result in of.results]
    versions = {", ".join(f"{k} {v}" for k, v in r.about["versions"].items()) for r in results}
    hardware = {r.about["hardware"] for r in results}
    yield (
        f"{len(results)} runs, {gpu_seconds(results):,.0f} s; {'; '.join(sorted(hardware))}; "
        f"noisegate {', '.join(sorted({r.about['noisegate'] for r in results}))}, {'; '.join(sorted(versions))}."
    )


def changes(study: Study, store: Store, rows: Sequence[str] = ()) -> list[str]:
    """Runs of a cell with settings changed by `--set` or more seeds, beside those without, as lines of Markdown."""
    cells = [of for of in gather(Results(study, store)) if of.results]
    known = {result.key for of in cells for result in of.results}
    cells = [of for of in cells if not rows or slug(of.cell.row) in rows]
    others = [result for result in store.results() if result.key not in known]
    lines = [
        "| changed | method | column | n | last epoch | by noisy validation | runs with jumps | last, by seed "
        "| by noisy validation, by seed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for of in cells:
        groups: dict[str, list[Result]] = defaultdict(list)
        for result in others:
            if (change := _change(of.results[0], result)) is not None:
                groups[f"`{change}`" if change else "nothing, more seeds"].append(result)
        if groups:
            groups["nothing"] = list(of.results)
        groups = {
            change: results for change, results in groups.items() if not _is_searched(of, change, results)
        }
        for change, results in sorted(groups.items(), key=lambda group: (group[0][0] == "`", group[0])):
            results.sort(key=lambda result: result.seed)
            last, chosen = (
                [100 * r.metrics[name] for r in results if name in r.metrics] for name in (LAST, CHOSEN)
            )
            lines.append(
                f"| {change} | {of.cell.row} | {_column(study, of)} | {len(results)} "
                f"| {_mean(last)} | {_mean(chosen)} | {sum(bool(jumps_of(r)) for r in results)} "
                f"| {_list(last)} | {_list(chosen)} |"
            )
    return [*lines, ""]


def _is_searched(of: CellRuns, change: str, results: Sequence[Result]) -> bool:
    """Whether these are candidates of a search on the first seed: a table of their own has them."""
    names = {name.partition("=")[0].strip("`").removeprefix("params.") for name in change.split(", ")}
    return bool(of.cell.search) and names <= of.cell.search.keys() and all(r.seed == 0 for r in results)


def _column(study: Study, of: CellRuns) -> str:
    """The column's label, with its group where others have the same."""
    same = [column for _, column in study.columns if column == of.cell.column]
    return of.cell.column if len(same) == 1 else f"{of.cell.group} {of.cell.column}"


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def _list(values: Sequence[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)


def _change(one: Result, other: Result) -> str | None:
    """What `--set` changed between two runs; None where they differ in more than that and the seed."""
    changed = {}
    for part in one.settings.keys() - {"recipe", "params", "method", "seed"}:
        if one.settings[part] != other.settings.get(part):
            if part != "validation":
                return None
            changed[part] = other.settings[part]
    if one.settings["method"]["name"] != other.settings["method"]["name"]:
        return None
    before = _settings(one)
    changed |= {name: value for name, value in _settings(other).items() if value != before.get(name)}
    return ", ".join(f"{name}={value}" for name, value in changed.items())


def written(text: str, store: Store) -> str:
    """README's text with its tables made anew."""

    def block(match: re.Match[str]) -> str:
        return match[1] + "\n".join(["", *lines(**match.groupdict()), ""]) + "<!-- end -->"

    def lines(
        kind: str, study: str, laptop: str | None, changed: str | None, rows: str | None, epoch: str | None
    ) -> Sequence[str]:
        if kind in ("coverage", "features"):
            beside = [("Logistic-Normal", features.WORDS, features.study())]
            return sizes.coverage(store, beside) if kind == "coverage" else features.lines(store)
        if kind == "claims":
            return claims.table(store, study, changed or "")
        whole = papers.get(study)
        chosen = (rows or "").split(",") if rows else []
        small = sizes.sized(whole, changed or "") if laptop else whole
        if kind in ("gaps", "prelogits"):
            return {"gaps": pictures.gaps, "prelogits": pictures.prelogits}[kind](small, store)
        if kind == "terms":
            return sizes.terms(whole, store)
        if kind == "search":
            return sizes.search(small, store, chosen)
        if laptop:
            return sizes.table(whole, store, chosen, changed or "", int(epoch or 0))
        return (table if kind == "cells" else changes)(whole, store, chosen)

    return BLOCK.sub(block, text)


def jumps_of(result: Result, by: float = 2.0, after: int = 20) -> list[int]:
    """The epochs beyond the first ones whose loss is this much above the lowest before."""
    losses = [epoch["loss"] for epoch in result.history[-1]]
    return [i + 1 for i in range(after, len(losses)) if losses[i] >= min(losses[:i]) + by]


def jumps(archive: str) -> Iterator[str]:
    """A line a run: the epochs at which its loss had jumped, and its last tests."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(Path(scratch), pattern=f"{archive}.*tar.xz")
        results = Store(scratch).results()
        settings = [_settings(result) for result in results]
        named = [name for name in settings[0] if len({str(each.get(name)) for each in settings}) > 1]
        lines = []
        for result, own in zip(results, settings, strict=True):
            tests = [100 * epoch[LAST] for epoch in result.history[-1] if LAST in epoch][-20:]
            high = jumps_of(result)
            noise = " ".join(
                str(v) for k, v in (result.settings["noise"] or {}).items() if k in ("name", "rate")
            )
            about = [
                noise or "no noise",
                *(f"{name}={own.get(name)}" for name in named),
                f"seed {result.seed}",
            ]
            lines.append(
                f"{', '.join(about)}: "
                f"{100 * result.metrics[LAST]:.1f} %, {len(high)} jumps {high}; last tests {_list(tests)}"
            )
        yield from sorted(lines)


def luck(study: Study, store: Store) -> Iterator[str]:
    """A line a cell: how much the test accuracy gains by choosing among settings that do not differ."""
    for of in gather(Results(study, store)):
        if gain := _gain(of):
            line = f"best of {tried(of)} {gain:+.2f}, in the mean of five seeds {gain / 5:+.2f}"
            yield f"{of.cell.row}, {of.cell.column}: {line}"


def tried(of: CellRuns) -> int:
    """How many settings the paper tried on one seed. The best by noisy validation at the end of training was kept,
    and that seed is one of its five."""
    return math.prod(len(values) for values in of.cell.search.values())


def _gain(of: CellRuns, count: int = 20) -> float:
    """In points, for the seed that is chosen on; each of a run's last epochs stands for a setting's last one."""
    gains = []
    for result in of.results if tried(of) > 1 else ():
        epochs = [e for e in result.history[-1] if {LAST, "validation_accuracy"} <= e.keys()][-count:]
        if len(epochs) == count:
            tests, scores = ([e[name] for e in epochs] for name in (LAST, "validation_accuracy"))
            gains.append(best_of(tests, scores, tried(of)) - float(np.mean(tests)))
    return 100 * float(np.mean(gains)) if gains else 0.0


def sums(study: Study, store: Store, draws: int = 100_000) -> Iterator[str]:
    """A line a method: Welch's t summed over its cells, and how often chance makes it as large, on either side.

    Chance is simulated, with as many seeds as there are and normal accuracies, independent from cell to cell.
    """
    cells = [of for of in gather(Results(study, store)) if of.results]
    by_row: dict[str, list[Entry]] = defaultdict(list)
    for entry in build_table(study, cells).entries:
        if entry.paper is not None and entry.paper.std and entry.std:
            by_row[entry.of.cell.row].append(entry)
    generator = np.random.default_rng(0)
    for row, entries in by_row.items():
        chance = np.zeros(draws)
        for entry in entries:
            ours, theirs = (generator.standard_normal((draws, n)) for n in (entry.n, 5))
            error = np.sqrt(ours.var(1, ddof=1) / entry.n + theirs.var(1, ddof=1) / 5)
            chance += (ours.mean(1) - theirs.mean(1)) / error
        for name, gain in (("", 0.0), (", the luck of the search taken off", 0.2)):
            total = sum(_welch(entry, gain * _gain(entry.of)) for entry in entries)
            if not gain or any(tried(entry.of) > 1 for entry in entries):
                p = 100 * max(1, int((np.abs(chance) >= abs(total)).sum())) / draws
                sign = "=" if p > 100 / draws else "<="
                yield f"{row}{name}: sum of t over {len(entries)} cell(s) {total:+.1f}, p {sign} {p:.2g} %"


def _welch(entry: Entry, shift: float) -> float:
    """t of our mean against the paper's, five seeds there, less what its mean has gained by luck."""
    paper = entry.paper
    if paper is None or entry.mean is None or not entry.std or not paper.std:
        return 0.0
    return (entry.mean - paper.mean + shift) / float(np.sqrt(entry.std**2 / entry.n + paper.std**2 / 5))


def best_of(values: Sequence[float], scores: Sequence[float], tried: int) -> float:
    """The expected value of the one with the highest score among `tried` drawn with replacement; ties share.

    With the m values in the order of their scores, the i-th is chosen with probability (i/m)^n - ((i-1)/m)^n.
    """
    score = np.asarray(scores, dtype=float)
    below, equal = ((compare(score[:, None], score)).mean(1) for compare in (np.greater, np.equal))
    chance = ((below + equal) ** tried - below**tried) / (equal * len(score))
    return float(np.asarray(values, dtype=float) @ chance)


def _settings(result: Result) -> dict[str, Any]:
    """What `--set` can change, by the names that it takes."""
    parts = {part: result.settings[part] for part in ("recipe", "params")}
    return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("unpack", "pack"):
        commands.add_parser(name).add_argument("folder", type=Path)
    commands.add_parser("write")
    commands.add_parser("jumps").add_argument("archive")
    for name in ("luck", "sums"):
        commands.add_parser(name).add_argument("study")
    arguments = parser.parse_args()
    if arguments.command == "unpack":
        print(f"{unpack(arguments.folder)} runs were added to {arguments.folder}")
    elif arguments.command == "pack":
        for name, count in pack(arguments.folder).items():
            print(f"{name}: {count} runs")
    elif arguments.command == "jumps":
        print("\n".join(jumps(arguments.archive)))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            unpack(Path(scratch))
            if arguments.command in ("luck", "sums"):
                lines = {"luck": luck, "sums": sums}[arguments.command]
                print("\n".join(lines(papers.get(arguments.study), Store(scratch))))
            else:
                README.write_text(written(README.read_text(), Store(scratch)))


if __name__ == "__main__":
    main()
