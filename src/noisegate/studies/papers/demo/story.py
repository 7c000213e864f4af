"""What the demo tells: sentences that are computed from stored results, and its figures' captions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from noisegate.studies.results import Results
    from noisegate.studies.store import Result

#: The columns of the story: what `noisegate demo` does.
STORY = ("digits, 80 epochs", "two moons")
TITLES = {
    "CE": "cross-entropy",
    "LS": "label smoothing",
    "GCE": "generalised cross-entropy",
    "Mixup": "mixup",
    "ELR": "early-learning regularisation",
    "LN": "Logistic-Normal",
}
_CAPTIONS = {
    "accuracy": "Accuracy on the clean labels of the test digits, after every epoch.",
    "memorised": "Share of the wrong training labels that the network repeats.",
    "moons": "Two moons: training points in the colour of their given label, crosses where it is wrong. "
    "The background is the predicted probability, the line is where the predicted class changes.",
    "reliability": "Accuracy of the test digits by the confidence of the prediction; darker bars hold more of "
    "them. On the dashed line a confidence of 80% is right in 80% of the cases. ECE is the calibration error.",
    "wrong-digits": "The first training digits with a wrong label, in the order of the data: what was given, "
    "what is true, and what a network says that was trained on the given labels.",
}


def caption(name: str) -> str:
    """The caption of a figure."""
    return _CAPTIONS[name]


def picture(name: str) -> Callable[[Results], Picture]:
    """The function of that name in `figures`, imported when it is called: it needs matplotlib."""

    def draw(results: Results) -> Picture:
        figures = importlib.import_module("noisegate.studies.papers.demo.figures")
        drawn: Picture = getattr(figures, name.replace("-", "_"))(results)
        return drawn

    return draw


def digits(results: Results) -> dict[str, Result]:
    """The first finished run on the digits of the story, by row."""
    found: dict[str, Result] = {}
    for cell in results.study:
        if cell.column == STORY[0]:
            runs = results.results(cell)
            found |= {cell.row: runs[0]} if runs else {}
    return found


def findings(results: Results) -> list[str]:
    """What happened on the digits.

    The course of each method, and how the best and the worst compare.
    """
    runs = digits(results)
    if not runs:
        return []
    first = next(iter(runs.values()))
    rows, rate = first.about["rows"]["train"], first.about["noise"]["train_rate"]
    sentences = [f"{round(rows * rate):,} of {rows:,} training labels are wrong ({rate:.1%})."]
    sentences += [_course(row, run) for row, run in runs.items()]
    accuracy = {row: run.metrics["test_accuracy"] for row, run in runs.items()}
    error = {row: run.metrics["test_ece"] for row, run in runs.items()}
    if len(runs) > 1:
        sentences += [_comparison(accuracy), _calibration(error, accuracy)]
    return sentences


def _course(row: str, run: Result) -> str:
    """How the accuracy went, and what became of the wrong labels."""
    curve = [epoch["test_accuracy"] for epoch in run.history[-1] if "test_accuracy" in epoch]
    end, title = run.metrics["test_accuracy"], TITLES.get(row, row)
    wrong = round(run.about["rows"]["train"] * run.about["noise"]["train_rate"])
    memorised = round(wrong * run.metrics.get("train_memorised", 0.0))
    put_right = round(wrong * run.metrics.get("train_recovered", 0.0))
    labels = f"It repeats {memorised:,} of the {wrong:,} wrong labels and puts {put_right:,} right."
    start = f"{title[0].upper()}{title[1:]}"
    top = max(range(len(curve)), key=curve.__getitem__, default=0)
    if curve and curve[top] - end >= 0.01:
        lost = 100 * (curve[top] - end)
        return (
            f"{start} reaches {curve[top]:.1%} in epoch {top + 1} and loses {lost:.1f} points by the last epoch "
            f"({end:.1%}). {labels}"
        )
    return f"{start} ends at {end:.1%}{', within a point of its best epoch' if curve else ''}. {labels}"


def _comparison(accuracy: dict[str, float]) -> str:
    best, worst = max(accuracy, key=accuracy.__getitem__), min(accuracy, key=accuracy.__getitem__)
    gap = 100 * (accuracy[best] - accuracy[worst])
    if gap < 0.05:
        return "At the end the methods are equally accurate."
    names: Any = TITLES.get(best, best), TITLES.get(worst, worst)
    return f"At the end {names[0]} is {gap:.1f} percentage points more accurate than {names[1]}."


def _calibration(error: dict[str, float], accuracy: dict[str, float]) -> str:
    best, top = min(error, key=error.__getitem__), max(accuracy, key=accuracy.__getitem__)
    text = f"The smallest calibration error is that of {TITLES.get(best, best)}, {error[best]:.1%}"
    if best == top:
        return f"{text}; it is the most accurate one too."
    return f"{text}; the most accurate, {TITLES.get(top, top)}, has {error[top]:.1%}."
