"""Small files in the formats of the original distributors."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def idx_bytes(array):
    array = np.asarray(array, np.uint8)
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def save_image(path, pixels, **options):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path, **options)
    return path


@pytest.fixture
def write_image():
    """Save an array as an image, in the format of the suffix; returns the path."""
    return save_image


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def write_idx(rng):
    """Write MNIST's four files below a folder; returns what is in them by file name."""

    def write(folder, *, compressed=True, n_train=30, n_test=10):
        content = {}
        folder.mkdir(parents=True, exist_ok=True)
        for part, n in (("train", n_train), ("t10k", n_test)):
            content[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
            content[f"{part}-labels-idx1-ubyte"] = (np.arange(n) % 10).astype(np.uint8)
        for name, array in content.items():
            raw = idx_bytes(array)
            (folder / (name + ".gz" * compressed)).write_bytes(gzip.compress(raw) if compressed else raw)
        return content

    return write


@pytest.fixture
def cifar10_root(tmp_path, rng):
    """CIFAR-10 with 20 images a batch, as the original pickles have it: protocol 2, bytes as keys."""
    folder = tmp_path / "root" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        batch = {
            b"batch_label": name.encode(),
            b"labels": [int(v) for v in (np.arange(20) + i) % 10],
            b"data": rng.integers(0, 256, (20, 3072), dtype=np.uint8),
            b"filenames": [f"{k}.png".encode() for k in range(20)],
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    return tmp_path / "root"


@pytest.fixture
def image_folder(rng):
    """Write class folders of PNG images; returns the pixels by path."""

    def write(folder, counts, size=(8, 8), channels=3):
        shape = (*size, 3) if channels == 3 else size
        pixels = {}
        for name, count in counts.items():
            for i in range(count):
                path = folder / name / f"{i:03d}.png"
                pixels[path] = rng.integers(0, 256, shape, dtype=np.uint8)
                save_image(path, pixels[path])
        return pixels

    return write
