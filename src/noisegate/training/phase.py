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

    Examples
    --------
    >>> import torch
    >>> batch = Batch(
    ...     x=torch.zeros(4, 2), y=torch.tensor([0, 1, 1, 0]), index=torch.arange(4),
    ...     weight=torch.ones(4), epoch=torch.tensor(0),
    ... )
    >>> chosen = (batch.y == 1).float() * batch.weight  # a method selects rows by a mask
    >>> chosen.tolist()
    [0.0, 1.0, 1.0, 0.0]
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

    Examples
    --------
    >>> import torch
    >>> classifier, decoder = torch.nn.Linear(2, 3), torch.nn.Linear(3, 2)
    >>> update = Update(decoder, lambda batch: (decoder(classifier(batch.x)) - batch.x).square().mean())
    >>> update.trained is decoder
    True
    """

    trained: nn.Module
    loss: Callable[[Batch], Tensor | tuple[Tensor, Tensor]]


class PhaseModule(nn.Module, ABC):
    """What a phase trains: the networks of a method and their joint loss.

    Everything that changes during a phase must be a parameter or a buffer of fixed shape, so that
    checkpoints contain it.

    >>> import torch
    >>> import noisegate as ng
    >>> from noisegate.methods import Batch, PhaseModule
    >>> class Confident(PhaseModule):  # leaves out labels whose probability is below 0.1
    ...     def __init__(self, network, objective):
    ...         super().__init__()
    ...         self.network, self.objective = network, objective
    ...     def forward(self, batch):
    ...         losses = self.objective(self.network(batch.x), batch.y, reduction="none")
    ...         kept = batch.weight * (losses.detach() < 2.3)
    ...         return ng.objectives.weighted_mean(losses, kept)
    ...     def predictor(self):
    ...         return self.network, self.objective
    >>> module = Confident(torch.nn.Linear(2, 3), ng.CrossEntropy(3))
    >>> rows = torch.arange(6)
    >>> module(Batch(torch.zeros(6, 2), rows % 3, rows, torch.ones(6), torch.tensor(0))).shape
    torch.Size([])
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

    Examples
    --------
    >>> import torch
    >>> import noisegate as ng
    >>> from noisegate.methods import Direct
    >>> objective = ng.CrossEntropy(3)
    >>> phase = ng.Phase(Direct(torch.nn.Linear(2, 3), objective), ng.Recipe(epochs=5), keep="best")
    >>> phase.recipe.epochs, phase.keep
    (5, 'best')
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
