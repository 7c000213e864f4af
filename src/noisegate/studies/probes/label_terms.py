"""The part of the Logistic-Normal loss that depends on the label, for every training row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.studies.probes.base import register

if TYPE_CHECKING:
    from noisegate.data.dataset import Dataset
    from noisegate.fitted import Fitted


@register("label_terms")
def label_terms(fitted: Fitted, data: Dataset) -> dict[str, npt.NDArray[Any]]:
    """r' Sigma^-1 r of the given label of every training row, under the predicted Sigma and under I.

    Figures 6 and 7 of Englesson et al. 2023. Inputs are as they are, without crops and flips.

    Returns
    -------
    label_term_learnt, label_term_identity : float32 (N,)
    label_term_wrong : bool (N,)
        Which given labels are wrong.
    """
    import torch

    from noisegate.data.loader import Rows
    from noisegate.evaluation.passes import predict
    from noisegate.objectives import LogisticNormal

    objective, wrong = fitted.objective, data.train.wrong
    if not isinstance(objective, LogisticNormal):
        raise InputError(
            f"the probe 'label_terms' is for the method ln, this network was trained on {type(objective).__name__}"
        )
    if wrong is None:
        raise InputError("the probe 'label_terms' needs the clean training labels, which are not known")
    device = next(fitted.network.parameters()).device
    rows = Rows(data.train.x, data.train.y, device)
    outputs = predict(fitted.network, objective, rows, read=lambda outputs: outputs.float())
    with torch.no_grad():
        terms = {kind: objective.label_term(outputs, rows.y, kind) for kind in ("learnt", "identity")}
    found = {f"label_term_{kind}": term.float().cpu().numpy() for kind, term in terms.items()}
    return {**found, "label_term_wrong": np.asarray(wrong)}
