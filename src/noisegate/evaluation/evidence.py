"""What clean labels tell about a run: numbers for people, never for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.data.dataset import Dataset
from noisegate.data.loader import Rows
from noisegate.errors import UnknownNameError
from noisegate.evaluation.metrics import summary
from noisegate.training.job import given_labels, predict

PARTS = ("test", "train", "validation")


class CleanEvidence:
    """Metrics on clean test labels, and on the rightly and the wrongly labelled part of the training rows.

    Parameters
    ----------
    data : Dataset
    train : Rows
        The training rows as the job holds them.
    validation : Rows, optional
        The validation rows as the job holds them.
    parts : sequence of {"test", "train", "validation"}
        What a call looks at; `everything` looks at all.

    Notes
    -----
    Calling it with (network, objective) gives `test_accuracy`, `test_log_likelihood`, `test_ece` and
    `test_brier` where there are test rows; `noisy_test_accuracy` and `noisy_test_log_likelihood` (of the given
    labels) where the test labels are noisy themselves; where the clean training labels are known
    `train_right_accuracy` (agreement on rows labelled right), `train_memorised` (share of wrong labels the
    network repeats), `train_recovered` (share of wrong labels where it says the clean one) and
    `train_clean_accuracy` (agreement with the clean label on all rows); and `validation_clean_accuracy` where
    the clean validation labels are known.
    """

    def __init__(
        self,
        data: Dataset,
        train: Rows,
        validation: Rows | None = None,
        parts: Sequence[str] = ("test", "train"),
    ) -> None:
        for part in parts:
            if part not in PARTS:
                raise UnknownNameError("part of the evidence", part, PARTS)
        self.parts = tuple(parts)
        self._train, self._validation, self._test = train, validation, None
        self._noisy_test: Tensor | None = None
        if data.test is not None:
            labels = data.test.y if data.test.clean is None else data.test.clean
            self._test = Rows(data.test.x, labels, train.device)
            if data.test.clean is not None:
                self._noisy_test = torch.as_tensor(data.test.y, device=train.device)
        self._clean = _on(train.device, data.train.clean)
        held = data.validation
        self._clean_validation = None if held is None else _on(train.device, held.clean)

    def __call__(self, network: nn.Module, objective: Any) -> dict[str, float]:
        return self._look(network, objective, self.parts)

    def everything(self, network: nn.Module, objective: Any) -> dict[str, float]:
        """All parts, whichever a call looks at."""
        return self._look(network, objective, PARTS)

    def _look(self, network: nn.Module, objective: Any, parts: Sequence[str]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if "test" in parts and self._test is not None:
            metrics |= self._test_metrics(network, objective, self._test)
        if "train" in parts and self._clean is not None:
            predicted = predict(network, objective, self._train).argmax(1)
            metrics |= _train_parts(predicted, self._train.y, self._clean)
        if "validation" in parts and self._validation is not None and self._clean_validation is not None:
            predicted = predict(network, objective, self._validation).argmax(1)
            agreed = (predicted == self._clean_validation).double().mean()
            metrics["validation_clean_accuracy"] = float(agreed)
        return metrics

    def _test_metrics(self, network: nn.Module, objective: Any, test: Rows) -> dict[str, float]:
        values = summary(predict(network, objective, test), test.y)
        metrics = {f"test_{name}": value for name, value in values.items()}
        if self._noisy_test is not None:
            seen = given_labels(network, objective, test, self._noisy_test)
            metrics |= {f"noisy_test_{name}": value for name, value in seen.items()}
        return metrics


def _on(device: torch.device, labels: Any) -> Tensor | None:
    return None if labels is None else torch.as_tensor(labels, device=device)


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
    parts = {
        "train_right_accuracy": agreed / max(1, len(observed) - n_wrong),
        "train_clean_accuracy": (agreed + recovered) / len(observed),
    }
    if n_wrong:
        parts |= {"train_memorised": memorised / n_wrong, "train_recovered": recovered / n_wrong}
    return parts
