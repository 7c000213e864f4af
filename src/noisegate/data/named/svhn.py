"""Street View House Numbers: the cropped digits, MATLAB files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from noisegate.data.dataset import Dataset, Split
from noisegate.data.images import ImageReader
from noisegate.data.matlab import read_arrays
from noisegate.data.registry import Remote, Source, find, register
from noisegate.errors import DamagedFileError

_URL = ("http://ufldl.stanford.edu/housenumbers/",)
SVHN = Source(
    ("svhn", "SVHN", "housenumbers"),
    ("train_32x32.mat", "test_32x32.mat"),
    (
        Remote("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", _URL),
        Remote("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", _URL),
        Remote("extra_32x32.mat", "a93ce644f1a588dc4d68dda5feec44a7", _URL, optional=True),
    ),
)


def read_mat(path: str | Path) -> Split:
    """One SVHN file: X (H, W, C, N) becomes (N, C, H, W).

    In y, the label 10 stands for the digit 0.
    """
    path = Path(path)
    content = read_arrays(path, ("X", "y"))
    x, y = content.get("X"), content.get("y")
    if x is None or y is None or x.ndim != 4 or x.dtype != np.uint8 or y.size != x.shape[-1]:
        raise DamagedFileError(f"{path} should hold X (H, W, C, N) of bytes and one label y for each image")
    labels = y.reshape(-1).astype(np.int64)
    if not np.array_equal(labels, y.reshape(-1)):
        raise DamagedFileError(f"{path} should hold whole numbers as labels")
    if labels.size and not 0 <= labels.min() <= labels.max() <= 10:
        raise DamagedFileError(f"{path} should hold labels 1..10, found {labels.min()}..{labels.max()}")
    return Split(np.ascontiguousarray(x.transpose(3, 2, 0, 1)), labels % 10)


@register("svhn", "99,289 house-number digits, 32x32 colour, 10 classes", source=SVHN)
def svhn(*, root: Path, extra: bool = False) -> Dataset:
    """SVHN, cropped digits: 73,257 training and 26,032 test images (N, 3, 32, 32), uint8.

    Parameters
    ----------
    extra : bool
        Add the 531,131 easier images of extra_32x32.mat to the training rows.

    References
    ----------
    Netzer et al., Reading digits in natural images with unsupervised feature learning, 2011.
    """
    folder = find("svhn", SVHN, root)
    train = read_mat(folder / "train_32x32.mat")
    if extra:
        more = read_mat(folder / "extra_32x32.mat")
        train = Split(np.concatenate([train.x, more.x]), np.concatenate([train.y, more.y]))
    return Dataset(
        "svhn",
        train,
        read_mat(folder / "test_32x32.mat"),
        classes=tuple("0123456789"),
        reader=ImageReader(32, 3),
        info={"extra": extra},
    )
