"""How fast training is on one GPU, against the same library run eagerly and against what the GPU can do.

    python benchmarks/gpu.py                 measures, writes results/gpu.json and the tables of results/gpu.md
    python benchmarks/gpu.py --only lenet    one part: ceilings wrn lenet het compiled teaching imagenet
    python benchmarks/gpu.py --render        the tables anew from results/gpu.json; needs no GPU

Everything goes through `Run`, which is what `train` calls: the data set, its augmentation, the schedule, the
reading of the epoch's numbers are in the loop. Images are random bytes. A rate is images over wall-clock time from
the end of the first epoch, by when everything is captured and compiled, to the end of the last. Ratios of methods
are of epochs taken in turn, medians, with the GPU to itself. The words of gpu.md outside of its tables are written
by hand: after a measurement, read them again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.runs.run import Run
from noisegate.runs.side_by_side import side_by_side
from noisegate.training.phase import Batch
from noisegate.training.trainer import Epoch

RESULTS = Path(__file__).parent / "results"
CIFAR = {
    "optimizer": "nesterov",
    "lr": 0.01,
    "weight_decay": 5e-4,
    "batch_size": 128,
    "crop": 2,
    "flip": True,
    "precision": "bf16",
}
MNIST = {
    "optimizer": "adam",
    "lr": 1e-3,
    "eps": 1e-7,
    "batch_size": 256,
    "normalize": "none",
    "precision": "tf32",
}
IMAGENET = {"optimizer": "nesterov", "lr": 1e-4, "batch_size": 128, "flip": True, "precision": "bf16"}
#: Seconds for which runs side by side are watched; their epochs are so many that none ends before.
WINDOW, MANY = 8.0, 300
#: Operations that a sample of a logit takes at least, forward and backward: scaling, a maximum, an exponential,
#: sums, their gradient in mean and scale. An estimate; each factor of a covariance adds two.
SAMPLE = 10
#: The part of gpu.md that is written from gpu.json.
TABLES = re.compile(r"<!-- tables -->\n.*<!-- end -->", re.DOTALL)
Maker = Callable[[], Run]
_data: dict[Any, Dataset] = {}


def images(n: int, shape: tuple[int, int, int], n_classes: int) -> Dataset:
    """Random bytes with random labels; made once."""
    key = (n, shape, n_classes)
    if key not in _data:
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (n, *shape), dtype=np.uint8)
        y = rng.integers(0, n_classes, n)
        y[:n_classes] = np.arange(min(n, n_classes))
        _data[key] = Dataset("random", Split(x, y), classes=tuple(map(str, range(n_classes))))
    return _data[key]


def maker(
    data: Dataset,
    method: str,
    network: str,
    recipe: dict[str, Any],
    execution: str,
    seed: int = 0,
    **params: Any,
) -> Maker:
    def make() -> Run:
        built = ng.methods.get(method, **params)
        ready = ng.Recipe().replace(**recipe)
        return Run(data, built, network, ready, seed, "cuda", evaluate_every=0, execution=execution)

    return make


# Measuring.


def alone(make: Maker, n_rows: int, batch: int) -> dict[str, float]:
    """Images per second of one run, and the seconds until its first epoch had ended."""
    started = time.perf_counter()
    ends = []
    with make() as run:
        for _ in run:
            ends.append(time.perf_counter())
    rate = n_rows // batch * batch * (len(ends) - 1) / (ends[-1] - ends[0])
    return {"images_per_second": rate, "step_ms": 1e3 * batch / rate, "first_epoch_s": ends[0] - started}


def together(makers: list[Maker], n_rows: int, batch: int) -> dict[str, float]:
    """Images per second of several runs: the sum of each one's rate between ends of its own epochs.

    They are watched for some seconds from the moment at which all have ended an epoch. Runs that started together
    end their epochs together, so counting epochs over the seconds would be off by up to one epoch of all.
    """
    started, busy, begun, now = time.perf_counter(), 0.0, 0.0, 0.0
    ends: dict[int, list[float]] = {number: [] for number in range(len(makers))}
    running = side_by_side(makers, len(makers))
    for number, _, what in running:
        if not isinstance(what, Epoch):
            raise RuntimeError(f"run {number} ended before the measurement did: {what!r}")
        now = time.perf_counter()
        if not begun:
            ends[number] = [now]
            if all(ends.values()):
                begun, busy = now, time.process_time()
        else:
            ends[number].append(now)
            if now - begun > WINDOW and min(map(len, ends.values())) > 1:
                break
    busy = (time.process_time() - busy) / (now - begun)
    running.close()  # type: ignore[attr-defined]
    torch.cuda.synchronize()
    rates = [(len(times) - 1) / (times[-1] - times[0]) for times in ends.values()]
    return {
        "images_per_second": n_rows // batch * batch * sum(rates),
        "seconds": now - begun,
        "first_epoch_s": begun - started,
        "host_busy": busy,
    }


def ratios(makers: dict[str, Maker], steps: int) -> dict[str, dict[str, float]]:
    """Milliseconds a step of each run, by epochs of so many steps in turn, and over the first run's.

    The first epochs do not count.
    """
    runs = {name: make() for name, make in makers.items()}
    epochs = {name: iter(run) for name, run in runs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    try:
        while True:
            for name, each in epochs.items():
                seconds[name].append(next(each).metrics["train_seconds"])
                torch.cuda.synchronize()
    except StopIteration:
        pass
    finally:
        for run in runs.values():
            run.__exit__()
    medians = {name: 1e3 * statistics.median(values[1:]) / steps for name, values in seconds.items()}
    first = next(iter(medians.values()))
    return {"step_ms": medians, "ratios": {name: value / first for name, value in medians.items()}}


def ceilings() -> dict[str, float]:
    """What this GPU reaches: TFLOP/s of large matrix products, TB/s of a large copy (read and written)."""

    def seconds(function: Callable[[], Any], repeats: int = 10) -> float:
        for _ in range(3):
            function()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        events[0].record()
        for event in events[1:]:
            function()
            event.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(events)) / 1e3

    found = {}
    for name, dtype, size in (("bf16", torch.bfloat16, 8192), ("fp32", torch.float32, 4096)):
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        found[f"{name}_tflops"] = 2 * size**3 / seconds(lambda: torch.mm(a, b, out=out)) / 1e12  # noqa: B023
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    found["copy_tbs"] = 2 * source.numel() * 4 / seconds(lambda: target.copy_(source)) / 1e12
    return found


def floor(
    method: str,
    network: str,
    shape: tuple[int, int, int],
    n_classes: int,
    batch: int,
    precision: str,
    **params: Any,
) -> dict[str, float]:
    """GFLOP and GB of one training step, counted over convolutions, linear layers and samples.

    Operations: forward, gradient of the weights and, but for what sees the images, gradient of the inputs, each 2
    a multiplication; and `SAMPLE` for each of Het's S x K numbers a row. Bytes: inputs and outputs of each layer
    read or written once in the forward, the inputs twice and the outputs' gradient twice in the backward; what is
    between the layers (normalisation, activation, sums) is taken as fused into them and so as free, which no
    library does, and so are samples.
    """
    few = 2
    recipe = ng.Recipe(batch_size=few)
    data = images(8, shape, n_classes)
    run = Run(data, ng.methods.get(method, **params), network, recipe, device="cpu")
    job = run._trainer.job
    module = next(run.method.phases(job)).module
    size, sums = (2 if precision == "bf16" else 4), {"gflop": 0.0, "gbytes": 0.0, "sampled_gflop": 0.0}

    def count(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        # Of a transposed convolution it is the inputs that meet the weights one by one.
        meeting = inputs[0] if isinstance(layer, nn.ConvTranspose2d) else output
        passes = 3 if inputs[0].requires_grad else 2
        sums["gflop"] += 2 * meeting.numel() * (layer.weight.numel() // layer.weight.shape[0]) * passes
        sums["gbytes"] += size * (3 * inputs[0].numel() + 3 * output.numel())

    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            part.register_forward_hook(count)  # type: ignore[arg-type]
        if isinstance(part, ng.Heteroscedastic):
            each = SAMPLE + 2 * (part.rank or 0)
            sums["sampled_gflop"] += few * each * part.n_samples * part.n_classes
            part.n_samples = 1  # counted; no need to draw them
    index = torch.arange(few)
    module(Batch(job.train.gather(index), job.train.y[index], index, torch.ones(few), torch.tensor(0)))
    return {name: total / few * batch / 1e9 for name, total in sums.items()}


def kernels(make: Maker) -> dict[str, float]:
    """How many kernels an eager step launches, and how long they run, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    with make() as run:
        chunks = run.run_chunks()
        while not isinstance(next(chunks), Epoch):
            pass
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            next(chunks)  # one chunk of 16 steps
            torch.cuda.synchronize()
    events = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    times = [e.time_range.elapsed_us() for e in events]
    return {"kernels": len(times) / 16, "kernel_ms": sum(times) / 16 / 1e3}


# The parts of the table.


def wrn() -> dict[str, Any]:
    """WRN-28-2 on CIFAR-10's size."""
    rows, shape, found = 50_000, (3, 32, 32), {}
    data, few = images(rows, shape, 10), images(12_800, shape, 10)

    def run(
        execution: str, epochs: int, method: str = "ce", seed: int = 0, on: Dataset = data, **params: Any
    ) -> Maker:
        recipe = CIFAR | {"epochs": epochs}
        return maker(on, method, "wrn-28-2", recipe, execution, seed, **params)

    found["eager"] = alone(run("eager", 2), rows, 128)
    found["captured"] = alone(run("captured", 4), rows, 128)
    found["kernels"] = kernels(run("eager", 3, on=few))
    found["8 captured"] = together([run("captured", MANY, seed=s) for s in range(8)], rows, 128)
    makers = {m: run("captured", 6, m, on=few) for m in ("ce", "ln", "het")}
    makers["co-teaching"] = run("captured", 6, "co-teaching", on=few, noise_rate=0.4)
    return found | ratios(makers, 100)


def lenet() -> dict[str, Any]:
    """LeNet-5 on MNIST's size."""
    rows, shape, found = 54_000, (1, 28, 28), {}
    data = images(rows, shape, 10)

    def run(execution: str, epochs: int, seed: int = 0, precision: str = "tf32") -> Maker:
        recipe = MNIST | {"epochs": epochs, "precision": precision}
        return maker(data, "ln", "lenet5", recipe, execution, seed)

    found["fp32"] = alone(run("captured", 6, precision="fp32"), rows, 256)
    found["16 fp32"] = together([run("captured", MANY, s, "fp32") for s in range(16)], rows, 256)
    found["bf16"] = alone(run("captured", 6, precision="bf16"), rows, 256)
    found["16 bf16"] = together([run("captured", MANY, s, "bf16") for s in range(16)], rows, 256)
    found["eager"] = alone(run("eager", 4), rows, 256)
    found["captured"] = alone(run("captured", 12), rows, 256)
    found["kernels"] = kernels(run("eager", 3))
    for width in (4, 16):
        found[f"{width} captured"] = together([run("captured", MANY, s) for s in range(width)], rows, 256)
    return found


def compiled() -> dict[str, Any]:
    """Both networks compiled first."""
    mnist, cifar = images(54_000, (1, 28, 28), 10), images(50_000, (3, 32, 32), 10)

    def small(epochs: int, seed: int = 0) -> Maker:
        return maker(mnist, "ln", "lenet5", MNIST | {"epochs": epochs}, "compiled", seed)

    def large(epochs: int, seed: int = 0) -> Maker:
        return maker(cifar, "ce", "wrn-28-2", CIFAR | {"epochs": epochs}, "compiled", seed)

    return {
        "lenet": alone(small(12), 54_000, 256),
        "16 lenet": together([small(MANY, s) for s in range(16)], 54_000, 256),
        "wrn": alone(large(4), 50_000, 128),
        "4 wrn": together([large(MANY, s) for s in range(4)], 50_000, 128),
        "8 wrn": together([large(MANY, s) for s in range(8)], 50_000, 128),
    }


def het() -> dict[str, Any]:
    """Het with 100 classes."""
    data = images(12_800, (3, 32, 32), 100)
    makers = {
        m: maker(data, m, "wrn-28-2", CIFAR | {"epochs": 6}, "captured")
        for m in ("ce", "ln", "het", "het-full")
    }
    return ratios(makers, 100)


def teaching() -> dict[str, Any]:
    """CausalNL against its classifier, ResNet-34 on CIFAR-10's size."""
    data = images(6_400, (3, 32, 32), 10)
    recipe = CIFAR | {"epochs": 6, "optimizer": "adam", "lr": 1e-3, "weight_decay": 0.0}
    makers = {
        "ce": maker(data, "ce", "resnet34", recipe, "captured"),
        "co-teaching": maker(data, "co-teaching", "resnet34", recipe, "captured", noise_rate=0.4),
        "causalnl": maker(data, "causalnl", "resnet34", recipe, "captured", noise_rate=0.4),
    }
    return ratios(makers, 50)


def imagenet() -> dict[str, Any]:
    """ResNet-50 at 224 x 224 with 1000 classes."""
    rows, shape = 2_560, (3, 224, 224)
    data = images(rows, shape, 1000)
    makers = {
        m: maker(data, m, "resnet50", IMAGENET | {"epochs": 6}, "captured") for m in ("ce", "ln", "het")
    }
    found: dict[str, Any] = dict(ratios(makers, 20))
    found["eager"] = alone(maker(data, "ce", "resnet50", IMAGENET | {"epochs": 3}, "eager"), rows, 128)
    found["captured"] = alone(makers["ce"], rows, 128)
    compiled = maker(data, "ce", "resnet50", IMAGENET | {"epochs": 6}, "compiled")
    found["compiled"] = alone(compiled, rows, 128)
    return found


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "ceilings": ceilings,
    "lenet": lenet,
    "wrn": wrn,
    "het": het,
    "compiled": compiled,
    "teaching": teaching,
    "imagenet": imagenet,
}


# The table.


def lines(found: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Work, what was measured, what was wanted, and whether that was reached."""
    rows: list[tuple[str, str, str, bool]] = []

    def rate(part: str, key: str, name: str, least: float, times: float, eager: str = "") -> None:
        if key in found.get(part, {}):
            value = found[part][key]["images_per_second"]
            ratio = value / found[eager or part]["eager"]["images_per_second"]
            wanted = " and ".join(
                [f"{least:,.0f} images/s"] * bool(least) + [f"{times:g} times eager"] * bool(times)
            )
            rows.append(
                (
                    name,
                    f"{value:,.0f} images/s, {ratio:.1f} times eager",
                    wanted,
                    value >= least and ratio >= times,
                )
            )

    def share(part: str, method: str, name: str, most: float) -> None:
        value = found.get(part, {}).get("ratios", {}).get(method)
        if value is not None:
            rows.append((name, f"{value:.3f} times", f"at most {most:g} times", value <= most))

    rate("wrn", "captured", "WRN-28-2, CIFAR-10 size, batch 128, bf16, one run, captured", 0, 4)
    rate("compiled", "wrn", "the same, compiled (what `auto` does in a long run)", 40_000, 4, "wrn")
    rate("wrn", "8 captured", "8 runs side by side, captured", 75_000, 0)
    rate("compiled", "4 wrn", "4 runs side by side, compiled", 0, 0, "wrn")
    rate("compiled", "8 wrn", "8 runs side by side, compiled", 75_000, 0, "wrn")
    rate("lenet", "captured", "LeNet-5, LN, MNIST size, batch 256, tf32, one run", 0, 6)
    rate("compiled", "lenet", "the same, compiled", 0, 6, "lenet")
    rate("lenet", "4 captured", "4 runs side by side", 0, 0)
    rate("lenet", "16 captured", "16 runs side by side", 0, 12)
    rate("compiled", "16 lenet", "16 runs side by side, compiled", 0, 12, "lenet")
    rate("lenet", "fp32", "LeNet-5 in fp32 (the default, repeatable), one run", 0, 6)
    rate("lenet", "16 fp32", "LeNet-5 in fp32, 16 runs side by side", 0, 12)
    rate("lenet", "bf16", "LeNet-5 in bf16, one run", 0, 6)
    rate("lenet", "16 bf16", "LeNet-5 in bf16, 16 runs side by side", 0, 12)
    share("wrn", "ln", "LN against CE, WRN-28-2", 1.03)
    share("wrn", "het", "Het, S = 1000, K = 10, against CE", 1.3)
    share("het", "het", "Het, S = 1000, K = 100, against CE", 1.3)
    share("het", "het-full", "Het-full, S = 1000, K = 100, against CE", 1.3)
    share("wrn", "co-teaching", "co-teaching against CE, WRN-28-2", 2.2)
    share("teaching", "co-teaching", "co-teaching against CE, ResNet-34", 2.2)
    share("teaching", "causalnl", "causalnl against its classifier, ResNet-34", 4)
    share("imagenet", "ln", "LN against CE, ResNet-50, 224 x 224, K = 1000", 1.02)
    share("imagenet", "het", "Het, S = 1000, against CE, ResNet-50, K = 1000", 1.15)
    return rows


def floors(peak: dict[str, float], precision: str, work: dict[str, float]) -> tuple[float, float]:
    """Milliseconds a step by arithmetic and by memory traffic at the GPU's ceilings."""
    arithmetic = work["gflop"] / peak["bf16_tflops" if precision == "bf16" else "fp32_tflops"]
    return arithmetic + work["sampled_gflop"] / peak["fp32_tflops"], work["gbytes"] / peak["copy_tbs"]


def limits(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """For each network: the two floors of a step, what the kernels take, what a step takes."""
    rows = []
    for part, name, method, network, shape, n_classes, batch, precision in (
        ("wrn", "WRN-28-2", "ce", "wrn-28-2", (3, 32, 32), 10, 128, "bf16"),
        ("lenet", "LeNet-5", "ln", "lenet5", (1, 28, 28), 10, 256, "fp32"),
        ("imagenet", "ResNet-50", "ce", "resnet50", (3, 224, 224), 1000, 128, "bf16"),
    ):
        if part not in found:
            continue
        work = floor(method, network, shape, n_classes, batch, precision)
        arithmetic, traffic = floors(found["ceilings"], precision, work)
        seen = found[part].get("kernels", {})
        rates = {k: v for k, v in found[part].items() if "bf16" not in k}
        rates |= {f"{k}, compiled": v for k, v in found.get("compiled", {}).items() if part in k}
        fastest = max((v["images_per_second"], k) for k, v in rates.items() if "images_per_second" in v)
        steps = [
            f"{1e3 * batch / found[part][k]['images_per_second']:.3f}" if k in found[part] else "-"
            for k in ("eager", "captured")
        ]
        rows.append(
            (
                f"{name}, batch {batch}",
                f"{arithmetic:.3f}",
                f"{traffic:.3f}",
                f"{seen['kernels']:.0f}, {seen['kernel_ms']:.3f}" if seen else "-",
                *steps,
                f"{1e3 * batch / fastest[0]:.3f} ({fastest[1]})",
                f"{1e3 * batch / fastest[0] / max(arithmetic, traffic):.1f}",
            )
        )
    return rows


def shares(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """For each method: the floors of its step, and how far it and its floor are from cross-entropy's."""
    small, rate = (3, 32, 32), {"noise_rate": 0.4}
    rows = []
    for part, name, network, shape, n_classes, methods in (
        ("wrn", "WRN-28-2", "wrn-28-2", small, 10, {"ln": {}, "het": {}, "co-teaching": rate}),
        ("het", "WRN-28-2", "wrn-28-2", small, 100, {"ln": {}, "het": {}, "het-full": {}}),
        ("teaching", "ResNet-34", "resnet34", small, 10, {"co-teaching": rate, "causalnl": rate}),
        ("imagenet", "ResNet-50", "resnet50", (3, 224, 224), 1000, {"ln": {}, "het": {}}),
    ):
        if part not in found:
            continue
        plain = floor("ce", network, shape, n_classes, 128, "bf16")
        least = max(floors(found["ceilings"], "bf16", plain))
        for method, params in methods.items():
            work = floor(method, network, shape, n_classes, 128, "bf16", **params)
            both = floors(found["ceilings"], "bf16", work)
            times = found[part]["ratios"][method]
            step = found[part].get("step_ms", {}).get(method)
            if step is None and "captured" in found[part]:
                step = times * found[part]["captured"]["step_ms"]
            rows.append(
                (
                    f"{method}, {name}, K = {n_classes}",
                    *(f"{each:.3f}" for each in both),
                    f"{max(both) / least:.3f}",
                    f"{times:.3f}",
                    "-" if step is None else f"{step:.2f}",
                    "-" if step is None else f"{step / max(both):.1f}",
                )
            )
    return rows


def table(header: str, rows: list[tuple[str, ...]]) -> list[str]:
    """Lines of Markdown; the header as it stands there."""
    rule = "|" + "---|" * (header.count("|") - 1)
    return [header, rule, *("| " + " | ".join(row) + " |" for row in rows)]


def render(found: dict[str, Any]) -> str:
    """The tables of the report, between their marks."""
    peak = found["ceilings"]
    measured = [
        (name, got, wanted, ("yes" if ok else "**no**") if wanted else "-")
        for name, got, wanted, ok in lines(found)
    ]
    text = [
        "<!-- tables -->",
        f"{found['gpu']}, torch {found['torch']}. Measured by `benchmarks/gpu.py`; see its head for how.",
        "",
        *table("| work | measured | wanted, at least | reached |", measured),
        "",
        "## Distance to the limit",
        "",
        f"Ceilings of this GPU, measured: {peak['bf16_tflops']:.0f} TFLOP/s in bf16, "
        f"{peak['fp32_tflops']:.0f} in fp32 (matrix products), {peak['copy_tbs']:.1f} TB/s (copy). "
        "Milliseconds a step; side by side it is the time over the steps of all runs:",
        "",
        *table(
            "| | floor by arithmetic | floor by memory traffic | kernels a step, their time | eager | captured "
            "| best | best over the higher floor |",
            limits(found),
        ),
        "",
        "Methods, one run, captured, batch 128, bf16; the higher of the two floors counts:",
        "",
        *table(
            "| | floor by arithmetic | floor by memory traffic | floor over CE's | measured over CE's | a step "
            "| over its floor |",
            shares(found),
        ),
        "<!-- end -->",
    ]
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    path = arguments.out / "gpu.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if not arguments.render:
        found |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        found.pop("other calls", None)  # they stand beside the former figures
        for part in PARTS:
            if part in arguments.only:
                started = time.perf_counter()
                found[part] = PARTS[part]()
                print(part, f"{time.perf_counter() - started:.0f} s", json.dumps(found[part]), flush=True)
                path.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    if "ceilings" in found:
        page = arguments.out / "gpu.md"
        text = page.read_text() if page.exists() else "# Training on a GPU\n\n<!-- tables -->\n<!-- end -->\n"
        page.write_text(TABLES.sub(lambda _: render(found), text))
    for line in lines(found):
        print(*line, sep=" | ")


if __name__ == "__main__":
    main()
