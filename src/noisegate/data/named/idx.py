"""MNIST and Fashion-MNIST: IDX files, compressed or not."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.data.dataset import Dataset, Split
from noisegate.data.images import ImageReader
from noisegate.data.registry import Remote, Source, existing, find, register
from noisegate.errors import DamagedFileError

# The third byte of an IDX file says what the numbers are; all are stored with the high byte first.
_DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
#: gzip cannot compress by more than this.
MOST_COMPRESSION = 1032
_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def read_idx(path: str | Path) -> npt.NDArray[Any]:
    """Read one IDX file, with or without gzip (told by its content, not by its name).

    An IDX file is two zero bytes, a code for the kind of number, the number of dimensions, each
    dimension as four bytes, and the numbers in C order. A compressed file is read as far as its own
    header says and no further, so that a small one cannot fill the memory.
    """
    path = Path(path)
    size = regular_size(path, "an IDX file")
    with reading(path), open(path, "rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        with gzip.open(file) if compressed else file as content:
            return _read_array(content, path, size * MOST_COMPRESSION if compressed else size)


def _read_array(content: Any, path: Path, at_most: int) -> npt.NDArray[Any]:
    head = content.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _DTYPES or head[3] == 0:
        raise DamagedFileError(f"{path} is not an IDX file: it starts with {head.hex(' ') or 'nothing'}")
    sizes = content.read(4 * head[3])
    if len(sizes) < 4 * head[3]:
        raise DamagedFileError(f"{path} is cut off in its header")
    shape = tuple(int(n) for n in np.frombuffer(sizes, ">u4"))
    dtype = np.dtype(_DTYPES[head[2]])
    start = 4 + len(sizes)
    expected = start + math.prod(shape) * dtype.itemsize
    if expected <= at_most:
        check_room(2 * expected, path)
    # One byte more than there should be: it shows what follows, and reaches gzip's checksum.
    raw = content.read(min(expected, at_most) - start + 1)
    if start + len(raw) != expected:
        raise DamagedFileError(
            f"{path} should hold {expected} bytes by its header, but has {start + len(raw)}"
            + (" or more" if start + len(raw) > expected else "")
        )
    return np.frombuffer(raw, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _split(folder: Path, images: str, labels: str, n_classes: int) -> Split:
    x_path, y_path = (existing(folder, f"{name}.gz|{name}") for name in (images, labels))
    x, y = read_idx(x_path), read_idx(y_path)
    if x.ndim != 3 or x.dtype != np.uint8:
        raise DamagedFileError(f"{x_path} should hold grey images (N, H, W), found {x.dtype} {x.shape}")
    if y.shape != x.shape[:1]:
        raise DamagedFileError(f"{y_path} holds labels of shape {y.shape}, but {x_path} has {len(x)} images")
    if y.size and not 0 <= int(y.min()) <= int(y.max()) < n_classes:
        raise DamagedFileError(f"{y_path} should hold labels 0..{n_classes - 1}, found {y.min()}..{y.max()}")
    return Split(x[:, None], y)


def load_idx(folder: Path, name: str, classes: tuple[str, ...]) -> Dataset:
    """The dataset of the four IDX files in `folder`, under MNIST's file names."""
    train, test = (_split(folder, _NAMES[i], _NAMES[i + 1], len(classes)) for i in (0, 2))
    channels, height, _ = train.input_shape
    return Dataset(name, train, test, classes=classes, reader=ImageReader(height, channels))


def _source(places: tuple[str, ...], urls: tuple[str, ...], checksums: tuple[str, ...]) -> Source:
    remotes = tuple(Remote(f"{name}.gz", md5, urls) for name, md5 in zip(_NAMES, checksums, strict=True))
    return Source(places, tuple(f"{name}.gz|{name}" for name in _NAMES), remotes)


MNIST = _source(
    ("mnist", "MNIST", "MNIST/raw", "mnist/raw"),
    ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
)
FASHION_MNIST = _source(
    ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "fashion-mnist/raw"),
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
)
FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@register("mnist", "70,000 handwritten digits, 28x28 grey, 10 classes", source=MNIST)
def mnist(*, root: Path) -> Dataset:
    """MNIST: 60,000 training and 10,000 test images (N, 1, 28, 28), uint8.

    References
    ----------
    LeCun et al., Gradient-based learning applied to document recognition, 1998.
    """
    return load_idx(find("mnist", MNIST, root), "mnist", tuple("0123456789"))


@register("fashion-mnist", "70,000 pictures of clothes, 28x28 grey, 10 classes", source=FASHION_MNIST)
def fashion_mnist(*, root: Path) -> Dataset:
    """Fashion-MNIST: 60,000 training and 10,000 test images (N, 1, 28, 28), uint8.

    References
    ----------
    Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017.
    """
    return load_idx(find("fashion-mnist", FASHION_MNIST, root), "fashion-mnist", FASHION_CLASSES)
