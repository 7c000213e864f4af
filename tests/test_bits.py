"""The bits of what every method and every part of the trainer computes, against stored ones.

`bits.json` says for which torch and which processor its hashes hold. There they must be equal;
elsewhere kernels add in another order, and a sample of the stored probabilities is compared with a
tolerance instead. `OMP_NUM_THREADS=1 python tests/test_bits.py` adds those of new methods, on the same
kind of machine; with `--all` it stores all anew, which needs a reason in the commit's message.
"""

import functools
import hashlib
import json
import platform
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.methods import METHODS

STORED = Path(__file__).with_name("bits.json")
#: Fewer samples than the papers' 1000, and smaller networks, so that all of it takes seconds.
QUICK = {name: {"n_samples": 20, "n_samples_eval": 20} for name in ("het", "het-tau", "het-full")}
TOLERANCE = 0.02
#: What the recipes of the methods below leave out, each with the method "ce".
RECIPES = {
    "moving average": {"ema": 0.9, "keep": "ema"},
    "best epoch": {"keep": "best", "monitor": "log_likelihood"},
    "patience": {"patience": 1, "lr": 0.05},
    "nesterov": {"optimizer": "nesterov", "weight_decay": 1e-3, "schedule": "cosine", "warmup": 1},
    "sgd": {"optimizer": "sgd", "schedule": "step", "milestones": (1, 2), "decay_norm_and_bias": False},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.5},
    "lars": {"optimizer": "lars", "decay_norm_and_bias": False, "lr": 1.0},
    "steps": {"epochs": None, "steps": 7},
    "bf16": {"precision": "bf16"},
}


def machine():
    """What decides the last bits: torch, and the kernels that it chooses for this processor."""
    file = Path("/proc/cpuinfo")
    lines = [line.partition(":") for line in (file.read_text().splitlines() if file.exists() else ())]
    # A virtual machine may call all generations of a processor by one name.
    about = ("model name", "cpu family", "model", "stepping", "cache size")
    found = {name: {value.strip() for key, _, value in lines if key.strip() == name} for name in about}
    return {
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": "; ".join(f"{name} {', '.join(sorted(values))}" for name, values in found.items()),
    }


@functools.cache
def vectors():
    """Three blobs in four dimensions, a quarter of their labels wrong."""
    rng = np.random.default_rng(0)
    clean = rng.integers(0, 3, 160)
    x = (np.eye(3, 4)[clean] * 2 + rng.uniform(-1, 1, (160, 4))).astype(np.float32)
    return _noisy(x, clean)


@functools.cache
def images():
    """Images of 8x8 pixels in three classes: a bright row, column or corner."""
    rng = np.random.default_rng(1)
    clean = rng.integers(0, 3, 120)
    x = rng.integers(0, 120, (120, 1, 8, 8))
    x[clean == 0, :, 3] += 120
    x[clean == 1, :, :, 3] += 120
    x[clean == 2, :, :3, :3] += 120
    return _noisy(x.astype(np.uint8), clean)


def _noisy(x, clean):
    y = np.where(np.arange(len(clean)) % 4 == 0, (clean + 1) % 3, clean)
    first, second = slice(0, 90), slice(90, None)
    splits = Split(x[first], y[first], clean[first]), Split(x[second], clean[second])
    return Dataset("bits", *splits, classes=("a", "b", "c")).hold_out(0.2, seed=0)


class Small(nn.Module):
    """Convolution, normalisation and dropout: buffers, random numbers and channels."""

    def __init__(self, shape, n_outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2), nn.AdaptiveAvgPool2d(2)
        )
        self.head = nn.Linear(16, n_outputs)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


CASES = {f"{name}, vectors": (name, "vectors", {}) for name in sorted(METHODS)}
CASES |= {f"{name}, images": (name, "images", {}) for name in sorted(METHODS)}
CASES |= {f"{kind}, {key}": ("ce", kind, RECIPES[key]) for key in RECIPES for kind in ("vectors", "images")}


def train(case, **options):
    """Train a case for a few epochs."""
    name, kind, changes = CASES[case]
    method = ng.methods.get(name, **QUICK.get(name, {}))
    if kind == "vectors":
        data, network, recipe = vectors(), "mlp-8", {"epochs": 3, "batch_size": 16}
    else:
        data, network, recipe = images(), Small, {"epochs": 2, "batch_size": 16, "crop": 1, "flip": True}
    recipe = ng.Recipe(**(recipe | {"lr": 0.01} | changes))
    return data, ng.train(data, method, network, recipe, seed=5, device="cpu", **options)


def outcome(data, fitted):
    """The hashes of what a run gave, and a sample of its probabilities."""
    weights, numbers = hashlib.sha256(), hashlib.sha256()
    for name, value in [*fitted.network.state_dict().items(), *sorted(fitted.extras.items())]:
        if isinstance(value, torch.Tensor | np.ndarray):
            weights.update(name.encode() + np.ascontiguousarray(np.asarray(value)).tobytes())
    epochs = [
        {k: v for k, v in each.items() if not k.endswith("seconds")} for p in fitted.history for each in p
    ]
    metrics = {k: v for k, v in fitted.metrics.items() if k != "seconds"}
    numbers.update(json.dumps([epochs, metrics], sort_keys=True).encode())
    probs = fitted.predict_proba(data.test.x)
    return {
        "weights": weights.hexdigest(),
        "probabilities": hashlib.sha256(np.ascontiguousarray(probs).tobytes()).hexdigest(),
        "numbers": numbers.hexdigest(),
        "sample": [[round(float(p), 4) for p in row] for row in probs[:4]],
    }


@pytest.fixture(scope="module")
def stored():
    return json.loads(STORED.read_text())


@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_before(case, stored):
    found, wanted = outcome(*train(case)), stored["results"][case]
    if machine() == stored["machine"]:
        assert found == wanted
    else:
        np.testing.assert_allclose(found["sample"], wanted["sample"], atol=TOLERANCE)


def test_every_stored_result_has_a_test(stored):
    assert set(stored["results"]) == set(CASES)


if __name__ == "__main__":
    torch.set_num_threads(1)
    known = {} if "--all" in sys.argv else json.loads(STORED.read_text())["results"]
    results = {case: known.get(case) or outcome(*train(case)) for case in CASES}
    STORED.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
