"""The handwritten digits that ship with scikit-learn: no download."""

from __future__ import annotations

import numpy as np

from noisegate.data.arrays import ArrayReader
from noisegate.data.dataset import Dataset, Labels, Split
from noisegate.data.images import ImageReader
from noisegate.data.registry import register


def _fixed_split(y: Labels) -> tuple[Labels, Labels]:
    """Training and test rows: a quarter of every class is test, the same rows on every call."""
    rng = np.random.default_rng(0)
    test = [
        rng.permutation(rows)[: round(len(rows) / 4)] for rows in (np.flatnonzero(y == k) for k in range(10))
    ]
    held = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(y)), held), held


@register("digits", "1,797 handwritten digits of 8x8 pixels that ship with scikit-learn, 10 classes")
def digits(*, as_images: bool = False) -> Dataset:
    """The UCI optical digits as scikit-learn packs them, with a fixed stratified split.

    A quarter is test.

    Parameters
    ----------
    as_images : bool
        False: vectors (n, 64), float32 in [0, 1]. True: images (n, 1, 8, 8), uint8 in 0..255.

    >>> data = digits()
    >>> data.train.x.shape, data.test.x.shape
    ((1347, 64), (450, 64))
    """
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    if as_images:
        x = np.round(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    else:
        x = (pixels / 16).astype(np.float32)
    train, test = _fixed_split(y)
    return Dataset(
        "digits",
        Split(x[train], y[train]),
        Split(x[test], y[test]),
        classes=tuple("0123456789"),
        reader=ImageReader(8, 1) if as_images else ArrayReader((64,)),
        info={"source": "sklearn.datasets.load_digits"},
    )
