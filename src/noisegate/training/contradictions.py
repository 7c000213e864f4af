"""How often a row's label was contradicted while a network learnt it: one integer a row, for free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.objectives.base import Objective
from noisegate.training.job import Job
from noisegate.training.phase import PhaseModule


class Contradictions:
    """Counts the epochs in which another class was more probable than a row's given label.

    A network contradicts wrong labels before it memorises them, so the count over all epochs tells
    wrong labels from right ones much better than the last loss does. It is read from the outputs
    that the steps compute anyway.

    Parameters
    ----------
    network : Module
        What is trained and predicts; its outputs are watched.
    objective : Objective
        What the outputs mean.
    job : Job

    Attributes
    ----------
    counts : int32 tensor (N,)
        Of every training row, over the finished epochs of the phase.
    predicted : int64 tensor (N,)
        The most probable class of each row in this epoch; its label if it was in no batch yet.
    seen : bool
        Whether the network was shown whole batches as they are. It is not where a method mixes inputs.

    References
    ----------
    Toneva et al. An empirical study of example forgetting during deep neural network learning. ICLR
    2019.
    """

    def __init__(self, network: nn.Module, objective: Objective, job: Job) -> None:
        self._objective = objective
        self._y = job.train.y
        self._outputs: Tensor | None = None
        self.counts = torch.zeros(len(job.train), dtype=torch.int32, device=job.device)
        self.predicted = self._y.clone()
        self.seen = False
        self._hook = network.register_forward_hook(self._keep)

    def _keep(self, network: nn.Module, inputs: object, outputs: object) -> None:
        """Keep the first outputs of a step; validation rows are predicted in evaluation mode."""
        if self._outputs is None and network.training and isinstance(outputs, Tensor):
            self._outputs = outputs

    def follow(self, index: Tensor) -> None:
        """Note what the outputs of this step say about its rows `index`, where they are about these rows."""
        outputs, self._outputs = self._outputs, None
        if outputs is not None and len(outputs) == len(index):
            self.seen = True
            self.predicted.index_copy_(0, index, self._objective.most_probable(outputs))

    def end_epoch(self) -> None:
        """Count the labels that this epoch's predictions contradict."""
        self.counts += self.predicted != self._y
        self.predicted.copy_(self._y)

    @property
    def known(self) -> Tensor | None:
        """The counts; None if the network was never shown a batch as it is."""
        return self.counts if self.seen else None

    def stop(self) -> None:
        """Watch the network no longer."""
        self._hook.remove()
        self._outputs = None

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"counts": self.counts, "seen": self.seen}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.counts.copy_(state["counts"])
        self.seen = bool(state["seen"])


def contradictions(module: PhaseModule, job: Job) -> Contradictions | None:
    """Counts for a phase; None where labels are maps or the predictor is no network with an objective."""
    network, objective = module.predictor()
    known = isinstance(network, nn.Module) and hasattr(objective, "most_probable")
    return Contradictions(network, objective, job) if known and not job.train.maps else None
