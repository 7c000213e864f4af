"""Logistic-Normal likelihoods (Englesson, Mehrpanah and Azizpour, 2023)."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from noisegate.errors import InputError, is_real
from noisegate.objectives.base import Objective

if TYPE_CHECKING:
    from noisegate.objectives.distribution import LogisticNormalDistribution

COVARIANCES = ("full", "diagonal", "isotropic", "identity")


def target_logit(n_classes: int, smoothing: float, dummy_class: bool) -> float:
    """C = log(((1 - t) N + t) / t).

    The logit of the given class in the smoothed target (appendix A.5).

    N is the number of parts of the simplex: K + 1 with the dummy class, K without.

    >>> round(target_logit(10, 0.01, True), 2)
    6.99
    """
    parts = n_classes + 1 if dummy_class else n_classes
    return math.log(((1 - smoothing) * parts + smoothing) / smoothing)


def full_quadratic(residual: Tensor, c: Tensor, min_scale: float) -> tuple[Tensor, Tensor]:
    """r' Sigma^-1 r and log det Sigma^(1/2) for Sigma = (c c' + lambda I)^2, in O(D) (Sherman-Morrison).

    Parameters
    ----------
    residual, c : tensors (B, D, ...)
    min_scale : float
        lambda, positive.

    Returns
    -------
    quadratic, log_scale : tensors (B, ...)

    Notes
    -----
    With s = lambda + |c|^2 and u = (r - c (c.r) / s) / lambda: r' Sigma^-1 r = |u|^2 and log det (c
    c' + lambda I) = (D - 1) log lambda + log s. u is formed explicitly: expanding |u|^2 into inner
    products would lose the digits that matter when c is parallel to r, which is where training
    goes.
    """
    s = min_scale + c.square().sum(1)
    along = (c * residual).sum(1) / s
    u = (residual - c * along.unsqueeze(1)) / min_scale
    return u.square().sum(1), (residual.shape[1] - 1) * math.log(min_scale) + s.log()


def residuals(mu: Tensor, labels: Tensor, target: float, n_classes: int) -> Tensor:
    """z - mu, `(B, D, ...)`: z is `target` at the label.

    Or all -`target` for the class that mu leaves out.
    """
    index, d = labels.unsqueeze(1), mu.shape[1]
    if d == n_classes:
        return mu.neg().scatter_add_(1, index, torch.full_like(index, target, dtype=mu.dtype))
    z = mu.new_zeros(mu.shape[0], n_classes, *mu.shape[2:]).scatter(1, index, target)
    return z[:, :d] - z[:, d:] - mu


def _squared(x: Tensor) -> Tensor:
    """Squared lengths over dimension 1, kept; without the products in memory, which take as long again."""
    return torch.linalg.vector_norm(x, dim=1, keepdim=True).square()


class _FullCost(torch.autograd.Function):
    """|u|^2 / 2 + log s of `full_quadratic` for outputs (mu, c), with its gradient written by hand.

    With alpha = c.r / s, u = (r - alpha c) / lambda and beta = alpha (1 / lambda^2 + 1 / (s
    lambda)) the gradients are beta c - r / lambda^2 for mu and (alpha beta + alpha^2 / (s lambda) +
    2 / s) c - beta r for c: two vectors, r and c, are all that is kept, and each half of the
    gradient is written in two passes.
    """

    @staticmethod
    def forward(
        outputs: Tensor, labels: Tensor, target: float, lam: float, n_classes: int
    ) -> tuple[Tensor, ...]:
        mu, c = outputs.chunk(2, 1)
        r = residuals(mu, labels, target, n_classes)
        s = _squared(c) + lam
        products = c * r  # a batched matrix product would take four times as long on a CPU
        alpha = products.sum(1, keepdim=True) / s
        # On a CPU fresh memory costs as much as what is written into it.
        scratch = None if torch.compiler.is_compiling() else products
        u = torch.addcmul(r, c, alpha, value=-1, out=scratch)
        return (0.5 / lam**2 * _squared(u) + s.log()).squeeze(1), r, alpha, s

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, r, alpha, s = output
        ctx.mark_non_differentiable(r, alpha, s)
        ctx.save_for_backward(inputs[0].chunk(2, 1)[1], r, alpha, s)
        ctx.lam = inputs[3]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        c, r, alpha, s = ctx.saved_tensors
        lam, g = ctx.lam, gradient.unsqueeze(1)
        inverse = s.reciprocal()
        part = alpha * inverse / lam
        beta = part.add(alpha, alpha=1 / lam**2)
        gamma = torch.addcmul(inverse + inverse, alpha, beta + part)
        halves = ((g * beta, g / -(lam**2)), (g * gamma, beta * -g))
        if torch.compiler.is_compiling():  # a compiler fuses this, and cannot write into views
            both = torch.cat([along_c * c + along_r * r for along_c, along_r in halves], 1)
            return both, None, None, None, None
        both = torch.empty((r.shape[0], 2 * r.shape[1], *r.shape[2:]), dtype=r.dtype, device=r.device)
        for half, (along_c, along_r) in zip(both.chunk(2, 1), halves, strict=True):
            torch.mul(c, along_c, out=half).addcmul_(r, along_r)
        return both, None, None, None, None


# torch asks for the signature at every call; found once, a call on a CPU takes a tenth less.
_FullCost.forward.__signature__ = inspect.signature(_FullCost.forward)  # type: ignore[attr-defined]


class LogisticNormal(Objective):
    r"""Negative log-likelihood of a Logistic-Normal: label noise as a Gaussian in logit space.

    The given label, smoothed, is mapped to a target logit z; the network predicts its mean mu and
    its covariance Sigma, and the cost is that of a normal distribution:

        NLL = r' Sigma^-1 r / 2 + log det Sigma^(1/2) + D/2 log 2 pi,    r = z - mu,
        Sigma^(1/2) = c c' + lambda I.

    A residual larger than lambda is attenuated: the network explains a label it does not believe by
    variance.

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    temperature : float
        tau: scales the target logits, z = tau C onehot(y). The paper tunes it over .1, .5, 1.
    min_scale : float
        lambda, the paper's threshold of loss attenuation. The paper tunes it over .1, .5, 1.
    smoothing : float
        t in (0, 1): how far the target is from the corner of the simplex (the authors' code has
        0.01).
    covariance : {"full", "diagonal", "isotropic", "identity"}
        "full" is c c' + lambda I squared; diagonal and isotropic scales are softplus(.) + lambda.
    dummy_class : bool
        Add a class that never occurs, so that all K classes are treated alike (D = K); without it
        the last class is the reference of softmax-centred (D = K - 1).

    Notes
    -----
    Outputs, in this order: full and diagonal (mu, c) 2D, isotropic (mu, scale) D + 1, identity mu
    D. Probabilities are softmax(mu / tau): no sampling at test time; the dummy's share is removed.
    c = 0 is a stationary point of c, so that slice of the head must not start at zero:
    `init_head_`. Along c the cost is flatter than across it by (s / lambda)^2, s = lambda + |c|^2.
    With asymmetric noise that is the direction which decides the class: a small lambda makes single
    runs late or restless (clip the gradient), a larger one is safer but memorises in the end, so
    keep the best epoch by noisy validation. Measured on MNIST in reproduction/README.md.

    References
    ----------
    Englesson, Mehrpanah, Azizpour. Logistic-Normal Likelihoods for Heteroscedastic Label Noise.
    TMLR 2023.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.LogisticNormal(n_classes=10, temperature=0.5, min_scale=0.5)
    >>> objective.n_outputs
    20
    >>> objective.probs(torch.zeros(1, 20)).sum()
    tensor(1.)
    """

    summary: ClassVar[str] = "Logistic-Normal likelihood: wrong labels are explained by variance"

    def __init__(
        self,
        n_classes: int,
        temperature: float = 1.0,
        min_scale: float = 0.5,
        smoothing: float = 0.01,
        covariance: str = "full",
        dummy_class: bool = True,
        **shared: Any,
    ) -> None:
        super().__init__(n_classes, **shared)
        if not (is_real(temperature) and temperature > 0):
            raise InputError(f"temperature must be positive, got {temperature!r}")
        if not (is_real(min_scale) and min_scale > 0):
            raise InputError(f"min_scale (lambda) must be positive, got {min_scale!r}")
        if not (is_real(smoothing) and 0 < smoothing < 1):
            raise InputError(f"smoothing must lie in (0, 1), got {smoothing!r}")
        if covariance not in COVARIANCES:
            raise InputError(f"covariance must be one of {', '.join(COVARIANCES)}, got {covariance!r}")
        self.temperature, self.min_scale, self.smoothing = temperature, min_scale, smoothing
        self.covariance, self.dummy_class = covariance, dummy_class
        d = self.n_classes if dummy_class else self.n_classes - 1
        scales = {"full": (d,), "diagonal": (d,), "isotropic": (1,), "identity": ()}
        self.slices = (d, *scales[covariance])
        self.target = temperature * target_logit(self.n_classes, smoothing, dummy_class)

    def most_probable(self, outputs: Tensor) -> Tensor:
        return outputs[:, : self.n_classes].argmax(1) if self.dummy_class else super().most_probable(outputs)

    def log_probs(self, outputs: Tensor) -> Tensor:
        logits = self.split(outputs)[0] / self.temperature
        if not self.dummy_class:
            logits = torch.cat([logits, torch.zeros_like(logits[:, :1])], 1)
        return F.log_softmax(logits, dim=1)

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        d = self.slices[0]
        if self.covariance == "full":
            cost = _FullCost.apply(outputs, targets, self.target, self.min_scale, self.n_classes)[0]
            return cost + ((d - 1) * math.log(self.min_scale) + 0.5 * d * math.log(2 * math.pi))
        mu, *scale = self.split(outputs)
        quadratic, log_scale = self._quadratic(residuals(mu, targets, self.target, self.n_classes), scale)
        return self._nll(quadratic, log_scale, d)

    def costs(self, outputs: Tensor) -> Tensor:
        # All K costs in O(K): inner products shared by the labels. They cancel, hence float64.
        mu, *scale = (part.double() for part in self.split(outputs))
        d = mu.shape[1]
        if self.covariance == "full":
            (c,) = scale
            s = self.min_scale + c.square().sum(1, keepdim=True)
            w = mu - c * ((c * mu).sum(1, keepdim=True) / s)
            shrink = (s + self.min_scale) / s.square()
            quadratic = (
                self.target**2 * (1 - c.square() * shrink)
                - 2 * self.target * (w - c * ((c * w).sum(1, keepdim=True) / s))
                + w.square().sum(1, keepdim=True)
            ) / self.min_scale**2
            log_scale = (d - 1) * math.log(self.min_scale) + s.log()
        else:
            sigma = self._sigma(mu, scale)
            base, own = (mu / sigma).square(), ((self.target - mu) / sigma).square()
            quadratic = base.sum(1, keepdim=True) - base + own
            log_scale = sigma.expand_as(mu).log().sum(1, keepdim=True)
        if not self.dummy_class:
            last, _ = self._quadratic(-self.target - mu, scale)
            quadratic = torch.cat([quadratic, last.unsqueeze(1)], 1)
        return self._nll(quadratic, log_scale, d).to(torch.promote_types(outputs.dtype, torch.float32))

    def label_term(self, outputs: Tensor, targets: Tensor, covariance: str = "learnt") -> Tensor:
        """r' Sigma^-1 r of the given labels, `(B, ...)`: what figures 6 and 7 of the paper draw.

        0 of ignored ones.

        Parameters
        ----------
        outputs : tensor (B, n_outputs, ...)
        targets : int64 tensor (B, ...)
        covariance : {"learnt", "identity"}
            The predicted Sigma, or I.
        """
        if covariance not in ("learnt", "identity"):
            raise InputError(f"covariance must be 'learnt' or 'identity', got {covariance!r}")
        mu, *scale = self.split(outputs)
        labels, counted = self._labels(outputs, targets)
        residual = residuals(mu, labels, self.target, self.n_classes)
        terms = residual.square().sum(1) if covariance == "identity" else self._quadratic(residual, scale)[0]
        return torch.where(counted, terms, terms.new_zeros(()))

    def label_signals(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """`residual`, r' r, and `label_term`, r' Sigma^-1 r under the learnt covariance.

        The learnt Sigma attenuates large residuals, which wrong labels have: r' r ranks them better.
        """
        return {
            "residual": self.label_term(outputs, targets, "identity"),
            "label_term": self.label_term(outputs, targets),
        }

    def distribution(self, outputs: Tensor) -> LogisticNormalDistribution:
        """The predicted distribution over label distributions for each row of outputs.

        Its points have K + 1 parts with the dummy class, whose share is the last, and K without;
        the parts are the last dimension, `(B, ..., parts)`.
        """
        from noisegate.objectives.distribution import LogisticNormalDistribution

        mu, *scale = self.split(outputs)
        last = mu.movedim(1, -1)
        if self.covariance == "full":
            return LogisticNormalDistribution(last, scale[0].movedim(1, -1), self.min_scale, self.temperature)
        return LogisticNormalDistribution(last, None, self._sigma(mu, scale).movedim(1, -1), self.temperature)

    def _nll(self, quadratic: Tensor, log_scale: Tensor, d: int) -> Tensor:
        return 0.5 * quadratic + log_scale + 0.5 * d * math.log(2 * math.pi)

    def _sigma(self, mu: Tensor, scale: list[Tensor]) -> Tensor:
        return F.softplus(scale[0]) + self.min_scale if scale else torch.ones_like(mu[:, :1])

    def _quadratic(self, residual: Tensor, scale: list[Tensor]) -> tuple[Tensor, Tensor]:
        if self.covariance == "full":
            return full_quadratic(residual, scale[0], self.min_scale)
        sigma = self._sigma(residual, scale)
        return (residual / sigma).square().sum(1), sigma.expand_as(residual).log().sum(1)
