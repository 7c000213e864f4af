"""How far the logit of a label stands above the mean logit, on parts of the training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from noisegate.data.dataset import Dataset
from noisegate.data.loader import Rows
from noisegate.errors import InputError, MissingDataError
from noisegate.evaluation.passes import predict
from noisegate.fitted import Fitted
from noisegate.studies.probes.base import register

Array = npt.NDArray[Any]

#: First axis of the counts: all training rows, the rightly and the wrongly labelled ones.
PARTS = ("full", "clean", "mislabelled")
#: Second axis: whose logit it is.
LABELS = ("maximum", "true", "noisy")


@register("logit_gaps")
def logit_gaps(fitted: Fitted, data: Dataset, *, bins: int = 200) -> dict[str, Array]:
    """Histograms of f_k - mean_j f_j and of p_k - 1/K, with k the largest, the true and the given label.

    With p = softmax(f) the logarithms of probabilities differ from the logits by one constant a
    row, so that log p_k - mean_j log p_j is the gap of the logits; for other objectives it takes
    their place.

    Returns
    -------
    dict
        `gap_logit_edges` (bins + 1,), over the range of the gaps, and `gap_logit_counts`, int64 (3,
        3, bins), by `PARTS` and `LABELS`; `gap_prob_edges`, from -1/K to 1 - 1/K, and
        `gap_prob_counts` likewise.
    """
    train = data.train
    if train.clean is None:
        raise MissingDataError(f"the probe 'logit_gaps' needs the true labels, {data.name} has none")
    if bins < 1:
        raise InputError(f"the probe 'logit_gaps' needs at least one bin, got {bins}")
    device = next(fitted.network.parameters()).device
    rows = Rows(train.x, train.y, device)
    log_p = predict(fitted.network, fitted.objective, rows, read=fitted.objective.log_probs).cpu()
    columns = torch.stack(
        [log_p.argmax(1), torch.from_numpy(train.clean.astype(np.int64)), rows.y.cpu()], dim=1
    )
    chosen = log_p.gather(1, columns)
    logit = (chosen - log_p.mean(1, keepdim=True)).double().numpy()
    prob = chosen.double().exp().numpy() - 1 / log_p.shape[1]
    wrong = train.y != train.clean
    edges = {
        "logit": np.linspace(logit.min(), logit.max() + 1e-9, bins + 1),
        "prob": np.linspace(-1 / log_p.shape[1], 1 - 1 / log_p.shape[1] + 1e-9, bins + 1),
    }
    found: dict[str, Array] = {}
    for name, gaps in (("logit", logit), ("prob", prob)):
        found[f"gap_{name}_edges"] = edges[name]
        found[f"gap_{name}_counts"] = counts(gaps, wrong, edges[name])
    return found


def counts(gaps: Array, wrong: npt.NDArray[np.bool_], edges: Array) -> npt.NDArray[np.int64]:
    """Histograms (3, 3, bins) of gaps (N, 3): all rows, rightly labelled ones, wrongly labelled ones.

    >>> counts(np.array([[0.1, 0.9, 0.9]]), np.array([True]), np.array([0.0, 0.5, 1.0]))[2]
    array([[1, 0],
           [0, 1],
           [0, 1]])
    """
    parts = [np.ones_like(wrong), ~wrong, wrong]
    return np.stack([np.stack([np.histogram(g, edges)[0] for g in gaps[part].T]) for part in parts])
