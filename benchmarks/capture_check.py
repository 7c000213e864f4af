"""Whether captured steps do what eager steps do, bit for bit; on a GPU.

    python benchmarks/capture_check.py         prints a table; exits with 1 if anything differs

Every method is trained eagerly and as CUDA graphs, in fp32 with torch's deterministic algorithms; weights, what the
method learnt beside, and the whole history must be equal. So must runs side by side and runs alone, a resumed run
and an undisturbed one. Further rows: the caller's random state stays what it was, and an epoch of a captured run
makes the host wait for nothing but its numbers.

tests/training/test_replays.py goes through the same rows on a CPU, with recorded operations in place of graphs.
"""

from __future__ import annotations

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import contextlib
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.methods import METHODS
from noisegate.runs.run import Run
from noisegate.runs.side_by_side import how_many_fit, side_by_side
from noisegate.training import trainer
from noisegate.training.cuda_graphs import no_waiting
from noisegate.training.trainer import Epoch

DEVICE = "cuda"
PARAMETERS: dict[str, dict[str, Any]] = {
    name: {"n_samples": 64, "n_samples_eval": 64} for name in ("het", "het-tau", "het-full")
}
#: Rows beside those of every method: one that makes two updates a step.
VARIANTS = {"causalnl, two updates": "causalnl"}
PARAMETERS["causalnl, two updates"] = {"updates": "two"}
SHORT = {"epochs": 3, "batch_size": 32, "lr": 1e-3}
#: Each recipe with the network that makes it interesting: batch norm, dropout, augmentation.
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("lenet5", SHORT | {"optimizer": "sgd"}),
    "nesterov, weight decay, cosine": (
        "wrn-10-1",
        SHORT | {"optimizer": "nesterov", "weight_decay": 5e-4, "schedule": "cosine"},
    ),
    "adam": ("lenet5", SHORT),
    "adamw, dropout": ("cnn9", SHORT | {"optimizer": "adamw", "weight_decay": 0.01}),
    "lars": ("lenet5", SHORT | {"optimizer": "lars", "lr": 1.0, "decay_norm_and_bias": False}),
    "crop and flip": ("wrn-10-1", SHORT | {"crop": 2, "flip": True}),
    "clip_norm": ("lenet5", SHORT | {"clip_norm": 0.5}),
    "ema": ("wrn-10-1", SHORT | {"ema": 0.9, "keep": "ema"}),
    "best, patience, in steps": (
        "lenet5",
        SHORT | {"epochs": None, "steps": 37, "keep": "best", "patience": 4, "warmup": 5},
    ),
}


def images(n: int = 512, size: int = 16, seed: int = 0) -> Dataset:
    """Colour images whose brightness tells the class, 30 % of the labels wrong."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(0, 4, n)
    x = np.clip(rng.integers(0, 160, (n, 3, size, size)) + 30 * clean[:, None, None, None], 0, 255)
    y = np.where(rng.random(n) < 0.3, rng.integers(0, 4, n), clean)
    parts = [slice(0, 330), slice(330, 410), slice(410, n)]
    train, held, test = (Split(x[p].astype(np.uint8), y[p], clean[p]) for p in parts)
    return Dataset("images", train, test, held, classes=tuple("abcd"))


def run_of(
    data: Dataset, method: str, network: str, recipe: dict[str, Any], seed: int = 0, **options: Any
) -> Run:
    built = ng.methods.get(VARIANTS.get(method, method), **PARAMETERS.get(method, {}))
    return Run(data, built, network, ng.Recipe().replace(**recipe), seed, DEVICE, **options)


def outcome(run: Run) -> dict[str, Any]:
    """Everything a run leaves behind, without times."""
    fitted = run.fitted
    tensors = {f"weights of {k}": v for k, v in fitted.network.state_dict().items()}
    tensors |= {k: v for k, v in fitted.extras.items() if isinstance(v, torch.Tensor)}
    found: dict[str, Any] = {k: v.detach().cpu() for k, v in tensors.items()}
    for number, phase in enumerate(fitted.history):
        for epoch, metrics in enumerate(phase):
            for name, value in metrics.items():
                if not name.endswith("seconds"):
                    found[f"phase {number}, epoch {epoch}, {name}"] = value
    return found | {k: v for k, v in fitted.metrics.items() if k != "seconds"}


def trained(*arguments: Any, **options: Any) -> dict[str, Any]:
    with run_of(*arguments, **options) as run:
        for _ in run:
            pass
    return outcome(run)


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """The first thing in which two outcomes differ, or nothing."""
    if list(one) != list(other):
        return "they have other parts"
    for name, value in one.items():
        equal = torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
        both_nan = isinstance(value, float) and value != value and other[name] != other[name]
        if not equal and not both_nan:
            return name
    return ""


class Fallbacks:
    """Notes what falls back to eager execution: then a comparison would prove nothing."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        log = logging.getLogger("noisegate")
        original = log.warning

        def warning(message: str, *arguments: Any) -> None:
            self.lines.append(message % arguments)
            original(message, *arguments)

        log.warning = warning  # type: ignore[method-assign]


def same_eager_and_captured(data: Dataset, *arguments: Any) -> str:
    eager = trained(data, *arguments, execution="eager")
    return difference(eager, trained(data, *arguments, execution="captured"))


def same_side_by_side(data: Dataset) -> str:
    kinds = [("ce", 0), ("ce", 1), ("forward", 2), ("distillation", 3), ("co-teaching", 4), ("nan", 5)]
    makers: list[Callable[[], Run]] = [
        lambda m=m, s=s: run_of(data, m, "cnn9", SHORT | {"crop": 2, "flip": True}, s)  # type: ignore[misc]
        for m, s in kinds
    ]
    makers.append(lambda: run_of(data, "ln", "lenet5", SHORT | {"optimizer": "sgd", "lr": 1e18}))
    ends = {n: (run, what) for n, run, what in side_by_side(makers, 4) if not isinstance(what, Epoch)}
    if not isinstance(ends[len(kinds)][1], ng.errors.DivergedError):
        return "the run that must diverge did not"
    for number in range(len(kinds)):
        run, what = ends[number]
        if what is not None or run is None:
            return f"{kinds[number][0]} ended with {what!r}"
        with makers[number]() as lonely:
            for _ in lonely:
                pass
        if found := difference(outcome(run), outcome(lonely)):
            return f"{kinds[number][0]}: {found}"
    return ""


def same_after_resume(data: Dataset) -> str:
    arguments = (data, "forward", "wrn-10-1", SHORT | {"optimizer": "nesterov", "ema": 0.9})
    expected = trained(*arguments)
    trainer.CHECKPOINT_SECONDS = 0.0
    with tempfile.TemporaryDirectory() as folder:
        with run_of(*arguments, folder=folder) as run:
            for epoch in run:
                if (epoch.phase, epoch.epoch) == (1, 2):
                    break
        found = difference(expected, trained(*arguments, folder=folder))
    trainer.CHECKPOINT_SECONDS = 30.0
    return found


def callers_random_state(data: Dataset) -> str:
    torch.manual_seed(7)
    expected = torch.rand(3, device=DEVICE)
    torch.manual_seed(7)
    trained(data, "nan", "cnn9", SHORT)
    return "" if torch.equal(torch.rand(3, device=DEVICE), expected) else "it has moved"


@contextlib.contextmanager
def streaming() -> Iterator[None]:
    """Inside, no inputs fit on the GPU."""
    original = ng.data.loader.fits
    ng.data.loader.fits = lambda x, device: False
    try:
        yield
    finally:
        ng.data.loader.fits = original


def streamed(data: Dataset) -> str:
    resident = trained(data, "ln", "lenet5", SHORT)
    with streaming():
        return difference(resident, trained(data, "ln", "lenet5", SHORT))


def waits_for_nothing_streamed(data: Dataset) -> str:
    with streaming():
        return waits_for_nothing(data)


def waits_for_nothing(data: Dataset) -> str:
    """From the second epoch on, an operation that makes the host wait is an error."""
    try:
        with run_of(data, "ln", "wrn-10-1", SHORT | {"crop": 2, "ema": 0.9, "keep": "ema"}) as run:
            chunks, epochs = run.run_chunks(), 0
            while epochs < 2:
                if epochs:
                    with no_waiting():
                        item = next(chunks)
                else:
                    item = next(chunks)
                epochs += isinstance(item, Epoch)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


def checks() -> dict[str, Callable[[Dataset], str]]:
    """The rows by name: each says what differs, or nothing."""
    found: dict[str, Callable[[Dataset], str]] = {
        f"ln, {name}": lambda data, a=arguments: same_eager_and_captured(data, "ln", *a)  # type: ignore[misc]
        for name, arguments in RECIPES.items()
    }
    found |= {
        name: lambda data, n=name: same_eager_and_captured(data, n, "lenet5", SHORT)  # type: ignore[misc]
        for name in sorted([*METHODS, *VARIANTS])
    }
    return found | {
        "side by side": same_side_by_side,
        "resumed": same_after_resume,
        "streamed and resident": streamed,
        "random state": callers_random_state,
        "waits for nothing": waits_for_nothing,
        "waits for nothing, streamed": waits_for_nothing_streamed,
    }


def main() -> int:
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("ignore")
    data, fallbacks, rows = images(), Fallbacks(), checks()
    failed = 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name, check in rows.items():
        started, before = time.perf_counter(), len(fallbacks.lines)
        try:
            found = check(data)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        found = found or "; ".join(fallbacks.lines[before:])
        failed += bool(found)
        seconds = time.perf_counter() - started
        print(f"{name:36} {'DIFFERS: ' + found if found else 'equal':60} {seconds:6.1f} s", flush=True)
    fit = how_many_fit(lambda: run_of(data, "ln", "lenet5", SHORT))
    print(f"{len(rows) - failed} of {len(rows)} as they should be; of ln on lenet5, {fit} runs fit")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
