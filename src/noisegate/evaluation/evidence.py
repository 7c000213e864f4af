"""What clean labels tell about a run: numbers for people, never for training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from noisegate.data.dataset import Dataset
from noisegate.data.loader import Rows
from noisegate.evaluation.metrics import summary
from noisegate.training.job import predict


class CleanEvidence:
    """Metrics on clean test labels, and on the rightly and the wrongly labelled part of the training rows.

    Parameters
    ----------
    data : Dataset
    train : Rows
        The training rows as the job holds them.

    Notes
    -----
    Calling it with (network, objective) gives `test_accuracy`, `test_log_likelihood`, `test_ece` and
    `test_brier` where there are test rows; and where the clean training labels are known
    `train_right_accuracy` (agreement on rows labelled right), `train_memorised` (share of wrong labels the
    network repeats) and `train_recovered` (share of wrong labels where it says the clean one).
    """

    def __init__(self, data: Dataset, train: Rows) -> None:
        self.train, self.test = train, None
        if data.test is not None:
            labels = data.test.y if data.test.clean is None else data.test.clean
            self.test = Rows(data.test.x, labels, train.device)
        self.clean = (
            None if data.train.clean is None else torch.as_tensor(data.train.clean, device=train.device)
        )

    def __call__(self, network: nn.Module, objective: Any) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if self.test is not None:
            values = summary(predict(network, objective, self.test), self.test.y)
            metrics |= {f"test_{name}": value for name, value in values.items()}
        if self.clean is not None:
            predicted = predict(network, objective, self.train).argmax(1)
            metrics |= _train_parts(predicted, self.train.y, self.clean)
        return metrics


def _train_parts(predicted: Tensor, observed: Tensor, clean: Tensor) -> dict[str, float]:
    wrong = observed != clean
    counts = torch.stack(
        [
            wrong.sum(),
            (torch.logical_not(wrong) & (predicted == observed)).sum(),
            (wrong & (predicted == observed)).sum(),
            (wrong & (predicted == clean)).sum(),
        ]
    ).tolist()
    n_wrong, agreed, memorised, recovered = counts
    parts = {"train_right_accuracy": agreed / max(1, len(observed) - n_wrong)}
    if n_wrong:
        parts |= {"train_memorised": memorised / n_wrong, "train_recovered": recovered / n_wrong}
    return parts
