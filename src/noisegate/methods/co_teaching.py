"""Co-teaching: each of two networks is trained on the rows that have a small loss under the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.fitted import Fitted
from noisegate.methods.base import Method, build_objective
from noisegate.methods.estimation import ESTIMATE, check_choice, check_count, noise_rate
from noisegate.methods.registry import register
from noisegate.objectives import Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases

#: Objectives whose cost of a label is low exactly where the label is likely, and never below zero.
SMALL_LOSS_OBJECTIVES = (
    "CrossEntropy",
    "LabelSmoothing",
    "GCE",
    "BiTempered",
    "ForwardCorrection",
    "Heteroscedastic",
)


def small_loss_objective(
    spec: str | Objective | type[Objective] | Mapping[str, Any], n_classes: int, method: str
) -> Objective:
    """Build the objective of a small-loss method; an objective that cannot rank labels raises InputError."""
    why = "it keeps the labels of small cost, and a cost that is random or without a lower bound does not rank them"
    return build_objective(spec, n_classes, allowed=SMALL_LOSS_OBJECTIVES, method=method, why=why)


def kept_share(epoch: Tensor, rate: float, gradual: int) -> Tensor:
    """R(e) = 1 - min(e / T_k * rate, rate).

    The share of a batch to keep in epoch e, counted from 0.

    >>> [round(float(kept_share(torch.tensor(e), 0.4, 10)), 2) for e in (0, 5, 10, 99)]
    [1.0, 0.8, 0.6, 0.6]
    """
    return 1.0 - (epoch.to(torch.float64) / gradual).clamp_max(1.0) * rate


def smallest(losses: Tensor, share: Tensor, weight: Tensor) -> Tensor:
    """A mask of the labels with the smallest losses: 1.0 for floor(share n) of the n with a positive weight.

    At least one is kept; the earlier of equals goes first; labels of weight 0 are never kept.
    Shapes are fixed.

    Parameters
    ----------
    losses, weight : tensors (B,)
    share : 0-d tensor in [0, 1]

    >>> smallest(torch.tensor([3.0, 1.0, 2.0, 0.0]), torch.tensor(0.7), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    tensor([0., 1., 1., 0.])
    """
    counted = weight > 0
    order = torch.where(counted, losses, torch.full_like(losses, torch.inf)).argsort(stable=True)
    places = torch.arange(len(losses), device=losses.device)
    rank = torch.empty_like(places).scatter_(0, order, places)
    # 0.6 * 10 must give 6, although 1 - 0.4 is slightly less than 0.6.
    number = (share.to(torch.float64) * counted.sum() + 1e-6).floor().clamp_min(1.0)
    return ((rank < number) & counted).to(losses.dtype)


class Peers(PhaseModule):
    """Two networks. The loss of each is the mean over the rows that have a small loss under the other.

    Parameters
    ----------
    first, second : nn.Module
        The first one predicts.
    objective : Objective
    kept : tensor (N, 2)
        State: `kept[i, j]` is 1 where network j kept the label of row i the last time it saw it.
    rate, gradual, variant
        As in `CoTeaching`.
    """

    kept: Tensor

    def __init__(
        self,
        first: nn.Module,
        second: nn.Module,
        objective: Objective,
        kept: Tensor,
        *,
        rate: float,
        gradual: int = 10,
        variant: str = "paper",
    ) -> None:
        super().__init__()
        self.first, self.second, self.objective = first, second, objective
        self.rate, self.gradual, self.variant = rate, gradual, variant
        self.register_buffer("kept", kept)

    def forward(self, batch: Batch) -> Tensor:
        found = [
            self.objective.losses_and_weights(network(batch.x), batch.y)
            for network in (self.first, self.second)
        ]
        losses, weight = [loss for loss, _ in found], found[0][1]
        weight = weight * batch.weight.to(weight.dtype)
        share = self.share(batch.epoch)
        masks = [smallest(loss.detach(), share, weight) for loss in losses]
        self.kept.index_copy_(0, batch.index, torch.stack(masks, 1).to(self.kept.dtype))
        # Each network is trained on the rows that the other one kept.
        crossed = zip(losses, reversed(masks), strict=True)
        return torch.stack([self._mean(loss, mask, weight) for loss, mask in crossed]).sum()

    def share(self, epoch: Tensor) -> Tensor:
        """R(e), a 0-d tensor."""
        gradual = max(1, self.gradual - 1) if self.variant == "code" else self.gradual
        return kept_share(epoch, self.rate, gradual)

    def _mean(self, losses: Tensor, mask: Tensor, weight: Tensor) -> Tensor:
        mean = weighted_mean(losses, mask * weight)
        return mean / mask.sum().clamp_min(1.0) if self.variant == "code" else mean

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.first, self.objective

    def label_signals(self, x: Tensor, y: Tensor, index: Tensor) -> dict[str, Tensor]:
        """`dropped`: the share of the networks that left the label out when they last saw it."""
        return {"dropped": 1 - self.kept[index].mean(1)}


@register(
    "co-teaching",
    "two networks, each trained on the labels of small loss in the eyes of the other",
    "Han et al. 2018, co-teaching",
)
@dataclass
class CoTeaching(Method):
    """Co-teaching: two networks, each trained on the labels with a small loss under the other one.

        R(e) = 1 - min(e / T_k * rate, rate)

    Networks learn clean labels first, so labels with a small loss are probably right. In epoch e, counted
    from 0, each network picks the share R(e) of a batch with the smallest
    losses (rounded down, at least one label), and the other one is trained on the mean loss over
    these. The first network predicts.

    Parameters
    ----------
    noise_rate : float or "estimate"
        Share of wrong labels, in [0, 1): the realised flip rate. "estimate": estimate it first, by the
        confident joint on cross-validated predictions of cross-entropy networks.
    gradual : int
        T_k, the number of epochs until the full share is dropped.
    objective : str
        The loss: the name of a class, or an objective. Its cost must rank labels by how likely they are.
    folds : int
        Number of folds of that cross-validation, at least 2.
    variant : {"paper", "code"}
        "code" divides the mean over the kept labels by their number once more, as the public code
        does, and reaches the full share an epoch earlier.

    Notes
    -----
    `extras["noise_rate"]` is the rate that was used; `extras["kept"]` `(N,)` says which of the two networks kept
    each row's label the last time they saw it: 1 both, 0.5 one of them, 0 none.

    References
    ----------
    Han, Yao, Yu, Niu, Xu, Hu, Tsang, Sugiyama. Co-teaching: robust training of deep neural networks with
    extremely noisy labels. NeurIPS 2018.
    """

    noise_rate: float | str = ESTIMATE
    gradual: int = 10
    objective: str | Objective = "CrossEntropy"
    folds: int = 3
    variant: str = "paper"

    def why_one_process(self) -> str | None:
        if self.variant != "code":
            return None
        return "co-teaching with variant='code': it divides by the number of kept labels once more"

    def phases(self, job: Job) -> Phases:
        check_count("gradual", self.gradual, 1)
        check_count("folds", self.folds, 2)
        check_choice("variant", self.variant, ("paper", "code"))
        objective = small_loss_objective(self.objective, job.n_classes, "co-teaching")
        rate = yield from noise_rate(job, self.noise_rate, folds=self.folds)
        module = Peers(
            job.network(objective),
            job.network(objective),
            objective,
            job.per_example(2),
            rate=rate,
            gradual=self.gradual,
            variant=self.variant,
        )
        yield Phase(module, job.recipe, name="co-teaching")
        return Fitted(module.first, objective, noise_rate=rate, kept=module.kept.mean(1))
