"""Folders of images: one sub-folder per class, ImageNet's layout, Clothing1M with its key files."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisegate.data.dataset import Dataset, Inputs, Labels, Split
from noisegate.data.images import (
    RESIDENT_BYTES,
    SUFFIXES,
    ImageFiles,
    ImageReader,
    probe,
    visible,
    walk,
)
from noisegate.data.maps import is_map_folder, load_map_folder
from noisegate.data.registry import Source, call_loader, find, register
from noisegate.errors import DamagedFileError, InputError, MissingDataError

_SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}
_WNID = re.compile(r"n\d{8}")


def load_folder(path: str | os.PathLike[str], **options: Any) -> Dataset:
    """A folder of images: Clothing1M's layout, images beside masks, or one sub-folder a class."""
    folder = Path(path)
    if _key_file(folder, "noisy_train_key_list.txt") is not None:
        return call_loader(load_clothing1m, "a Clothing1M folder", folder, **options)
    if is_map_folder(folder):
        return call_loader(load_map_folder, "a folder of images and masks", folder, **options)
    return call_loader(load_image_folder, "an image folder", folder, **options)


# -- pixels ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pixels:
    """The options that all layouts share, and the inputs that they make of paths."""

    size: int | None
    channels: int | None
    resident: bool | str
    follow_links: bool

    def __post_init__(self) -> None:
        if self.resident not in (True, False, "auto"):
            raise InputError(f"resident must be True, False or 'auto', got {self.resident!r}")

    def inputs(
        self, folder: Path, parts: dict[str, list[str]]
    ) -> tuple[dict[str, Inputs], ImageReader, bool]:
        """Inputs of every part, the reader for new images, and whether the pixels are in memory."""
        links = self.follow_links
        size, channels = self.size, self.channels
        if size is None or channels is None:
            seen = probe(ImageFiles(parts["train"], 1, folder=folder, follow_links=links))
            size, channels = size or seen[0], channels or seen[1]
        files = {
            part: ImageFiles(paths, size, channels, folder=folder, follow_links=links)
            for part, paths in parts.items()
        }
        total = sum(map(len, files.values())) * channels * size * size
        resident = total <= RESIDENT_BYTES if self.resident == "auto" else bool(self.resident)
        inputs: dict[str, Inputs] = {p: f.read_all() if resident else f for p, f in files.items()}
        return inputs, ImageReader(size, channels), resident


def _assemble(
    name: str,
    inputs: dict[str, Inputs],
    labels: dict[str, Labels],
    *,
    reader: ImageReader,
    classes: tuple[str, ...],
    info: dict[str, Any],
    clean: dict[str, Labels] | None = None,
) -> Dataset:
    clean = clean or {}
    splits = {part: Split(inputs[part], labels[part], clean.get(part)) for part in inputs}
    return Dataset(
        name,
        splits["train"],
        splits.get("test"),
        splits.get("val"),
        classes=classes,
        reader=reader,
        info=info,
    )


# -- one sub-folder a class ------------------------------------------------------------------------


def load_image_folder(
    path: str | os.PathLike[str],
    *,
    size: int | None = None,
    channels: int | None = None,
    resident: bool | str = "auto",
    follow_links: bool = False,
    name: str | None = None,
) -> Dataset:
    """Images in one sub-folder a class.

    The class is the sub-folder's name, deeper folders do not matter.

    With folders train, val and test, val holds the validation rows. With train and val only, or
    where the class folders are ImageNet's (n01440764, ...), val holds the test rows: so ImageNet's
    val is used.

    Parameters
    ----------
    size : int, optional
        Side of the square images. Default: the longest side of some of them if that is at most 64,
        else 224.
    channels : {1, 3}, optional
        Default: 1 if the images are grey, else 3.
    resident : bool or "auto"
        Hold the pixels in memory; "auto": if they take at most 1 GiB. Otherwise only the paths are
        held.
    follow_links : bool
        Allow links that lead out of the folder.
    """
    folder = _folder(path)
    pixels = _Pixels(size, channels, resident, follow_links)
    parts = _split_folders(folder)
    classes, empty = _class_folders(folder, parts["train"], follow_links)
    paths, labels = {}, {}
    for part, sub in parts.items():
        if part != "train":
            _check_same_classes(folder / sub, classes)
        paths[part], labels[part] = _scan(folder, sub, classes, follow_links)
        if not len(paths[part]):
            raise InputError(f"there are no images in the class folders of {folder / sub}")
    inputs, reader, held = pixels.inputs(folder, paths)
    info = {"layout": "folder", "path": str(folder), "resident": held, "empty_folders": empty}
    return _assemble(
        name or folder.resolve().name, inputs, labels, reader=reader, classes=tuple(classes), info=info
    )


def _folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    if not folder.exists():
        raise MissingDataError(f"there is no folder {folder}")
    if not folder.is_dir():
        raise InputError(f"expected a folder of images at {folder}, found a file")
    return folder


def _subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and visible(entry.name))


def _split_folders(folder: Path) -> dict[str, str]:
    """Which sub-folder holds which rows.

    {"train": ""} where the class folders lie in the folder itself.
    """
    found = {_SPLIT_NAMES[sub.lower()]: sub for sub in _subfolders(folder) if sub.lower() in _SPLIT_NAMES}
    others = [sub for sub in _subfolders(folder) if sub.lower() not in _SPLIT_NAMES]
    if "train" not in found or (len(found) == 1 and others) or not _subfolders(folder / found["train"]):
        return {"train": ""}
    imagenet = any(_WNID.fullmatch(sub) for sub in _subfolders(folder / found["train"]))
    if (imagenet and "val" in found) or set(found) == {"train", "val"}:
        return {"train": found["train"], "test": found["val"]}
    return {part: found[part] for part in ("train", "val", "test") if part in found}


def _class_folders(folder: Path, sub: str, follow_links: bool) -> tuple[list[str], list[str]]:
    """Names of the class folders that hold an image, and of those that do not."""
    top = folder / sub
    names = _subfolders(top)
    full = [name for name in names if next(_class_images(folder, sub, name, follow_links), None) is not None]
    if len(full) < 2:
        found = (
            f"images in {len(full)} of {len(names)} sub-folders ({', '.join(names[:5]) or 'there are none'})"
        )
        raise InputError(
            f"expected {top} to hold one sub-folder of images a class, at least two of them; found {found}"
        )
    return full, [name for name in names if name not in full]


def _class_images(folder: Path, sub: str, name: str, follow_links: bool) -> Iterator[str]:
    """Images of one class, relative to the dataset's folder."""
    start = os.path.join(sub, name)
    if not follow_links and os.path.islink(folder / start):
        real = os.path.realpath(folder / start)
        if not real.startswith(os.path.realpath(folder) + os.sep):
            raise InputError(
                f"{folder / start} is a link out of {folder}; pass follow_links=True if that is meant"
            )
    return (os.path.join(start, path) for path in walk(folder / start, follow_links=follow_links))


def _check_same_classes(top: Path, classes: list[str]) -> None:
    names = _subfolders(top)
    if not names:
        raise InputError(
            f"{top} has no class folders; sort its images into the folders {', '.join(classes[:3])}, ..."
        )
    unknown = [name for name in names if name not in set(classes)]
    if unknown:
        raise InputError(f"{top} has class folders that training has not: {', '.join(unknown[:5])}")


def _scan(folder: Path, sub: str, classes: list[str], follow_links: bool) -> tuple[list[str], Labels]:
    """Paths and labels of one part, in the same order."""
    labels = array("q")

    def paths() -> Iterator[str]:
        for label, name in enumerate(classes):
            if not (folder / sub / name).is_dir():
                continue
            for path in _class_images(folder, sub, name, follow_links):
                labels.append(label)
                yield path

    found = list(paths())
    return found, np.array(labels, dtype=np.int64)


IMAGENET = Source(
    ("imagenet", "ImageNet", "ILSVRC2012", "imagenet/ILSVRC/Data/CLS-LOC", "ILSVRC/Data/CLS-LOC"),
    ("train", "val"),
    advice="ImageNet is given out at https://image-net.org; train/ and val/ must hold one folder a class",
)


@register("imagenet", "ImageNet-1k: 1.28 million photographs, 1000 classes; read lazily", source=IMAGENET)
def imagenet(
    *,
    root: Path,
    size: int = 224,
    channels: int = 3,
    resident: bool | str = "auto",
    follow_links: bool = False,
) -> Dataset:
    """ImageNet-1k in the folders train and val, one sub-folder a class; val is the test split.

    References
    ----------
    Russakovsky et al., ImageNet large scale visual recognition challenge, 2015.
    """
    return load_image_folder(
        find("imagenet", IMAGENET, root),
        size=size,
        channels=channels,
        resident=resident,
        follow_links=follow_links,
        name="imagenet",
    )


# -- Clothing1M ------------------------------------------------------------------------------------

CLOTHING_CLASSES = (
    "T-Shirt",
    "Shirt",
    "Knitwear",
    "Chiffon",
    "Sweater",
    "Hoodie",
    "Windbreaker",
    "Jacket",
    "Down Coat",
    "Suit",
    "Shawl",
    "Dress",
    "Vest",
    "Underwear",
)
_KEY_LISTS = {"train": "noisy_train", "val": "clean_val", "test": "clean_test"}
CLOTHING1M = Source(
    ("clothing1m", "Clothing1M", "clothing1M"),
    tuple(f"{n}_key_list.txt|annotations/{n}_key_list.txt" for n in _KEY_LISTS.values())
    + tuple(f"{n}_label_kv.txt|annotations/{n}_label_kv.txt" for n in ("noisy", "clean")),
    advice="Clothing1M is given out by its authors on request: https://github.com/Cysu/noisy_label",
)


def _key_file(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / "annotations" / name) if p.is_file()), None)


def _lines(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """Non-empty lines, each with its location for error messages."""
    path = _key_file(folder, name)
    if path is None:
        raise MissingDataError(f"there is no {name} in {folder}")
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield line.strip(), f"{path}, line {number}"
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from None


def _keys(folder: Path, part: str) -> Iterator[str]:
    """Paths of a key list, after checking that each stays in the folder."""
    for key, where in _lines(folder, f"{part}_key_list.txt"):
        if key.startswith(("/", "~")) or ".." in key.split("/") or "\0" in key or "\\" in key:
            raise InputError(
                f"{where}: {key!r} leads outside {folder}; paths must lie in the folder of the dataset"
            )
        if not key.lower().endswith(SUFFIXES):
            raise DamagedFileError(f"{where}: expected the path of an image, found {key!r}")
        yield key


def _key_labels(folder: Path, kind: str, n_classes: int) -> dict[str, int]:
    """Labels by path. A path may contain spaces: the label follows the last one."""
    labels = {}
    for line, where in _lines(folder, f"{kind}_label_kv.txt"):
        key, _, label = line.rpartition(" ")
        if not key or not label.isdecimal() or int(label) >= n_classes:
            raise DamagedFileError(
                f"{where}: expected 'path label' with a label 0..{n_classes - 1}, found {line!r}"
            )
        labels[key] = int(label)
    return labels


def _labels_of(keys: Iterable[str], labels: dict[str, int], kind: str) -> Labels:
    try:
        return np.fromiter((labels[key] for key in keys), np.int64)
    except KeyError as error:
        raise DamagedFileError(f"{kind}_label_kv.txt has no label for {error.args[0]!r}") from None


def _category_names(folder: Path) -> tuple[str, ...]:
    if _key_file(folder, "category_names_eng.txt") is None:
        return CLOTHING_CLASSES
    return tuple(line for line, _ in _lines(folder, "category_names_eng.txt"))


def load_clothing1m(
    path: str | os.PathLike[str],
    *,
    noisy_only: bool = True,
    size: int = 224,
    channels: int = 3,
    resident: bool | str = "auto",
    follow_links: bool = False,
) -> Dataset:
    """Clothing1M: images/ and key lists that name its noisy training, clean validation and clean test rows.

    The dataset's own validation labels are clean, unlike the training labels: whoever selects a
    model on them uses clean labels, and `info["validation_labels"]` says so.

    Parameters
    ----------
    noisy_only : bool
        True: train on the noisy labels alone. False: add the rows of clean_train_key_list.txt with
        their clean labels.
    size, channels, resident, follow_links
        As for any image folder.

    References
    ----------
    Xiao et al., Learning from massive noisy labeled data for image classification, CVPR 2015.
    """
    folder = _folder(path)
    classes = _category_names(folder)
    noisy, right = (_key_labels(folder, kind, len(classes)) for kind in ("noisy", "clean"))
    paths = {part: list(_keys(folder, file)) for part, file in _KEY_LISTS.items()}
    labels = {part: _labels_of(paths[part], right, "clean") for part in ("val", "test")}
    labels["train"] = _labels_of(paths["train"], noisy, "noisy")
    if not noisy_only:
        paths["train"], labels["train"] = _with_clean_rows(folder, paths["train"], labels["train"], right)
    known = sum(key in right for key in paths["train"])
    clean = {"val": labels["val"], "test": labels["test"]}
    if known == len(paths["train"]):
        clean["train"] = _labels_of(paths["train"], right, "clean")
    del noisy, right  # two dicts of a million strings, before pixels are read
    inputs, reader, held = _Pixels(size, channels, resident, follow_links).inputs(folder, paths)
    info = {
        "layout": "clothing1m",
        "path": str(folder),
        "resident": held,
        "noisy_only": noisy_only,
        "clean_known": known,
        "noise": "web text",
        "validation_labels": "clean",
    }
    return _assemble("clothing1m", inputs, labels, reader=reader, classes=classes, info=info, clean=clean)


def _with_clean_rows(
    folder: Path, paths: list[str], labels: Labels, right: dict[str, int]
) -> tuple[list[str], Labels]:
    """Noisy rows except those in the clean training list, followed by that list with its clean labels."""
    clean = list(_keys(folder, "clean_train"))
    listed = set(clean)
    keep = np.flatnonzero([path not in listed for path in paths])
    joined = [*(paths[row] for row in keep.tolist()), *clean]
    return joined, np.concatenate([labels[keep], _labels_of(clean, right, "clean")])


@register(
    "clothing1m",
    "Clothing1M: a million shop pictures with labels from web text, 14 classes; read lazily",
    source=CLOTHING1M,
)
def clothing1m(
    *,
    root: Path,
    noisy_only: bool = True,
    size: int = 224,
    channels: int = 3,
    resident: bool | str = "auto",
    follow_links: bool = False,
) -> Dataset:
    """`load_clothing1m` on the folder clothing1m below the data root."""
    return load_clothing1m(
        find("clothing1m", CLOTHING1M, root),
        noisy_only=noisy_only,
        size=size,
        channels=channels,
        resident=resident,
        follow_links=follow_links,
    )
