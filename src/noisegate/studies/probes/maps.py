"""Pictures of what a network of maps predicts, and where it is uncertain."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from noisegate.data.dataset import Dataset
from noisegate.data.loader import fetch
from noisegate.errors import InputError
from noisegate.evaluation.maps import boundaries
from noisegate.fitted import Fitted
from noisegate.noise.base import VOID
from noisegate.studies.probes.base import register


@register("maps")
def maps(fitted: Fitted, data: Dataset, *, examples: int = 3, rows: int = 40) -> dict[str, Any]:
    """Images, labels, predictions and variances of some test rows; the variance at boundaries over that inside.

    Parameters
    ----------
    examples : int
        How many rows are stored as `map_image`, `map_label`, `map_prediction` and `map_variance`, the sum over
        classes of the variance; spread evenly over the test rows.
    rows : int
        How many the number `boundary_variance_ratio` is measured on.

    Notes
    -----
    An objective without samples has the variance of its labels, p (1 - p), in place of that of its samples.
    """
    if data.test is None or not data.test.maps:
        raise InputError(
            f"the probe 'maps' needs test rows with a label for every pixel; {data.name} has none"
        )
    chosen = np.unique(
        np.linspace(0, len(data.test) - 1, min(max(rows, examples), len(data.test))).astype(int)
    )
    device = next(fitted.network.parameters()).device
    stored: dict[str, list[Any]] = {"image": [], "label": [], "prediction": [], "variance": []}
    near, inside = [], []
    for place, row in enumerate(chosen.tolist()):
        image, label = fetch(data.test.x, np.array([row])), data.test.y[row]
        probs, variance = probabilities_and_variance(fitted, torch.from_numpy(image).to(device))
        spread = variance.sum(1)[0]
        given = torch.from_numpy(label.astype(np.int64)).to(device)
        edge, counted = boundaries(given[None])[0], given != VOID
        near.append(spread[edge & counted])
        inside.append(spread[~edge & counted])
        if place % max(1, len(chosen) // examples) == 0 and len(stored["image"]) < examples:
            values = (image[0], label, probs.argmax(1)[0].byte().cpu(), spread.half().cpu())
            for name, value in zip(stored, values, strict=True):
                stored[name].append(np.asarray(value))
    found: dict[str, Any] = {f"map_{name}": np.stack(values) for name, values in stored.items()}
    ratio = torch.cat(near).mean() / torch.cat(inside).mean().clamp_min(1e-12)
    return found | {"boundary_variance_ratio": float(ratio)}


@torch.no_grad()
def probabilities_and_variance(fitted: Fitted, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities of the clean class and their variance, `(B, K, H, W)`, as `Objective.probs_and_variance`."""
    size = (images.shape[2], images.shape[3])
    fitted.network.eval()
    fitted.objective.eval()
    outputs = fitted.network(images)
    return fitted.objective.probs_and_variance(outputs, size)
