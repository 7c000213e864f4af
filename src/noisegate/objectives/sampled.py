"""Softmax of sampled normal logits of rows, and its gradients, a chunk of samples at a time.

Sampled logits are `(K, s, N)`, classes first and rows last: whatever goes over the classes is then an
operation on long vectors, and the sums over samples are products of matrices. Mean and scale are
`(K, 1, N)`, factors `(K, R, N)`, and points `(K, 2 + R, s)` as `designs` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from noisegate._fusing import fused
from noisegate.objectives.points import Points, Strata, chunk_size

#: Up to this rank a compiler writes out products with the factors.
FUSED_RANK = 8
#: On a CPU, numbers in a chunk of logits (2 MiB, so that they stay in a cache) and in its points.
CACHED = {"logits": 2**19, "points": 2**17}
#: On a CPU, fewest rows of a block (shorter vectors cost more than larger chunks) and most points.
FEWEST_ROWS, MOST_POINTS = 64, 2**10


class Blocks(NamedTuple):
    """How many rows, samples and points are worked on at once."""

    rows: int
    samples: int
    points: int

    @classmethod
    def of(cls, n_classes: int, n_rows: int, n_samples: int, device: torch.device) -> Blocks:
        """A GPU takes all rows and many samples; a CPU what stays in its cache.

        >>> Blocks.of(100, 256, 1000, torch.device("cpu"))
        Blocks(rows=256, samples=16, points=1024)
        >>> Blocks.of(1000, 256, 1000, torch.device("cpu"))
        Blocks(rows=131, samples=4, points=128)
        """
        if device.type != "cpu":
            samples = chunk_size(n_classes * n_rows, n_samples, device)
            return cls(n_rows, samples, samples)
        rows = min(n_rows, max(FEWEST_ROWS, CACHED["logits"] // (4 * n_classes)))
        most = min(_power(2 * n_samples - 1), MOST_POINTS)
        samples = min(_power(CACHED["logits"] // (n_classes * rows)), most)
        points = min(_power(CACHED["points"] // n_classes), most)
        return cls(rows, samples, max(points, samples))

    def split(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """The rows of tensors `(..., N)`, a block at a time."""
        yield from zip(*(each.split(self.rows, -1) for each in tensors), strict=True)

    def designs(self, points: Points | Strata, rank: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
        """Ones, eps and eta, `(K, 2 + R, s)`: in each tuple several chunks of samples."""
        for normals in points.chunks(self.points, dtype):
            eps = normals[rank:].unsqueeze(1)
            parts = [torch.ones_like(eps), eps]
            if rank:
                parts.append(normals[:rank].expand(len(eps), -1, -1))
            yield torch.cat(parts, 1).split(self.samples, 2)


def _power(number: int) -> int:
    """The largest power of two up to `number`, at least 1."""
    return 1 << max(number.bit_length() - 1, 0)


def floored_exp_(x: Tensor) -> Tensor:
    """exp(x) in place for x up to about 0; on a CPU at least eps^2.5, 4e-18 in float32.

    MKL takes 50 to 300 times as long where exp underflows, and a CPU as much for products of numbers
    that small: at a temperature of 0.02 that is nearly all of them. Where torch takes exp from MKL, exp2
    takes a quarter of its time.
    """
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        return x.mul_(1 / math.log(2)).clamp_(min=2.5 * math.log2(torch.finfo(x.dtype).eps)).exp2_()
    return x.exp_()


def log_softmax_(logits: Tensor) -> Tensor:
    """log_softmax over dimension 0 in place; several times as fast as torch's, which has another order."""
    logits.sub_(logits.amax(0))
    return logits.sub_(floored_exp_(logits.clone()).sum(0).log_())


def sampled_logits(design: Tensor, mean: Tensor, scale: Tensor, factors: Tensor) -> Tensor:
    """mean + scale * eps + factors eta for every sample, `(K, s, N)`."""
    rank = factors.shape[1]
    logits = torch.addcmul(mean, scale, design[:, 1].unsqueeze(2))
    if rank and _fuses(rank):
        return logits + (factors.unsqueeze(2) * design[:, 2:].unsqueeze(3)).sum(1)
    return logits.baddbmm_(design[:, 2:].mT, factors) if rank else logits


def sampled_logits_adjoint(gradient: Tensor, design: Tensor) -> Tensor:
    """The gradient in mean, scale and factors, one below the other: `(K, 2 + R, N)`.

    `gradient`, that in the logits `(K, s, N)`, is overwritten.
    """
    if gradient.device.type == "cpu" and not torch.compiler.is_compiling():
        return design @ gradient
    rank = design.shape[1] - 2
    mean = gradient.sum(1, keepdim=True)
    factors = []
    if rank and _fuses(rank):
        factors = [(gradient.unsqueeze(1) * design[:, 2:].unsqueeze(3)).sum(2)]
    elif rank:
        factors = [design[:, 2:] @ gradient]
    scale = gradient.mul_(design[:, 1].unsqueeze(2)).sum(1, keepdim=True)
    return torch.cat([mean, scale, *factors], 1)


def _fuses(rank: int) -> bool:
    """Whether to leave products with few factors to a compiler, which fuses them with the rest."""
    return torch.compiler.is_compiling() and rank <= FUSED_RANK


@fused
def label_chunk(
    design: Tensor, top: Tensor, gradient: bool, mean: Tensor, scale: Tensor, factors: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """What a chunk adds to `LabelCost`, in a function of its own so that no chunk outlives it.

    Returns, for each row, the factor for the sums so far, the new maximum of log p_sy, and the sum of
    p_sy relative to it; and the sums of the gradient weighted by p_sy (None without `gradient`).
    """
    logits = sampled_logits(design, mean, scale, factors)
    here = labels.expand(1, logits.shape[1], -1)
    largest = logits.amax(0)
    own = logits.gather(0, here).squeeze(0) - largest
    shares = floored_exp_(logits.sub_(largest))
    total = shares.sum(0)
    own = own - total.log()
    higher = torch.maximum(top, own.amax(0))
    weights = floored_exp_(own - higher)
    news = None
    if gradient:
        # expm1 because p_y - 1 cancels where the label is nearly certain.
        shares, mine = shares.mul_(weights / total), (weights * own.expm1()).unsqueeze(0)
        if torch.compiler.is_compiling():  # a compiler fuses this; a scatter would be a pass of its own
            classes = torch.arange(len(mean), device=mean.device).view(-1, 1, 1)
            shares = torch.where(classes == labels, mine, shares)
        else:
            shares.scatter_(0, here, mine)
        news = sampled_logits_adjoint(shares, design)
    return floored_exp_(top - higher), higher, weights.sum(0), news


class LabelSums:
    """What is known of a block of rows after some of the samples: sums relative to the maximum `top`."""

    def __init__(self, gradient: bool, mean: Tensor, scale: Tensor, factors: Tensor, labels: Tensor) -> None:
        self.given, self.gradient = (mean, scale, factors, labels), gradient
        self.top, self.mass = mean.new_full(mean.shape[2:], -math.inf), torch.zeros_like(mean[0, 0])
        k, rank, n = factors.shape
        self.sums = mean.new_zeros(k, 2 + rank, n if gradient else 0)

    def add(self, design: Tensor) -> None:
        """Add the samples of these points."""
        keep, self.top, weight, news = label_chunk(design, self.top, self.gradient, *self.given)
        self.mass = self.mass * keep + weight
        if news is not None:
            self.sums = self.sums.mul_(keep).add_(news)


class LabelCost(torch.autograd.Function):
    """-log mean_s softmax(logits_s)_y `(N,)`, with its gradient made in the forward, chunk by chunk.

    With w_s the softmax over samples of log p_sy, the gradient in the logits of sample s is w_s
    (p_s - onehot(y)) (equation 14 of Englesson et al.). Sums are kept relative to a running maximum
    of log p_sy, as a streaming softmax does.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        scale: Tensor,
        factors: Tensor,
        labels: Tensor,
        points: Points | Strata,
        gradient: bool,
    ) -> Tensor:
        # A compiler that gets tensors with a history warns that it looks at their .grad.
        given = mean.detach(), scale.detach(), factors.detach(), labels.view(1, 1, -1)
        (k, rank, n), device = factors.shape, mean.device
        at_once = Blocks.of(k, n, points.n_samples, device)
        blocks = [LabelSums(gradient, *block) for block in at_once.split(*given)]
        for some in at_once.designs(points, rank, mean.dtype):
            for block in blocks:
                for design in some:
                    block.add(design)
        if gradient:
            sums = torch.cat([block.sums / block.mass for block in blocks], -1)
            ctx.save_for_backward(sums)
        logs = torch.cat([block.top + block.mass.log() for block in blocks])
        return math.log(points.n_samples) - logs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (sums,) = ctx.saved_tensors
        all_three = grads[0] * sums
        return all_three[:, :1], all_three[:, 1:2], all_three[:, 2:], None, None, None


class LogMeanSoftmax(torch.autograd.Function):
    """log mean_s softmax(logits_s) of all classes, `(K, N)`.

    The backward makes the same points again: K gradients cannot be accumulated in the forward without
    K^2 memory.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, scale: Tensor, factors: Tensor, points: Points | Strata) -> Tensor:
        k, rank, n = factors.shape
        at_once = Blocks.of(k, n, points.n_samples, mean.device)
        blocks = list(at_once.split(mean, scale, factors))
        tops = [torch.full_like(block[0][:, 0], -math.inf) for block in blocks]
        masses = [torch.zeros_like(top) for top in tops]
        for some in at_once.designs(points, rank, mean.dtype):
            for place, block in enumerate(blocks):
                for design in some:
                    values = log_softmax_(sampled_logits(design, *block))
                    tops[place], masses[place] = streamed(tops[place], masses[place], values, 1)
                    del values  # so that no chunk outlives the next
        result = torch.cat([top + mass.log() for top, mass in zip(tops, masses, strict=True)], 1)
        result -= math.log(points.n_samples)
        ctx.save_for_backward(mean, scale, factors, result)
        ctx.points = points
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, result = ctx.saved_tensors
        (k, rank, n), points = factors.shape, ctx.points
        at_once = Blocks.of(k, n, points.n_samples, mean.device)
        blocks = list(at_once.split(mean, scale, factors, result.unsqueeze(1), grads[0].unsqueeze(1)))
        sums = [mean.new_zeros(k, 2 + rank, block[0].shape[2]) for block in blocks]
        for some in at_once.designs(points, rank, mean.dtype):
            for total, (*given, means, gradients) in zip(sums, blocks, strict=True):
                for design in some:
                    shares = log_softmax_(sampled_logits(design, *given))
                    pulled = pulled_back(shares, means, gradients, 0)
                    total += sampled_logits_adjoint(pulled, design)
                    del shares, pulled
        whole = torch.cat(sums, -1) / points.n_samples
        return whole[:, :1], whole[:, 1:2], whole[:, 2:], None


def streamed(top: Tensor, mass: Tensor, values: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """One step of a streaming log-sum-exp over `dim`: maximum `top`, relative sum `mass`."""
    higher = torch.maximum(top, values.amax(dim))
    news = floored_exp_(values - higher.unsqueeze(dim)).sum(dim)
    return higher, mass * floored_exp_(top - higher) + news


def pulled_back(log_shares: Tensor, result: Tensor, gradient: Tensor, dim: int) -> Tensor:
    """S times the gradient in the logits of a sample: g_j w_j - p_j sum_k g_k w_k, with w = p_s / p.

    `gradient` is g, that in `result`, log p.
    """
    weighted = gradient * floored_exp_(log_shares - result)
    return weighted - floored_exp_(log_shares.clone()) * weighted.sum(dim, keepdim=True)
