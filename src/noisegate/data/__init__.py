"""Data sets: `load` reads one by name, by path, or from objects in memory.

To add a named data set, call `register` in a file in `noisegate/data/named` (or anywhere else).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noisegate.data import named  # registers the named data sets
from noisegate.data.arrays import ArrayReader, from_arrays, load_npz
from noisegate.data.dataset import Dataset, LazyInputs, Reader, Split, as_inputs
from noisegate.data.embedding import embed
from noisegate.data.folder import load_folder
from noisegate.data.images import ImageFiles, ImageReader
from noisegate.data.joining import with_label_file, with_test_file
from noisegate.data.maps import MapReader
from noisegate.data.registry import DATASETS, Remote, Source, call_loader, lookup, register, root_folder
from noisegate.data.tables import (
    TABLE_SUFFIXES,
    TableReader,
    from_frame,
    is_frame,
    load_table,
    read_table,
)
from noisegate.data.torch_dataset import from_torch
from noisegate.errors import InputError, MissingDataError

__all__ = [
    "DATASETS",
    "ArrayReader",
    "Dataset",
    "ImageFiles",
    "ImageReader",
    "LazyInputs",
    "MapReader",
    "Reader",
    "Remote",
    "Source",
    "Split",
    "TableReader",
    "as_inputs",
    "embed",
    "from_arrays",
    "from_frame",
    "from_torch",
    "load",
    "named",
    "read_table",
    "reader_from_dict",
    "register",
    "root_folder",
    "with_label_file",
    "with_test_file",
]

_READERS: dict[str, Any] = {
    "arrays": ArrayReader,
    "images": ImageReader,
    "maps": MapReader,
    "table": TableReader,
}


def load(
    name_or_path: Any, *, root: str | os.PathLike[str] | None = None, seed: int = 0, **options: Any
) -> Dataset:
    """Load a data set by name, by path, or from objects in memory.

    Parameters
    ----------
    name_or_path : str, path, Dataset, (x, y), data frame or torch Dataset
        A name in `DATASETS`; else a .csv, .tsv, .parquet or .npz file or a folder of images; else
        arrays, a table or a torch Dataset in memory.
    root : path, optional
        Folder of the named data sets; default: $NOISEGATE_DATA, else noisegate's folder in the user's cache.
    seed : int
        Random seed of generated data (moons, circles, gaussians); real data do not depend on it.
    **options
        Options of the loader: `label="target"` for a table, `size=64` for a folder of images.

    >>> load("digits").input_shape
    (64,)
    >>> load("digts")
    Traceback (most recent call last):
    noisegate.errors.UnknownNameError: unknown dataset 'digts'; did you mean 'digits' or ...
    """
    if isinstance(name_or_path, Dataset):
        if options:
            raise InputError(f"a Dataset that is already loaded takes no options, got {', '.join(options)}")
        return name_or_path
    if isinstance(name_or_path, str | os.PathLike):
        text = os.fspath(name_or_path)
        if isinstance(name_or_path, str) and (text in DATASETS or not _is_path(text)):
            return lookup(text).load(root=root, seed=seed, **options)
        return _load_path(Path(text).expanduser(), options)
    return _load_object(name_or_path, options)


def _is_path(text: str) -> bool:
    suffixes = (*TABLE_SUFFIXES, ".npz")
    return os.sep in text or text in (".", "..") or text.lower().endswith(suffixes) or os.path.exists(text)


def _load_path(path: Path, options: dict[str, Any]) -> Dataset:
    if not path.exists():
        raise MissingDataError(f"there is no file or folder {path}")
    if path.is_dir():
        return load_folder(path, **options)
    if path.name.lower().endswith(".npz"):
        return call_loader(load_npz, "an .npz table", path, **options)
    if path.name.lower().endswith(TABLE_SUFFIXES):
        return call_loader(load_table, "a table", path, **options)
    raise InputError(
        f"{path} is not a format that noisegate reads; expected {' '.join(TABLE_SUFFIXES)} .npz "
        "or a folder of images"
    )


def _load_object(data: Any, options: dict[str, Any]) -> Dataset:
    if isinstance(data, tuple) and len(data) == 2:
        return call_loader(from_arrays, "a pair of arrays", *data, **options)
    if is_frame(data):
        return call_loader(from_frame, "a data frame", data, **options)
    if (
        hasattr(data, "__getitem__")
        and not isinstance(data, tuple | list | dict)
        and not hasattr(data, "dtype")
    ):
        return call_loader(from_torch, "a torch Dataset", data, **options)
    raise InputError(
        f"expected the name of a dataset, a path, a Dataset, a pair (x, y), a data frame or a torch Dataset, "
        f"got {type(data).__name__}"
    )


def reader_from_dict(content: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> Reader:
    """Make a reader from the result of its `to_dict`, for a model folder.

    `arrays` is the result of the reader's `arrays()`, if it has that method (columns of text have arrays).

    >>> reader_from_dict(ImageReader(28, 1).to_dict())
    ImageReader(size=28, channels=1)
    """
    kind = content.get("kind")
    if kind not in _READERS:
        raise InputError(f"unknown kind of reader {kind!r}; expected one of {', '.join(_READERS)}")
    try:
        more = (arrays,) if hasattr(_READERS[kind], "arrays") else ()
        reader: Reader = _READERS[kind].from_dict(content, *more)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the description of a reader of kind {kind!r} is damaged ({error!r})") from None
    return reader
