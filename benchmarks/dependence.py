"""How often an audit says that noise depends on the input, where it does and where it does not.

    python benchmarks/dependence.py            writes results/dependence.md (about ten minutes on one core)

Gaussian classes in ten dimensions, at two distances from each other; 20 % of the labels are wrong. With strength
0 the noise depends on the true class alone: any other class, or the next one. With strength s a row's chance
of a wrong label is 20 % times 1 - s + 2 s h, where h in (0, 1) is the rank of the row among those of its class
by how close its second class is, and with probability s the wrong label is that second class, else any other.
`noise.InstanceDependent` is the generator of the literature. The probabilities are out of fold (five folds),
of scikit-learn's LogisticRegression() trained on the given labels: of the right form for this data, so the
classifier's errors are those of the data. The test also gets the inputs, as in an audit. Counted is p < 0.01,
where reports say that noise seems to depend on the input.
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import numpy as np
import numpy.typing as npt
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import noisegate as ng
from noisegate.quality.dependence import dependence

RESULTS = Path(__file__).parent / "results"
RATE, LEVEL, DIMENSIONS, CLASSES = 0.2, 0.01, 10, 4
#: Rows, and how often each is drawn.
SIZES = {500: 60, 2000: 40, 8000: 16}
#: Distance between the centres of two classes, by name.
DISTANCES = {"classes far apart": 6.0, "classes that overlap": 2.5}
NOISES = (
    "any other class",
    "the next class",
    "strength 0.25",
    "strength 0.5",
    "strength 1",
    "InstanceDependent",
)
DEPENDS = NOISES[2:]


def drawn(n: int, distance: float, rng: np.random.Generator) -> tuple[npt.NDArray, npt.NDArray, npt.NDArray]:
    """Inputs (n, d), true classes (n,), and logits of the true classes' probabilities (n, K)."""
    centres = np.eye(CLASSES, DIMENSIONS) * distance / np.sqrt(2)
    true = rng.integers(CLASSES, size=n)
    x = centres[true] + rng.normal(size=(n, DIMENSIONS))
    return x, true, x @ centres.T


def noisy(name: str, x: npt.NDArray, true: npt.NDArray, logits: npt.NDArray, seed: int) -> npt.NDArray:
    """Given labels."""
    if name == "any other class":
        return ng.noise.Symmetric(RATE, include_self=False).corrupt(true, n_classes=CLASSES, seed=seed)
    if name == "the next class":
        pairs = {k: (k + 1) % CLASSES for k in range(CLASSES)}
        return ng.noise.Asymmetric(RATE, pairs).corrupt(true, n_classes=CLASSES, seed=seed)
    if name == "InstanceDependent":
        return ng.noise.InstanceDependent(RATE).corrupt(true, x, n_classes=CLASSES, seed=seed)
    strength, rng, rows = float(name.split()[1]), np.random.default_rng([seed, 1]), np.arange(len(true))
    others = np.where(np.eye(CLASSES, dtype=bool)[true], -np.inf, logits)
    second, gap = others.argmax(axis=1), others.max(axis=1) - logits[rows, true]
    rank = np.empty(len(true))
    for k in range(CLASSES):
        mine = np.flatnonzero(true == k)
        rank[mine[np.argsort(gap[mine])]] = (np.arange(len(mine)) + 0.5) / len(mine)
    wrong = rng.random(len(true)) < RATE * (1 - strength + 2 * strength * rank)
    anything = (true + rng.integers(1, CLASSES, len(true))) % CLASSES
    target = np.where(rng.random(len(true)) < strength, second, anything)
    return np.where(wrong, target, true)


def p_value(n: int, distance: float, name: str, seed: int) -> float:
    """The p-value for one drawn data set."""
    x, true, logits = drawn(n, distance, np.random.default_rng([seed, n]))
    y = noisy(name, x, true, logits, seed)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    probs = cross_val_predict(LogisticRegression(max_iter=500), x, y, cv=folds, method="predict_proba")
    return dependence(probs, y, features=x, seed=seed)[1]


def line(title: str, name: str) -> str:
    """One line of the table: the share of data sets with a small p-value, by their size."""
    cells = []
    for n, draws in SIZES.items():
        found = np.array([p_value(n, DISTANCES[title], name, seed) for seed in range(draws)])
        cells.append(f"{100 * np.mean(found < LEVEL):.0f}")
    kind = "input" if name in DEPENDS else "class alone"
    return f"| {title} | {name} | {kind} | {' | '.join(cells)} |"


def page(lines: list[str]) -> str:
    """The results as Markdown."""
    sizes = " | ".join(f"{n:,} rows" for n in SIZES)
    draws = ", ".join(f"{d} of {n:,} rows" for n, d in SIZES.items())
    text = [
        "# How often noise is said to depend on the input", "",
        f"`python benchmarks/dependence.py`: data sets drawn for each cell: {draws}; Python "
        f"{platform.python_version()}, numpy {np.__version__}, scikit-learn {sklearn.__version__}. Per cent of "
        f"data sets with p < {LEVEL}; where the noise depends on the class alone, this should be 1.", "",
        *(__doc__ or "").split("\n\n", 2)[2].splitlines(), "",
        f"| data | noise | depends on | {sizes} |", "|---|---|---|" + "---|" * len(SIZES), *lines,
    ]  # fmt: skip
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", type=int, help="one line of the table by its number, printed")
    parser.add_argument("--lines", type=Path, help="a file of such lines: write the page from it")
    arguments = parser.parse_args()
    cells = [(title, name) for title in DISTANCES for name in NOISES]
    if arguments.only is not None:
        print(line(*cells[arguments.only]))
        return
    lines = arguments.lines.read_text().splitlines() if arguments.lines else [line(*cell) for cell in cells]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "dependence.md").write_text(page(lines))


if __name__ == "__main__":
    main()
