"""The accuracy on true labels that `noisegate fit` estimates, beside the truth.

    python benchmarks/held_out.py [--data FOLDER]     writes results/held_out.md

Extremely randomised trees are cross-validated on labels that were made wrong in five ways; their out-of-sample
probabilities and the given labels are all that the estimates see. "quality": what `noisegate fit` prints, from the
probability that each label is right (`expected_accuracy`). "rate": from the noise rate alone (`implied_accuracy`).
FOLDER holds the real problems: `detection/*.npz` (probs, given, true) and `crowd/*_train.csv` (text, label, clean).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline

import noisegate as ng
from noisegate.evaluation.held_out import expected_accuracy, implied_accuracy
from noisegate.quality import judge

RESULTS = Path(__file__).parent / "results" / "held_out.md"
#: Rows of each file of `detection`.
ROWS = 10_000
DATA = {
    "digits": lambda: load_digits(return_X_y=True),
    "breast_cancer": lambda: load_breast_cancer(return_X_y=True),
    "made, four classes": lambda: make_classification(
        2000, 20, n_informative=8, n_classes=4, flip_y=0, random_state=0
    ),
    "made, hard": lambda: make_classification(
        2000, 20, n_informative=3, class_sep=0.5, flip_y=0, random_state=1
    ),
}


def noises(k: int) -> dict[str, ng.noise.Noise | None]:
    """Five ways in which labels go wrong."""
    return {
        "none": None,
        "symmetric 20 %": ng.noise.Symmetric(0.2, include_self=False),
        "symmetric 40 %": ng.noise.Symmetric(0.4, include_self=False),
        "next class 30 %": ng.noise.Asymmetric(0.3, {i: (i + 1) % k for i in range(k)}),
        "by instance 30 %": ng.noise.InstanceDependent(0.3),
    }


def synthetic() -> Iterator[tuple]:
    """Name, probabilities, given and true labels of each problem."""
    for name, load in DATA.items():
        x, true = load()
        k = int(true.max()) + 1
        for kind, noise in noises(k).items():
            given = (
                true if noise is None else noise.corrupt(true, x=x.astype(np.float32), n_classes=k, seed=0)
            )
            trees = ExtraTreesClassifier(150, min_samples_leaf=3, random_state=0)
            yield f"{name}, {kind}", out_of_sample(trees, x, given), given, true


def real(folder: Path) -> Iterator[tuple]:
    """The same of labels that people or rules gave."""
    for path in sorted((folder / "detection").glob("*.npz")):
        with np.load(path) as arrays:
            rows = np.random.default_rng(0).permutation(len(arrays["given"]))[:ROWS]
            yield path.stem, *(arrays[name][rows] for name in ("probs", "given", "true"))
    for path in sorted((folder / "crowd").glob("*_train.csv")):
        table = pd.read_csv(path)
        classes = np.unique(table[["label", "clean"]])
        given, true = (np.searchsorted(classes, table[name]) for name in ("label", "clean"))
        texts = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000))
        yield path.stem.removesuffix("_train"), out_of_sample(texts, table.iloc[:, 0], given), given, true


def out_of_sample(model, x, y):
    """Probabilities by cross-validation."""
    return cross_val_predict(model, x, y, cv=5, method="predict_proba")


def estimated(probs, given, true) -> list[float | None]:
    """Wrong labels and their estimate; accuracy on given and on true labels, and its two estimates."""
    found, said = judge(probs, given), probs.argmax(1)
    accuracy = float((said == given).mean())
    return [
        float((given != true).mean()),
        found.noise_rate,
        accuracy,
        float((said == true).mean()),
        expected_accuracy(said == given, 1 - found.wrong),
        implied_accuracy(accuracy, found.noise_rate, probs.shape[1]),
    ]


def main() -> None:
    """All problems, one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder with detection/ and crowd/")
    asked = parser.parse_args()
    problems = [*synthetic(), *(real(asked.data) if asked.data else ())]
    numbers = {name: estimated(probs, given, true) for name, probs, given, true in problems}
    lines = [
        "| " + " | ".join([name, *("" if value is None else f"{value:.1%}" for value in row)]) + " |"
        for name, row in numbers.items()
    ]
    errors = {
        name: np.array([abs(row[place] - row[3]) for row in numbers.values() if row[place] is not None])
        for name, place in (("quality", 4), ("rate", 5), ("the accuracy on given labels", 2))
    }
    text = [
        "# The accuracy on true labels that `noisegate fit` estimates",
        f"`python benchmarks/held_out.py{' --data FOLDER' if asked.data else ''}`, noisegate {ng.__version__}, "
        "one CPU thread, one seed.",
        "| problem | wrong | estimated | accuracy on given labels | on true labels | by quality | by rate |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(lines),
        "\n".join(
            f"- {name}: {error.mean():.1%} from the truth on average, {(error <= 0.05).sum()} of {len(error)} "
            f"within 5 points, at most {error.max():.1%}"
            for name, error in errors.items()
        ),
    ]
    RESULTS.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    print("\n\n".join(text))


if __name__ == "__main__":
    main()
