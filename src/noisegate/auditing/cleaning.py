"""Measure what cleaning is worth: train again on cleaned labels, and compare on rows that were not cleaned."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.auditing.crossfit import Fitting, Ints, Labels, check_folds, deal, hold_out
from noisegate.auditing.places import Where
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import UnknownNameError
from noisegate.quality import Judgement, judge

HOWS = ("drop", "relabel", "weight")
#: Of two folds one would be left to train on, and none to judge it by.
FEWEST_FOLDS = 3


@dataclass(frozen=True)
class Cleaning:
    """One way to clean.

    Attributes
    ----------
    how : {"drop", "relabel", "weight"}
        drop: flagged rows are left out, but at most half of a class. relabel: flagged rows carry the
        suggested label where that is more likely than not. weight: each row counts as much as its label
        is likely to be right.
    """

    how: str

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise UnknownNameError("way to clean", self.how, HOWS)

    def labels(self, y: npt.NDArray[np.int64], found: Judgement) -> Labels:
        """The labels to train on."""
        if self.how == "weight":
            return Labels(y, weight=(1.0 - found.wrong).clip(min=1e-3))
        if self.how == "relabel":
            change = found.is_label_issue & (found.suggested_probability > 0.5)
            return Labels(np.where(change, found.suggested, y))
        keep = ~found.is_label_issue
        flagged, all_rows = (
            np.bincount(y[rows], minlength=int(y.max()) + 1) for rows in (~keep, keep | True)
        )
        for label in np.flatnonzero(2 * flagged > all_rows):
            rows = np.flatnonzero(y == label)
            keep[rows[np.argsort(found.wrong[rows], kind="stable")[: (len(rows) + 1) // 2]]] = True
        return Labels(y, keep=keep)


def clean_and_compare(
    data: Dataset, fitting: Fitting, folds: int, where: Where, found: Judgement, way: Cleaning
) -> dict[str, Any]:
    """Cross-fit on given and on cleaned labels, in the same folds, and compare on the held-out given labels.

    The held-out rows keep their given labels, right or wrong, because there are no others. So accuracies
    are those of predicting given labels and look worse than they are; only their difference counts. The labels
    of the other rows are cleaned without looking at the held-out ones, see `cleaned_outside`. If the data
    have test rows, these are taken to be clean, and two more trainings on all rows, cleaned by `found`, are
    compared on them.
    """
    y = data.train.y
    asked, folds = folds, check_folds(max(check_folds(folds, len(y)), FEWEST_FOLDS), len(y))
    fold = deal(y, folds, fitting.seed)
    held = [fold == number for number in range(folds)]
    before, after = np.empty(len(y), bool), np.empty(len(y), bool)
    given = hold_out(data, fitting, held, where, name="folds" if folds == asked else f"folds-{folds}")
    labels = cleaned_outside(data, fitting, fold, where, way)
    cleaned = hold_out(data, fitting, held, where, labels=labels, name=f"cleaned-{way.how}")
    for right, fits in ((before, given), (after, cleaned)):
        for rows, fit in zip(held, fits, strict=True):
            right[rows] = fit["probs"].argmax(axis=1) == y[rows]
    result: dict[str, Any] = {"how": way.how, "judged_by": "given labels, out of fold"}
    result |= _compared(before, after)
    if data.test is not None:
        right_after = [
            _right(data, data.test, fitting, where, which, name)
            for which, name in ((Labels(y), "all"), (way.labels(y, found), f"all-{way.how}"))
        ]
        result["test"] = _compared(*right_after) | {"judged_by": "clean test set"}
    return result


def cleaned_outside(data: Dataset, fitting: Fitting, fold: Ints, where: Where, way: Cleaning) -> list[Labels]:
    """For each fold, labels of all rows outside it, cleaned as if the fold did not exist.

    The rows of fold j are judged by a network that was trained without j and without the fold that is held
    out: one network for each pair of folds. Were it trained on the held-out rows, it would pass on
    their wrong labels, which then would seem to be predicted well.
    """
    y, folds = data.train.y, int(fold.max()) + 1
    pairs = list(itertools.combinations(range(folds), 2))
    held = [(fold == i) | (fold == j) for i, j in pairs]
    fits = hold_out(data, fitting, held, where, name="pairs")
    cleaned = []
    for number in range(folds):
        probs = np.empty((len(y), data.n_classes))
        for pair, rows, fit in zip(pairs, held, fits, strict=True):
            if number in pair:
                probs[rows] = fit["probs"]  # of the held-out fold too, but these are not looked at
        outside = np.flatnonzero(fold != number)
        mine = way.labels(y[outside], judge(probs[outside], y[outside], seed=fitting.seed))
        whole = y.copy()
        whole[outside] = mine.y
        cleaned.append(Labels(whole, _spread(mine.keep, outside, y), _spread(mine.weight, outside, y)))
    return cleaned


def _spread(values: npt.NDArray[Any] | None, rows: Ints, y: Ints) -> Any:
    """Values of some rows as values of all, one elsewhere."""
    if values is None:
        return None
    found = np.ones(len(y), values.dtype)
    found[rows] = values
    return found


def _right(
    data: Dataset, test: Split, fitting: Fitting, where: Where, labels: Labels, name: str
) -> npt.NDArray[np.bool_]:
    """Which test rows a classifier trained on all rows gets right."""
    from noisegate.runs.train import train

    index = np.arange(len(data.train)) if labels.keep is None else np.flatnonzero(labels.keep)
    rows = Split(data.train.take(index).x, labels.y[index])
    fitted = train(
        replace(data, train=rows, test=None, validation=None), fitting.method, fitting.network, fitting.recipe,
        fitting.seed, fitting.device, sample_weight=None if labels.weight is None else labels.weight[index],
        folder=None if where.folder is None else where.folder / name, evaluate_every=0, evidence=(),
    )  # fmt: skip
    right: npt.NDArray[np.bool_] = fitted.predict_proba(test.x).argmax(axis=1) == test.y
    return right


def _compared(before: npt.NDArray[np.bool_], after: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Two accuracies on the same rows, and their difference with its 95 % interval, row by row."""
    change = after.astype(np.float64) - before
    half = 1.96 * float(change.std(ddof=1) / np.sqrt(len(change)))
    difference = float(change.mean())
    return {
        "accuracy_before": float(before.mean()),
        "accuracy_after": float(after.mean()),
        "difference": difference,
        "low": difference - half,
        "high": difference + half,
    }
