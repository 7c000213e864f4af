"""`auto` for networks that are trained as they are: one a fold, averaged."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noisegate.data.loader import Rows
from noisegate.evaluation.passes import predict
from noisegate.fitted import Fitted
from noisegate.methods.auto.judging import judged
from noisegate.methods.auto.rows import warn_of_rare_classes
from noisegate.methods.auto.scores import spherical_score
from noisegate.methods.direct import Direct
from noisegate.methods.estimation import deal_folds, some_rows
from noisegate.networks.ensemble import Ensemble
from noisegate.networks.prepare import Prepared
from noisegate.objectives import CrossEntropy, Objective
from noisegate.training.job import Job
from noisegate.training.phase import Phase, Phases
from noisegate.training.recipe import Recipe


class Kept(Direct):
    """A network that ends with the weights that fitted other rows' given labels best.

    Parameters
    ----------
    network, objective
        As in `Direct`.
    others : Rows
        Rows it is not trained on.

    Attributes
    ----------
    probs : tensor (len(others), K)
        What it said about them in that epoch.
    score : tensor ()
        The mean spherical score of their given labels then.
    """

    probs: Tensor
    score: Tensor

    def __init__(self, network: nn.Module, objective: Objective, others: Rows) -> None:
        super().__init__(network, objective)
        self.others = others
        width, device = (len(others), objective.n_classes), others.device
        self.register_buffer("probs", torch.full(width, 1.0 / objective.n_classes, device=device))
        self.register_buffer("score", torch.full((), -torch.inf, device=device))
        for number, value in enumerate(network.state_dict().values()):
            self.register_buffer(f"kept_{number}", value.detach().clone())

    def begin_epoch(self, epoch: int, job: Job) -> None:
        if epoch:
            self.look()

    @torch.no_grad()
    def look(self) -> None:
        """Predict the other rows; keep the prediction and the weights if they are the best so far."""
        probs = predict(self.network, self.objective, self.others).to(self.probs.dtype)
        score = spherical_score(probs, self.others.y).mean()
        better = torch.isfinite(score) & (score > self.score)
        self.probs.copy_(torch.where(better, probs, self.probs))
        self.score.copy_(torch.where(better, score, self.score))
        for number, value in enumerate(self.network.state_dict().values()):
            kept = getattr(self, f"kept_{number}")
            kept.copy_(torch.where(better, value, kept))

    @torch.no_grad()
    def restore(self) -> None:
        """Put the best epoch's weights into the network. Call it after the phase."""
        self.look()
        for number, value in enumerate(self.network.state_dict().values()):
            value.copy_(getattr(self, f"kept_{number}"))


def steady(recipe: Recipe) -> Recipe:
    """The recipe without what looks at validation rows: the best epoch is found on the rows left out."""
    return recipe.replace(keep="last", patience=None, ema=0.0)


def phases(job: Job, folds: int) -> Phases:
    """One network a fold, each kept at its best epoch; their mean predicts, and judges the rows each left out."""
    y = job.train.y
    warn_of_rare_classes(y, job.n_classes)
    folds = min(folds, len(y))
    fold = deal_folds(y, folds)
    held_out = job.per_example(job.n_classes)
    networks: list[Prepared] = []
    for number in range(folds):
        rows, left_out = (torch.nonzero(mask).squeeze(1) for mask in (fold != number, fold == number))
        objective = CrossEntropy(job.n_classes)
        network = job.network(objective)
        module = Kept(network, objective, some_rows(job.train, left_out))
        yield Phase(module, steady(job.recipe), rows=rows, keep="last", name=f"fold {number + 1} of {folds}")
        module.restore()
        held_out[left_out] = module.probs
        networks.append(network)
    name = networks[0].spec["network"]
    mean = Ensemble([each.network for each in networks], [1] * folds, [name] * folds).to(job.device)
    fitted = job.prepared(mean, mean.spec(), job.n_classes)
    return Fitted(fitted, CrossEntropy(job.n_classes), **judged(held_out, y))
