"""Convolutions of 3 x 3 with few channels, whose weights get their gradient from a kernel of our own on a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Plan(NamedTuple):
    """How the kernel goes about a convolution, and for how many places in all images at most it is used."""

    places: int
    parts: int
    block: int
    tile: int
    warps: int
    stages: int


#: By channels in and out. The best of those tried on one H200 (benchmarks/results/weight_gradients.md), up to the
#: size that was measured: where there is more to do cuDNN may well be the faster one.
PLANS = {
    (16, 32): Plan(places=128 * 32 * 32, parts=88, block=128, tile=32, warps=4, stages=3),
    (32, 32): Plan(places=128 * 32 * 32, parts=88, block=128, tile=32, warps=4, stages=3),
    (64, 64): Plan(places=128 * 16 * 16, parts=44, block=64, tile=64, warps=4, stages=3),
    (128, 128): Plan(places=128 * 8 * 8, parts=11, block=64, tile=64, warps=4, stages=3),
}


class Conv3x3(nn.Conv2d):
    """A convolution of 3 x 3, stride 1 and no bias, that keeps the size: (B, C, H, W) to (B, C', H, W).

    Where channels are few, cuDNN needs twice the time of a forward pass for the gradient in the weights. Compiled
    for a GPU, in bf16, it is therefore computed by `weight_gradient`, in float32 to the end. Anywhere else this is
    `nn.Conv2d`.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(n_in, n_out, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and self.has_kernel(x):
            return _Convolution.apply(x, self.weight)
        return super().forward(x)

    def has_kernel(self, x: Tensor) -> bool:
        plan = PLANS.get((self.in_channels, self.out_channels))
        if (
            plan is None
            or self.dilation != (1, 1)
            or not x.is_cuda
            or x.dtype != torch.bfloat16
            or self.weight.dtype != torch.float32
        ):
            return False
        return x.shape[0] * x.shape[2] * x.shape[3] <= plan.places


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        weight = weight.to(x.dtype)
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight, padding=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return _by_torch(grad, x, weight, 0), weight_gradient(x, grad).sum(dim=0).permute(0, 3, 1, 2)


def _by_torch(grad: Tensor, x: Tensor, weight: Tensor, which: int) -> Tensor:
    """torch's own gradient in `x` (which = 0) or in `weight` (1)."""
    wanted = [which == 0, which == 1, False]
    results = torch.ops.aten.convolution_backward(
        grad, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, wanted
    )
    return results[which]


@torch.library.custom_op(
    "noisegate::weight_gradient", mutates_args=(), schema="(Tensor x, Tensor grad) -> Tensor"
)
def weight_gradient(x: Tensor, grad: Tensor) -> Tensor:
    """Partial sums of the gradient in the weights of a 3 x 3 convolution, over parts of all places.

        sum_s out[s, o, i, j, c] = sum_{b, h, w} grad[b, o, h, w] x[b, c, h + i - 1, w + j - 1]

    Parameters
    ----------
    x : Tensor (B, C, H, W)
        What went into the convolution; channels last in memory, or it is brought into that layout.
    grad : Tensor (B, C', H, W)
        The gradient in what came out of it.

    Returns
    -------
    Tensor (S, C', 3, 3, C), float32
    """
    x, grad = (t.contiguous(memory_format=torch.channels_last) for t in (x, grad))
    n_in, n_out = x.shape[1], grad.shape[1]
    plan = PLANS[n_in, n_out]
    out = x.new_empty((_parts(x, plan)[0], n_out, 3, 3, n_in), dtype=torch.float32)
    if x.is_cuda:
        _by_kernel(x, grad, out, plan)
    else:
        out.zero_()[0] = _by_torch(grad, x, x.new_empty(n_out, n_in, 3, 3), 1).permute(0, 2, 3, 1)
    return out


def _by_kernel(x: Tensor, grad: Tensor, out: Tensor, plan: Plan) -> None:
    from noisegate.networks import _kernels

    (_, n_in, height, width), n_out = x.shape, grad.shape[1]
    n_parts, n_blocks = _parts(x, plan)
    tiles = min(plan.tile, n_in), min(plan.tile, n_out)
    _kernels.weight_gradient[n_parts, 3 * (n_in // tiles[0]) * (n_out // tiles[1])](
        x,
        grad,
        out,
        x.numel() // n_in,
        n_blocks,
        height,
        width,
        n_in,
        n_out,
        *tiles,
        plan.block,
        num_warps=plan.warps,
        num_stages=plan.stages,
    )


@weight_gradient.register_fake
def _(x: Tensor, grad: Tensor) -> Tensor:
    n_in, n_out = x.shape[1], grad.shape[1]
    n_parts, _ = _parts(x, PLANS[n_in, n_out])
    return x.new_empty((n_parts, n_out, 3, 3, n_in), dtype=torch.float32)


def _parts(x: Tensor, plan: Plan) -> tuple[int, int]:
    """How many parts there are, and how many blocks of places in each."""
    places = x.shape[0] * x.shape[2] * x.shape[3]
    n_blocks = -(-places // (plan.parts * plan.block))
    return -(-places // (n_blocks * plan.block)), n_blocks
