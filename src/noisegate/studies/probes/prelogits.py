"""Penultimate activations of three classes, seen in the plane of their templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from noisegate.data.dataset import Dataset
from noisegate.data.loader import Rows
from noisegate.errors import InputError, MissingDataError
from noisegate.evaluation.passes import predict
from noisegate.fitted import Fitted
from noisegate.networks import find_head
from noisegate.studies.probes.base import register

Array = npt.NDArray[Any]


@register("prelogits")
def prelogits(fitted: Fitted, data: Dataset, *, classes: Sequence[int] = (0, 1, 2)) -> dict[str, Array]:
    """Training rows of three classes in the plane through the three templates, the rows of the last layer.

    The rows are those whose given or whose true label is one of the three; the picture chooses.

    Returns
    -------
    dict
        `prelogits` float32 (M, 2), `prelogits_given` and `prelogits_clean` (M,),
        `prelogits_templates` (3, 2) and `prelogits_classes` (3,).

    References
    ----------
    Müller, Kornblith, Hinton. When does label smoothing help? NeurIPS 2019, section 2.
    """
    train = data.train
    if train.clean is None:
        raise MissingDataError(f"the probe 'prelogits' needs the true labels, {data.name} has none")
    chosen = np.asarray(classes)
    if len(set(classes)) != 3 or chosen.min() < 0 or chosen.max() >= data.n_classes:
        raise InputError(
            f"the probe 'prelogits' needs three classes in 0..{data.n_classes - 1}, got {list(classes)}"
        )
    rows = np.flatnonzero(np.isin(train.y, chosen) | np.isin(train.clean, chosen))
    part = train.take(rows)
    activations, weights = penultimate(fitted, part.x)
    origin, basis = plane(weights[chosen])
    return {
        "prelogits": ((activations - origin) @ basis.T).astype(np.float32),
        "prelogits_given": train.y[rows],
        "prelogits_clean": train.clean[rows],
        "prelogits_templates": ((weights[chosen] - origin) @ basis.T).astype(np.float32),
        "prelogits_classes": chosen,
    }


def penultimate(fitted: Fitted, x: Any) -> tuple[Array, Array]:
    """What enters the last layer, (N, d), and that layer's weights, (K, d), both float64."""
    head = find_head(fitted.network, fitted.objective.n_outputs)
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0].flatten(1)))
    try:
        activations = predict(
            fitted.network,
            fitted.objective,
            Rows(x, None, head.weight.device),
            read=lambda outputs: seen.pop(),
        )
    finally:
        handle.remove()
    weights = head.weight.detach().flatten(1)
    return tuple(t.to("cpu", torch.float64).numpy() for t in (activations, weights))  # type: ignore[return-value]


def plane(points: Array) -> tuple[Array, Array]:
    """Centre (d,) and orthonormal basis (2, d) of the plane through three points (3, d).

    Seen in it, the first point lies straight up from the centre and the second one to the left, so
    that pictures of several networks can be compared.

    >>> centre, basis = plane(np.eye(3))
    >>> ((np.eye(3) - centre) @ basis.T).round(3)
    array([[ 0.   ,  0.816],
           [-0.707, -0.408],
           [ 0.707, -0.408]])
    """
    centre = points.mean(0)
    up = points[0] - centre
    height = float(np.linalg.norm(up))
    up = up / max(height, 1e-300)
    across = points[2] - points[1]
    across = across - (across @ up) * up
    width = float(np.linalg.norm(across))
    if min(height, width) <= 1e-9 * float(np.abs(points).max()):
        raise InputError("the templates of the three classes lie on one line: they span no plane")
    return centre, np.stack([across / width, up])
