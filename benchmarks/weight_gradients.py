"""Gradients of the weights of 3 x 3 convolutions with few channels: cuDNN against our kernel, on a GPU.

    python benchmarks/weight_gradients.py       prints errors against float64 and microseconds a call

Batch 128, bf16, channels last, at the sizes at which WRN-28-2 has these channels. A graph makes twelve calls on
tensors of its own, which together are more than the L2 cache holds; of cuDNN a call ends with the gradient brought
to float32, of the kernel with its partial sums added up.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from lenet_convolutions import captured, microseconds
from torch import Tensor

from noisegate.networks._conv3x3 import PLANS, _by_torch, weight_gradient

BATCH, COPIES, WIDTH = 128, 12, 4
Gradient = Callable[[Tensor, Tensor], Tensor]
Replay = tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]


def random(n_channels: int, side: int) -> Tensor:
    tensor = torch.randn(BATCH, n_channels, side, side, device="cuda", dtype=torch.bfloat16)
    return tensor.contiguous(memory_format=torch.channels_last)


def by_cudnn(x: Tensor, grad: Tensor) -> Tensor:
    weight = torch.empty(grad.shape[1], x.shape[1], 3, 3, device=x.device, dtype=x.dtype)
    return _by_torch(grad, x, weight.contiguous(memory_format=torch.channels_last), 1).float()


def by_kernel(x: Tensor, grad: Tensor) -> Tensor:
    return weight_gradient(x, grad).sum(dim=0).permute(0, 3, 1, 2)


def graph(gradient: Gradient, pairs: list[tuple[Tensor, Tensor]]) -> Replay:
    """All calls, captured on a stream of its own."""

    def step() -> None:
        for x, grad in pairs:
            gradient(x, grad)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        return captured(step), stream


def main() -> None:
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for (n_in, n_out), plan in PLANS.items():
        side = int((plan.places // BATCH) ** 0.5)
        print(f"{n_in} to {n_out} channels, {side} x {side}")
        pairs = [(random(n_in, side), random(n_out, side)) for _ in range(COPIES)]
        x, grad = (tensor.double() for tensor in pairs[0])
        weight = torch.zeros(n_out, n_in, 3, 3, device="cuda", dtype=torch.float64)
        wanted = _by_torch(grad, x, weight, 1)
        for name, gradient in (("cuDNN", by_cudnn), ("kernel", by_kernel)):
            error = (gradient(*pairs[0]).double() - wanted).norm() / wanted.norm()
            many = [graph(gradient, pairs) for _ in range(WIDTH)]
            one, each = (microseconds(some) / COPIES for some in (many[:1], many))
            print(f"  {name}: error {error:.1e}, alone {one:.1f} us, of {WIDTH} {each:.1f} us", flush=True)


if __name__ == "__main__":
    main()
