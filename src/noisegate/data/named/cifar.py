"""CIFAR-10 and CIFAR-100 (python pickles), and the human labels of CIFAR-10N and CIFAR-100N."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.data.arrays import read_npz
from noisegate.data.dataset import Dataset, Labels, Split
from noisegate.data.images import ImageReader
from noisegate.data.pickles import read_pickle, read_torch_file
from noisegate.data.registry import Remote, Source, existing, find, register
from noisegate.errors import DamagedFileError, UnknownNameError

_URL = ("https://www.cs.toronto.edu/~kriz/",)
_BATCHES_10 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}
_FILES_100 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}


def _source(names: tuple[str, ...], folder: str, archive: str, md5: str, files: dict[str, str]) -> Source:
    members = {f"{folder}/{name}": checksum for name, checksum in files.items()}
    places = (f"{names[0]}/{folder}", folder, *(f"{name}/{folder}" for name in names[1:]))
    return Source(places, tuple(files), (Remote(archive, md5, _URL, members),))


CIFAR10 = _source(
    ("cifar10", "cifar-10", "CIFAR10"),
    "cifar-10-batches-py",
    "cifar-10-python.tar.gz",
    "c58f30108f718f92721af3b95e74349a",
    _BATCHES_10,
)
CIFAR100 = _source(
    ("cifar100", "cifar-100", "CIFAR100"),
    "cifar-100-python",
    "cifar-100-python.tar.gz",
    "eb9058c3a382ffc7106e4002c42a8d85",
    _FILES_100,
)


def _read_batch(path: Path, key: str, n_classes: int) -> Split:
    content = read_pickle(path)
    x, y = content.get("data"), content.get(key)
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != 3072:
        raise DamagedFileError(f"{path} should hold 'data' of N x 3072 bytes")
    return Split(x.reshape(-1, 3, 32, 32), _checked_labels(y, len(x), n_classes, f"{path}, {key!r}"))


def _checked_labels(y: Any, n: int, n_classes: int, where: str) -> Labels:
    labels = np.asarray([] if y is None else y)
    if labels.shape != (n,) or (n and not np.issubdtype(labels.dtype, np.integer)):
        raise DamagedFileError(f"{where}: expected {n} whole numbers, found {labels.dtype} {labels.shape}")
    if n and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise DamagedFileError(
            f"{where}: expected labels 0..{n_classes - 1}, found {labels.min()}..{labels.max()}"
        )
    return labels.astype(np.int64)


def _class_names(path: Path, key: str) -> tuple[str, ...]:
    names = read_pickle(path).get(key)
    if not isinstance(names, list) or len(names) < 2:
        raise DamagedFileError(f"{path} should hold the class names {key!r}")
    return tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names)


@register("cifar10", "60,000 photographs, 32x32 colour, 10 classes", source=CIFAR10)
def cifar10(*, root: Path) -> Dataset:
    """CIFAR-10: 50,000 training and 10,000 test images (N, 3, 32, 32), uint8, in the original order.

    References
    ----------
    Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    folder = find("cifar10", CIFAR10, root)
    classes = _class_names(folder / "batches.meta", "label_names")
    batches = [_read_batch(folder / f"data_batch_{i}", "labels", len(classes)) for i in range(1, 6)]
    x: list[npt.NDArray[Any]] = [batch.x for batch in batches]  # type: ignore[misc]
    train = Split(np.concatenate(x), np.concatenate([batch.y for batch in batches]))
    test = _read_batch(folder / "test_batch", "labels", len(classes))
    return Dataset("cifar10", train, test, classes=classes, reader=ImageReader(32, 3))


@register("cifar100", "60,000 photographs, 32x32 colour, 100 classes (or 20 coarse ones)", source=CIFAR100)
def cifar100(*, root: Path, coarse: bool = False) -> Dataset:
    """CIFAR-100: 50,000 training and 10,000 test images (N, 3, 32, 32), uint8, in the original order.

    Parameters
    ----------
    coarse : bool
        The 20 superclasses instead of the 100 classes.

    References
    ----------
    Krizhevsky, Learning multiple layers of features from tiny images, 2009.
    """
    folder, level = find("cifar100", CIFAR100, root), "coarse" if coarse else "fine"
    classes = _class_names(folder / "meta", f"{level}_label_names")
    train, test = (_read_batch(folder / part, f"{level}_labels", len(classes)) for part in ("train", "test"))
    return Dataset(
        "cifar100", train, test, classes=classes, reader=ImageReader(32, 3), info={"labels": level}
    )


_HUMAN_ADVICE = (
    "{0} is in the folder data of https://github.com/UCSC-REAL/cifar-10-100n, licence CC BY-NC 4.0; no "
    "checksum is published, so it is placed by hand; {1} itself is fetched by `noisegate data fetch {1}`"
)


def _human_source(torch_file: str, npz: str, base: str) -> Source:
    places = ("cifar-n", "CIFAR-N", npz.removesuffix(".npz"), base, ".")
    return Source(places, (f"{torch_file}|{npz}",), advice=_HUMAN_ADVICE.format(torch_file, base))


CIFAR10N = _human_source("CIFAR-10_human.pt", "cifar10n.npz", "cifar10")
CIFAR100N = _human_source("CIFAR-100_human.pt", "cifar100n.npz", "cifar100")
# Our names of the five label sets -> the authors' names in their file.
CIFAR10N_SETS = {
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "aggregate": "aggre_label",
    "worst": "worse_label",
}


def read_human_labels(path: str | Path) -> dict[str, Any]:
    """The label sets of CIFAR-10N or CIFAR-100N.

    The authors' .pt file, or an .npz with the same names.
    """
    return read_npz(path) if Path(path).suffix == ".npz" else read_torch_file(path)


def _human(base: Dataset, name: str, path: Path, key: str) -> Dataset:
    """Replace the training labels by human labels.

    The file must describe the same images in the same order.
    """
    content, n, k = read_human_labels(path), len(base.train), base.n_classes
    clean = _checked_labels(content.get("clean_label"), n, k, f"{path}, 'clean_label'")
    if not np.array_equal(clean, base.train.y):
        differ = int((clean != base.train.y).sum())
        raise DamagedFileError(
            f"{path}: its clean labels differ from those of {base.name} in {differ} of {n} rows: "
            "another order or another set"
        )
    noisy = _checked_labels(content.get(key), n, k, f"{path}, {key!r}")
    rate = float((noisy != clean).mean())
    return replace(base.with_labels(noisy, noise="human", human_labels=key, noise_rate=rate), name=name)


def cifar10n(*, root: Path, labels: str = "worst") -> Dataset:
    """CIFAR-10 with training labels given by people.

    `clean` holds CIFAR's own, the test labels are CIFAR's.

    Parameters
    ----------
    labels : {"random1", "random2", "random3", "aggregate", "worst"}
        One of three labels per image each, their majority, or a wrong one wherever any of the three
        is wrong (17.23, 18.12, 17.64, 9.01 and 40.21 % wrong).

    References
    ----------
    Wei et al., Learning with noisy labels revisited, ICLR 2022.
    """
    if labels not in CIFAR10N_SETS:
        raise UnknownNameError("set of CIFAR-10N labels", labels, CIFAR10N_SETS)
    path = existing(find("cifar10n", CIFAR10N, root), CIFAR10N.files[0])
    return _human(cifar10(root=root), f"cifar10n-{labels}", path, CIFAR10N_SETS[labels])


register(
    "cifar10n",
    "CIFAR-10 with labels by people: labels= random1, random2, random3, aggregate, worst",
    source=CIFAR10N,
)(cifar10n)
for _name in CIFAR10N_SETS:
    register(
        f"cifar10n-{_name}",
        f"CIFAR-10 with labels by people, set {_name}",
        source=CIFAR10N,
        options={"labels": _name},
    )(cifar10n)


@register("cifar100n", "CIFAR-100 with labels by people (the noisy fine labels)", source=CIFAR100N)
def cifar100n(*, root: Path) -> Dataset:
    """CIFAR-100 with training labels given by people, 40.20 % of them wrong.

    `clean` holds CIFAR's own.

    References
    ----------
    Wei et al., Learning with noisy labels revisited, ICLR 2022.
    """
    path = existing(find("cifar100n", CIFAR100N, root), CIFAR100N.files[0])
    return _human(cifar100(root=root), "cifar100n", path, "noisy_label")
