"""The predictions of a classifier of points in the plane, on a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.studies.probes.base import register

if TYPE_CHECKING:
    from noisegate.data.dataset import Dataset
    from noisegate.fitted import Fitted

#: How far the grid reaches beyond the points, as a share of their range.
MARGIN = 0.08


@register("boundary")
def boundary(fitted: Fitted, data: Dataset, *, resolution: int = 150) -> dict[str, npt.NDArray[Any]]:
    """Predict probabilities on a grid around the training points; also return the points.

    Returns
    -------
    boundary_x, boundary_y : float32 (R,)
        Coordinates of the columns and the rows of the grid.
    boundary_probs : float32 (R, R, K)
        The first index is the row, that is y.
    boundary_points : float32 (N, 2)
    boundary_given, boundary_clean : int64 (N,)
        Labels of the training rows; without clean labels both are the given ones.
    """
    x = data.train.x
    if not isinstance(x, np.ndarray) or data.input_shape != (2,):
        raise InputError(
            f"the probe 'boundary' is for points in the plane, the inputs have shape {data.input_shape}"
        )
    if resolution < 2:
        raise InputError(f"resolution must be at least 2, got {resolution}")
    along, up = (_span(x[:, axis], resolution) for axis in (0, 1))
    mesh = np.stack(np.meshgrid(along, up), -1)
    probs = fitted.predict_proba(mesh.reshape(-1, 2)).reshape(resolution, resolution, -1)
    clean = data.train.y if data.train.clean is None else data.train.clean
    return {
        "boundary_x": along,
        "boundary_y": up,
        "boundary_probs": probs.astype(np.float32),
        "boundary_points": x.astype(np.float32),
        "boundary_given": data.train.y,
        "boundary_clean": clean,
    }


def _span(values: npt.NDArray[Any], resolution: int) -> npt.NDArray[np.float32]:
    margin = MARGIN * max(float(np.ptp(values)), 1e-9)
    return np.linspace(values.min() - margin, values.max() + margin, resolution, dtype=np.float32)
