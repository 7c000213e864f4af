"""What a fit says about its labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisegate.quality import judge


def judged(probs: Tensor, y: Tensor) -> dict[str, Any]:
    """The extras of a fit: what held-out probabilities say about the given labels.

    Parameters
    ----------
    probs : tensor (N, K)
        Of every training row, by models that have not seen its label.
    y : int64 tensor (N,)
        Given labels.

    Returns
    -------
    dict
        row (N,), the number of each training row; given (N,), its label; probs (N, K), the held-out
        probabilities; quality (N,), the probability that a label is right; suggested (N,), the class
        it should rather be; is_label_issue and is_sure (N,), bool; noise_rate; and transition (K, K)
        with P(given j | true i), where there are not too many classes.
    """
    found = judge(probs.double().cpu().numpy(), y.cpu().numpy())
    extras: dict[str, Any] = {
        "row": torch.arange(len(y)),
        "given": y.cpu().clone(),
        "probs": probs.float().cpu(),
        "quality": torch.from_numpy(1 - found.wrong),
        "suggested": torch.from_numpy(found.suggested.copy()),
        "is_label_issue": torch.from_numpy(found.is_label_issue.copy()),
        "is_sure": torch.from_numpy(found.is_sure.copy()),
        "noise_rate": float(found.noise_rate),
    }
    if found.transition is not None:
        extras["transition"] = torch.from_numpy(found.transition.copy())
    return extras
