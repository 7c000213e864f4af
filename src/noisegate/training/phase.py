"""What a method is written in: batches, phases, and the modules that phases train."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from noisegate.fitted import Fitted
from noisegate.training.job import Job
from noisegate.training.recipe import Recipe


@dataclass
class Batch:
    """What a step sees.

    Attributes
    ----------
    x : tensor (B, ...)
        Augmented raw inputs; the network normalises them.
    y : int64 tensor (B, ...)
        Observed labels.
    index : int64 tensor (B,)
        Row numbers in the training rows, for per-example state.
    weight : float tensor (B,)
        Sample weights. A method that selects multiplies them by its mask; shapes never change.
    epoch : int64 tensor ()
    """

    x: Tensor
    y: Tensor
    index: Tensor
    weight: Tensor
    epoch: Tensor


@dataclass(frozen=True)
class Update:
    """One update of a step: the parameters it changes, with an optimiser of their own, and the loss it follows.

    Attributes
    ----------
    trained : nn.Module
        Its trainable parameters are updated; those of other updates of the same step may be among them.
    loss : function (Batch) -> Tensor or (Tensor, Tensor)
        As `PhaseModule.forward`. It is asked after the updates before it were made.
    """

    trained: nn.Module
    loss: Callable[[Batch], Tensor | tuple[Tensor, Tensor]]


class PhaseModule(nn.Module, ABC):
    """What a phase trains: the networks a method needs, and their common loss.

    Whatever changes during a phase is a parameter or a buffer of fixed shape, so that it is saved and resumed.
    """

    def updates(self) -> Sequence[Update]:
        """What one step does with a batch, in order: by default one update of all parameters on `forward`'s loss.

        Each has an optimiser of its own, made by the recipe, so that Adam scales the steps of each loss by that
        loss's own gradients. The loss that a history shows is the sum of all.
        """
        return (Update(self, self),)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor | tuple[Tensor, Tensor]:
        """The loss, or (loss, active): where `active`, a 0-d bool tensor, is false the update is skipped.

        A skipped update leaves weights, moments and decay untouched. The code must be capture-safe: fixed
        shapes, no `.item()`, no Python branch on a tensor.
        """

    @abstractmethod
    def predictor(self) -> tuple[nn.Module, Any]:
        """The (network, objective) that is validated and that predicts."""

    def begin_epoch(self, epoch: int, job: Job) -> None:
        """Work between epochs, outside the captured step; none by default."""


@dataclass(frozen=True)
class Phase:
    """One uninterrupted stretch of training of one module.

    `history = yield Phase(...)`: afterwards the module holds the kept weights and `history` is a list with one
    dict of numbers an epoch.

    Attributes
    ----------
    module : PhaseModule
    recipe : Recipe
    rows : int64 tensor, optional
        Row numbers to train on; all by default.
    keep : {"last", "best", "ema"}, optional
        Which weights the phase ends with; the recipe's choice by default.
    name : str
        What progress shows.
    """

    module: PhaseModule
    recipe: Recipe
    rows: Tensor | None = field(default=None, repr=False)
    keep: str | None = None
    name: str = "training"


History = list[dict[str, float]]
Phases = Generator[Phase, History, Fitted]
