"""Methods that train through a transition matrix: forward, backward, reweight, t-revision."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.direct import Direct
from noisegate.methods.estimation import (
    ESTIMATE,
    Estimate,
    EstimatedTransition,
    check_choice,
    check_count,
    check_number,
    lasting,
    length_in_epochs,
    transition_matrix,
)
from noisegate.methods.registry import register
from noisegate.objectives import (
    BackwardCorrection,
    CrossEntropy,
    ForwardCorrection,
    Objective,
    weighted_mean,
)
from noisegate.objectives.smearing import MatrixLike, mix
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases

#: Epochs of the first stage of t-revision in the paper.
REVISION_WARMUP = 20
#: Backward correction adds a ridge to an estimated matrix until its condition number is at most
#: this, because the inverse multiplies the errors of the estimate. Flips of 45 % between pairs of
#: classes have the condition number 10.
RIDGES = (0.0, 0.01, 0.1, 1.0)
ESTIMATED_CONDITION = 100.0


def given_probability(p: Tensor, y: Tensor) -> Tensor:
    """p_y: `(B, K)`, `(B,)` -> `(B,)`."""
    return p.gather(1, y.unsqueeze(1)).squeeze(1)


def importance(p: Tensor, transition: Tensor, y: Tensor) -> Tensor:
    """p_y / (T'p)_y: how much more likely a label is as a clean one than as an observed one.

    Parameters
    ----------
    p : tensor (B, K)
        Probabilities of the clean class.
    transition : tensor (K, K)
        T[i, j] = P(observed j | clean i).
    y : int64 tensor (B,)
        Observed labels.

    Returns
    -------
    tensor (B,)
        At most 1 / T[y, y].

    >>> importance(torch.tensor([[0.5, 0.5]]), torch.tensor([[0.8, 0.2], [0.0, 1.0]]), torch.tensor([1]))
    tensor([0.8333])
    """
    observed = given_probability(mix(transition.T, p), y)
    return given_probability(p, y) / observed.clamp_min(torch.finfo(observed.dtype).tiny)


def project_rows(matrix: Tensor) -> Tensor:
    """A matrix made row-stochastic: negative entries become 0, then each row is divided by its sum.

    Differentiable wherever no entry crosses zero; an entry below zero has no gradient.

    >>> project_rows(torch.tensor([[0.9, 0.3], [-0.5, 1.0]]))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]])
    """
    positive = matrix.clamp_min(0)
    return positive / positive.sum(1, keepdim=True).clamp_min(torch.finfo(matrix.dtype).tiny)


@dataclass
class TransitionMethod(Method):
    """The base class of methods that use a transition matrix.

    Parameters
    ----------
    transition : "estimate" or array (K, K)
        T[i, j] = P(observed j | clean i), rows sum to one. With a given matrix there is no first phase.
    percentile : float, optional
        In [0, 100]. Row i of the estimate is the prediction for the training row whose probability
        of class i is at this percentile: 97 in the original, 99.9 in the label-smoothing paper. None:
        chosen by the size of the class, 97 or above (`noisegate.noise.estimate_transition`).
    warmup : int, optional
        Epochs of the cross-entropy training for the estimate. Default: the recipe's length. A network that
        is trained for long on few rows memorises their labels, and T is then too close to the identity:
        use fewer epochs, or `folds`.
    folds : int
        0: estimate T from predictions for the training rows, as in the papers. 2 or more: from
        cross-validated predictions with that many folds.
    fresh : bool
        Whether the second phase starts with a fresh network, or with the one that T was estimated with.
    """

    transition: MatrixLike | str = ESTIMATE
    percentile: float | None = None
    warmup: int | None = None
    folds: int = 0
    fresh: bool = True

    def _check(self) -> None:
        if self.percentile is not None:
            check_number("percentile", self.percentile, 0, 100)
        check_count("warmup", self.warmup, 1, optional=True)
        check_count("folds", self.folds)
        if self.folds:
            check_count("folds", self.folds, 2)
        check_choice("fresh", self.fresh, (True, False))

    def _estimate(
        self, job: Job, *, epochs: int | None = None, keep: str | None = None
    ) -> Estimate[EstimatedTransition]:
        self._check()
        return (
            yield from transition_matrix(
                job,
                self.transition,
                percentile=self.percentile,
                epochs=epochs or self.warmup,
                folds=self.folds,
                keep=keep,
            )
        )

    def _network(self, job: Job, found: EstimatedTransition) -> nn.Module:
        reusable = None if self.fresh else found.network
        return job.network(CrossEntropy(job.n_classes)) if reusable is None else reusable


class CorrectionMethod(TransitionMethod):
    """Two phases: cross-entropy, to estimate T, then a loss corrected by T."""

    @abstractmethod
    def corrected(self, n_classes: int, transition: Tensor) -> Objective:
        """The objective of the second phase."""

    def phases(self, job: Job) -> Phases:
        found = yield from self._estimate(job)
        objective = self.corrected(job.n_classes, found.transition)
        network = self._network(job, found)
        yield Phase(Direct(network, objective), job.recipe, name="corrected loss")
        return Fitted(network, objective, transition=found.transition)


@register(
    "forward",
    "forward correction -log (T'p)_y by an estimated or given T",
    "Patrini et al. 2017, loss correction",
)
@dataclass
class Forward(CorrectionMethod):
    """Forward correction with an estimated transition matrix.

        cost_y = -log sum_i T[i, y] p_i

    Phase 1 trains by cross-entropy, for as long as the recipe says (so do the Logistic-Normal and
    the label-smoothing paper); T is estimated from its predictions; phase 2 trains a fresh network on
    the corrected loss, as the authors' code does (the paper does not say; `fresh=False` continues with
    the same network). The result has `extras["transition"]`.

    References
    ----------
    Patrini, Rozza, Menon, Nock, Qu. Making deep neural networks robust to label noise: a loss correction
    approach. CVPR 2017.
    """

    def corrected(self, n_classes: int, transition: Tensor) -> Objective:
        return ForwardCorrection(n_classes, transition)


@register(
    "backward",
    "backward correction by the inverse of an estimated or given T",
    "Patrini et al. 2017, loss correction",
)
@dataclass
class Backward(CorrectionMethod):
    """Backward correction with an estimated transition matrix.

        cost_y = sum_j inv(T)[y, j] (-log p_j)

    The phases and the other parameters are those of `Forward`.

    Parameters
    ----------
    ridge : float, optional
        Not negative. inv((T + ridge I) / (1 + ridge)) takes the place of inv(T), for a T that is
        nearly singular: less correction, smaller entries. Default: 0, but if an estimated T
        cannot be inverted (after short training its rows may be alike), the first of 0.01, 0.1 and 1
        with which it can, so that the first phase is not lost; `fitted.objective.ridge` has the value. A
        given T that cannot be inverted raises InputError.

    References
    ----------
    Patrini, Rozza, Menon, Nock, Qu. Making deep neural networks robust to label noise: a loss correction
    approach. CVPR 2017.
    """

    ridge: float | None = None

    def _check(self) -> None:
        super()._check()
        if self.ridge is not None:
            check_number("ridge", self.ridge, 0)

    def corrected(self, n_classes: int, transition: Tensor) -> Objective:
        ridge = self.ridge
        if ridge is None:
            ridge = sufficient_ridge(transition) if isinstance(self.transition, str) else 0.0
        return BackwardCorrection(n_classes, transition, ridge=ridge)


def sufficient_ridge(transition: Tensor) -> float:
    """The smallest of `RIDGES` with which an estimated T can be inverted well, or the largest.

    >>> sufficient_ridge(torch.tensor([[0.5, 0.5], [0.5, 0.5]])), sufficient_ridge(torch.eye(2))
    (0.1, 0.0)
    """
    unit = torch.eye(len(transition), dtype=torch.float64)
    conditions = [torch.linalg.cond(transition.double() + ridge * unit) for ridge in RIDGES]
    enough = [ridge for ridge, cond in zip(RIDGES, conditions, strict=True) if cond <= ESTIMATED_CONDITION]
    return enough[0] if enough else RIDGES[-1]


class Reweighted(PhaseModule):
    """Cross-entropy with importance weights.

    The mean of w (-log p_y), w = p_y / (T'p)_y without a gradient.

    The sum is divided by the number of labels (by their sample weights), not by the sum of the w.
    """

    def __init__(self, network: nn.Module, objective: ForwardCorrection) -> None:
        super().__init__()
        self.network, self.objective = network, objective

    def forward(self, batch: Batch) -> Tensor:
        log_p = self.objective.log_probs(self.network(batch.x))
        weights = importance(log_p.detach().exp(), self.objective.transition, batch.y)
        losses = -weights * given_probability(log_p, batch.y)
        return weighted_mean(losses, batch.weight.to(losses.dtype))

    def predictor(self) -> tuple[nn.Module, Objective]:
        # Its costs are not what is minimised, but its probabilities of clean and of observed labels
        # are right.
        return self.network, self.objective


@register(
    "reweight",
    "cross-entropy with importance weights p_y / (T'p)_y by an estimated or given T",
    "Liu and Tao 2016, importance reweighting",
)
@dataclass
class Reweight(TransitionMethod):
    """Importance reweighting: the risk on clean labels, written as an expectation over observed ones.

        loss = mean of w (-log p_y),    w = p_y / (T'p)_y without a gradient

    p is the prediction of the network at that step. Phase 1 estimates T as `Forward` does; phase 2
    trains a network on the weighted loss. The result has `extras["transition"]`.

    References
    ----------
    Liu, Tao. Classification with noisy labels by importance reweighting. TPAMI 2016.
    """

    def phases(self, job: Job) -> Phases:
        found = yield from self._estimate(job)
        objective = ForwardCorrection(job.n_classes, found.transition)
        network = self._network(job, found)
        yield Phase(Reweighted(network, objective), job.recipe, name="reweighting")
        return Fitted(network, objective, transition=found.transition)


class Revised(PhaseModule):
    """Reweighting with a learnt transition matrix R = T + delta, projected to stochastic rows.

        loss = mean of w (-log p_y),    w = p_y / (R'p)_y

    In w, p is constant and R is not: delta learns through w alone, the network through the
    logarithm alone.
    """

    transition: Tensor

    def __init__(self, network: nn.Module, transition: Tensor) -> None:
        super().__init__()
        self.network, self.base = network, CrossEntropy(len(transition))
        self.register_buffer("transition", transition)
        self.delta = nn.Parameter(torch.zeros(transition.shape, dtype=torch.float32))

    def revised(self) -> Tensor:
        """R, float64 (K, K): `project_rows` of T + delta."""
        return project_rows(self.transition + self.delta)

    def weights(self, log_p: Tensor, y: Tensor) -> Tensor:
        """w of every row, `(B,)`."""
        return importance(log_p.detach().exp(), self.revised(), y)

    def forward(self, batch: Batch) -> Tensor:
        log_p = self.base.log_probs(self.network(batch.x))
        losses = -self.weights(log_p, batch.y) * given_probability(log_p, batch.y)
        return weighted_mean(losses, batch.weight.to(losses.dtype))

    def predictor(self) -> tuple[nn.Module, Objective]:
        transition = self.revised().detach()
        objective = ForwardCorrection(len(transition), transition)
        return self.network, objective.to(transition.device)


class RevisedAsCode(Revised):
    """The loss of the public code: delta is added again for every row of a batch, and w is not detached at all.

    Row i of the batch, counted from 1, has w = p_y / ((T + i delta)'p)_y, not projected.
    """

    def weights(self, log_p: Tensor, y: Tensor) -> Tensor:
        p = log_p.exp()
        times = torch.arange(1, len(y) + 1, device=y.device, dtype=p.dtype)
        shift = given_probability(mix(self.delta.T, p), y)
        observed = given_probability(mix(self.transition.T, p), y) + times * shift
        return given_probability(p, y) / observed.clamp_min(torch.finfo(p.dtype).tiny)


@register(
    "t-revision",
    "importance reweighting, then T revised together with the network",
    "Xia et al. 2019, anchor points",
)
@dataclass
class TRevision(TransitionMethod):
    """T-revision: estimate T, train by importance reweighting, then learn a correction delta of T as well.

    1. Cross-entropy for `warmup` epochs; the epoch best on the noisy validation rows gives T.
    2. `Reweight`'s loss, for as long as the recipe says.
    3. The same network and R = T + delta together, delta from 0, by Adam with a rate of its own, as
    long again:

        loss = mean of w (-log p_y),    w = p_y / (R'p)_y

    In w, p has no gradient and R has: delta enters nowhere else. R is kept row-stochastic inside
    the computation: negative entries count as 0, rows are divided by their sums. Noisy validation
    rows are needed; a tenth of the training rows is held out where there are none.

    Parameters
    ----------
    warmup : int, optional
        Epochs of stage 1. Default: 20 as in the paper, or the recipe's length if that is less.
    fresh : bool
        Whether stage 2 starts with a fresh network. By default it continues stage 1, as the public code does.
    revision_epochs : int, optional
        Epochs of stage 3. Default: the recipe's length, as in the paper.
    revision_lr : float
        Constant learning rate of stage 3. With the paper's 5e-7, R hardly changes in few updates. Larger
        rates did not help: in six trials 1e-3 took R further from the true matrix in four and lowered
        the accuracy in all six.
    variant : {"paper", "code"}
        "code" computes what the public code does: stage 3 adds delta once more for every row of a
        batch (row i uses T + i delta), does not project, and differentiates w with respect to p
        too; stage 3 starts from stage 2's best epoch on the noisy validation rows.
    transition, percentile, folds
        As in `TransitionMethod`.

    Notes
    -----
    `extras["transition"]` is R, `extras["estimated_transition"]` the T of stage 1. The paper's recipe: SGD with
    momentum 0.9 and rate 0.01, divided by 10 after epochs 40 and 80 of 200; stage 1 without momentum.

    References
    ----------
    Xia, Liu, Wang, Han, Gong, Niu, Sugiyama. Are anchor points really indispensable in label-noise learning?
    NeurIPS 2019.
    """

    needs_validation: ClassVar[bool] = True

    fresh: bool = False
    revision_epochs: int | None = None
    revision_lr: float = 5e-7
    variant: str = "paper"

    def _check(self) -> None:
        super()._check()
        check_count("revision_epochs", self.revision_epochs, 1, optional=True)
        check_number("revision_lr", self.revision_lr, 1e-30)
        check_choice("variant", self.variant, ("paper", "code"))

    def why_one_process(self) -> str | None:
        if self.variant != "code":
            return None
        return "t-revision with variant='code': its weights depend on the place of a row in the batch"

    def phases(self, job: Job) -> Phases:
        whole = length_in_epochs(job.recipe, len(job.train))
        found = yield from self._estimate(job, epochs=self.warmup or min(REVISION_WARMUP, whole), keep="best")
        network = self._network(job, found)
        objective = ForwardCorrection(job.n_classes, found.transition)
        keep = "best" if self.variant == "code" else None
        yield Phase(Reweighted(network, objective), job.recipe, keep=keep, name="reweighting")
        kind = Revised if self.variant == "paper" else RevisedAsCode
        module = kind(network, found.transition)
        recipe = lasting(job.recipe, self.revision_epochs, len(job.train)).replace(
            optimizer="adam", lr=float(self.revision_lr), schedule="constant", warmup=0.0
        )
        yield Phase(module, recipe, name="revision")
        revised = module.revised().detach().cpu()
        final = ForwardCorrection(job.n_classes, revised)
        extras = {"transition": revised, "estimated_transition": found.transition}
        return Fitted(network, final.to(job.device), **extras)
