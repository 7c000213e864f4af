"""Accuracy on clean test labels after training on wrong ones: `auto` beside what people use.

    NOISEGATE_DATA=... python benchmarks/real_noise.py --jobs 2      writes results/real_noise.json and .md
    python benchmarks/real_noise.py --render                         the tables anew; needs no data
    python benchmarks/real_noise.py --render --merge FILE ...        of the cells of other runs' real_noise.json

Every contender gets the same vectors of the same problems, see real_problems.py: with labels of
people or rules, with noise made here, and without noise. Clean labels are used to judge alone. One
cell is one (problem, seed, contender); the seed draws rows, noise and the contenders' own randomness.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from real_problems import CLEAN, PROBLEMS, REAL

RESULTS = Path(__file__).parent / "results"
SEEDS = 5
OURS = ("auto", "ce", "gce", "ln", "elr")
SCIKIT = ("logistic regression", "random forest", "MLP")


# -- contenders ------------------------------------------------------------------------------------


def _scikit(name: str, seed: int) -> Any:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if name == "logistic regression":
        grid = {"C": [0.0001, 0.001, 0.01, 0.1, 1.0, 10.0]}
        model: Any = GridSearchCV(LogisticRegression(max_iter=300), grid, cv=5, scoring="neg_log_loss")
    elif name == "random forest":
        return RandomForestClassifier(random_state=seed, n_jobs=1)
    else:
        model = MLPClassifier((256,), early_stopping=True, random_state=seed)
    return make_pipeline(StandardScaler(), model)


def _cleaned(name: str, seed: int) -> Any:
    from cleanlab.classification import CleanLearning

    # It fits the model on five folds and again on what it keeps, and C is chosen anew each time.
    return CleanLearning(_scikit(name, seed), seed=seed, find_label_issues_kwargs={"n_jobs": 1})


def _ours(name: str, seed: int) -> Any:
    import noisegate as ng

    return ng.NoisyLabelClassifier(name, device="cpu", random_state=seed)


CONTENDERS: dict[str, Callable[[int], Any]] = {
    **{name: (lambda seed, n=name: _ours(n, seed)) for name in OURS},
    **{name: (lambda seed, n=name: _scikit(n, seed)) for name in SCIKIT},
    **{f"CleanLearning, {name}": (lambda seed, n=name: _cleaned(n, seed)) for name in SCIKIT},
}


def cell(problem: str, seed: int, contender: str) -> dict[str, Any]:
    """Train one contender once: accuracy and log-likelihood on clean test labels, seconds of CPU."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given = PROBLEMS[problem](seed)
    started = time.process_time()
    try:
        model = CONTENDERS[contender](seed).fit(given.x, given.y)
    except Exception as error:
        return {
            "problem": problem,
            "seed": seed,
            "contender": contender,
            "error": f"{type(error).__name__}: {error}",
        }
    seconds = time.process_time() - started
    probs = np.asarray(model.predict_proba(given.x_test))
    wrong = given.y != given.clean
    found = {
        "problem": problem,
        "seed": seed,
        "contender": contender,
        "seconds": seconds,
        "wrong": float(wrong.mean()),
    }
    found["accuracy"] = float((np.asarray(model.predict(given.x_test)) == given.y_test).mean())
    if probs.shape[1] == len(np.unique(given.y_test)):
        likelihood = probs[np.arange(len(probs)), given.y_test]
        found["log_likelihood"] = float(np.log(np.clip(likelihood, 1e-12, 1)).mean())
    return found | _detection(model, wrong)


def _detection(model: Any, wrong: np.ndarray) -> dict[str, float]:
    """How well a contender that names wrong labels finds them; with none wrong, how many it flags."""
    from sklearn.metrics import f1_score, roc_auc_score

    if hasattr(model, "get_label_issues"):
        issues = model.get_label_issues()
        flagged, quality = issues["is_label_issue"].to_numpy(), issues["label_quality"].to_numpy()
    elif getattr(model, "method", None) == "auto":
        issues = model.label_issues_.sort_values("row")
        flagged, quality = issues["is_label_issue"].to_numpy(), issues["quality"].to_numpy()
    else:
        return {}
    if not wrong.any():
        return {"flagged": float(flagged.mean())}
    return {"f1": float(f1_score(wrong, flagged)), "auroc": float(roc_auc_score(wrong, -quality))}


# -- tables ----------------------------------------------------------------------------------------


def _means(cells: Iterable[dict[str, Any]], key: str) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for one in cells:
        if key in one:
            found.setdefault((one["problem"], one["contender"]), []).append(one[key])
    return found


def _table(
    cells: list[dict[str, Any]], problems: Iterable[str], contenders: list[str], key: str
) -> list[str]:
    """One figure of every contender on some problems, in per cent; the last line is the mean."""
    figures, wrong = _means(cells, key), _means(cells, "wrong")
    rows, lines = [], []
    for problem in problems:
        values = [figures.get((problem, contender), []) for contender in contenders]
        if not any(values):
            continue
        means = [100 * float(np.mean(v)) if v else float("nan") for v in values]
        rows.append(means)
        best = (np.nanmin if key == "flagged" else np.nanmax)(np.round(means, 1))
        shown = [
            f"{f'**{m:.1f}**' if round(m, 1) == best else f'{m:.1f}'} ± {100 * np.std(v):.1f}" if v else "-"
            for m, v in zip(means, values, strict=True)
        ]
        share = np.mean([w for (name, _), some in wrong.items() if name == problem for w in some])
        lines.append(f"| {problem} | {share:.0%} | {max(map(len, values))} | {' | '.join(shown)} |")
    if not rows:
        return ["None measured."]
    overall = " | ".join(f"{mean:.1f}" for mean in np.nanmean(np.array(rows), axis=0))
    head = [f"| problem | wrong | n | {' | '.join(contenders)} |", "|---|---|---|" + "---|" * len(contenders)]
    return [*head, *lines, f"| **mean** | | | {overall} |"]


def _outcome(cells: list[dict[str, Any]], title: str, problems: Iterable[str]) -> str:
    """One line of the table of means: ours, the best of our other methods, scikit-learn's, the best cleaned one."""
    figures, wrong = _means(cells, "accuracy"), _means(cells, "wrong")
    names = [p for p in problems if all((p, who) in figures for who in CONTENDERS)]
    if not names:
        return ""
    mean = {who: float(np.mean([100 * np.mean(figures[p, who]) for p in names])) for who in CONTENDERS}
    rates = [
        100 * float(np.mean([v for (name, _), some in wrong.items() if name == p for v in some]))
        for p in names
    ]
    ours = max((who for who in OURS if who != "auto"), key=mean.__getitem__)
    cleaned = max((who for who in CONTENDERS if who.startswith("CleanLearning")), key=mean.__getitem__)
    share = f", {min(rates):.0f} to {max(rates):.0f} % wrong" if max(rates) else ""
    shown = [
        f"{mean['auto']:.1f}",
        f"{mean[ours]:.1f} (`{ours}`)",
        *(f"{mean[who]:.1f}" for who in SCIKIT),
        f"{mean[cleaned]:.1f} ({cleaned.partition(', ')[2]})",
    ]
    best = max(float(each.split()[0]) for each in shown)
    bold = [
        re.sub(r"^([\d.]+)", r"**\1**", each) if float(each.split()[0]) == best else each for each in shown
    ]
    return f"| {title}: {len(names)} problems{share} | {' | '.join(bold)} |"


def _outcomes(cells: list[dict[str, Any]], noisy: Iterable[str]) -> list[str]:
    """The table of means over problems, and on how many `auto` is behind."""
    lines = [
        _outcome(cells, title, problems)
        for title, problems in (("real noise", REAL), ("synthetic noise", noisy), ("no noise", CLEAN))
    ]
    figures = _means(cells, "accuracy")
    behind = [
        p
        for p in PROBLEMS
        if (p, "auto") in figures
        and max(np.mean(figures[p, w]) for w in CONTENDERS if (p, w) in figures)
        > np.mean(figures[p, "auto"]) + 0.01
    ]
    return [
        "| | `auto` | best of our other methods | logistic regression | random forest | MLP | best CleanLearning |",
        "|---|---|---|---|---|---|---|",
        *(line for line in lines if line),
        "",
        *textwrap.wrap(
            f"Another contender is more than a point better than `auto` on {len(behind)} problems"
            f"{': ' + '; '.join(behind) if behind else ''}.",
            100,
        ),
    ]


def render(found: dict[str, Any]) -> str:
    """The page of tables, from the stored cells."""
    cells = found["cells"]
    contenders = [name for name in CONTENDERS if any(c["contender"] == name for c in cells)]
    noisy = tuple(name for name in PROBLEMS if name not in REAL and name not in CLEAN)
    lines = [
        "# Real and synthetic label noise: accuracy on clean test labels, in per cent",
        "",
        *textwrap.wrap(
            f"`{found['command']}`: {found['about']}. Mean ± standard "
            "deviation over n seeds, all that were finished in the time; every contender on one thread. Bold: "
            "the best of a row.",
            100,
        ),
        "",
    ]
    lines += ["## Means over problems", "", *_outcomes(cells, noisy), ""]
    for title, problems in (("Real noise", REAL), ("Synthetic noise", noisy), ("No noise", CLEAN)):
        lines += [f"## {title}", "", *_table(cells, problems, contenders, "accuracy"), ""]
    judges = [name for name in contenders if name == "auto" or name.startswith("CleanLearning")]
    for title, key, problems in (
        ("Wrong labels found: F1", "f1", (*REAL, *noisy)),
        ("Wrong labels found: AUROC of the ranking", "auroc", (*REAL, *noisy)),
        ("Labels flagged where none is wrong", "flagged", CLEAN),
    ):
        if any(key in c for c in cells):
            lines += [f"## {title}", "", *_table(cells, problems, judges, key), ""]
    seconds = _means(cells, "seconds")
    lines += ["## Seconds of CPU for one fit, mean", "", f"| problem | {' | '.join(contenders)} |"]
    lines.append("|---|" + "---|" * len(contenders))
    for problem in PROBLEMS:
        times = [seconds.get((problem, contender), []) for contender in contenders]
        if any(times):
            lines.append(f"| {problem} | {' | '.join(f'{np.mean(t):.1f}' if t else '-' for t in times)} |")
    failed = [c for c in cells if "error" in c]
    lines += [
        "",
        *(f"Failed: {c['problem']}, {c['contender']}, seed {c['seed']}: {c['error']}" for c in failed),
    ]
    return "\n".join(lines).rstrip() + "\n"


def merged(parts: list[dict[str, Any]], complete: bool) -> dict[str, Any]:
    """One run's results from several, whose commands and machines are named; later cells replace earlier ones."""
    cells = {
        (c["problem"], c["seed"], c["contender"]): c
        for part in parts
        for c in part["cells"]
        if "error" not in c
    }
    contenders = {contender for _, _, contender in cells}
    if complete:
        cells = {
            (problem, seed, who): cell
            for (problem, seed, who), cell in cells.items()
            if all((problem, seed, other) in cells for other in contenders)
        }
    order = sorted(cells, key=lambda key: (list(PROBLEMS).index(key[0]), key[2], key[1]))
    return {
        "cells": [cells[key] for key in order],
        "command": "`, `".join(dict.fromkeys(part["command"] for part in parts)),
        "about": "; ".join(dict.fromkeys(part["about"] for part in parts)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), help="beginnings of names")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing after so long")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--render", action="store_true", help="write the tables of the stored cells")
    parser.add_argument(
        "--merge", type=Path, nargs="+", help="with --render: files whose cells replace those stored"
    )
    parser.add_argument(
        "--complete", action="store_true", help="with --merge: drop seeds that some contender lacks"
    )
    arguments = parser.parse_args()
    import sklearn
    import torch

    import noisegate as ng

    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "real_noise.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cells": []}
    if arguments.merge:
        found = merged([json.loads(each.read_text()) for each in arguments.merge], arguments.complete)
        _write(found, path)
    elif not arguments.render:
        found["command"] = shlex.join(["python", "benchmarks/real_noise.py", *sys.argv[1:]])
        found["about"] = (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch "
            f"{torch.__version__}, scikit-learn {sklearn.__version__}, noisegate {ng.__version__}"
        )
        _measure(found, arguments, path)
    (arguments.out / "real_noise.md").write_text(render(found))
    print(render(found))


def _measure(found: dict[str, Any], arguments: Any, path: Path) -> None:
    """Train what is not stored yet; cells are stored as they come."""
    known = {(c["problem"], c["seed"], c["contender"]) for c in found["cells"] if "error" not in c}
    found["cells"] = [c for c in found["cells"] if "error" not in c]
    todo = [
        (problem, seed, contender)
        for seed in range(arguments.seeds)
        for problem in PROBLEMS
        if problem.startswith(tuple(arguments.problems))
        for contender in arguments.contenders
        if (problem, seed, contender) not in known
    ]
    # Where time ends early: large problems keep fewer seeds than small ones.
    todo.sort(key=lambda one: one[1] + 1.5 * ("5,000" in one[0]))
    deadline = time.monotonic() + 60 * arguments.minutes
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(cell, *one) for one in todo]
        for future in as_completed(futures):
            if future.cancelled():
                continue
            found["cells"].append(future.result())
            _write(found, path)
            one = found["cells"][-1]
            print(
                one["problem"],
                one["seed"],
                one["contender"],
                one.get("accuracy", one.get("error")),
                flush=True,
            )
            if time.monotonic() > deadline:
                for other in futures:
                    other.cancel()
    found["cells"].sort(key=lambda c: (list(PROBLEMS).index(c["problem"]), c["contender"], c["seed"]))
    _write(found, path)


def _write(found: dict[str, Any], path: Path) -> None:
    """All or nothing, so that a benchmark that is cut short keeps what it has."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, indent=0) + "\n")
    part.replace(path)


if __name__ == "__main__":
    main()
