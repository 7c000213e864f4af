"""What compiling does for the sampled costs of Het, on a GPU.

    python benchmarks/fused.py       prints errors against float64 and microseconds

The cost of a batch and its gradient as one CUDA graph, as it is written and compiled (`noisegate._fusing`): the
time of one alone, and of several side by side a graph's share. 1000 samples, temperature 2.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch
from torch import Tensor

import noisegate as ng
from noisegate._fusing import fusing

#: Classes, batch, rank of the factors, graphs side by side.
CASES = ((10, 256, None, 16), (10, 256, 1, 16), (10, 256, 4, 16), (100, 128, None, 1), (1000, 128, None, 1))
Replay = tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]


def captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A step as a graph on the current stream, which keeps what the step uses alive."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    step()
    graph.capture_end()
    graph.step = step  # type: ignore[attr-defined]
    return graph


def microseconds(pairs: list[tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]], rounds: int = 50) -> float:
    """A step's share of the time, with the graphs replayed in turn on their streams."""
    for count in (5, rounds):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(count):
            for graph, stream in pairs:
                with torch.cuda.stream(stream):
                    for _ in range(4):
                        graph.replay()
        torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - started) / (4 * rounds * len(pairs))


def objective(n_classes: int, rank: int | None) -> ng.Heteroscedastic:
    covariance = "diagonal" if rank is None else "low-rank"
    return ng.Heteroscedastic(n_classes, 2.0, covariance, rank).cuda()


def graph(cost: ng.Heteroscedastic, outputs: Tensor, labels: Tensor, fuse: bool) -> Replay:
    """Cost and gradient, captured on a stream of its own."""
    outputs = outputs.detach().clone().requires_grad_()

    def step() -> None:
        outputs.grad = None
        cost(outputs, labels).backward()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), fusing() if fuse else contextlib.nullcontext():
        return captured(step), stream


def gradient(cost: ng.Heteroscedastic, outputs: Tensor, labels: Tensor) -> Tensor:
    """Of the mean cost in the outputs, with the same random numbers each time."""
    torch.manual_seed(1)
    outputs = outputs.detach().requires_grad_()
    return torch.autograd.grad(cost(outputs, labels), outputs)[0].double()


def main() -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for n_classes, batch, rank, width in CASES:
        cost = objective(n_classes, rank)
        outputs = torch.randn(batch, cost.n_outputs, device="cuda")
        labels = torch.randint(0, n_classes, (batch,), device="cuda")
        wanted = gradient(cost, outputs.double(), labels)
        print(f"K = {n_classes}, batch {batch}, rank {rank or 0}")
        for fuse in (False, True):
            with fusing() if fuse else contextlib.nullcontext():
                started = time.perf_counter()
                error = (gradient(cost, outputs, labels) - wanted).norm() / wanted.norm()
                first = time.perf_counter() - started
            many = [graph(objective(n_classes, rank), outputs, labels, fuse) for _ in range(width)]
            one, each = microseconds(many[:1]), microseconds(many)
            how = "compiled" if fuse else "as it is"
            times = f"alone {one:.0f} us, of {width} {each:.0f} us; first call {first:.1f} s"
            print(f"  {how}: error {error:.1e}, {times}", flush=True)


if __name__ == "__main__":
    main()
