"""A classifier's predictions for the test rows, and for the first rows with a wrong label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import MissingDataError
from noisegate.studies.probes.base import register

if TYPE_CHECKING:
    from noisegate.data.dataset import Dataset
    from noisegate.fitted import Fitted


@register("predictions")
def predictions(fitted: Fitted, data: Dataset, *, wrong: int = 12) -> dict[str, npt.NDArray[Any]]:
    """Probabilities of the test rows, and of the first `wrong` training rows with a wrong label.

    Returns
    -------
    test_probs : float32 (N, K)
    test_labels : int64 (N,)
        Clean ones, where they are known.
    wrong_inputs : array (M, ...)
    wrong_probs : float32 (M, K)
    wrong_given, wrong_clean : int64 (M,)
        M is less than `wrong` where fewer labels are wrong, 0 where no clean ones are known.
    """
    test = data.test
    if test is None:
        raise MissingDataError(f"the probe 'predictions' needs test rows, {data.name} has none")
    clean = data.train.y if data.train.clean is None else data.train.clean
    rows = np.flatnonzero(data.train.y != clean)[:wrong]
    chosen = data.train.take(rows)
    inputs = chosen.x if isinstance(chosen.x, np.ndarray) else chosen.x.fetch(np.arange(len(rows)))
    probs = fitted.predict_proba(inputs) if len(rows) else np.zeros((0, data.n_classes))
    return {
        "test_probs": fitted.predict_proba(test.x).astype(np.float32),
        "test_labels": test.y if test.clean is None else test.clean,
        "wrong_inputs": np.asarray(inputs),
        "wrong_probs": probs.astype(np.float32),
        "wrong_given": chosen.y,
        "wrong_clean": clean[rows],
    }
