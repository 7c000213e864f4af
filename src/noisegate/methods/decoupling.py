"""Decoupling: two networks that learn only from what they disagree on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noisegate.fitted import Fitted
from noisegate.methods.base import Method, build_objective
from noisegate.methods.estimation import check_count
from noisegate.methods.registry import register
from noisegate.objectives import Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases


class Disagreeing(PhaseModule):
    """Two networks, both trained on the mean loss over the rows whose predicted classes differ.

    Where none differ the update is skipped. `used` `(N, 1)` is 1 for rows that were trained on the
    last time they were seen.
    """

    used: Tensor

    def __init__(
        self, first: nn.Module, second: nn.Module, objective: Objective, used: Tensor, *, warmup: int = 0
    ) -> None:
        super().__init__()
        self.first, self.second, self.objective, self.warmup = first, second, objective, warmup
        self.register_buffer("used", used)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        outputs = [network(batch.x) for network in (self.first, self.second)]
        mask = self._mask(outputs, batch.epoch)
        self.used.index_copy_(0, batch.index, mask.unsqueeze(1).to(self.used.dtype))
        (first, weight), (second, _) = (
            self.objective.losses_and_weights(output, batch.y) for output in outputs
        )
        weight = weight * batch.weight.to(weight.dtype) * mask.to(weight.dtype)
        loss = weighted_mean(first, weight) + weighted_mean(second, weight)
        return loss, weight.sum() > 0

    @torch.no_grad()
    def _mask(self, outputs: list[Tensor], epoch: Tensor) -> Tensor:
        first, second = (self.objective.log_probs(output).argmax(1) for output in outputs)
        return (first != second) | (epoch < self.warmup)

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.first, self.objective


@register(
    "decoupling",
    "two networks, trained only on the rows where their predictions differ",
    "Malach and Shalev-Shwartz 2017, decoupling",
)
@dataclass
class Decoupling(Method):
    """Decoupling: the labels say how to update, the disagreement of two networks says when.

    In each batch both networks are trained on the mean loss over the rows for which they predict
    different classes. As the networks agree more, updates become rare, even if wrong labels are
    left; if they agree on a whole batch, nothing is updated. The networks differ in their initial weights only.
    The first one predicts.

    Parameters
    ----------
    warmup : int
        Epochs of training on all rows before that. With 0, two fresh networks that happen to agree
        everywhere learn nothing at all.
    objective : str
        The loss: the name of a class, or an objective.

    Notes
    -----
    `extras["used"]` `(N,)` is 1 for rows that were trained on the last time they were seen.

    References
    ----------
    Malach, Shalev-Shwartz. Decoupling "when to update" from "how to update". NeurIPS 2017.
    """

    warmup: int = 1
    objective: str | Objective = "CrossEntropy"

    def phases(self, job: Job) -> Phases:
        check_count("warmup", self.warmup)
        objective = build_objective(
            self.objective, job.n_classes, allowed=tuple(Objective.classes), method="decoupling", why=""
        )
        module = Disagreeing(
            job.network(objective),
            job.network(objective),
            objective,
            job.per_example(1),
            warmup=self.warmup,
        )
        yield Phase(module, job.recipe, name="decoupling")
        return Fitted(module.first, objective, used=module.used.squeeze(1).clone())
