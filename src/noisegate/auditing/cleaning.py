"""Measure what cleaning is worth: train again on cleaned labels, and compare on rows that were not cleaned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.auditing.crossfit import CrossFit, Fitting, Labels, cross_fit
from noisegate.auditing.places import Where
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import UnknownNameError
from noisegate.quality import Judgement

HOWS = ("drop", "relabel", "weight")


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
    data: Dataset, fitting: Fitting, folds: int, where: Where, fit: CrossFit, found: Judgement, way: Cleaning
) -> dict[str, Any]:
    """Cross-fit on given and on cleaned labels, in the same folds, and compare on the held-out given labels.

    The held-out rows keep their given labels, right or wrong, because there are no others. So accuracies
    are those of predicting given labels and look worse than they are; only their difference counts. The
    cleaned labels were chosen with the labels of all folds, so a small leak remains. If the data have test
    rows, these are taken to be clean, and two more trainings on all rows are compared on them.
    """
    y = data.train.y
    labels = way.labels(y, found)
    before = cross_fit(data, fitting, folds, where, name="folds").probs.argmax(axis=1) == y
    after = cross_fit(data, fitting, folds, where, labels=labels, name=f"cleaned-{way.how}").probs
    result: dict[str, Any] = {"how": way.how, "judged_by": "given labels, out of fold"}
    result |= _compared(before, after.argmax(axis=1) == y)
    if data.test is not None:
        right = [
            _right(data, data.test, fitting, where, which, name)
            for which, name in ((Labels(y), "all"), (labels, f"all-{way.how}"))
        ]
        result["test"] = _compared(*right) | {"judged_by": "clean test set"}
    return result


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
