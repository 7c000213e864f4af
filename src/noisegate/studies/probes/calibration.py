"""Calibration error with a paper's number of bins."""

from __future__ import annotations

from noisegate.data.dataset import Dataset
from noisegate.data.loader import Rows
from noisegate.errors import MissingDataError
from noisegate.evaluation.metrics import ece
from noisegate.evaluation.passes import predict
from noisegate.fitted import Fitted
from noisegate.studies.probes.base import register


@register("calibration")
def calibration(fitted: Fitted, data: Dataset, *, bins: int = 100) -> dict[str, float]:
    """Expected calibration error on the clean test labels.

    The number `test_ece100` for 100 bins.
    """
    if data.test is None:
        raise MissingDataError(f"the probe 'calibration' needs test rows, {data.name} has none")
    labels = data.test.y if data.test.clean is None else data.test.clean
    device = next(fitted.network.parameters()).device
    probs = predict(fitted.network, fitted.objective, Rows(data.test.x, labels, device))
    return {f"test_ece{bins}": ece(probs, labels, bins)}
