"""Maps that are smaller than their labels: outputs, or sampled logits, upsampled bilinearly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from noisegate.objectives.points import CHUNK_LIMITS, PlacePoints, chunk_size
from noisegate.objectives.sampled import pulled_back, streamed

Size = tuple[int, int]


class Upsampled(NamedTuple):
    """Outputs `(B, n, h, w)`, and the size of labels, for an objective that upsamples its logits."""

    outputs: Tensor
    size: Size


def upsample(x: Tensor, size: Size) -> Tensor:
    """Bilinear upsampling of `(..., h, w)` to `size`, as torch with align_corners=False.

    Its gradient is a product of matrices: torch's own adds in another order each time on a GPU.

    >>> upsample(torch.tensor([[[[0.0, 1.0]]]]), (1, 4))
    tensor([[[[0.0000, 0.2500, 0.7500, 1.0000]]]])
    """
    return x if tuple(x.shape[-2:]) == tuple(size) else _Upsample.apply(x, size)


class _Upsample(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: Size) -> Tensor:
        ctx.small = x.shape[-2:]
        return F.interpolate(x, size, mode="bilinear", align_corners=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        height, width = ctx.small
        full = grads[0].shape[-2]
        return _adjoint(grads[0], range(full), range(height), height, full, width), None


def interpolation(small: int, large: int, like: Tensor) -> Tensor:
    """The matrix `(large, small)` of linear interpolation."""
    eye = torch.eye(small, dtype=like.dtype, device=like.device).unsqueeze(0)
    return F.interpolate(eye, large, mode="linear", align_corners=False)[0].T


def source_rows(rows: range, height: int, full: int) -> range:
    """The rows of a map of `height` that some of its `full` upsampled rows are made of.

    >>> source_rows(range(0, 4), 4, 16), source_rows(range(4, 16), 4, 16)
    (range(0, 2), range(0, 4))
    """
    first, last = (max(0.0, (row + 0.5) * height / full - 0.5) for row in (rows.start, rows.stop - 1))
    return range(int(first), min(height, int(last) + 2))


def _upsampled_rows(x: Tensor, rows: range, source: range, height: int, size: Size) -> Tensor:
    """The `rows` of the upsampled map `(..., rows, W)`, from rows `source` of the small one."""
    places = torch.arange(rows.start, rows.stop, device=x.device, dtype=torch.float64)
    places = ((places + 0.5) * (height / size[0]) - 0.5).clamp_min(0)
    lower = places.floor().long()
    upper = (lower + 1).clamp_max(height - 1)
    share = (places - lower).to(x.dtype).unsqueeze(1)
    below, above = (x.index_select(-2, (each - source.start)) for each in (lower, upper))
    tall = torch.lerp(below, above, share)
    return F.interpolate(tall, (len(rows), size[1]), mode="bilinear", align_corners=False)


def _adjoint(gradient: Tensor, rows: range, source: range, height: int, full: int, width: int) -> Tensor:
    """The adjoint of `_upsampled_rows`: from gradients `(..., rows, W)` to those of `source`."""
    down = interpolation(height, full, gradient)[rows.start : rows.stop, source.start : source.stop]
    return down.T @ (gradient @ interpolation(width, gradient.shape[-1], gradient))


@dataclass(frozen=True)
class _Part:
    """Some samples of some rows of some images: the unit of work that is in memory at once."""

    images: slice
    rows: range
    source: range
    samples: range

    def small(self, x: Tensor) -> Tensor:
        """The part of a small map `(B, ..., h, w)` that it needs."""
        return x[self.images][..., self.source.start : self.source.stop, :]

    def large(self, x: Tensor) -> Tensor:
        """Its part of a large map `(B, ..., H, W)`."""
        return x[self.images][..., self.rows.start : self.rows.stop, :]


def _parts(mean: Tensor, size: Size, n_samples: int) -> Iterator[_Part]:
    """All parts; those of the same images and rows follow each other, sample after sample."""
    batch, classes, height, _ = mean.shape
    room = CHUNK_LIMITS.get(mean.device.type, CHUNK_LIMITS["cuda"])[0]
    band = min(size[0], max(1, room // (classes * size[1])))
    each = classes * band * size[1]
    chunk = chunk_size(each, n_samples, mean.device)
    images = chunk_size(each * chunk, batch, mean.device)
    for first in range(0, batch, images):
        for top in range(0, size[0], band):
            rows = range(top, min(top + band, size[0]))
            source = source_rows(rows, height, size[0])
            for start in range(0, n_samples, chunk):
                samples = range(start, min(start + chunk, n_samples))
                yield _Part(slice(first, min(first + images, batch)), rows, source, samples)


def _logits(
    mean: Tensor, scale: Tensor, factors: Tensor, points: PlacePoints, part: _Part, size: Size
) -> tuple[Tensor, Tensor]:
    """Upsampled logits `(b, s, K, rows, W)` and their noise `(b or 1, s, R + K, source, w)`."""
    images = range(part.images.start, part.images.stop)
    normals = points.block(images, part.samples, part.source, mean.dtype)
    rank = factors.shape[2]
    logits = torch.addcmul(
        part.small(mean).unsqueeze(1), part.small(scale).unsqueeze(1), normals[:, :, rank:]
    )
    if rank:
        logits = logits + (part.small(factors).unsqueeze(1) * normals[:, :, None, :rank]).sum(3)
    large = _upsampled_rows(logits.flatten(0, 1), part.rows, part.source, mean.shape[2], size)
    return large.unflatten(0, logits.shape[:2]), normals


class _Sums:
    """Sums up the gradients in mean, scale and factors over the parts."""

    def __init__(self, mean: Tensor, scale: Tensor, factors: Tensor) -> None:
        self.all = [torch.zeros_like(mean), torch.zeros_like(scale), torch.zeros_like(factors)]

    def add(self, pulled: Tensor, normals: Tensor, part: _Part, size: Size) -> None:
        """`pulled` is `(b, s, K, rows, W)`, `normals` what `_logits` gave."""
        mean, scale, factors = self.all
        small = _adjoint(pulled, part.rows, part.source, mean.shape[2], size[0], mean.shape[3])
        rank = factors.shape[2]
        part.small(mean).add_(small.sum(1))
        part.small(scale).add_((small * normals[:, :, rank:]).sum(1))
        if rank:
            part.small(factors).add_((small.unsqueeze(3) * normals[:, :, None, :rank]).sum(1))


class UpsampledLogMeanSoftmax(torch.autograd.Function):
    """log mean_s softmax(upsample(logits_s)), `(B, K, H, W)` from maps `(B, K, h, w)`.

    The backward makes the same noise again. Both go through some samples of some rows at a time.
    """

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, factors: Tensor, points: PlacePoints, size: Size
    ) -> Tensor:
        result = mean.new_empty(*mean.shape[:2], *size)
        for part in _parts(mean, size, points.n_samples):
            if part.samples.start == 0:
                top = torch.full_like(part.large(result), -math.inf)
                mass = torch.zeros_like(top)
            logits, _ = _logits(mean, scale, factors, points, part, size)
            top, mass = streamed(top, mass, F.log_softmax(logits, 2), 1)
            del logits  # so that no part outlives the next
            if part.samples.stop == points.n_samples:
                part.large(result).copy_(top + mass.log() - math.log(points.n_samples))
        ctx.save_for_backward(mean, scale, factors, result)
        ctx.points, ctx.size = points, size
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, result = ctx.saved_tensors
        sums = _Sums(mean, scale, factors)
        for part in _parts(mean, ctx.size, ctx.points.n_samples):
            logits, normals = _logits(mean, scale, factors, ctx.points, part, ctx.size)
            shares, given = F.log_softmax(logits, 2), part.large(grads[0]).unsqueeze(1)
            pulled = pulled_back(shares, part.large(result).unsqueeze(1), given, 2)
            sums.add(pulled, normals, part, ctx.size)
            del logits, normals, shares, pulled
        return *(each / ctx.points.n_samples for each in sums.all), None, None


class UpsampledLabelCost(torch.autograd.Function):
    """-log mean_s softmax(upsample(logits_s))_y, `(B, H, W)`: 0.6 of the time of the costs of all labels.

    With w_s = p_sy / sum_s p_sy the gradient in the logits of sample s is w_s (p_s - onehot(y));
    w_s is known once all samples have been seen, so the backward makes them again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        scale: Tensor,
        factors: Tensor,
        labels: Tensor,
        points: PlacePoints,
        size: Size,
    ) -> Tensor:
        result = mean.new_empty(labels.shape)
        for part in _parts(mean, size, points.n_samples):
            if part.samples.start == 0:
                top = torch.full_like(part.large(result), -math.inf)
                mass = torch.zeros_like(top)
            logits, _ = _logits(mean, scale, factors, points, part, size)
            here = part.large(labels)[:, None, None].expand(-1, logits.shape[1], 1, -1, -1)
            top, mass = streamed(top, mass, F.log_softmax(logits, 2).gather(2, here).squeeze(2), 1)
            del logits
            if part.samples.stop == points.n_samples:
                part.large(result).copy_(math.log(points.n_samples) - (top + mass.log()))
        ctx.save_for_backward(mean, scale, factors, labels, result)
        ctx.points, ctx.size = points, size
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, labels, result = ctx.saved_tensors
        sums = _Sums(mean, scale, factors)
        for part in _parts(mean, ctx.size, ctx.points.n_samples):
            logits, normals = _logits(mean, scale, factors, ctx.points, part, ctx.size)
            shares = F.log_softmax(logits, 2)
            here = part.large(labels)[:, None, None].expand(-1, logits.shape[1], 1, -1, -1)
            own = shares.gather(2, here)
            weights = (own + part.large(result)[:, None, None]).exp_()
            weights = weights * part.large(grads[0])[:, None, None]
            # expm1 because p_y - 1 cancels where the label is nearly certain.
            pulled = shares.exp_().mul_(weights).scatter_(2, here, weights * own.expm1())
            sums.add(pulled, normals, part, ctx.size)
            del logits, normals, shares, pulled
        return *(each / ctx.points.n_samples for each in sums.all), None, None, None


@torch.no_grad()
def upsampled_moments(
    mean: Tensor, scale: Tensor, factors: Tensor, points: PlacePoints, size: Size
) -> tuple[Tensor, Tensor]:
    """Mean and variance over samples of softmax(upsample(logits_s)), each `(B, K, H, W)`."""
    average = mean.new_zeros(*mean.shape[:2], *size)
    variance = torch.zeros_like(average)
    for part in _parts(mean, size, points.n_samples):
        first, second = part.large(average), part.large(variance)
        logits, _ = _logits(mean, scale, factors, points, part, size)
        shares = torch.softmax(logits, 2)
        del logits
        first += shares.sum(1)
        second += shares.square_().sum(1)
        if part.samples.stop == points.n_samples:
            first /= points.n_samples
            second /= points.n_samples
            second -= first.square()
    return average, variance.clamp_min_(0)
