"""Real texts with wrong labels: noisegate on raw columns beside scikit-learn's pipeline and other oracles.

    python benchmarks/real_texts.py --data FOLDER [--method auto] [--seeds 1]     writes results/real_texts.md

FOLDER holds sentiment_train.csv (text, label, clean), sentiment_test.csv, sentiment_answers.csv (row, worker,
label), yoruba_train.csv and yoruba_test.csv. The column `clean` is read for the evaluation alone.

Two questions, both on the same processes and rows: is a table with a column of texts as good in noisegate as
TfidfVectorizer and LogisticRegression, both trained on the given labels; and is the consensus of several annotators
as accurate as the algorithm of Dawid and Skene, cleanlab's multiannotator module, and the majority.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd
from cleanlab.multiannotator import get_label_quality_multiannotator
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline

import noisegate as ng

RESULTS = Path(__file__).parent / "results" / "real_texts.md"


def pipeline():
    """The usual baseline."""
    return make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))


def texts(folder: Path, name: str, methods: list[str], seeds: int) -> list[list[str]]:
    """Accuracy on the test rows after training on given labels: the baseline, then each method."""
    train, test = pd.read_csv(folder / f"{name}_train.csv"), pd.read_csv(folder / f"{name}_test.csv")
    column = train.columns[0]
    started = time.process_time()
    baseline = pipeline().fit(train[column], train["label"]).score(test[column], test["label"])
    rows = [[name, "TfidfVectorizer + LogisticRegression", f"{baseline:.2%}", "", cpu(started)]]
    for method in methods:
        started = time.process_time()
        scores = []
        for seed in range(seeds):
            clf = ng.NoisyLabelClassifier(method, random_state=seed, device="cpu")
            scores.append(clf.fit(train[[column]], train["label"]).score(test[[column]], test["label"]))
        mean = statistics.mean(scores)
        rows.append(
            [name, f"noisegate, {method}", f"{mean:.2%}", f"{100 * (mean - baseline):+.2f}", cpu(started)]
        )
    return rows


def annotators(folder: Path) -> list[list[str]]:
    """How many consensus labels are the clean ones, and the Brier score of the soft consensus."""
    answers, train = (
        pd.read_csv(folder / "sentiment_answers.csv"),
        pd.read_csv(folder / "sentiment_train.csv"),
    )
    clean, classes = train["clean"].to_numpy(), np.unique(answers["label"])
    wide = answers.assign(label=np.searchsorted(classes, answers["label"])).pivot(
        index="row", columns="worker", values="label"
    )
    majority = classes[wide.mode(axis=1)[0].to_numpy().astype(int)]
    probs = cross_val_predict(pipeline(), train["text"], majority, cv=5, method="predict_proba")
    theirs = get_label_quality_multiannotator(wide, probs, verbose=False)["label_quality"]["consensus_label"]
    ours, helped = ng.consensus(answers), ng.consensus(answers, probs=probs)
    posteriors = {
        "Dawid and Skene 1979": dawid_skene(wide.to_numpy(), len(classes)),
        "ng.consensus": ours.probs,
        "ng.consensus with out-of-sample probabilities": helped.probs,
    }
    hot = clean[:, None] == classes
    rows = [
        ["majority", f"{(majority == clean).mean():.2%}", ""],
        ["cleanlab multiannotator", f"{(classes[theirs.to_numpy().astype(int)] == clean).mean():.2%}", ""],
    ]
    for name, posterior in posteriors.items():
        accuracy = (classes[posterior.argmax(1)] == clean).mean()
        rows.append([name, f"{accuracy:.2%}", f"{((posterior - hot) ** 2).sum(1).mean() / 2:.4f}"])
    return rows


def dawid_skene(answers, n_classes: int):
    """Expectation-maximisation from the majority, each annotator alone: posteriors (N, K)."""
    hot = (answers[:, :, None] == np.arange(n_classes)).astype(float)
    posterior = hot.sum(1) / hot.sum((1, 2))[:, None]
    for _ in range(300):
        confusion = np.einsum("nk,nal->akl", posterior, hot, optimize=True) + 1e-6
        confusion /= confusion.sum(2, keepdims=True)
        joint = np.log(posterior.mean(0)) + np.einsum("nal,akl->nk", hot, np.log(confusion), optimize=True)
        joint = np.exp(joint - joint.max(1, keepdims=True))
        posterior, before = joint / joint.sum(1, keepdims=True), posterior
        if np.abs(posterior - before).max() < 1e-6:
            break
    return posterior


def cpu(started: float) -> str:
    """Seconds of this process since a start."""
    return f"{time.process_time() - started:.1f}"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Both questions, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--method", action="append", help="may be repeated; auto, ce and ln if left out")
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    methods = asked.method or ["auto", "ce", "ln"]
    found = [row for name in ("sentiment", "yoruba") for row in texts(asked.data, name, methods, asked.seeds)]
    parts = [
        "# Real texts with wrong labels",
        f"`python benchmarks/real_texts.py --data FOLDER --seeds {asked.seeds}`, noisegate {ng.__version__}, "
        "one CPU thread.",
        "Accuracy on the test rows, trained on given labels (sentiment: one random worker's answer, 20.5 % wrong, "
        "4,999 rows; yoruba: labelled by rules, 33.3 % wrong, 1,340 rows).",
        markdown(["data", "classifier", "accuracy", "points from the first", "CPU s"], found),
        "Consensus of the 27,746 answers of 203 workers to the 4,999 sentences, compared with the clean labels.",
        markdown(["consensus", "accuracy", "Brier score"], annotators(asked.data)),
    ]
    RESULTS.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print("\n\n".join(parts))


if __name__ == "__main__":
    main()
