"""Planted errors in masks: which images and regions an audit finds, beside cleanlab 2.9.

    python benchmarks/masks.py scenes --seeds 3                  drawn scenes: minutes on two cores
    python benchmarks/masks.py camvid --root ROOT --seeds 3      CamVid: four minutes of one H200
    python benchmarks/masks.py camvid --kinds mixed --root ROOT --epochs 20 --crop 128      CamVid on a CPU

writes results/masks_DATASET.md and .json. A quarter of the training images get one kind of error in some of their
segments: dropped into what surrounds them, swapped for another class, or shifted ("mixed": a third of these
images each). Networks cross-fitted in two folds give out-of-sample probabilities; from these alone both judge.
Ours: `map_regions` (regions, and images by the wrong pixels in them) and `map_quality`. cleanlab: its softmin,
and its label issues at full resolution, which are made regions as ours are: connected pixels of one given and
one predicted class, at least 20. cleanlab has no void: void pixels are given the predicted class, so that they
are never an issue. Without cleanlab its rows are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import platform
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage
from sklearn.metrics import average_precision_score

import noisegate as ng
from noisegate.noise import MapSegments
from noisegate.noise.base import VOID
from noisegate.quality.maps import map_quality, map_regions
from noisegate.runs.run import Run
from noisegate.runs.side_by_side import side_by_side

RESULTS = Path(__file__).parent / "results"
NOISES = {
    "dropped": MapSegments(0.5, "drop", smallest=60),
    "swapped": MapSegments(0.3, "swap", smallest=60),
    "shifted": MapSegments(0.6, "shift", distance=8, smallest=60),
}
KINDS = (*NOISES, "mixed")
COMMON = {"batch_size": 8, "schedule": "poly", "scales": (0.75, 1.0, 1.25), "flip": True, "clip_norm": 1.0}
ADAM = {"optimizer": "adam", "lr": 1e-3}
SETTINGS = {
    "scenes": ({"n": 96, "n_test": 2}, "deeplab-resnet18-os32", {"epochs": 20, **ADAM}),
    "camvid": ({}, "deeplab-resnet18", {"epochs": 30, "crop_to": 160, "precision": "tf32", **ADAM}),
}
#: Of a region, of an image's errors: fewer pixels do not count.
SMALLEST = 20
Scores = dict[str, dict[str, float]]
#: By kind of error, then by finder: the scores of every seed.
Results = dict[str, dict[str, list[dict[str, float]]]]


def rows_by_kind(n: int, kind: str, seed: int) -> dict[str, np.ndarray]:
    """The images that get errors, by the kind of these."""
    chosen = np.random.default_rng(seed).permutation(n)[: n // 4]
    kinds = list(NOISES) if kind == "mixed" else [kind]
    return dict(zip(kinds, np.array_split(chosen, len(kinds)), strict=True))


def planted(data: ng.data.Dataset, kind: str, seed: int) -> ng.data.Dataset:
    """The data with errors in every fourth image; of "mixed" ones each third has another kind."""
    y = data.train.y.copy()
    for name, rows in rows_by_kind(len(y), kind, seed).items():
        y[rows] = NOISES[name].corrupt(y[rows], n_classes=data.n_classes, seed=seed)
    return dataclasses.replace(data, validation=None, test=None).with_labels(y)


def halves(n: int, seed: int) -> list[np.ndarray]:
    """Two sets of rows; each is judged by the network that was trained on the other."""
    return np.array_split(np.random.default_rng([seed, 1]).permutation(n), 2)


def predicted(fitted: ng.Fitted, x: np.ndarray) -> Iterator[np.ndarray]:
    """Probabilities of some images at a time, float16."""
    for images in np.array_split(x, max(1, len(x) // 16)):
        yield fitted.predict_proba(images).astype(np.float16)


# -- what is found -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Found:
    """What a finder says: a suspicion for every image and, if it has them, which pixels and regions."""

    suspicion: np.ndarray
    regions: np.ndarray | None = None  # (N, H, W): 0, or the number of a region within its image
    pixels: np.ndarray | None = None  # (N, H, W), bool

    @property
    def flagged(self) -> np.ndarray:
        return self.regions.reshape(len(self.regions), -1).any(1)


def ours(p: np.ndarray, y: np.ndarray) -> dict[str, Found]:
    """By `map_regions`, and by `map_quality`."""
    numbers, weights, quality = np.zeros(y.shape, np.int32), np.zeros(len(y)), np.zeros(len(y))
    for row in range(len(y)):
        quality[row] = map_quality(p[row], y[row])
        for number, region in enumerate(map_regions(p[row], y[row], smallest=SMALLEST), 1):
            top, left, bottom, right = region.box
            numbers[row, top:bottom, left:right][region.mask] = number
            weights[row] += region.weight
    # As `MaskAudit.order`: images without regions follow by their quality.
    suspicion = np.empty(len(y))
    suspicion[np.lexsort((quality, -weights))] = -np.arange(len(y))
    return {"ours, regions": Found(suspicion, numbers, numbers > 0), "ours, softmin": Found(-quality)}


def cleanlabs(p: np.ndarray, y: np.ndarray) -> dict[str, Found]:
    """By cleanlab's softmin, and its pixels with an issue; nothing where cleanlab is absent."""
    try:
        from cleanlab.segmentation.filter import find_label_issues
        from cleanlab.segmentation.rank import get_label_quality_scores
    except ModuleNotFoundError:
        return {}
    said = p.argmax(1)
    filled = np.where(y == VOID, said, y).astype(np.int64)
    softmin = get_label_quality_scores(filled, p, verbose=False)[0]
    pixels = find_label_issues(filled, p, downsample=1, n_jobs=1, verbose=False) & (y != VOID)
    numbers = np.zeros(y.shape, np.int32)
    for row in range(len(y)):
        numbers[row] = connected(np.where(pixels[row], filled[row] * p.shape[1] + said[row], -1))
    counts = pixels.reshape(len(y), -1).sum(1)
    return {"cleanlab, softmin": Found(-softmin), "cleanlab, pixels": Found(counts, numbers, pixels)}


def connected(codes: np.ndarray) -> np.ndarray:
    """Numbers of the connected pixels of one code (8 neighbours), 0 for a code of -1 and for small ones."""
    numbers, total = np.zeros(codes.shape, np.int32), 0
    for code in np.unique(codes[codes >= 0]):
        found, count = ndimage.label(codes == code, structure=np.ones((3, 3)))
        large = np.bincount(found.ravel(), minlength=count + 1) >= SMALLEST
        large[0] = False
        numbers = np.where(large[found], found + total, numbers).astype(np.int32)
        total += count
    return numbers


# -- how good that is ----------------------------------------------------------------------------------


def scored(found: Found, y: np.ndarray, clean: np.ndarray) -> dict[str, float]:
    """Precision and recall of images, regions and pixels.

    A region is right if at least half of its pixels are wrong; a planted one is found if a right region touches it.
    """
    errors = (y != clean) & (y != VOID)
    wrong = errors.reshape(len(y), -1).sum(1) >= SMALLEST
    first = np.argsort(-found.suspicion, kind="stable")[: wrong.sum()]
    scores = {
        "wrong_images": float(wrong.mean()),
        "average_precision": float(average_precision_score(wrong, found.suspicion)),
        "at_n": float(wrong[first].mean()),
    }
    if found.regions is None or found.pixels is None:
        return scores
    both = (wrong & found.flagged).sum()
    scores |= {
        "image_precision": ratio(both, found.flagged.sum()),
        "image_recall": ratio(both, wrong.sum()),
        "pixel_precision": ratio((found.pixels & errors).sum(), found.pixels.sum()),
        "pixel_recall": ratio((found.pixels & errors).sum(), errors.sum()),
    }
    said = right = total = hit = 0
    for numbers, error, given, truth in zip(found.regions, errors, y, clean, strict=True):
        sizes = np.bincount(numbers.ravel())
        good = np.bincount(numbers.ravel(), error.ravel()) * 2 >= np.maximum(sizes, 1)
        good[0] = False
        said, right = said + int((sizes[1:] > 0).sum()), right + int(good[1:][sizes[1:] > 0].sum())
        wanted = connected(np.where(error, (given.astype(int) + 1) * 512 + truth, -1))
        there = np.unique(wanted[wanted > 0])
        total, hit = total + len(there), hit + len(np.intersect1d(there, wanted[good[numbers]]))
    return scores | {"region_precision": ratio(right, said), "region_recall": ratio(hit, total)}


def ratio(part: float, whole: float) -> float:
    return float(part) / max(1.0, float(whole))


def judged(folder: str, parts: dict[str, np.ndarray], keep: str | None = None) -> dict[str, Scores]:
    """The scores of every finder by kind of error, from arrays in a folder; in a process of its own.

    `parts` are the rows of each kind. Of several kinds each also has its own recall ("mixed, swapped"); what a
    precision counts is all of them.
    """
    probs, y, clean = (np.load(Path(folder) / f"{name}.npy") for name in ("probs", "y", "clean"))
    p = probs.astype(np.float32)
    p /= p.sum(1, keepdims=True)
    if keep:
        kept(p, y, Path(keep))
    scores: dict[str, Scores] = {"": {}}
    for finder in (ours, cleanlabs):
        started = time.perf_counter()
        for name, found in finder(p, y).items():
            scores[""][name] = scored(found, y, clean) | {"seconds": time.perf_counter() - started}
            for kind, rows in parts.items() if len(parts) > 1 and found.regions is not None else ():
                part = Found(found.suspicion[rows], found.regions[rows], found.pixels[rows])
                own = scored(part, y[rows], clean[rows])
                scores.setdefault(f", {kind}", {})[name] = {k: v for k, v in own.items() if "recall" in k}
    return scores


def kept(p: np.ndarray, y: np.ndarray, path: Path) -> None:
    """Write what judges need, probabilities in 64 steps: to look at single images, and to try other judges."""
    path.parent.mkdir(parents=True, exist_ok=True)
    given = np.take_along_axis(p, np.where(y == VOID, 0, y)[:, None].astype(np.int64), 1)[:, 0]
    levels = {
        name: np.rint(63 * each).astype(np.uint8) for name, each in (("given", given), ("most", p.max(1)))
    }
    np.savez_compressed(path, said=p.argmax(1).astype(np.uint8), y=y, **levels)


# -- running and writing -------------------------------------------------------------------------------


def settings(asked: argparse.Namespace) -> tuple[dict[str, int], str, dict[str, object]]:
    """Options of the data, network and recipe, with what the command line changes."""
    options, network, recipe = SETTINGS[asked.dataset]
    changes = {"epochs": asked.epochs, "crop_to": asked.crop}
    return options, network, recipe | {name: value for name, value in changes.items() if value is not None}


def trained(
    data: ng.data.Dataset, asked: argparse.Namespace, scratch: Path
) -> Iterator[tuple[str, int, str]]:
    """Train for every kind of error and seed, several networks beside each other on a GPU.

    Yields the kind, the seed, and the folder of the arrays to judge.
    """
    _, network, recipe = settings(asked)
    jobs = [(kind, seed, half) for seed in range(asked.seeds) for kind in asked.kinds for half in (0, 1)]

    def make(kind: str, seed: int, half: int) -> Run:
        noisy = planted(data, kind, seed)
        rows = np.sort(halves(len(data.train), seed)[1 - half])
        part = dataclasses.replace(noisy, train=noisy.train.take(rows))
        return Run(part, "ce", network, COMMON | recipe, seed, asked.device, evaluate_every=0, evidence=())

    started, waiting = time.perf_counter(), dict[tuple[str, int], np.ndarray]()
    for number, run, what in side_by_side([partial(make, *job) for job in jobs], asked.width):
        if isinstance(what, Exception):
            raise what
        if what is not None:
            continue
        kind, seed, half = jobs[number]
        other = waiting.pop((kind, seed), None)
        shape = (len(data.train), data.n_classes, *data.train.y.shape[1:])
        probs = np.empty(shape, np.float16) if other is None else other
        rows = halves(len(data.train), seed)[half]
        probs[rows] = np.concatenate(list(predicted(run.fitted, data.train.x[rows])))
        print(f"{kind}, seed {seed}, half {half}: {time.perf_counter() - started:.0f} s", flush=True)
        if other is None:
            waiting[kind, seed] = probs
        else:
            folder = scratch / f"{kind}-{seed}"
            folder.mkdir()
            noisy = planted(data, kind, seed).train
            for name, array in (("probs", probs), ("y", noisy.y), ("clean", noisy.clean)):
                np.save(folder / f"{name}.npy", array)
            yield kind, seed, str(folder)


HEADS = {
    "average_precision": "images: average precision",
    "at_n": "among the first n",
    "image_precision": "flagged images: precision",
    "image_recall": "recall",
    "region_precision": "regions: precision",
    "region_recall": "recall",
    "pixel_precision": "pixels: precision",
    "pixel_recall": "recall",
}


def table(results: Results) -> list[str]:
    """Mean ± standard deviation over the seeds, in per cent."""
    lines = ["| errors | finder | " + " | ".join(HEADS.values()) + " |", "|---|---|" + "---|" * len(HEADS)]
    for kind, finders in results.items():
        for finder, rows in finders.items():
            cells = []
            for name in HEADS:
                values = 100 * np.array([row[name] for row in rows if name in row])
                spread = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
                cells.append(f"{values.mean():.1f}{spread}" if len(values) else "")
            lines.append(f"| {kind} | {finder} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="?", default="scenes", choices=sorted(SETTINGS))
    parser.add_argument("--root")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=2, help="processes that judge beside the training")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path, help="folder for what judges need of the first seed, coarsely")
    parser.add_argument("--width", type=int, default=6, help="networks trained beside each other on a GPU")
    parser.add_argument("--epochs", type=int, help="fewer, for a CPU")
    parser.add_argument("--crop", type=int, help="side of the squares that are trained on, smaller for a CPU")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(NOISES), help="kinds of errors")
    asked = parser.parse_args()
    options, _, _ = settings(asked)
    data = ng.data.load(asked.dataset, root=asked.root, **options)
    results: Results = {}
    asked.out.mkdir(parents=True, exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(asked.workers, spawn) as pool:
        waiting: list[tuple[str, Future[dict[str, Scores]]]] = []
        for kind, seed, folder in trained(data, asked, Path(scratch)):
            keep = str(asked.keep / f"{kind}.npz") if asked.keep and seed == 0 else None
            parts = rows_by_kind(len(data.train), kind, seed)
            waiting.append((kind, pool.submit(judged, folder, parts, keep)))
            while waiting and waiting[0][1].done():  # what is known is kept, however the rest ends
                collect(waiting.pop(0), results, data, asked)
        for each in waiting:
            collect(each, results, data, asked)
    print((asked.out / f"masks_{asked.dataset}.md").read_text())


def collect(
    judgement: tuple[str, Future[dict[str, Scores]]],
    results: Results,
    data: ng.data.Dataset,
    asked: argparse.Namespace,
) -> None:
    """Add the scores of one kind and seed to the results, and write all of them."""
    kind, future = judgement
    for part, finders in future.result().items():
        for finder, scores in finders.items():
            results.setdefault(kind + part, {}).setdefault(finder, []).append(scores)
    page = "\n".join(described(results, data, asked)) + "\n"
    (asked.out / f"masks_{asked.dataset}.md").write_text(page)
    (asked.out / f"masks_{asked.dataset}.json").write_text(json.dumps(results, indent=1) + "\n")


def described(results: Results, data: ng.data.Dataset, asked: argparse.Namespace) -> list[str]:
    """The lines of the results page: what was run, and the table."""
    _, network, recipe = settings(asked)
    on = torch.cuda.get_device_name() if torch.cuda.is_available() else f"a CPU ({platform.machine()})"
    given = {
        "--kinds": None if asked.kinds == list(NOISES) else " ".join(asked.kinds),
        "--root": asked.root and "ROOT",
        "--seeds": asked.seeds,
        "--epochs": asked.epochs,
        "--crop": asked.crop,
    }
    command = [asked.dataset, *(f"{name} {value}" for name, value in given.items() if value is not None)]
    seeds = f"n = {asked.seeds} seed" + ("s" if asked.seeds > 1 else "")
    return [
        f"# Planted errors in the masks of {asked.dataset}",
        "",
        f"`python benchmarks/masks.py {' '.join(command)}`: {len(data.train)} images of "
        f"{data.train.y.shape[2]} x {data.train.y.shape[1]} pixels, {seeds}, networks {network} "
        f"for {recipe['epochs']} epochs in two folds on {on}, Python {platform.python_version()}, torch "
        f"{torch.__version__}.",
        "",
        f"A quarter of the images have errors of one kind, n of them in at least {SMALLEST} pixels. Mean ± "
        "standard deviation in per cent. `among the first n`: precision, which is recall, among the n most "
        "suspicious images. A region is right if at least half of its pixels are wrong; a planted one is found "
        "if a right region touches it. `mixed, ...`: the recall among the images with errors of that kind.",
        "",
        *table(results),
    ]


if __name__ == "__main__":
    main()
