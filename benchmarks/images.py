"""Reading folders of images: noisegate beside torch's DataLoader, in turn in one process.

    taskset -c 0,1 python benchmarks/images.py      writes results/images.md

20,000 PNGs of 32 x 32 and 2,000 JPEGs of 224 x 224 are drawn into a temporary folder. The peer is
a map-style Dataset (`Image.open(path).convert("RGB")` to a uint8 tensor with channels first) in a
DataLoader of the same batch size, whose workers are kept from epoch to epoch and warm. "streamed"
is what training reads in an epoch, in shuffled order; "into memory" is `ImageFiles.read_all`
beside a DataLoader whose batches are joined. All sides must return the same pixels. CPU seconds
are those of the process and its workers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import torch
from in_turn import machine, write
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from noisegate.data.images import ImageFiles, walk
from noisegate.data.loader import Rows

BATCH = 256
#: Seconds and CPU seconds of each turn.
Turns = list[tuple[float, float]]
KINDS = {
    "20,000 PNGs of 32 x 32": (20_000, 32, "png", {}),
    "2,000 JPEGs of 224 x 224": (2_000, 224, "jpg", {"quality": 90}),
}


def draw(folder: Path, n: int, size: int, suffix: str, **options: int) -> None:
    """Smooth colours and some noise, in ten folders."""
    rng = np.random.default_rng(0)
    for i in range(n):
        coarse = rng.integers(0, 256, (max(4, size // 8),) * 2 + (3,), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)).astype(
            int
        )
        pixels = (smooth + rng.integers(-8, 9, smooth.shape)).clip(0, 255).astype(np.uint8)
        path = folder / f"class{i % 10}" / f"{i}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, **options)


class Plain(Dataset[Tensor]):
    """What people write: one image by its path."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        with Image.open(self.paths[row]) as image:
            pixels = np.asarray(image.convert("RGB"))
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def busy(processes: list[psutil.Process]) -> float:
    """CPU seconds of `processes` so far."""
    each = [process.cpu_times() for process in processes]
    return sum(times.user + times.system for times in each)


def compare(folder: Path, size: int, turns: int) -> dict[tuple[str, str], Turns]:
    """(seconds, CPU seconds) of each turn, by (what, side)."""
    files = ImageFiles(list(walk(folder)), size, folder=folder)
    rows = Rows(files, None, torch.device("cpu"))
    paths = [os.path.join(folder, name) for name in files.names]
    order = torch.randperm(len(paths), generator=torch.Generator().manual_seed(0))

    def peer(workers: int, shuffled: bool) -> DataLoader[Tensor]:
        return DataLoader(
            Plain(paths), BATCH, sampler=order.tolist() if shuffled else None,
            num_workers=workers, persistent_workers=workers > 0,
        )  # fmt: skip

    def streamed(loader: DataLoader[Tensor]) -> Callable[[], int]:
        return lambda: sum(int(x[:, 0, 0, 0].sum()) for x in loader)

    def joined(loader: DataLoader[Tensor]) -> Callable[[], int]:
        return lambda: int(torch.cat(list(loader))[:, 0, 0, 0].sum())

    sides: dict[tuple[str, str], Callable[[], int]] = {}
    for workers in (0, 2):
        name = f"DataLoader, {workers} workers"
        sides["streamed", name] = streamed(peer(workers, True))
        sides["into memory", name] = joined(peer(workers, False))
    ours = order.split(BATCH)
    sides["streamed", "noisegate"] = lambda: sum(int(x[:, 0, 0, 0].sum()) for x in rows.stream(ours))
    sides["into memory", "noisegate"] = lambda: int(files.read_all()[:, 0, 0, 0].sum(dtype=np.int64))
    answers = {call() for call in sides.values()}  # also warms everything up
    if len(answers) != 1:
        raise SystemExit("the sides read different pixels")
    mine = psutil.Process()
    processes = [mine, *mine.children()]
    found: dict[tuple[str, str], Turns] = {key: [] for key in sides}
    for _ in range(turns):
        for key, call in sides.items():
            before, started = busy(processes), time.perf_counter()
            call()
            found[key].append((time.perf_counter() - started, busy(processes) - before))
    return found


def medians(turns: Turns, others: Turns) -> tuple[float, float, float, float]:
    """Seconds and CPU seconds, and the ratios of the `others` to them, each turn with its neighbour."""
    ratios = [(b[0] / a[0], b[1] / a[1]) for a, b in zip(turns, others, strict=True)]
    columns = [*zip(*turns, strict=True), *zip(*ratios, strict=True)]
    seconds, cpu, faster, cheaper = map(statistics.median, columns)
    return seconds, cpu, faster, cheaper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tenth of the images; nothing is written")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "| images | how | side | images/s | times DataLoader | CPU us an image | DataLoader's CPU to this |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (n, size, suffix, options) in KINDS.items():
        n = n // 10 if asked.small else n
        with tempfile.TemporaryDirectory() as folder:
            draw(Path(folder), n, size, suffix, **options)
            found = compare(Path(folder), size, asked.turns)
        for (how, side), each in sorted(found.items()):
            peer = found[how, "DataLoader, 2 workers"]
            seconds, cpu, faster, cheaper = medians(each, peer)
            lines.append(
                f"| {name} | {how} | {side} | {n / seconds:,.0f} | {faster:.2f} | {cpu / n * 1e6:.0f} "
                f"| {cheaper:.2f} |"
            )
            print(lines[-1], flush=True)
    text = [
        "# Reading folders of images",
        "",
        f"`python benchmarks/images.py --turns {asked.turns}`: batches of {BATCH}, "
        f"{machine('torch', 'Pillow')}; load {os.getloadavg()[0]:.0f}.",
        "",
        "Medians of the turns; ratios are those of a turn to the DataLoader's with 2 workers in the same turn,",
        "in time and in CPU time. On a busy machine only CPU time says what a side costs: three processes then",
        "get more of the cores than one.",
        "",
        *lines,
    ]
    if not asked.small:
        write("images", text)


if __name__ == "__main__":
    main()
