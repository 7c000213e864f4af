"""How well a detector finds wrong labels: its flags and rankings, and those of cleanlab's rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.data.dataset import Dataset
from noisegate.errors import InputError, MissingDataError
from noisegate.fitted import Fitted
from noisegate.studies.probes.base import register

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
#: Prefix of the names of signals among the extras of a classifier.
SIGNAL = "signal_"


@register("detection")
def detection(fitted: Fitted, data: Dataset) -> dict[str, Any]:
    """Precision, recall and F1 of flags, AUROC and average precision of rankings, of wrong training labels.

    The probabilities of the training rows are taken from the method's extras (`said`, else `probs`).

    Returns
    -------
    dict
        `look_precision`, `look_recall`, `look_f1`, `look_auroc`, `look_average_precision`: our flags and
        the probability that the label is wrong. `sure_...`: the flags that are almost surely right.
        `cleanlab_...`: the flags of cleanlab's default (`noisegate.quality.prune_by_noise_rate`), ranked by
        self-confidence. `argmax_...`: the most probable class is not the given one.
        `SIGNAL_...`: a signal of training, of which as many rows are flagged as "look" flags.
        `wrong_share`; `rate_estimate` and `look_expected`, our estimates of it and of `look_precision`.
    """
    from noisegate.quality import judge, label_quality, prune_by_noise_rate

    if data.train.clean is None:
        raise MissingDataError(f"the probe 'detection' needs the true labels, {data.name} has none")
    said = fitted.extras.get("said", fitted.extras.get("probs"))
    if said is None or len(said) != len(data.train):
        raise InputError(
            "the probe 'detection' needs a method that leaves probabilities of the training rows"
        )
    y, wrong = data.train.y, data.train.clean != data.train.y
    probs = np.asarray(said, np.float64)
    probs = probs / probs.sum(axis=1, keepdims=True)
    found = judge(probs, y)
    doubt = 1.0 - label_quality(probs, y)
    rules = {
        "look": (found.is_label_issue, found.wrong),
        "sure": (found.is_sure, found.wrong),
        "cleanlab": (prune_by_noise_rate(probs, y), doubt),
        "argmax": (probs.argmax(axis=1) != y, doubt),
    } | dict(_signals(fitted.extras, int(found.is_label_issue.sum())))
    numbers = {"wrong_share": float(wrong.mean()), "rate_estimate": found.noise_rate}
    if found.is_label_issue.any():
        numbers["look_expected"] = float(found.precision["look"])
    for rule, (flags, suspicion) in rules.items():
        numbers |= {f"{rule}_{name}": value for name, value in scores(flags, suspicion, wrong).items()}
    return numbers


def _signals(extras: Mapping[str, Any], n: int) -> Iterator[tuple[str, tuple[Mask, Floats]]]:
    """Signals of training, with as many flags as "look" has."""
    for name, value in extras.items():
        if name.startswith(SIGNAL):
            signal = np.asarray(value, np.float64)
            flags = np.zeros(len(signal), bool)
            flags[np.argsort(-signal, kind="stable")[:n]] = True
            yield name.removeprefix(SIGNAL), (flags, signal)


def scores(flags: Mask, suspicion: Floats, wrong: Mask) -> dict[str, float]:
    """Precision, recall, F1 of flags; AUROC and average precision of a ranking.

    Precision is left out if there are no flags; scores that need both right and wrong labels are left out
    if there is only one kind.

    >>> scores(np.array([True, True, False]), np.array([0.9, 0.2, 0.8]), np.array([True, False, True]))["f1"]
    0.5
    """
    from sklearn.metrics import average_precision_score, roc_auc_score

    hit = float((flags & wrong).sum())
    found = {"f1": 2 * hit / max(float(flags.sum() + wrong.sum()), 1.0)}
    if flags.any():
        found["precision"] = hit / float(flags.sum())
    if wrong.any():
        found["recall"] = hit / float(wrong.sum())
        if not wrong.all():
            found["auroc"] = float(roc_auc_score(wrong, suspicion))
            found["average_precision"] = float(average_precision_score(wrong, suspicion))
    return found
