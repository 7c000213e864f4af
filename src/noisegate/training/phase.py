"""The vocabulary of methods: batches, phases, and the modules that phases train."""

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
    """The rows of one training step.

    Attributes
    ----------
    x : tensor (B, ...)
        Augmented raw inputs; the network normalises them.
    y : int64 tensor (B, ...)
        Observed labels.
    index : int64 tensor (B,)
        Row numbers in the training rows, for per-example state.
    weight : float tensor (B,)
        Sample weights. A method that selects rows multiplies the weights by a mask of zeros and
        ones, because shapes must not change.
    epoch : int64 tensor ()
        Number of the epoch within the phase, from 0.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    weight: Tensor
    epoch: Tensor


@dataclass(frozen=True)
class Update:
    """One parameter update within a step: a module with its own optimiser, and a loss.

    Attributes
    ----------
    trained : nn.Module
        Its trainable parameters are updated. Several updates of a step may share parameters.
    loss : function (Batch) -> Tensor or (Tensor, Tensor)
        Returns what `PhaseModule.forward` returns. It is called after the earlier updates of the
        step have been made.
    """

    trained: nn.Module
    loss: Callable[[Batch], Tensor | tuple[Tensor, Tensor]]


class PhaseModule(nn.Module, ABC):
    """What a phase trains: the networks of a method and their joint loss.

    Everything that changes during a phase must be a parameter or a buffer of fixed shape, so that
    checkpoints contain it.
    """

    def updates(self) -> Sequence[Update]:
        """The updates that one step makes, in order. Default: one, of all parameters, by `forward`.

        Each update has its own optimiser, built from the recipe, so that Adam scales the steps of
        each loss by the gradients of that loss. The history shows the sum of all losses.
        """
        return (Update(self, self),)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor | tuple[Tensor, Tensor]:
        """Compute the loss of a batch, or (loss, active).

        `active` is a 0-d bool tensor. Where it is false the update is skipped: weights and
        optimiser state stay as they are, and no weight decay is applied. The code must be
        capture-safe: fixed shapes, no `.item()`, no Python branch on the value of a tensor.
        """

    @abstractmethod
    def predictor(self) -> tuple[nn.Module, Any]:
        """The (network, objective) that is validated and used for prediction."""

    def begin_epoch(self, epoch: int, job: Job) -> None:
        """Hook called before each epoch, outside the captured step. Default: do nothing."""

    def label_signals(self, x: Tensor, y: Tensor, index: Tensor) -> dict[str, Tensor]:
        """What it knows about given labels beside its predictions and those of its objective.

        Audits call it in evaluation mode, outside the captured step. Default: nothing.

        Parameters
        ----------
        x : tensor (B, ...)
        y, index : int64 tensors (B,)
            Given labels and row numbers, as in a `Batch`.

        Returns
        -------
        dict of tensors (B,)
            By name; high where the given label is likely wrong.
        """
        return {}


@dataclass(frozen=True)
class Phase:
    """One stretch of training of one module.

    A method runs it by `history = yield Phase(...)`. Afterwards the module holds the kept weights,
    and `history` is a list with one dict of numbers per epoch.

    Attributes
    ----------
    module : PhaseModule
        What is trained.
    recipe : Recipe
        How it is trained.
    rows : int64 tensor, default=None
        Numbers of the training rows to use. None: all rows.
    keep : {"last", "best", "ema"}, default=None
        Which weights the phase ends with. None: the recipe's `keep`.
    name : str, default="training"
        Name of the phase in the progress bar.
    """

    module: PhaseModule
    recipe: Recipe
    rows: Tensor | None = field(default=None, repr=False)
    keep: str | None = None
    name: str = "training"


#: The numbers of each epoch of a phase.
History = list[dict[str, float]]
#: What `Method.phases` returns: it yields phases, receives their histories, returns the classifier.
Phases = Generator[Phase, History, Fitted]
