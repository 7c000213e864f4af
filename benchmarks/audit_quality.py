"""How well audits find wrong labels: every detector, kind of noise and data set, beside simple rules.

    python benchmarks/audit_quality.py            writes results/audit_quality.md

Each detector gives probabilities of every row; from these the wrong labels are flagged by `noisegate.quality`
("look"), by cleanlab's default, and where the most probable class differs from the given one. "nothing is
wrong" has F1 0. Five-fold logistic regression is what people use with cleanlab. AUROC and average precision
are those of the ranking by the probability of being wrong.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cleanlab
import torch
from cleanlab.filter import find_label_issues
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import noisegate as ng
from noisegate.auditing.audit import probabilities
from noisegate.auditing.crossfit import Fitting, Where
from noisegate.data import Dataset
from noisegate.quality import judge

RESULTS = Path(__file__).parent / "results"
Detect = Callable[[Dataset], Any]


def logistic(data: Dataset) -> Any:
    """Five-fold probabilities of scikit-learn's logistic regression."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return cross_val_predict(model, data.train.x, data.train.y, cv=folds, method="predict_proba")


def by_audit(method: str, detector: str) -> Detect:
    """The probabilities an audit works with."""
    fitting = Fitting(method, device="cpu")
    return lambda data: probabilities(data, fitting, 5, Where(), detector).probs


DETECTORS: dict[str, Detect] = {
    "auto, cross-fitted": by_audit("auto", "cross-fitted"),
    "ce, in training": by_audit("ce", "in-training"),
    "ln, in training": by_audit("ln", "in-training"),
    "neighbours' vote": by_audit("auto", "neighbours"),
    "logistic regression, 5 folds": logistic,
}


def sets(names: list[str]) -> Iterator[tuple[str, Dataset]]:
    """Data sets with noise of several kinds."""
    for name in names:
        data = ng.data.load(name)
        following = {i: (i + 1) % data.n_classes for i in range(data.n_classes)}
        kinds = {
            "symmetric 30 %": ng.noise.Symmetric(0.3, include_self=False),
            "pairs 30 %": ng.noise.Asymmetric(0.3, following),
            "instance 30 %": ng.noise.InstanceDependent(0.3),
        }
        for kind, noise in kinds.items():
            yield f"{name}, {kind}", data.corrupt(noise, seed=0)


def f1(flags: Any, wrong: Any) -> float:
    return 200.0 * float((flags & wrong).sum()) / max(1, int(flags.sum() + wrong.sum()))


def measure(data: Dataset, detect: Detect) -> list[float]:
    """Precision, recall, F1 of ours; F1 of cleanlab's default and of argmax; AUROC, average precision; seconds."""
    start = time.perf_counter()
    probs = detect(data)
    seconds = time.perf_counter() - start
    y, wrong = data.train.y, data.train.y != data.train.clean
    found = judge(probs, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        default = find_label_issues(y, probs, n_jobs=1)
    flags = found.is_label_issue
    return [
        100 * float((flags & wrong).sum() / max(1, flags.sum())),
        100 * float((flags & wrong).sum() / wrong.sum()),
        f1(flags, wrong),
        f1(default, wrong),
        f1(probs.argmax(axis=1) != y, wrong),
        100 * float(roc_auc_score(wrong, found.wrong)),
        100 * float(average_precision_score(wrong, found.wrong)),
        seconds,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=["digits", "moons"], help="data sets of vectors")
    parser.add_argument("--skip", nargs="*", default=[], help="detectors to leave out")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for title, data in sets(arguments.names):
        for name, detect in DETECTORS.items():
            if name not in arguments.skip:
                *numbers, seconds = measure(data, detect)
                lines.append(
                    f"| {title} | {name} | " + " | ".join(f"{v:.1f}" for v in numbers) + f" | {seconds:.0f} |"
                )
                print(lines[-1], flush=True)
    text = "\n".join(
        [
            "# How well audits find wrong labels",
            "",
            f"`python benchmarks/audit_quality.py {' '.join(arguments.names)}`: one core of a shared machine, "
            f"Python {platform.python_version()}, torch {torch.__version__}, cleanlab {cleanlab.__version__}. "
            "In per cent.",
            "",
            "| data, noise | detector | precision | recall | F1 (look) | F1 cleanlab's default | "
            "F1 argmax differs | AUROC | average precision | seconds |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *lines,
        ]
    )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audit_quality.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
