"""Planted errors in masks: which images and regions an audit finds, beside cleanlab.

Run `python benchmarks/masks.py [scenes|camvid]` (scenes: minutes on one core; camvid: a GPU); it
writes `results/masks_DATASET.md`. A quarter of the training images get one kind of error in some of
their segments. Networks cross-fitted in two folds give out-of-sample probabilities, from which both
judge: ours by the regions of `map_regions` and by `map_quality`, cleanlab 2.9 by its softmin and by
its pixels. cleanlab has no void: void pixels are given the predicted class, which suits it.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
from pathlib import Path

import numpy as np
import torch

import noisegate as ng
from noisegate.noise import MapSegments
from noisegate.noise.base import VOID
from noisegate.quality.maps import map_quality, map_regions

RESULTS = Path(__file__).parent / "results"
KINDS = {
    "dropped": MapSegments(0.5, "drop", smallest=60),
    "swapped": MapSegments(0.3, "swap", smallest=60),
    "shifted": MapSegments(0.6, "shift", distance=8, smallest=60),
}
SETTINGS = {
    "scenes": (
        {"n": 96, "n_test": 2},
        "deeplab-resnet18-os32",
        {"epochs": 20, "optimizer": "adam", "lr": 1e-3},
    ),
    "camvid": ({}, "deeplab-resnet18", {"epochs": 40, "optimizer": "adam", "lr": 1e-3, "crop_to": 160}),
}


def planted(data: ng.data.Dataset, noise: MapSegments, seed: int) -> ng.data.Dataset:
    """The data with errors in every fourth image."""
    y = data.train.y.copy()
    chosen = np.random.default_rng(seed).permutation(len(y))[: len(y) // 4]
    y[chosen] = noise.corrupt(y[chosen], n_classes=data.n_classes, seed=seed)
    return dataclasses.replace(data, validation=None, test=None).with_labels(y)


def out_of_sample(data: ng.data.Dataset, network: str, recipe: dict, seed: int, device: str) -> np.ndarray:
    """Probabilities (N, K, H, W), float16, each by a network that was trained on the other half."""
    places = np.random.default_rng([seed, 1]).permutation(len(data.train))
    probs = np.empty((len(places), data.n_classes, *data.train.y.shape[1:]), np.float16)
    common = {
        "batch_size": 8,
        "schedule": "poly",
        "scales": (0.75, 1.0, 1.25),
        "flip": True,
        "clip_norm": 1.0,
    }
    for held in np.array_split(places, 2):
        part = dataclasses.replace(data, train=data.train.take(np.setdiff1d(places, held)))
        fitted = ng.train(
            part, "ce", network, common | recipe, seed, device, evaluate_every=0, progress=False
        )
        for row in held.tolist():
            probs[row] = fitted.predict_proba(data.train.x[row][None])[0]
    return probs


def at_n(scores: np.ndarray, wrong: np.ndarray) -> float:
    """Precision, which is recall, among as many of the largest scores as there are wrong ones."""
    return float(wrong[np.argsort(-scores, kind="stable")[: wrong.sum()]].mean())


def judged(data: ng.data.Dataset, probs: np.ndarray) -> dict[str, tuple[float, float, float]]:
    """By finder: precision and recall of images at n, precision and recall of pixels."""
    from cleanlab.segmentation.filter import find_label_issues
    from cleanlab.segmentation.rank import get_label_quality_scores

    y, clean = data.train.y, data.train.clean
    errors = (y != clean) & (y != VOID)
    # An image is wrong if more than a few pixels are.
    wrong = errors.reshape(len(y), -1).sum(1) > 20
    p = probs.astype(np.float32)
    p /= p.sum(1, keepdims=True)
    ours = np.zeros(y.shape, bool)
    weights, quality = np.zeros(len(y)), np.zeros(len(y))
    for row in range(len(y)):
        quality[row] = map_quality(p[row], y[row])
        for region in map_regions(p[row], y[row]):
            top, left, bottom, right = region.box
            ours[row, top:bottom, left:right] |= region.mask
            weights[row] += region.weight
    filled = np.where(y == VOID, p.argmax(1), y).astype(np.int64)
    softmin = get_label_quality_scores(filled, p, verbose=False)[0]
    flagged = find_label_issues(filled, p, downsample=1, n_jobs=1, verbose=False) & (y != VOID)

    def pixels(found: np.ndarray) -> tuple[float, float]:
        both = (found & errors).sum()
        return float(both / max(1, found.sum())), float(both / max(1, errors.sum()))

    nothing = (float("nan"), float("nan"))
    return {
        "ours, regions": (at_n(weights, wrong), *pixels(ours)),
        "ours, softmin": (at_n(-quality, wrong), *nothing),
        "cleanlab, softmin": (at_n(-softmin, wrong), *nothing),
        "cleanlab, pixels": (at_n(flagged.reshape(len(y), -1).sum(1), wrong), *pixels(flagged)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?", default="scenes", choices=sorted(SETTINGS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    options, network, recipe = SETTINGS[asked.dataset]
    data = ng.data.load(asked.dataset, **options)
    lines = [
        f"# Planted errors in the masks of {asked.dataset}",
        "",
        f"`python benchmarks/masks.py {asked.dataset} --seeds {asked.seeds}`: {len(data.train)} images, "
        f"n = {asked.seeds} seeds, {network}, {platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}.",
        "",
        "`images`: the share of wrong images among the first n, n being their number (precision = "
        "recall). `pixels`: precision and recall of the wrong pixels.",
        "",
        "| errors | finder | images | pixels: precision | recall |",
        "|---|---|---|---|---|",
    ]
    for kind, noise in KINDS.items():
        runs = []
        for seed in range(asked.seeds):
            noisy = planted(data, noise, seed)
            runs.append(judged(noisy, out_of_sample(noisy, network, recipe, seed, asked.device)))
        for finder in runs[0]:
            values = np.mean([run[finder] for run in runs], 0)
            shown = " | ".join("" if np.isnan(v) else f"{v:.2f}" for v in values)
            lines.append(f"| {kind} | {finder} | {shown} |")
            print(lines[-1], flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"masks_{asked.dataset}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
