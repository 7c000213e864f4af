"""What all candidates are fitted to: standardised inputs, given labels, weights, and folds."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from noisegate.methods.estimation import deal_folds
from noisegate.networks.prepare import Prepared
from noisegate.networks.projection import Projection
from noisegate.training.job import Job

log = logging.getLogger("noisegate")


@dataclass(frozen=True)
class TrainingRows:
    """Training rows of a fit, in memory.

    Attributes
    ----------
    x : float tensor (N, d)
        Standardised inputs.
    y : int64 tensor (N,)
        Given labels.
    weight : tensor (N,)
    n_classes : int
    trains : bool tensor (N, folds * repeats)
        Whether a row is among the training rows of a fold; each repeat leaves every row out exactly
        once.
    folds : int
        The first that many columns of `trains` are the first repeat.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    n_classes: int
    trains: Tensor
    folds: int

    def __len__(self) -> int:
        return len(self.y)

    @property
    def once(self) -> Tensor:
        """The folds of the first repeat, `(N, folds)`."""
        return self.trains[:, : self.folds]

    def some(self, index: Tensor) -> TrainingRows:
        """Some of the rows, by their numbers."""
        x, y, weight, trains = (each[index] for each in (self.x, self.y, self.weight, self.trains))
        return dataclasses.replace(self, x=x, y=y, weight=weight, trains=trains)

    def reweighted(self, factor: Tensor) -> TrainingRows:
        """The same rows with their weights multiplied."""
        return dataclasses.replace(self, weight=self.weight * factor)


def training_rows(
    job: Job, prepared: Prepared, folds: int, repeats: int, front: Projection | None = None
) -> TrainingRows:
    """The training rows of a job as `prepared` and `front` hand them to the candidates, dealt to folds.

    A class with a single row has none to learn it from where that row is left out; a line says so.
    """
    parts = (prepared.prepare(batch) for batch in job.train.inputs(1024))
    x = torch.cat([part if front is None else front(part) for part in parts])
    y = job.train.y
    folds = min(folds, len(y))
    warn_of_rare_classes(y, job.n_classes)
    dealt = torch.stack([deal_folds(y, folds) for _ in range(repeats)], 1)
    trains = (dealt[:, :, None] != torch.arange(folds, device=y.device)).flatten(1)
    return TrainingRows(x.float(), y, job.train.weight, job.n_classes, trains, folds)


def warn_of_rare_classes(y: Tensor, n_classes: int) -> None:
    """Say which labels cannot be judged, since no other row has them."""
    counts = torch.bincount(y, minlength=n_classes)
    alone = torch.nonzero(counts == 1).flatten().tolist()
    if alone:
        log.info(
            "%d of %d classes have a single row each: no other row can speak for or against their labels",
            len(alone),
            n_classes,
        )
