"""`auto` where folds would cost too much: one run, its objective chosen on noisy hold-out rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from noisegate.data.loader import Rows
from noisegate.fitted import Fitted
from noisegate.methods.auto.crossfit import Kept, steady
from noisegate.methods.auto.judging import judged
from noisegate.methods.direct import Direct
from noisegate.methods.estimation import deal_folds, lasting, length_in_epochs, some_rows
from noisegate.objectives import GCE, CrossEntropy, Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, Phases

#: One row in this many is held out.
HELD_OUT = 10
#: What is tried.
OBJECTIVES: tuple[type[Objective], ...] = (CrossEntropy, GCE)
#: A trial lasts this share of the run.
TRIAL = 0.2


class Watching(Kept):
    """A kept network that also remembers what it said about its own rows while it learnt them.

    Early in training a network contradicts wrong labels, before it learns them by heart: over all
    epochs the mean probability of a wrong label stays low.

    Parameters
    ----------
    network, objective, others
        As in `Kept`.
    said : tensor (N, K)
        The running sum of probabilities, zeros made by `job.per_example`.
    """

    said: Tensor

    def __init__(self, network: nn.Module, objective: Objective, others: Rows, said: Tensor) -> None:
        super().__init__(network, objective, others)
        self.register_buffer("said", said)

    def forward(self, batch: Batch) -> Tensor:
        outputs = self.network(batch.x)
        with torch.no_grad():
            probs = self.objective.probs(outputs.detach()).to(self.said.dtype)
            self.said.index_copy_(0, batch.index, self.said.index_select(0, batch.index) + probs)
        losses, weights = self.objective.losses_and_weights(outputs, batch.y)
        return weighted_mean(losses, weights * batch.weight.to(losses.dtype))

    def averaged(self) -> Tensor:
        """The mean probabilities, `(N, K)`; uniform for a row that was in no batch."""
        total = self.said.sum(1, keepdim=True)
        return torch.where(total > 0, self.said / total.clamp_min(1e-12), 1 / self.said.shape[1])


def phases(job: Job) -> Phases:
    """Short trials of cross-entropy and GCE; then one run on the one that fits held-out labels better."""
    y = job.train.y
    objective: Objective = CrossEntropy(job.n_classes)
    if y.dim() != 1:  # a label a pixel: there are no classes of rows to hold out evenly
        network = job.network(objective)
        yield Phase(Direct(network, objective), job.recipe)
        return Fitted(network, objective)
    fold = deal_folds(y, min(HELD_OUT, len(y)))
    rows, left_out = (torch.nonzero(mask).squeeze(1) for mask in (fold != 0, fold == 0))
    others = some_rows(job.train, left_out)
    scores: dict[type[Objective], float] = {}
    trial = max(1, math.ceil(TRIAL * length_in_epochs(job.recipe, len(rows))))
    short = lasting(steady(job.recipe), trial, len(rows))
    for kind in OBJECTIVES:
        objective = kind(job.n_classes)
        tried = Kept(job.network(objective), objective, others)
        yield Phase(tried, short, rows=rows, keep="last", name=f"trial of {kind.__name__}")
        tried.look()
        scores[kind] = float(tried.score)
    objective = max(OBJECTIVES, key=lambda kind: scores[kind])(job.n_classes)
    network = job.network(objective)
    module = Watching(network, objective, others, job.per_example(job.n_classes))
    yield Phase(module, steady(job.recipe), rows=rows, keep="last")
    module.restore()
    probs = module.averaged()
    probs[left_out] = module.probs
    return Fitted(network, objective, **judged(probs, y))
