"""Which candidates an ensemble is made of: all that are about as good as the best one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from noisegate.methods.auto.candidates import Candidate
from noisegate.methods.auto.scores import mean_and_error, spherical_score
from noisegate.networks.ensemble import Ensemble
from noisegate.networks.projection import Projection
from noisegate.networks.shallow import LandmarkKernel, Linear

#: Probabilities are kept this far from 0 before they are sharpened.
FLOOR = 1e-6
#: Inverse temperatures that are tried lie in this range.
SHARPNESS_RANGE = (0.2, 8.0)
#: How many rows decide on a temperature.
CALIBRATED_ROWS = 10_000
#: Rows with which `clean_sharpness` goes half as far as with very many.
MANY = 200


class Stack(NamedTuple):
    """An ensemble of some candidates' heads.

    Attributes
    ----------
    probs : tensor (N, K)
        Held-out probabilities of the ensemble.
    parts : list of (candidate, heads, sharpnesses)
        The heads that were chosen, as index tensors, and the inverse temperature of each; the
        candidate with the best head first.
    """

    probs: Tensor
    parts: list[tuple[Candidate, Tensor, Tensor]]


def stack(candidates: Sequence[Candidate], y: Tensor, weight: Tensor) -> Stack:
    """Average the heads that explain held-out labels about as well as the best one does.

    Each head is calibrated to the given labels first, so that their probabilities may be compared
    and averaged. They are compared by the spherical score: under noise the likelihood is decided by
    the few labels that a good model finds impossible, and accuracy tells little on few rows. A
    candidate's heads share its weight, so that nine strengths of one model do not outvote a forest.

    Parameters
    ----------
    candidates : sequence of Candidate
    y : int64 tensor (N,)
        Given labels.
    weight : tensor (N,)
    """
    sharpnesses = [calibrate(each.held_out, y, weight) for each in candidates]
    scores = [scores_of(each.held_out, s, y) for each, s in zip(candidates, sharpnesses, strict=True)]
    kept = about_as_good(torch.cat(scores), weight).split([len(each) for each in scores])
    parts: list[tuple[Candidate, Tensor, Tensor]] = []
    means: list[Tensor] = []
    for place in sorted(range(len(scores)), key=lambda place: -float((scores[place] @ weight).max())):
        heads = torch.nonzero(kept[place]).flatten()
        if len(heads):
            held_out, sharpness = candidates[place].held_out[heads], sharpnesses[place][heads]
            parts.append((candidates[place], heads, sharpness))
            means.append(sharpen(held_out, sharpness[:, None, None]).mean(0))
    return Stack(torch.stack(means).mean(0), parts)


def best_head(candidates: Sequence[Candidate], y: Tensor, weight: Tensor) -> tuple[int, int]:
    """The candidate and its head that explain held-out labels best, each head calibrated first."""
    means = [
        scores_of(each.held_out, calibrate(each.held_out, y, weight), y) @ weight.to(each.held_out)
        for each in candidates
    ]
    place = max(range(len(means)), key=lambda place: float(means[place].max()))
    return place, int(means[place].argmax())


def scores_of(held_out: Tensor, sharpness: Tensor, y: Tensor) -> Tensor:
    """The spherical score of each row's given label, by each head, `(H, N, K)` -> `(H, N)`."""
    pairs = zip(held_out, sharpness, strict=True)
    return torch.stack([spherical_score(sharpen(probs, own), y) for probs, own in pairs])


def about_as_good(scores: Tensor, weight: Tensor) -> Tensor:
    """Which heads are within one standard error of the best: that of the difference, row by row.

    Heads that say much the same are told apart by small differences, others only by large ones.

    >>> import torch
    >>> about_as_good(torch.tensor([[0.9, 0.8, 0.9], [0.2, 1.0, 0.9], [0.8, 0.7, 0.8]]), torch.ones(3))
    tensor([ True,  True, False])
    """
    best = scores[(scores @ weight).argmax()]
    mean, error = mean_and_error(best - scores, weight)
    return mean <= error + 1e-9


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


def clean_sharpness(probs: Tensor, y: Tensor, weight: Tensor) -> float:
    """The power of an ensemble's probabilities that makes them about the clean class.

    Calibrated to given labels, they are too unsure of the class wherever labels are wrong. Calibrated
    to the labels that are probably right they are sure enough under strong noise, and too sure on hard
    data, whose doubt looks like noise. No probabilities can tell the two apart, so the geometric mean of
    both is taken, and less of the second with few rows, n / 2 (n + 200) of it.

    Parameters
    ----------
    probs : tensor (N, K)
        Held-out probabilities, calibrated to the given labels.
    y : int64 tensor (N,)
        Given labels.
    weight : tensor (N,)
        Of the rows, times the probability that the label is right.

    >>> import torch
    >>> probs = torch.tensor([[0.6, 0.2, 0.2]]).repeat(200, 1)
    >>> given = torch.tensor([0] * 120 + [1] * 40 + [2] * 40)
    >>> round(clean_sharpness(probs, given, torch.ones(200)), 2)  # nothing is known to be wrong
    1.0
    >>> round(clean_sharpness(probs, given, (given == 0).float()), 2)
    1.68
    """
    share = len(y) / (2 * (len(y) + MANY))
    return float(calibrate(probs.unsqueeze(0), y, weight)[0]) ** share


def ensemble(stacks: Sequence[Stack], front: Projection | None = None) -> Ensemble:
    """The network of some stacks, each with the same weight; heads that were not chosen are left out."""
    members: list[nn.Module] = []
    heads: list[int] = []
    names: list[str | None] = []
    weights, sharpnesses = [], []
    for each in stacks:
        for candidate, chosen, sharpness in each.parts:
            members.append(with_heads(candidate.network, chosen))
            heads.append(len(chosen))
            names.append(None)
            weights.append(torch.full((len(chosen),), 1 / (len(chosen) * len(each.parts) * len(stacks))))
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
