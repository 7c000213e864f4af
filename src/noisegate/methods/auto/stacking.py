"""Which candidates an ensemble is made of: all that are about as good as the best one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from noisegate.methods.auto.candidates import Candidate
from noisegate.networks.ensemble import Ensemble
from noisegate.networks.projection import Projection
from noisegate.networks.shallow import LandmarkKernel, Linear

#: Probabilities are kept this far from 0 before they are sharpened.
FLOOR = 1e-6
#: Inverse temperatures that are tried lie in this range.
SHARPNESS_RANGE = (0.2, 8.0)
#: How many rows decide on a temperature.
CALIBRATED_ROWS = 10_000


class Stack(NamedTuple):
    """An ensemble of some candidates' heads.

    Attributes
    ----------
    probs : tensor (N, K)
        Held-out probabilities of the ensemble.
    accuracy : float
        Share of given labels that they repeat.
    parts : list of (candidate, heads, sharpnesses)
        The heads that were chosen, as index tensors, and the inverse temperature of each.
    """

    probs: Tensor
    accuracy: float
    parts: list[tuple[Candidate, Tensor, Tensor]]

    @property
    def families(self) -> list[str]:
        """Names of the candidates in it."""
        return [candidate.family for candidate, _, _ in self.parts]


def stack(candidates: Sequence[Candidate], y: Tensor, weight: Tensor) -> Stack:
    """Average the heads whose held-out accuracy is within one standard error of the best.

    Accuracy chooses rather than likelihood: under noise the most likely model is one whose
    probabilities fit the noise, while the largest class of a row survives it. Each head is
    calibrated to the given labels first, so that their probabilities may be averaged.

    Parameters
    ----------
    candidates : sequence of Candidate
    y : int64 tensor (N,)
        Given labels.
    weight : tensor (N,)
    """
    sharpnesses = [calibrate(each.held_out, y, weight) for each in candidates]
    calibrated = [sharpen(c.held_out, s[:, None, None]) for c, s in zip(candidates, sharpnesses, strict=True)]
    scores = [accuracy(probs, y, weight) for probs in calibrated]
    best = max(float(score.max()) for score in scores)
    least = best - standard_error(best, weight)
    parts: list[tuple[Candidate, Tensor, Tensor]] = []
    chosen: list[Tensor] = []
    for each, probs, score, sharpness in zip(candidates, calibrated, scores, sharpnesses, strict=True):
        heads = torch.nonzero(score >= least - 1e-9).flatten()
        if len(heads):
            parts.append((each, heads, sharpness[heads]))
            chosen.append(probs[heads])
    mean = torch.cat(chosen).mean(0)
    return Stack(mean, float(accuracy(mean[None], y, weight)), parts)


def accuracy(probs: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The weighted share of labels that are the most probable ones, of each head: `(H, N, K)` -> `(H,)`."""
    right = (probs.argmax(2) == y).double()
    return (right * weight.double()).sum(1) / weight.double().sum()


def standard_error(score: float, weight: Tensor) -> float:
    """Of an accuracy over weighted rows.

    >>> standard_error(0.5, torch.ones(100))
    0.05
    """
    size = float(weight.double().sum() ** 2 / weight.double().square().sum())
    return math.sqrt(max(score * (1 - score), 0.0) / size)


def sharpen(probs: Tensor, sharpness: Tensor) -> Tensor:
    """p^b, normalised."""
    return torch.softmax(sharpness * probs.clamp_min(FLOOR).log(), -1)


def calibrate(probs: Tensor, y: Tensor, weight: Tensor, n_steps: int = 24) -> Tensor:
    """The most likely inverse temperature of each head, `(H, N, K)` -> `(H,)`.

    Golden-section search over its logarithm: the likelihood is concave in the inverse temperature
    itself.
    """
    some = torch.linspace(0, len(y) - 1, min(len(y), CALIBRATED_ROWS), device=y.device).long()
    logs = probs[:, some].clamp_min(FLOOR).log()
    labels, share = y[some].expand(len(logs), -1).unsqueeze(2), weight[some]

    def likelihood(log_sharpness: Tensor) -> Tensor:
        scaled = logs * log_sharpness.exp()[:, None, None]
        given = scaled.gather(2, labels).squeeze(2) - torch.logsumexp(scaled, 2)
        return (given * share).sum(1)

    low, high = (torch.full((len(probs),), math.log(end)).to(logs) for end in SHARPNESS_RANGE)
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(n_steps):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        rising = likelihood(left) < likelihood(right)
        low, high = torch.where(rising, left, low), torch.where(rising, high, right)
    return ((low + high) / 2).exp()


def ensemble(stacks: Sequence[Stack], front: Projection | None = None) -> Ensemble:
    """The network of some stacks, each with the same weight; heads that were not chosen are left out."""
    members: list[nn.Module] = []
    heads: list[int] = []
    names: list[str | None] = []
    weights, sharpnesses = [], []
    for each in stacks:
        count = sum(len(part[1]) for part in each.parts)
        for candidate, chosen, sharpness in each.parts:
            members.append(with_heads(candidate.network, chosen))
            heads.append(len(chosen))
            names.append(None)
            weights.append(torch.full((len(chosen),), 1 / (count * len(stacks))))
            sharpnesses.append(sharpness.float().cpu())
    made = Ensemble(members, heads, names, front)
    made.weights.copy_(torch.cat(weights))
    made.sharpnesses.copy_(torch.cat(sharpnesses))
    return made


def with_heads(network: nn.Module, chosen: Tensor) -> nn.Module:
    """A network of some of another one's heads."""
    if not isinstance(network, Linear | LandmarkKernel):
        return network
    sizes = {name: value for name, value in network.spec().items() if name != "kind"}
    made = type(network)(**(sizes | {"n_heads": len(chosen)})).to(network.weight.device)
    state = network.state_dict()
    made.load_state_dict({n: v[chosen] if n in ("weight", "bias") else v for n, v in state.items()})
    return made.requires_grad_(False)
