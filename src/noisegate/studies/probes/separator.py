"""The line at which a linear classifier of points in the plane changes its mind."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.data.dataset import Dataset
from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.networks import find_head
from noisegate.networks.prepare import Prepared
from noisegate.studies.probes.base import register

Array = npt.NDArray[Any]


@register("separator")
def separator(fitted: Fitted, data: Dataset, *, points: int = 500) -> dict[str, Any]:
    """Normal w and constant b of the separator w.x + b = 0 of two classes, in raw coordinates.

    Returns
    -------
    dict
        `separator_offset`, the t at which it meets the diagonal (t, t); `separator_normal` (2,),
        `separator_constant` (1,); and the first training rows for the picture: `separator_points`
        (M, 2), `separator_given` and, where known, `separator_clean` (M,).
    """
    normal, constant = line(fitted)
    train = data.train.take(np.arange(min(points, len(data.train))))
    found: dict[str, Any] = {
        "separator_offset": float(-constant / normal.sum()),
        "separator_normal": normal,
        "separator_constant": np.array([constant]),
        "separator_points": np.asarray(train.x),
        "separator_given": train.y,
    }
    if train.clean is not None:
        found["separator_clean"] = train.clean
    return found


def line(fitted: Fitted) -> tuple[Array, float]:
    """w (2,) and b of a linear network of two classes, with its standardisation of inputs undone."""
    network = fitted.network
    if not isinstance(network, Prepared) or network.spec["network"] != "linear":
        raise InputError("the probe 'separator' needs the network 'linear'")
    if network.spec["input_shape"] != [2] or fitted.objective.n_outputs != 2:
        raise InputError("the probe 'separator' needs points in the plane and two classes")
    head = find_head(network, 2)
    weight, bias = (p.detach().double().cpu().numpy() for p in head.parameters())
    mean, std = (b.double().cpu().numpy() for b in (network.mean, network.std))
    normal = (weight[1] - weight[0]) / std
    return normal, float(bias[1] - bias[0] - normal @ mean)
