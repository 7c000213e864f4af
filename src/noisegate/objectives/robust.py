"""Robust losses: GCE, bi-tempered, noise against noise, bootstrapping."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from noisegate.errors import InputError, is_real
from noisegate.objectives.base import Objective
from noisegate.objectives.tempered import expm1, tempered_label_costs, tempered_log, tempered_log_softmax

KINDS = ("hard", "soft")
#: Above this temperature the normaliser of many classes leaves the range of float32.
MAX_T2 = 5.0


class GCE(Objective):
    """Generalised cross-entropy (1 - p_y^q) / q: cross-entropy at q -> 0, absolute error at 1.

    Parameters
    ----------
    n_classes : int
        Number of classes K; the network gives K outputs.
    q : float
        In (0, 1]. The cost of a label is at most 1 / q.

    Notes
    -----
    Computed as -expm1(q log p_y) / q, which keeps its digits at small q and its gradient where p
    underflows.

    References
    ----------
    Zhang, Sabuncu. Generalized cross entropy loss for training deep neural networks with noisy
    labels. NeurIPS 2018.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> ng.GCE(4, q=0.5)(torch.zeros(1, 4), torch.tensor([2]))  # (1 - sqrt(1/4)) / 0.5
    tensor(1.)
    """

    ranks_by_outputs: ClassVar[bool] = True
    summary: ClassVar[str] = "generalised cross-entropy: bounded, between cross-entropy and absolute error"

    def __init__(self, n_classes: int, q: float = 0.7, **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        if not (is_real(q) and 0 < q <= 1):
            raise InputError(f"q must lie in (0, 1], got {q!r}; for q = 0 use CrossEntropy")
        self.q = q

    def log_probs(self, outputs: Tensor) -> Tensor:
        return F.log_softmax(self.check_outputs(outputs), dim=1)

    def costs(self, outputs: Tensor) -> Tensor:
        return expm1(self.q * self.log_probs(outputs)) / -self.q

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return expm1(-self.q * F.cross_entropy(outputs, targets, reduction="none")) / -self.q


class BiTempered(Objective):
    """Bi-tempered logistic loss: a tempered logarithm (t1) of a tempered softmax (t2).

        cost_y = -log_t1 p_y - (1 - sum_j p_j^(2 - t1)) / (2 - t1),    p = tempered softmax of f at t2

    This is the Bregman divergence of the paper for a one-hot label.

    Parameters
    ----------
    n_classes : int
        Number of classes K; the network gives K outputs.
    t1 : float
        In [0, 1]. Below 1 the cost is bounded (by 1 / (1 - t1)), so far outliers count little.
    t2 : float
        In [t1, 5]. Above 1 the tail of p is heavy, so that labels near the boundary may be wrong;
        below 1 classes can have probability 0. (Below t1 the gradient would not be bounded.)

    Notes
    -----
    t1 = t2 = 1 is cross-entropy exactly. Probabilities are the tempered softmax; `log_probs` of a
    class of probability 0 is the log of the least normal number of the type, and has no gradient.

    Soft targets take the expectation of the costs of the labels, as for every objective. The
    Bregman divergence from the soft target itself differs from that by a term without the outputs:
    the gradients agree.

    At 1000 classes |sum p - 1| stays below 1e-12 in float64, and in float32 below 2e-5 for t2 >=
    0.5 (5e-5 for smaller ones); more classes take more in proportion.

    References
    ----------
    Amid, Warmuth, Anil, Koren. Robust bi-tempered logistic loss based on Bregman divergences.
    NeurIPS 2019.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.BiTempered(3, t1=0.5, t2=2.0)
    >>> objective.probs(torch.tensor([[3.0, 0.0, 0.0]]))
    tensor([[0.5774, 0.2113, 0.2113]])
    """

    ranks_by_outputs: ClassVar[bool] = True
    summary: ClassVar[str] = "bi-tempered logistic loss: bounded, with heavy-tailed probabilities"

    def __init__(self, n_classes: int, t1: float = 0.7, t2: float = 1.3, **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        if not (is_real(t1) and 0 <= t1 <= 1):
            raise InputError(f"t1 must lie in [0, 1], got {t1!r}")
        if not (is_real(t2) and t1 <= t2 <= MAX_T2):
            raise InputError(f"t2 must lie in [t1, {MAX_T2:g}] = [{t1:g}, {MAX_T2:g}], got {t2!r}")
        self.t1, self.t2 = t1, t2

    def log_probs(self, outputs: Tensor) -> Tensor:
        log_p = tempered_log_softmax(self.check_outputs(outputs), self.t2)
        return log_p.clamp(min=math.log(torch.finfo(log_p.dtype).tiny)) if self.t2 < 1 else log_p

    def costs(self, outputs: Tensor) -> Tensor:
        log_p = tempered_log_softmax(self.check_outputs(outputs), self.t2)
        return self._spread(log_p).unsqueeze(1) - tempered_log(log_p, self.t1)

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.t2 != 1:
            return tempered_label_costs(outputs, targets, self.t1, self.t2)
        log_p = self.log_probs(outputs)
        given = log_p.gather(1, targets.unsqueeze(1)).squeeze(1)
        return self._spread(log_p) - tempered_log(given, self.t1)

    def _spread(self, log_p: Tensor) -> Tensor:
        """-(1 - sum p^(2 - t1)) / (2 - t1): the term common to all labels; 0 for t1 = 1."""
        if self.t1 == 1:
            return torch.zeros_like(log_p[:, 0])
        power = 2 - self.t1
        return ((power * log_p).exp().sum(1) - 1) / power


class NoiseAgainstNoise(Objective):
    """Stochastic label noise (SLN): cross-entropy against onehot(y) + sigma eps, eps ~ N(0, I).

        cost_y = -log p_y - sigma sum_k eps_k log p_k

    Parameters
    ----------
    n_classes : int
        Number of classes K; the network gives K outputs.
    sigma : float
        Not negative; 0 is cross-entropy. Tuned over .1, .2, .5, .75, 1 in the Logistic-Normal
        paper.

    Notes
    -----
    One eps for each example (or pixel), from torch's default generator, in training mode only; in
    evaluation mode it is cross-entropy. The loss of a step can be negative; its expectation is
    cross-entropy.

    The targets t = onehot(y) + sigma eps do not sum to one, and the gradient in the logits is
    (sum_k t_k) p - t. A cross-entropy that takes targets for a distribution returns p - t, which is
    another method and memorises sooner (`reproduction/README.md`).

    References
    ----------
    Chen, Chen, Ye, Zhao, Heng. Noise against noise: stochastic label noise helps combat inherent
    label noise. ICLR 2021.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.NoiseAgainstNoise(3, sigma=0.5).eval()
    >>> objective(torch.zeros(2, 3), torch.tensor([0, 2]))
    tensor(1.0986)
    """

    ranks_by_outputs: ClassVar[bool] = True
    summary: ClassVar[str] = "noise against noise: fresh Gaussian noise on the targets at every step"

    def __init__(self, n_classes: int, sigma: float = 0.5, **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        if not (is_real(sigma) and sigma >= 0):
            raise InputError(f"sigma must be a finite number that is not negative, got {sigma!r}")
        self.sigma = sigma

    def log_probs(self, outputs: Tensor) -> Tensor:
        return F.log_softmax(self.check_outputs(outputs), dim=1)

    def costs(self, outputs: Tensor) -> Tensor:
        log_p = self.log_probs(outputs)
        return -log_p - self._noise(log_p).unsqueeze(1) if self.training else -log_p

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not self.training:
            return F.cross_entropy(outputs, targets, reduction="none")
        log_p = self.log_probs(outputs)
        return F.nll_loss(log_p, targets, reduction="none") - self._noise(log_p)

    def _noise(self, log_p: Tensor) -> Tensor:
        return self.sigma * (torch.randn_like(log_p) * log_p).sum(1)


class Bootstrap(Objective):
    """Bootstrapping: cross-entropy against beta onehot(y) + (1 - beta) prediction.

        cost_y = -beta log p_y - (1 - beta) sum_k z_k log p_k

    Parameters
    ----------
    n_classes : int
        Number of classes K; the network gives K outputs.
    beta : float
        In [0, 1]: trust in the given label; 1 is cross-entropy.
    kind : {"hard", "soft"}
        z is the one-hot of the most probable class, or p itself; no gradient flows through z.

    References
    ----------
    Reed, Lee, Anguelov, Szegedy, Erhan, Rabinovich. Training deep neural networks on noisy labels
    with bootstrapping. ICLR workshop 2015.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> ng.Bootstrap(2, beta=0.8)(torch.tensor([[3.0, 0.0]]), torch.tensor([1]))
    tensor(2.4486)
    """

    ranks_by_outputs: ClassVar[bool] = True
    summary: ClassVar[str] = "bootstrapping: labels mixed with the network's own prediction"

    def __init__(self, n_classes: int, beta: float = 0.8, kind: str = "hard", **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        if not (is_real(beta) and 0 <= beta <= 1):
            raise InputError(f"beta must lie in [0, 1], got {beta!r}")
        if kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self.beta, self.kind = beta, kind

    def log_probs(self, outputs: Tensor) -> Tensor:
        return F.log_softmax(self.check_outputs(outputs), dim=1)

    def costs(self, outputs: Tensor) -> Tensor:
        log_p = self.log_probs(outputs)
        return -self.beta * log_p + (1 - self.beta) * self._own(log_p).unsqueeze(1)

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_p = self.log_probs(outputs)
        return self.beta * F.nll_loss(log_p, targets, reduction="none") + (1 - self.beta) * self._own(log_p)

    def _own(self, log_p: Tensor) -> Tensor:
        """The cost of the network's own prediction, `(B, ...)`."""
        if self.kind == "hard":
            return -log_p.max(1).values
        return -(log_p.detach().exp() * log_p).sum(1)
