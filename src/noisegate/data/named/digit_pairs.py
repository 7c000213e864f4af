"""A hundred classes out of MNIST: two digits beside each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from noisegate.data.dataset import Dataset, Split
from noisegate.data.named.idx import MNIST, mnist
from noisegate.data.registry import register
from noisegate.errors import InputError

CLASSES = tuple(f"{number:02}" for number in range(100))


@register("digit-pairs", "two MNIST digits beside each other, 28x56 grey, 100 classes", source=MNIST)
def digit_pairs(*, root: Path, seed: int = 0, n: int = 20_000, n_test: int = 10_000) -> Dataset:
    """Numbers from 00 to 99 written by two MNIST digits: images (N, 1, 28, 56), uint8.

    Many classes of real pictures that a small network can learn in minutes. Training pairs are
    drawn from MNIST's training images, test pairs from its test images.

    Parameters
    ----------
    root : path
        Folder of MNIST.
    seed : int
        Random seed of the pairs.
    n, n_test : int
        Number of pairs.
    """
    for name, count in (("n", n), ("n_test", n_test)):
        if count < 1:
            raise InputError(f"digit-pairs: {name} must be at least 1, got {count}")
    digits = mnist(root=root)
    if digits.test is None:
        raise InputError("digit-pairs: MNIST has no test images")
    train = _paired(digits.train, n, np.random.default_rng([seed, 0]))
    test = _paired(digits.test, n_test, np.random.default_rng([seed, 1]))
    return Dataset("digit-pairs", train, test, classes=CLASSES, info={"seed": seed})


def _paired(digits: Split, count: int, rng: np.random.Generator) -> Split:
    left, right = rng.integers(len(digits), size=(2, count))
    x: npt.NDArray[np.uint8] = np.asarray(digits.x)
    return Split(np.concatenate([x[left], x[right]], axis=3), 10 * digits.y[left] + digits.y[right])
