"""Whether other forms of LeNet-5's convolutions would be faster; on a GPU.

    python benchmarks/lenet_convolutions.py        prints microseconds a step, alone and 16 side by side

Bare steps (forward, backward, Adam) of the Logistic-Normal study's LeNet-5 as CUDA graphs, batch 256. cuDNN has no
tensor-core kernels for 1 and 6 channels. The forms of a convolution, by layer: "plain", cuDNN's; "filled", channels
filled up with zeros to a multiple that tensor cores take; "patches", a product of the unfolded images. The library
takes "patches, filled, plain" where it compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisegate.networks.lenet import SlimConv2d

BATCH, WIDTH = 256, 16
#: The forms of the three convolutions, the precision, whether compiled.
CASES: list[tuple[tuple[str, str, str], str, bool]] = [
    (forms, precision, compiled)
    for precision in ("tf32", "bf16")
    for compiled in (False, True)
    for forms in (("plain",) * 3, ("filled",) * 3, ("patches", "filled", "plain"))
]
CASES += [(("plain",) * 3, "fp32", False), (("patches",) * 3, "fp32", False)]


#: How a convolution may be computed.
FORMS: dict[str, Callable[[SlimConv2d, Tensor], Tensor]] = {
    "plain": nn.Conv2d.forward,
    "filled": SlimConv2d.filled_up,
    "patches": SlimConv2d.of_patches,
}


class LeNet(nn.Module):
    def __init__(self, forms: tuple[str, ...]) -> None:
        super().__init__()
        sizes = ((1, 6), (6, 16), (16, 120))
        self.convolutions = nn.ModuleList(SlimConv2d(n_in, n_out, 5, padding=2) for n_in, n_out in sizes)
        self.dense, self.head = nn.Linear(5880, 84), nn.Linear(84, 20)
        self.forms = forms

    def forward(self, x: Tensor) -> Tensor:
        for number, (form, layer) in enumerate(zip(self.forms, self.convolutions, strict=True)):
            x = FORMS[form](layer, x)  # type: ignore[arg-type]
            x = (F.max_pool2d(x, 2) if number < 2 else x).relu()
        return self.head(self.dense(x.flatten(1)).relu())


def graph_of(net: nn.Module, forward: Callable[[Tensor], Tensor], precision: str) -> torch.cuda.CUDAGraph:
    """One training step, captured on the current stream."""
    x = torch.rand(BATCH, 1, 28, 28, device="cuda")
    rate = torch.tensor(1e-3, device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, fused=True, capturable=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            y = forward(x)
        y.float().square().mean().backward()
        optimizer.step()

    return captured(step)


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


def measure(forms: tuple[str, ...], precision: str, compiled: bool) -> tuple[float, float]:
    backends: Any = torch.backends
    exact = precision == "fp32"
    torch.set_float32_matmul_precision("highest" if exact else "high")
    backends.cudnn.allow_tf32 = not exact
    backends.cudnn.deterministic, backends.cudnn.benchmark = exact, not exact
    pairs, kept = [], []
    shared: tuple[nn.Module, Callable[[Tensor], Tensor]] | None = None
    for _ in range(WIDTH):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            if (
                shared is None or not compiled
            ):  # compiled once; that the graphs then share weights costs nothing
                net = LeNet(forms).cuda()
                net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                shared = net, torch.compile(net, dynamic=False) if compiled else net
            pairs.append((graph_of(*shared, precision), stream))
            kept.append(shared)
    return microseconds(pairs[:1]), microseconds(pairs)


def main() -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; microseconds a step")
    print(f"{'convolutions':28} {'precision':9} {'':8} {'alone':>7} {'of 16':>7}")
    for forms, precision, compiled in CASES:
        one, many = measure(forms, precision, compiled)
        how = "compiled" if compiled else "captured"
        print(f"{', '.join(forms):28} {precision:9} {how:8} {one:7.0f} {many:7.0f}", flush=True)


if __name__ == "__main__":
    main()
