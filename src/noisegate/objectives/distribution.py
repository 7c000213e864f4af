"""The Logistic-Normal distribution: a normal in logit space, mapped to the simplex."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from noisegate.errors import InputError, is_real
from noisegate.objectives.logistic_normal import full_quadratic


class LogisticNormalDistribution:
    """The law of softmax([z / tau, 0]) for z ~ N(mu, Sigma).

    A distribution over categorical distributions.

    Its density at a point s of the simplex of D + 1 parts, with respect to the first D coordinates,
    is

        N(tau log(s_k / s_last); mu, Sigma) tau^D / prod_k s_k

    (equation 4 of the paper, with the Jacobian of the temperature): it integrates to one at every
    temperature, so likelihoods at different temperatures can be compared.

    Parameters
    ----------
    mu : tensor (..., D)
    c : tensor (..., D), optional
        Sigma^(1/2) = c c' + scale I.
    scale : float or tensor (..., 1) or (..., D)
        With c a positive number (lambda); without it the standard deviations.
    temperature : float

    References
    ----------
    Atchison and Shen. Logistic-normal distributions: some properties and uses. Biometrika 1980.
    Englesson et al. Logistic-Normal Likelihoods for Heteroscedastic Label Noise. TMLR 2023, figure
    1.

    Examples
    --------
    >>> d = LogisticNormalDistribution(torch.zeros(2), scale=1.0)
    >>> round(d.log_prob(torch.tensor([1 / 3, 1 / 3, 1 / 3])).exp().item(), 2)
    4.3
    >>> d.sample((5,)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, mu: Tensor, c: Tensor | None = None, scale: float | Tensor = 1.0, temperature: float = 1.0
    ) -> None:
        if c is not None and (c.shape != mu.shape or isinstance(scale, Tensor)):
            raise InputError("c must have the shape of mu, and scale must be a number beside it")
        if not (is_real(temperature) and temperature > 0):
            raise InputError(f"temperature must be positive, got {temperature!r}")
        if not isinstance(scale, Tensor) and not (is_real(scale) and scale > 0):
            raise InputError(f"scale must be positive, got {scale!r}")
        self.mu, self.c, self.scale, self.temperature = mu, c, scale, temperature

    @property
    def n_parts(self) -> int:
        """Number of parts of the simplex, D + 1."""
        return self.mu.shape[-1] + 1

    def logits(self, points: Tensor) -> Tensor:
        """Map points of the simplex `(..., D + 1)` to logits tau log(s_k / s_last), `(..., D)`."""
        if points.shape[-1] != self.n_parts:
            raise InputError(f"expected points with {self.n_parts} parts, got {tuple(points.shape)}")
        logs = points.log()
        return self.temperature * (logs[..., :-1] - logs[..., -1:])

    def log_prob(self, points: Tensor) -> Tensor:
        """Log-density at points inside the simplex, `(..., D + 1)` -> `(...)`."""
        residual = self.logits(points) - self.mu
        d = residual.shape[-1]
        if self.c is not None:
            flat, c = residual.reshape(-1, d), self.c.expand_as(residual).reshape(-1, d)
            parts = full_quadratic(flat, c, float(self.scale))
            quadratic, log_scale = (part.reshape(residual.shape[:-1]) for part in parts)
        else:
            sigma = torch.as_tensor(self.scale, dtype=residual.dtype, device=residual.device).expand_as(
                residual
            )
            quadratic, log_scale = (residual / sigma).square().sum(-1), sigma.log().sum(-1)
        normal = -0.5 * quadratic - log_scale - 0.5 * d * math.log(2 * math.pi)
        return normal - points.log().sum(-1) + d * math.log(self.temperature)

    def sample(self, shape: tuple[int, ...] = (), generator: torch.Generator | None = None) -> Tensor:
        """Points of the simplex, `shape + (..., D + 1)`, differentiable in the parameters."""
        noise = torch.randn(
            (*shape, *self.mu.shape), dtype=self.mu.dtype, device=self.mu.device, generator=generator
        )
        z = self.mu + self.scale * noise
        if self.c is not None:
            z = z + self.c * (self.c * noise).sum(-1, keepdim=True)
        return torch.softmax(F.pad(z / self.temperature, (0, 1)), -1)
