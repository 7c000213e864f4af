"""The numbers that are computed at the end of an epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from noisegate._device import Reading
from noisegate.data.loader import Rows
from noisegate.evaluation.passes import Passes, read_given, summary_given
from noisegate.training.update import Step


class Evidence(Protocol):
    """Metrics from clean labels, for the history alone; they affect neither training nor selection.

    Attributes
    ----------
    rows : mapping of str to Rows
        The rows of each part of the data. Only resident rows can be captured.
    parts : sequence of str
        Which parts are evaluated.
    """

    @property
    def rows(self) -> Mapping[str, Rows]:
        """The rows by part."""

    @property
    def parts(self) -> Sequence[str]:
        """Names of the parts that are evaluated."""

    def measure(self, passes: Passes) -> dict[str, Tensor]:
        """Compute metrics as 0-d tensors on the device; capture-safe if the rows are resident."""


class EpochNumbers:
    """Computes the numbers of an epoch: training loss, noisy validation metrics, clean metrics.

    Parameters
    ----------
    step : Step
    validation : Rows or None
        Held-out rows with observed labels.
    evidence : Evidence or None
        Metrics from clean labels.
    validates_always : bool
        Whether validation rows are evaluated after every epoch, not only with the evidence: needed
        where they decide which weights are kept or when to stop.
    shows_average : bool
        Whether to evaluate the moving average instead of the current weights: where the phase keeps
        it.
    """

    def __init__(
        self,
        step: Step,
        validation: Rows | None,
        evidence: Evidence | None,
        *,
        validates_always: bool,
        shows_average: bool,
    ) -> None:
        self.step, self.validation, self.evidence = step, validation, evidence
        self.validates_always = validates_always
        self._shown = step.average if shows_average else None

    @property
    def device(self) -> torch.device:
        """Where the numbers are computed."""
        return self.step.job.device

    def predictor(self) -> tuple[nn.Module, Any]:
        """The (network, objective) that is evaluated."""
        return self.step.module.predictor()

    def shown(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the module holds the weights to evaluate: the moving average or its own."""
        return contextlib.nullcontext() if self._shown is None else self._shown.shown()

    def resident(self, full: bool) -> bool:
        """Whether all evaluated rows are resident on the device, so that passes can be captured."""
        rows = [] if self.validation is None else [self.validation]
        if full and self.evidence is not None:
            rows += [each for part, each in self.evidence.rows.items() if part in self.evidence.parts]
        return all(each.resident for each in rows)

    def compute(self, passes: Passes, full: bool) -> dict[str, Tensor]:
        """Compute the numbers as 0-d tensors; capture-safe.

        Parameters
        ----------
        passes : Passes
            In evaluation mode.
        full : bool
            Whether to include the evidence.
        """
        step = self.step
        finite = torch.stack([torch.isfinite(p).all() for p in step.module.parameters()]).all()
        found = {"good": step.good, "finite": finite, "step": step.number}
        found |= {"loss": step.loss_sum, "lr": step.lr}
        rows = self.validation
        if rows is not None and (full or self.validates_always):
            values = passes("validation", rows, read_given(rows.y))
            given = summary_given(values, rows, passes.objective)
            found |= {f"validation_{name}": value for name, value in given.items()}
        return found | self.evidence.measure(passes) if self.evidence is not None and full else found

    def evaluate(self, full: bool) -> Reading:
        """Enqueue the computation of the numbers eagerly, operation by operation."""
        passes = Passes(*self.predictor())
        with self.shown(), passes.evaluating():
            return Reading.of(self.compute(passes, full), self.device)
