"""Signals about labels from one training run, without folds.

A network contradicts wrong labels before it memorises them. The mean of its probabilities over the first
third of the epochs captures that. Methods and objectives that judge labels while they train add signals
of their own (`PhaseModule.label_signals`, `Objective.label_signals`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.direct import Plain
from noisegate.methods.estimation import length_in_epochs
from noisegate.objectives import CrossEntropy
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases, Update

#: Share of the epochs over which probabilities are averaged; later ones repeat memorised labels.
EARLY = 1 / 3
#: Prefix of the names of signals among the extras of a classifier and the columns of an audit.
PREFIX = "signal_"


class Watched(PhaseModule):
    """A phase's module that sums up its predictions of all training rows at the end of each epoch.

    Parameters
    ----------
    inner : PhaseModule
    job : Job
    epochs : int
        Number of epochs of the phase; probabilities are summed over the first third.

    Attributes
    ----------
    said : tensor (N, K)
        Sum of the probabilities over the first third of the epochs.
    contradicted : int32 tensor (N,)
        Epochs after which another class was more probable than the given label.
    signals : tensor (N, S)
        Sums over all epochs of the `label_signals` of the module and of its objective.
    looks : int64 tensor ()
        Number of epochs.
    """

    said: Tensor
    contradicted: Tensor
    signals: Tensor
    looks: Tensor

    def __init__(self, inner: PhaseModule, job: Job, epochs: int) -> None:
        super().__init__()
        self._early = math.ceil(EARLY * epochs)
        self.inner = inner
        self._rows = job.train
        n = len(job.train)
        self.names = tuple(self._signals(torch.arange(min(n, 2), device=job.device))[1])
        self.register_buffer("said", torch.zeros(n, job.n_classes, device=job.device))
        self.register_buffer("contradicted", torch.zeros(n, dtype=torch.int32, device=job.device))
        self.register_buffer("signals", torch.zeros(n, len(self.names), device=job.device))
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
    def _signals(self, index: Tensor, x: Tensor | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """Probabilities of some rows, and the other signals about their labels."""
        rows = self._rows
        if x is None:
            x = rows.gather(index) if rows.resident else rows.read(index.cpu()).to(rows.device)
        network, objective = self.inner.predictor()
        modes = {
            module: module.training for part in (self.inner, network, objective) for module in part.modules()
        }
        for module in modes:
            module.training = False
        try:
            outputs, y = network(x), rows.y[index]
            known = objective.label_signals(outputs, y) | self.inner.label_signals(x, y, index)
            return objective.probs(outputs), known
        finally:
            for module, mode in modes.items():
                module.training = mode

    @torch.no_grad()
    def look(self) -> None:
        """Predict all training rows and add the results to the sums."""
        early = (self.looks < self._early).to(self.said.dtype)
        size = 4096 if len(self._rows.shape) == 1 else 512
        for index, x in self._rows.batches(torch.arange(len(self._rows)), size):
            probs, known = self._signals(index, x)
            self.said[index] += early * probs.to(self.said.dtype)
            self.contradicted[index] += (probs.argmax(dim=1) != self._rows.y[index]).to(torch.int32)
            if known:
                self.signals[index] += torch.stack([known[name] for name in self.names], 1).to(
                    self.signals.dtype
                )
        self.looks += 1

    def extras(self) -> dict[str, Tensor]:
        """Means over the epochs that were looked at."""
        total, looks = self.said.sum(dim=1, keepdim=True).clamp_min(1e-12), self.looks.clamp(min=1)
        means = {"contradicted": self.contradicted / looks}
        means |= {name: self.signals[:, place] / looks for place, name in enumerate(self.names)}
        return {"said": (self.said / total).cpu()} | {PREFIX + n: v.cpu() for n, v in means.items()}


@dataclass
class InTraining(Method):
    """Any method, with signals collected in its phases over all rows. The classifier is the method's own.

    Parameters
    ----------
    inner : Method, default=cross-entropy

    Notes
    -----
    `extras` of what is fitted have `said` (N, K), the mean probabilities over the first third of the
    epochs; `signal_contradicted` (N,), the share of epochs that contradicted the given label; and what the
    method knows about labels, each a mean over the epochs: `signal_residual` and `signal_label_term` (LN:
    r' r and r' Sigma^-1 r), `signal_dropped` (co-teaching, MentorNet: how often the label was left out),
    `signal_disagreement` (ELR), `signal_unlikely` (DivideMix), `signal_posterior` (CausalNL: by q(y|x) and
    p(y~|y, x)). Where a method has several phases, `said` is of the first one over all rows and a signal of
    the last one that has it. All rank wrong labels well; a network that has seen the labels is too sure of
    them, so that few are flagged.
    """

    inner: Method = field(default_factory=lambda: Plain(CrossEntropy))

    def phases(self, job: Job) -> Phases:
        phases = self.inner.phases(job)
        found: dict[str, Tensor] = {}
        history = None
        while True:
            try:
                phase: Phase = next(phases) if history is None else phases.send(history)
            except StopIteration as stop:
                fitted: Fitted = stop.value
                break
            if phase.rows is not None:  # phases on folds see only a part of the rows
                history = yield phase
                continue
            watched = Watched(phase.module, job, length_in_epochs(phase.recipe, len(job.train)))
            history = yield Phase(watched, phase.recipe, phase.rows, phase.keep, phase.name)
            watched.look()
            found = found | watched.extras() | ({"said": found["said"]} if found else {})
        if not found:
            raise InputError(f"{self.inner!r} has no phase over all rows, so there are no signals to collect")
        fitted.extras |= found
        return fitted
