"""mixup: training on mixtures of pairs of examples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method, build_objective
from noisegate.methods.registry import register
from noisegate.networks.prepare import Prepared
from noisegate.objectives import Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases


def symmetric_beta(alpha: float, like: Tensor) -> Tensor:
    """One draw of Beta(alpha, alpha), a 0-d tensor of the type and device of `like`.

    It is g / (g + h) with two gamma numbers of shape alpha, each made of one of shape alpha + 1
    times U^(1/alpha), in logarithms: a small alpha underflows nowhere, and draws 0 or 1.
    """
    shapes = like.new_full((2,), alpha + 1.0)
    logs = torch._standard_gamma(shapes).log() - torch.empty_like(shapes).exponential_() / alpha
    return torch.sigmoid(logs[0] - logs[1])


class Mixing(PhaseModule):
    """One network trained on s x_i + (1 - s) x_j, against s cost(y_i) + (1 - s) cost(y_j).

    Batches are shuffled, so the partner of a row is its neighbour in the batch: a random other row.
    """

    def __init__(self, network: Prepared, objective: Objective, alpha: float) -> None:
        super().__init__()
        self.network, self.objective, self.alpha = network, objective, alpha

    def forward(self, batch: Batch) -> Tensor:
        share = symmetric_beta(self.alpha, batch.weight) if self.alpha else batch.weight.new_ones(())
        inputs = self.network.prepare(batch.x)
        outputs = self.network.network(share * inputs + (1 - share) * inputs.roll(1, 0))
        own = self._mean_cost(outputs, batch.y, batch.weight)
        other = self._mean_cost(outputs, batch.y.roll(1, 0), batch.weight.roll(1, 0))
        # The weights of the partners have the same sum, so this is one weighted mean over both
        # labels of all rows.
        return share * own + (1 - share) * other

    def _mean_cost(self, outputs: Tensor, labels: Tensor, weight: Tensor) -> Tensor:
        losses, weights = self.objective.losses_and_weights(outputs, labels)
        return weighted_mean(losses, weights * weight.to(losses.dtype))

    def predictor(self) -> tuple[Prepared, Objective]:
        return self.network, self.objective


@register(
    "mixup", "trains on convex mixtures of pairs of examples and of their costs", "Zhang et al. 2018, mixup"
)
@dataclass
class Mixup(Method):
    """mixup: inputs and costs of pairs of examples are mixed.

        loss = s cost(f(s x_i + (1 - s) x_j), y_i) + (1 - s) cost(f(s x_i + (1 - s) x_j), y_j),    s ~ Beta(a, a)

    One s is drawn per batch. Inputs are standardised before they are mixed. Sample weights stay with
    their labels.

    Parameters
    ----------
    alpha : float
        a, the parameter of the Beta distribution, not negative; 0 is plain training. 1 on CIFAR in the
        paper; 8 and 32 do better under heavy label noise.
    objective : str
        The costs to mix: the name of any objective class. An objective that needs more than the number of
        classes (a matrix) must be given as an instance.

    References
    ----------
    Zhang, Cisse, Dauphin, Lopez-Paz. mixup: Beyond Empirical Risk Minimization. ICLR 2018.
    """

    alpha: float = 1.0
    objective: str = "CrossEntropy"

    def phases(self, job: Job) -> Phases:
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise InputError(f"alpha must be a finite number that is not negative, got {self.alpha!r}")
        objective = build_objective(
            self.objective,
            job.n_classes,
            allowed=tuple(Objective.classes),
            method="mixup",
            why="it is unknown",
        )
        network = job.network(objective)
        yield Phase(Mixing(network, objective, self.alpha), job.recipe)
        return Fitted(network, objective)
