"""A bag of small networks, trained together: one phase whose loss is the sum of theirs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from noisegate.methods.auto.candidates import Candidate
from noisegate.methods.auto.rows import TrainingRows
from noisegate.methods.auto.scores import spherical_score
from noisegate.networks.bag import Bag
from noisegate.networks.prepare import Prepared
from noisegate.networks.projection import Projection
from noisegate.objectives import CrossEntropy
from noisegate.training.job import Job
from noisegate.training.phase import Batch, PhaseModule
from noisegate.training.recipe import Recipe

HIDDEN, DROPOUT, INPUT_DROPOUT = 128, 0.3, 0.1
#: About this many rows are seen by each network, in a number of epochs within these bounds.
SEEN_ROWS, EPOCHS = 60_000, (12, 40)
#: Rows that are looked at together.
LOOK = 4096


def bag_recipe(n_rows: int) -> Recipe:
    """How a bag is trained on data of this size."""
    fewest, most = EPOCHS
    epochs = max(fewest, min(most, SEEN_ROWS // max(1, n_rows)))
    return Recipe(
        epochs=epochs,
        batch_size=max(8, min(128, n_rows // 4)),
        optimizer="adamw",
        lr=2e-3,
        weight_decay=0.1,
        decay_norm_and_bias=False,
        schedule="cosine",
        warmup=1.0,
    )


def pairs_left_out(rows: TrainingRows) -> Tensor:
    """Whether a row is among the training rows of a network of the bag, `(N, M)`.

    Each network leaves out two folds, and every row is left out by four networks of ten (with five
    folds, once dealt): their mean, not a single network, is what speaks about the row, as it is a mean
    that predicts. With fewer than five folds each network leaves out one.
    """
    members = []
    for dealt in rows.trains.split(rows.folds, 1):
        strides = (1, 2) if rows.folds >= 5 else (0,)
        members += [dealt & dealt.roll(-stride, 1) for stride in strides]
    return torch.cat(members, 1)


class Fronted(nn.Module):
    """A bag behind what its inputs go through first.

    Parameters
    ----------
    bag : Bag
    front : Projection or None
    """

    def __init__(self, bag: Bag, front: Projection | None) -> None:
        super().__init__()
        self.bag, self.front = bag, front

    def see(self, x: Tensor) -> Tensor:
        """Prepared inputs as the bag takes them."""
        return x if self.front is None else self.front(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.bag(self.see(x))


class BagModule(PhaseModule):
    """Networks that each learn from their own rows, kept when they say most about the others.

    All see the same batches; a row's cost counts for those networks alone that have it among their
    training rows. After every epoch the rows' held-out probabilities are taken, and the weights of
    the best epoch are kept, by the spherical score of the given labels over all rows.

    Parameters
    ----------
    network : Prepared
        Around a `Fronted` bag.
    rows : TrainingRows
    """

    trains: Tensor
    factor: Tensor
    score: Tensor
    held_out: Tensor

    def __init__(self, network: Prepared, rows: TrainingRows) -> None:
        super().__init__()
        self.network, self.objective = network, CrossEntropy(rows.n_classes)
        self.rows = rows
        for name, value in (
            ("trains", pairs_left_out(rows)),
            ("factor", rows.weight),
            ("score", torch.full((), -math.inf, device=rows.x.device)),
            ("held_out", torch.full((len(rows), rows.n_classes), 1 / rows.n_classes, device=rows.x.device)),
        ):
            self.register_buffer(name, value.clone())
        self.best = nn.ParameterDict(
            {
                name: nn.Parameter(p.detach().clone(), requires_grad=False)
                for name, p in self.bag.named_parameters()
            }
        )

    @property
    def bag(self) -> Bag:
        """The networks, without the preparation of their inputs."""
        return self._fronted.bag

    @property
    def _fronted(self) -> Fronted:
        inner: Any = self.network.network
        return inner

    def forward(self, batch: Batch) -> Tensor:
        x = self._fronted.see(self.network.prepare(batch.x))
        x = functional.dropout(x, INPUT_DROPOUT, self.training)
        log_probs = torch.log_softmax(self.bag.logits(x), 2)
        labels = batch.y.expand(len(log_probs), -1).unsqueeze(2)
        costs = -log_probs.gather(2, labels).squeeze(2)
        counts = (self.trains[batch.index] * self.factor[batch.index, None]).T.to(costs.dtype)
        return ((costs * counts).sum(1) / counts.sum(1).clamp_min(1e-8)).sum()

    def predictor(self) -> tuple[nn.Module, CrossEntropy]:
        return self.network, self.objective

    def begin_epoch(self, epoch: int, job: Job) -> None:
        if epoch:
            self.look()

    @torch.no_grad()
    def look(self) -> None:
        """Take the held-out probabilities, and keep them and the weights if they are the best so far."""
        mode = self.training
        self.eval()
        parts = []
        for x, trains in zip(self.rows.x.split(LOOK), self.trains.split(LOOK), strict=True):
            outside = (~trains).T.unsqueeze(2).to(x.dtype)
            probs = torch.softmax(self.bag.logits(x), 2)
            parts.append((probs * outside).sum(0) / outside.sum(0).clamp_min(1))
        self.train(mode)
        probs = torch.cat(parts)
        score = (spherical_score(probs, self.rows.y) * self.factor).sum() / self.factor.sum()
        better = torch.isfinite(score) & (score > self.score)
        self.held_out.copy_(torch.where(better, probs, self.held_out))
        self.score.copy_(torch.where(better, score, self.score))
        for name, parameter in self.bag.named_parameters():
            self.best[name].copy_(torch.where(better, parameter, self.best[name]))

    @torch.no_grad()
    def candidate(self, family: str) -> Candidate:
        """The networks of the best epoch. Call it after the phase."""
        self.look()
        for name, parameter in self.bag.named_parameters():
            parameter.copy_(self.best[name])
        return Candidate(family, self.held_out.unsqueeze(0).clone(), self.bag.requires_grad_(False))
