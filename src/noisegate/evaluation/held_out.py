"""What predictions for rows whose label was not used say about accuracy, although the labels are partly wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: Where given and true labels have less to do with each other than this, nothing follows from one about the other.
LEAST_SIGNAL = 0.1


@dataclass(frozen=True)
class HeldOut:
    """Numbers of the training rows, each predicted by models that had not seen its label.

    Attributes
    ----------
    n : int
        Rows.
    accuracy : float
        How often the prediction is the given label.
    log_likelihood : float
        Mean log-probability of the given labels.
    noise_rate : float or None
        The estimated share of wrong labels.
    clean_accuracy : float or None
        The accuracy on true labels that these suggest (`expected_accuracy`, or `implied_accuracy`
        where single labels are not judged).
    issues : int or None
        How many given labels look wrong.
    """

    n: int
    accuracy: float
    log_likelihood: float
    noise_rate: float | None = None
    clean_accuracy: float | None = None
    issues: int | None = None


def expected_accuracy(agrees: npt.ArrayLike, quality: npt.ArrayLike) -> float:
    """The accuracy on true labels to be expected from the probability that each given label is right.

    A prediction that is the given label is right if the label is, another one if the label is wrong. (Of three or
    more classes both can be wrong; where the classifier is worth its name, that is rare.)
    `benchmarks/held_out.py` compares this with the truth.

    Parameters
    ----------
    agrees : bool array (N,)
        Whether the prediction, made without having seen the label, is the given label.
    quality : array (N,)
        Probability that the given label is right.

    >>> round(expected_accuracy([True, True, False], [0.9, 0.8, 0.25]), 4)
    0.8167
    """
    return float(np.where(agrees, quality, 1 - np.asarray(quality, dtype=np.float64)).mean())


def implied_accuracy(accuracy: float, noise_rate: float, n_classes: int) -> float | None:
    """The accuracy on true labels behind an accuracy on given ones of which a share `noise_rate` is wrong.

    A wrong label is one of the others at random, whatever the classifier says:
    `given = true (1 - rate) + (1 - true) rate / (K - 1)`, solved for `true` and kept in [0, 1]. None where so many
    labels are wrong that the equation says nothing.

    >>> round(implied_accuracy(0.74, 0.2, 2), 6)
    0.9
    >>> implied_accuracy(0.5, 0.48, 2) is None
    True
    """
    astray = noise_rate / (n_classes - 1)
    signal = 1 - noise_rate - astray
    if signal < LEAST_SIGNAL:
        return None
    return float(np.clip((accuracy - astray) / signal, 0, 1))


def held_out(extras: Mapping[str, Any]) -> HeldOut | None:
    """The numbers, from what a method learnt beside its classifier; None where it predicted no unseen rows.

    `extras` has `probs` (N, K) and `given` (N,), and may have `noise_rate`, `quality` and `is_label_issue`.

    >>> held_out({"probs": [[0.9, 0.1], [0.4, 0.6]], "given": [0, 0], "noise_rate": 0.25}).accuracy
    0.5
    """
    if "probs" not in extras or "given" not in extras:
        return None
    probs: npt.NDArray[np.float64] = np.asarray(extras["probs"], dtype=np.float64)
    given = np.asarray(extras["given"], dtype=np.int64)
    if probs.ndim != 2 or given.ndim != 1 or len(probs) != len(given):
        return None
    accuracy = float((probs.argmax(1) == given).mean())
    likely = np.log(np.maximum(probs[np.arange(len(given)), given], np.finfo(np.float64).tiny)).mean()
    rate, quality = extras.get("noise_rate"), extras.get("quality")
    clean: float | None = None
    if quality is not None:
        clean = expected_accuracy(probs.argmax(1) == given, quality)
    elif rate is not None:
        clean = implied_accuracy(accuracy, float(rate), probs.shape[1])
    issues = extras.get("is_label_issue")
    return HeldOut(
        len(given),
        accuracy,
        float(likely),
        None if rate is None else float(rate),
        clean,
        None if issues is None else int(np.asarray(issues).sum()),
    )
