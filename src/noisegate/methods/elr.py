"""Early-learning regularisation: keep the predictions close to those before memorisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.registry import register
from noisegate.objectives import CrossEntropy, Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases

#: Probabilities are kept this far from 0 and 1, as in the authors' code, so that log(1 - <p, t>)
#: stays finite.
MARGIN = 1e-4


def early_learning_term(probs: Tensor, targets: Tensor) -> Tensor:
    """log(1 - <p, t>) of each row, `(B, K)`, `(B, K)` -> `(B,)`; falling as p and t agree.

    >>> early_learning_term(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
    tensor([-0.6931])
    """
    return torch.log1p(-(probs * targets).sum(1))


class Remembering(PhaseModule):
    """Cross-entropy and the early-learning term against a moving average of each row's predictions."""

    targets: Tensor

    def __init__(
        self, network: nn.Module, objective: Objective, targets: Tensor, strength: float, beta: float
    ) -> None:
        super().__init__()
        self.network, self.objective, self.strength, self.beta = network, objective, strength, beta
        self.register_buffer("targets", targets)

    def forward(self, batch: Batch) -> Tensor:
        outputs = self.network(batch.x)
        losses = self.objective(outputs, batch.y, reduction="none")
        probs = self.objective.probs(outputs).clamp(MARGIN, 1 - MARGIN)
        losses = losses + self.strength * early_learning_term(probs, self._updated(batch.index, probs))
        return weighted_mean(losses, batch.weight.to(losses.dtype))

    @torch.no_grad()
    def _updated(self, index: Tensor, probs: Tensor) -> Tensor:
        """t = beta t + (1 - beta) p / sum(p) for the rows of the batch, stored and returned."""
        fresh = probs / probs.sum(1, keepdim=True)
        updated = torch.lerp(fresh.to(self.targets.dtype), self.targets.index_select(0, index), self.beta)
        self.targets.index_copy_(0, index, updated)
        return updated

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.network, self.objective

    def agreement(self, y: Tensor, index: Tensor) -> Tensor:
        """t_y / sum(t) of some rows: how far their past predictions agree with their labels, (B,)."""
        targets = self.targets[index]
        given, total = targets.gather(1, y.unsqueeze(1)).squeeze(1), targets.sum(1)
        return torch.where(total > 0, given / total, given.new_full((), 1 / targets.shape[1]))

    def label_signals(self, x: Tensor, y: Tensor, index: Tensor) -> dict[str, Tensor]:
        """`disagreement`: 1 minus `agreement`."""
        return {"disagreement": 1 - self.agreement(y, index)}


@register(
    "elr",
    "early-learning regularisation: pulls each prediction towards the running mean of its past ones",
    "Liu et al. 2020, early-learning regularisation",
)
@dataclass
class EarlyLearning(Method):
    """Early-learning regularisation (ELR).

        loss = -log p_y + lambda log(1 - <p, t>),    t <- beta t + (1 - beta) p    at each visit of a row

    Networks fit right labels before wrong ones. The second term has a gradient towards t, the mean
    of the row's past predictions (without a gradient, from 0), which grows as they agree: it keeps
    up the fit of right labels and cancels the pull of wrong ones. t is updated before it is used; p
    is clipped to [1e-4, 1 - 1e-4].

    Parameters
    ----------
    strength : float
        lambda, not negative; 0 is cross-entropy. 3 for CIFAR-10 in the paper, 7 for CIFAR-100.
    beta : float
        Decay of the moving average t, in [0, 1); 0.7 for CIFAR-10 in the paper, 0.9 for CIFAR-100.

    Notes
    -----
    This is ELR; the paper's ELR+ adds two networks, mixup and weight averaging. The fitted classifier has
    `extras["agreement"]`, t_y / sum(t) for every training row: how far its past predictions agree with its label
    (1 / K for a row that was in no batch).

    References
    ----------
    Liu, Niles-Weed, Razavian, Fernandez-Granda. Early-Learning Regularization Prevents Memorization of Noisy
    Labels. NeurIPS 2020.
    """

    strength: float = 3.0
    beta: float = 0.7

    def phases(self, job: Job) -> Phases:
        if not (math.isfinite(self.strength) and self.strength >= 0):
            raise InputError(f"strength must be a finite number that is not negative, got {self.strength!r}")
        if not 0 <= self.beta < 1:
            raise InputError(f"beta must lie in [0, 1), got {self.beta!r}")
        objective = CrossEntropy(job.n_classes)
        network = job.network(objective)
        targets = job.per_example(job.n_classes)
        module = Remembering(network, objective, targets, self.strength, self.beta)
        yield Phase(module, job.recipe)
        rows = torch.arange(len(job.train), device=job.device)
        return Fitted(network, objective, agreement=module.agreement(job.train.y, rows))
