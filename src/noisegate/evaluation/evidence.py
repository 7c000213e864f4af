"""What clean labels tell about a run: numbers for people, never for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from noisegate._device import Reading
from noisegate.data.dataset import Dataset
from noisegate.data.loader import Rows
from noisegate.errors import InputError, UnknownNameError
from noisegate.evaluation.maps import class_iou, confusion, map_summary
from noisegate.evaluation.metrics import row_scores, summary_of
from noisegate.evaluation.passes import Passes, read_given
from noisegate.noise.base import VOID

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

    Of maps of labels the numbers are over pixels that have one; there are also `test_mean_iou`,
    `test_boundary_accuracy`, `test_interior_accuracy` and `test_iou_0` and so on, -1 where a class
    never occurs.
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
        self._n_wrong = 0 if data.train.clean is None else int((data.train.y != data.train.clean).sum())
        held = data.validation
        self._clean_validation = None if held is None else _on(train.device, held.clean)

    def __call__(self, network: nn.Module, objective: Any) -> dict[str, float]:
        return self._look(network, objective, self.parts).read()

    def everything(self, network: nn.Module, objective: Any) -> dict[str, float]:
        """All parts, whichever a call looks at."""
        return self.everything_on_device(network, objective).read()

    def everything_on_device(self, network: nn.Module, objective: Any) -> Reading:
        """All parts, not waited for."""
        return self._look(network, objective, PARTS)

    def _look(self, network: nn.Module, objective: Any, parts: Sequence[str]) -> Reading:
        passes = Passes(network, objective)
        with passes.evaluating():
            numbers = self.measure(passes, parts)
        return Reading.of(numbers, self._train.device)

    @property
    def rows(self) -> dict[str, Rows]:
        """The rows that there are clean labels of, by part."""
        known = {
            "test": self._test,
            "train": None if self._clean is None else self._train,
            "validation": None if self._clean_validation is None else self._validation,
        }
        return {part: rows for part, rows in known.items() if rows is not None}

    def measure(self, passes: Passes, parts: Sequence[str] | None = None) -> dict[str, Tensor]:
        """The numbers as 0-d tensors on the device, which nobody has waited for; capture-safe.

        Parameters
        ----------
        passes : Passes
            In evaluation mode.
        parts : sequence of str, optional
            What to look at; what a call looks at by default.
        """
        numbers: dict[str, Tensor] = {}
        for part in (part for part in PARTS if part in (self.parts if parts is None else parts)):
            if part in self.rows:
                numbers |= getattr(self, f"_{part}_numbers")(passes, self.rows[part])
        return numbers

    def _test_numbers(self, passes: Passes, rows: Rows) -> dict[str, Tensor]:
        given = None if self._noisy_test is None else read_given(self._noisy_test)
        if rows.maps:
            numbers = self._map_numbers(passes, "test", rows)
            if given is not None:
                noisy = map_summary(passes("noisy test", rows, given), passes.objective.n_classes)
                numbers |= {f"noisy_test_{name}": value for name, value in noisy.items()}
            return numbers

        def read(objective: Any, outputs: Tensor, index: Tensor) -> Tensor:
            scores = row_scores(objective.probs(outputs), rows.y[index])
            return scores if given is None else torch.cat([scores, given(objective, outputs, index)], 1)

        scores = passes("test", rows, read)
        numbers = {f"test_{name}": value for name, value in summary_of(scores[:, :5]).items()}
        if given is not None:
            accuracy, log_likelihood = scores[:, 5:].mean(0)
            numbers |= {"noisy_test_accuracy": accuracy, "noisy_test_log_likelihood": log_likelihood}
        return numbers

    def _train_numbers(self, passes: Passes, rows: Rows) -> dict[str, Tensor]:
        if rows.maps:
            return self._map_train_numbers(passes, rows)
        predicted, clean = passes("train", rows, _read_class)[:, 0], self._known(self._clean)
        wrong, given = rows.y != clean, predicted == rows.y
        recovered = ((predicted == clean) & wrong).double().sum()
        agreed = (given & ~wrong).double().sum()
        numbers = {
            "train_right_accuracy": agreed / max(1, len(rows) - self._n_wrong),
            "train_clean_accuracy": (agreed + recovered) / len(rows),
        }
        if self._n_wrong:
            numbers["train_memorised"] = (given & wrong).double().sum() / self._n_wrong
            numbers["train_recovered"] = recovered / self._n_wrong
        return numbers

    @staticmethod
    def _map_numbers(passes: Passes, part: str, rows: Rows) -> dict[str, Tensor]:
        """`map_summary` and the intersection over union of every class."""
        k, scores = passes.objective.n_classes, passes(part, rows, read_given(rows.y))
        numbers = {f"{part}_{name}": value for name, value in map_summary(scores, k).items()}
        each = class_iou(confusion(scores, k)).nan_to_num(-1.0)
        return numbers | {f"{part}_iou_{label}": each[label] for label in range(k)}

    def _map_train_numbers(self, passes: Passes, rows: Rows) -> dict[str, Tensor]:
        """The numbers of `_train_numbers` over pixels with a label."""
        clean = self._known(self._clean)

        def read(objective: Any, outputs: Tensor, index: Tensor) -> Tensor:
            y, truth = rows.y[index], clean[index]
            said, counted = objective.probs(outputs, tuple(y.shape[1:])).argmax(1), y != VOID
            wrong = (y != truth) & counted
            kinds = [counted & ~wrong, counted & ~wrong & (said == y), wrong, wrong & (said == y)]
            kinds.append(wrong & (said == truth))
            return torch.stack([each.flatten(1).double().sum(1) for each in kinds], 1)

        right, agreed, wrong, memorised, recovered = passes("train", rows, read).sum(0)
        return {
            "train_right_accuracy": agreed / right.clamp_min(1),
            "train_clean_accuracy": (agreed + recovered) / (right + wrong).clamp_min(1),
            "train_memorised": memorised / wrong.clamp_min(1),
            "train_recovered": recovered / wrong.clamp_min(1),
        }

    def _validation_numbers(self, passes: Passes, rows: Rows) -> dict[str, Tensor]:
        if rows.maps:
            clean = self._known(self._clean_validation)
            scores = passes("clean validation", rows, read_given(clean))
            found = map_summary(scores, passes.objective.n_classes)
            return {f"validation_clean_{name}": found[name] for name in ("accuracy", "mean_iou")}
        predicted = passes("clean validation", rows, _read_class)[:, 0]
        agreed = (predicted == self._known(self._clean_validation)).double().mean()
        return {"validation_clean_accuracy": agreed}

    @staticmethod
    def _known(labels: Tensor | None) -> Tensor:
        if labels is None:
            raise InputError("there are no clean labels of these rows")
        return labels


def _read_class(objective: Any, outputs: Tensor, index: Tensor) -> Tensor:
    return objective.probs(outputs).argmax(1, keepdim=True)


def _on(device: torch.device, labels: Any) -> Tensor | None:
    return None if labels is None else torch.as_tensor(labels, device=device)
