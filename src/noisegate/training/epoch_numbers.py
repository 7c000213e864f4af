"""What is measured at the end of an epoch."""

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
    """Numbers for the history alone; nothing that trains or selects sees them.

    Attributes
    ----------
    rows : mapping of str to Rows
        What it may look at; rows that are not resident keep it from being captured.
    parts : sequence of str
        Which of those rows it looks at.
    """

    @property
    def rows(self) -> Mapping[str, Rows]:
        """The rows by part."""

    @property
    def parts(self) -> Sequence[str]:
        """Names of the parts that are measured."""

    def measure(self, passes: Passes) -> dict[str, Tensor]:
        """Compute the numbers as 0-d tensors on the device; capture-safe where its rows are resident."""


class EpochNumbers:
    """The numbers of an epoch: of the training steps, of the noisy validation rows, and the evidence.

    Parameters
    ----------
    step : Step
    validation : Rows, optional
        Held-out rows with observed labels.
    evidence : Evidence, optional
    validates_always : bool
        Whether validation is needed after every epoch, and not only after those that are evaluated in
        full: where it decides which weights are kept, or when to stop.
    shows_average : bool
        Whether the moving average is what is evaluated, because the phase will keep it.
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
        """Inside, the module has the weights that are evaluated."""
        return contextlib.nullcontext() if self._shown is None else self._shown.shown()

    def resident(self, full: bool) -> bool:
        """Whether all rows that are read lie on the device, so that a GPU can capture their passes."""
        rows = [] if self.validation is None else [self.validation]
        if full and self.evidence is not None:
            rows += [each for part, each in self.evidence.rows.items() if part in self.evidence.parts]
        return all(each.resident for each in rows)

    def compute(self, passes: Passes, full: bool) -> dict[str, Tensor]:
        """The numbers as 0-d tensors; capture-safe.

        Parameters
        ----------
        passes : Passes
            In evaluation mode.
        full : bool
            With the evidence.
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
        """Enqueue the numbers as they are written, operation by operation."""
        passes = Passes(*self.predictor())
        with self.shown(), passes.evaluating():
            return Reading.of(self.compute(passes, full), self.device)
