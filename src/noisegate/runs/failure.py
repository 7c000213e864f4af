"""Detect a useless fit, and say why in one sentence."""

from __future__ import annotations

import numpy as np

from noisegate.data.dataset import Dataset
from noisegate.fitted import Fitted

#: Number of training rows to predict if the method has no held-out probabilities.
LOOKED_AT = {"vectors": 2000, "images": 200}
#: With fewer epochs than this a rising loss may be chance.
LEAST_EPOCHS = 3


def failure(fitted: Fitted, data: Dataset) -> str | None:
    """Explain why a classifier is useless; None if it seems to work.

    A fit has failed if it predicts the observed labels no better than the most frequent label does
    (on held-out rows if the method has their probabilities, else on training rows), or if the loss
    of the last phase rose from its first epoch to its last.

    Parameters
    ----------
    fitted : Fitted
    data : Dataset
        The training data. Its clean labels are not used.
    """
    return None if data.train.maps else _no_better_than_the_majority(fitted, data) or _risen_loss(fitted)


def _no_better_than_the_majority(fitted: Fitted, data: Dataset) -> str | None:
    if "probs" in fitted.extras and "given" in fitted.extras:
        y, probs = np.asarray(fitted.extras["given"]), np.asarray(fitted.extras["probs"])
        kind = "held-out"
    else:
        most = LOOKED_AT["vectors" if len(data.input_shape) == 1 else "images"]
        rows = data.train.take(np.unique(np.linspace(0, len(data.train) - 1, most).astype(np.int64)))
        y, probs, kind = rows.y, fitted.predict_proba(rows.x), "training"
    right, majority = float((probs.argmax(1) == y).mean()), float(np.bincount(y).max() / len(y))
    if right > majority:
        return None
    return (
        f"it predicts {right:.1%} of the labels of {kind} rows, and always predicting the most frequent label gets "
        f"{majority:.1%}; the inputs may not tell the classes apart, or the learning rate may be too high"
    )


def _risen_loss(fitted: Fitted) -> str | None:
    losses = [epoch["loss"] for epoch in fitted.history[-1] if "loss" in epoch] if fitted.history else []
    if len(losses) < LEAST_EPOCHS or losses[-1] <= losses[0]:
        return None
    return f"its loss rose from {losses[0]:.3g} to {losses[-1]:.3g}; try a lower learning rate"
