"""Signals of one run in training: what its network said about each row while it learnt.

A network contradicts wrong labels before it learns them by heart. The mean of its probabilities over the
first third of the epochs keeps that; no folds are needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.evaluation.passes import predict
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.direct import Plain
from noisegate.methods.estimation import length_in_epochs
from noisegate.objectives import CrossEntropy
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases, Update

#: The share of the epochs over which probabilities are averaged: later ones repeat what was learnt by heart.
EARLY = 1 / 3


class Watched(PhaseModule):
    """A phase's module, whose predictions of all training rows are added up at the end of each epoch.

    Parameters
    ----------
    inner : PhaseModule
    job : Job
    epochs : int
        How many there will be; probabilities are added up over the first of them.
    """

    said: Tensor
    contradicted: Tensor
    looks: Tensor

    def __init__(self, inner: PhaseModule, job: Job, epochs: int) -> None:
        super().__init__()
        self._early = math.ceil(EARLY * epochs)
        self.inner = inner
        self._rows = job.train
        self.register_buffer("said", torch.zeros(len(job.train), job.n_classes, device=job.device))
        self.register_buffer(
            "contradicted", torch.zeros(len(job.train), dtype=torch.int32, device=job.device)
        )
        self.register_buffer("looks", torch.zeros((), dtype=torch.int64, device=job.device))

    def updates(self) -> Sequence[Update]:
        return self.inner.updates()

    def forward(self, batch: Batch) -> Tensor | tuple[Tensor, Tensor]:
        return self.inner(batch)

    def predictor(self) -> tuple[nn.Module, Any]:
        return self.inner.predictor()

    def begin_epoch(self, epoch: int, job: Job) -> None:
        if epoch:
            self.look()
        self.inner.begin_epoch(epoch, job)

    @torch.no_grad()
    def look(self) -> None:
        """Predict all training rows and add that up."""
        network, objective = self.inner.predictor()
        probs = predict(network, objective, self._rows)
        early = (self.looks < self._early).to(self.said.dtype)
        self.said += early * probs.to(self.said.dtype)
        self.contradicted += (probs.argmax(dim=1) != self._rows.y).to(torch.int32)
        self.looks += 1


@dataclass
class InTraining(Method):
    """Any method, whose first phase is watched. The classifier is the method's own.

    Parameters
    ----------
    inner : Method, default=cross-entropy

    Notes
    -----
    `extras` of what is fitted have `said` (N, K), the mean probabilities over the first third of the
    epochs, and `contradicted` (N,), the share of epochs that contradicted the given label. Both rank wrong
    labels well; a network that has seen the labels is too sure of them, so that few are flagged.
    """

    inner: Method = field(default_factory=lambda: Plain(CrossEntropy))

    def phases(self, job: Job) -> Phases:
        phases = self.inner.phases(job)
        watched: Watched | None = None
        history = None
        while True:
            try:
                phase: Phase = next(phases) if history is None else phases.send(history)
            except StopIteration as stop:
                fitted: Fitted = stop.value
                break
            if watched is None:
                watched = Watched(phase.module, job, length_in_epochs(phase.recipe, len(job.train)))
                history = yield Phase(watched, phase.recipe, phase.rows, phase.keep, phase.name)
                watched.look()
            else:
                history = yield phase
        if watched is not None:
            total = watched.said.sum(dim=1, keepdim=True).clamp_min(1e-12)
            fitted.extras |= {
                "said": (watched.said / total).cpu(),
                "contradicted": (watched.contradicted / watched.looks.clamp(min=1)).cpu(),
            }
        return fitted
