"""Drawn scenes with a class for every pixel: what a small network learns in seconds."""

from __future__ import annotations

import numpy as np

from noisegate.data.dataset import Dataset, Split
from noisegate.data.maps import MapReader
from noisegate.data.masks import Coding
from noisegate.data.registry import register
from noisegate.errors import InputError
from noisegate.noise.base import VOID

CLASSES = ("ground", "disc", "square", "sky")
COLOURS = np.array([[90, 90, 70], [190, 80, 60], [70, 90, 180], [160, 180, 200]])


@register("scenes", "drawn pictures of discs and squares, 48x64 colour, a class for every pixel (4 and void)")
def scenes(*, n: int = 120, n_test: int = 40, seed: int = 0) -> Dataset:
    """Discs and squares before ground and sky, with noise in their colours and a void rim between some of them.

    Parameters
    ----------
    n, n_test : int
        Numbers of training and test pictures; there are as many validation as test pictures.
    seed : int
    """
    if n < 1 or n_test < 1:
        raise InputError(f"scenes: n and n_test must be at least 1, got {n} and {n_test}")
    train, test, validation = (
        _drawn(count, np.random.default_rng([seed, part])) for part, count in enumerate((n, n_test, n_test))
    )
    reader = MapReader(3, Coding(CLASSES))
    info = {"layout": "maps", "seed": seed}
    return Dataset("scenes", train, test, validation, classes=CLASSES, reader=reader, info=info)


def _drawn(count: int, rng: np.random.Generator) -> Split:
    height, width = 48, 64
    rows, columns = np.mgrid[:height, :width]
    y = np.zeros((count, height, width), np.int8)
    for picture in y:
        picture[rows < rng.integers(10, 22)] = 3
        for label in rng.permutation([1, 2, 1, 2]):
            radius, top, left = rng.integers(4, 10), rng.integers(8, 44), rng.integers(4, 60)
            far = (
                np.hypot(rows - top, columns - left)
                if label == 1
                else np.maximum(abs(rows - top), abs(columns - left))
            )
            picture[far <= radius] = label
            picture[(far > radius) & (far <= radius + 1)] = VOID
    bright = rng.normal(0, 25, (count, 1, 1, 1)) + rng.normal(0, 18, (count, height, width, 3))
    # Unlabelled pixels get a colour from the middle of the palette.
    x = np.where(y[..., None] == VOID, COLOURS.mean(0), COLOURS[np.maximum(y, 0)]) + bright
    return Split(np.clip(x, 0, 255).astype(np.uint8).transpose(0, 3, 1, 2).copy(), y)
