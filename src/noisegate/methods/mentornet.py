"""Self-paced MentorNet: labels are weighted by their loss relative to a moving threshold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.co_teaching import small_loss_objective
from noisegate.methods.estimation import ESTIMATE, check_count, check_number, noise_rate
from noisegate.methods.registry import register
from noisegate.objectives import Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases


def quantile(values: Tensor, q: float, weight: Tensor) -> Tensor:
    """The q-quantile of the values of positive weight, linear between neighbours; capture-safe.

    `torch.quantile` looks at its arguments on the host. There must be a positive weight.

    >>> quantile(torch.tensor([4.0, 9.0, 1.0, 2.0]), 0.25, torch.tensor([1.0, 0.0, 1.0, 1.0]))
    tensor(1.5000)
    """
    counted = weight > 0
    ordered = torch.where(counted, values, torch.full_like(values, torch.inf)).sort().values
    position = q * (counted.sum() - 1).clamp_min(0).to(torch.float64)
    low, high = (ordered.gather(0, place.long().view(1)).squeeze(0) for place in (position, position.ceil()))
    return torch.lerp(low, high, (position - position.floor()).to(values.dtype))


def self_paced_weights(losses: Tensor, lambda_1: Tensor, lambda_2: float) -> Tensor:
    """1[l < lambda_1] for lambda_2 = 0, else clip(1 - (l - lambda_1) / lambda_2, 0, 1).

    >>> self_paced_weights(torch.tensor([0.5, 1.5, 3.0]), torch.tensor(1.0), 1.0)
    tensor([1.0000, 0.5000, 0.0000])
    """
    if lambda_2 == 0:
        return (losses < lambda_1).to(losses.dtype)
    return (1 - (losses - lambda_1) / lambda_2).clamp(0.0, 1.0)


class SelfPaced(PhaseModule):
    """A network trained on the weighted mean of its losses, with the weights of `self_paced_weights`.

    `threshold` is lambda_1, the moving average of the (1 - rate) quantile of the losses of a batch,
    which it starts from; `kept` `(N, 1)` holds the weight each row had the last time it was seen.
    """

    threshold: Tensor
    started: Tensor
    kept: Tensor

    def __init__(
        self,
        network: nn.Module,
        objective: Objective,
        kept: Tensor,
        *,
        rate: float,
        lambda_2: float = 0.0,
        burn_in: int = 5,
        decay: float = 0.9,
    ) -> None:
        super().__init__()
        self.network, self.objective = network, objective
        self.rate, self.lambda_2, self.burn_in, self.decay = rate, lambda_2, burn_in, decay
        self.register_buffer("kept", kept)
        self.register_buffer("threshold", torch.zeros((), device=kept.device))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool, device=kept.device))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        losses, weight = self.objective.losses_and_weights(self.network(batch.x), batch.y)
        weight = weight * batch.weight.to(losses.dtype)
        paced = self._weights(losses.detach(), weight, batch.epoch)
        self.kept.index_copy_(0, batch.index, paced.unsqueeze(1).to(self.kept.dtype))
        weight = weight * paced
        return weighted_mean(losses, weight), weight.sum() > 0

    @torch.no_grad()
    def _weights(self, losses: Tensor, weight: Tensor, epoch: Tensor) -> Tensor:
        now = quantile(losses, 1 - self.rate, weight).to(self.threshold.dtype)
        followed = torch.where(self.started, torch.lerp(now, self.threshold, self.decay), now)
        some = (weight > 0).any()
        self.threshold.copy_(torch.where(some, followed, self.threshold))
        self.started.logical_or_(some)
        paced = self_paced_weights(losses, self.threshold.to(losses.dtype), self.lambda_2)
        return torch.where(epoch < self.burn_in, torch.ones_like(paced), paced)

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.network, self.objective

    def label_signals(self, x: Tensor, y: Tensor, index: Tensor) -> dict[str, Tensor]:
        """`dropped`: 1 minus the weight of the label when it was last seen."""
        return {"dropped": 1 - self.kept[index].squeeze(1)}


@register(
    "mentornet",
    "self-paced: labels are weighted by their loss relative to a moving quantile",
    "Jiang et al. 2018, MentorNet (the predefined, self-paced curriculum)",
)
@dataclass
class MentorNet(Method):
    """Self-paced MentorNet: the curriculum is a fixed function of the loss.

        weight = 1[l < lambda_1] for lambda_2 = 0,    clip(1 - (l - lambda_1) / lambda_2, 0, 1) for lambda_2 > 0

    lambda_1 is the moving average, over steps, of the (1 - rate) quantile of the losses in a batch.
    The loss of a step is the weighted mean; a step in which every weight is 0 changes nothing.

    Parameters
    ----------
    noise_rate : float or "estimate"
        Share of wrong labels, in [0, 1). "estimate": estimate it first, by the confident joint on
        cross-validated predictions of cross-entropy networks.
    lambda_2 : float
        Width of the transition from weight 1 to weight 0, not negative; 0 is a hard threshold. The
        softmax-temperature paper searches {0, 0.5, 1, 2}.
    burn_in : int
        First epochs, in which every weight is 1, since losses say little before; the paper searches
        {0, 5, 10}.
    decay : float
        Decay of the moving average, in [0, 1).
    objective : str
        The loss: the name of a class, or an objective. Its cost must rank labels by how likely they are.
    folds : int
        Number of folds of the cross-validation, at least 2.

    Notes
    -----
    `extras["noise_rate"]` is the rate that was used, `extras["threshold"]` the last lambda_1, and
    `extras["kept"]` `(N,)` the weight of each row the last time it was seen.

    References
    ----------
    Jiang, Zhou, Leung, Li, Fei-Fei. MentorNet: learning data-driven curriculum for very deep neural networks on
    corrupted labels. ICML 2018. The values: Collier et al., appendix D of the softmax-temperature paper, 2020.
    """

    noise_rate: float | str = ESTIMATE
    lambda_2: float = 0.0
    burn_in: int = 5
    decay: float = 0.9
    objective: str | Objective = "CrossEntropy"
    folds: int = 3

    def phases(self, job: Job) -> Phases:
        check_number("lambda_2", self.lambda_2, 0)
        check_count("burn_in", self.burn_in)
        check_number("decay", self.decay, 0, 1, below=True)
        check_count("folds", self.folds, 2)
        objective = small_loss_objective(self.objective, job.n_classes, "mentornet")
        rate = yield from noise_rate(job, self.noise_rate, folds=self.folds)
        module = SelfPaced(
            job.network(objective),
            objective,
            job.per_example(1),
            rate=rate,
            lambda_2=float(self.lambda_2),
            burn_in=int(self.burn_in),
            decay=float(self.decay),
        )
        yield Phase(module, job.recipe, name="mentornet")
        extras = {
            "noise_rate": rate,
            "kept": module.kept.squeeze(1).clone(),
            "threshold": float(module.threshold),
        }
        return Fitted(module.network, objective, **extras)
