"""The registry of named datasets, and the location of their files."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from noisegate._registry import Registry
from noisegate.data.dataset import Dataset
from noisegate.errors import InputError, MissingDataError

Loader = Callable[..., Dataset]
_L = TypeVar("_L", bound=Loader)


@dataclass(frozen=True)
class Remote:
    """A file that can be downloaded, and the checksum its publisher gives.

    Attributes
    ----------
    name : str
        File name below each address in `urls`.
    md5 : str
    urls : tuple of str
        Folders on the net, tried in order.
    members : mapping or None
        For a tar archive: the files it must yield, relative to the folder it is unpacked in, with
        their MD5.
    optional : bool
        Fetched only on request.

    Examples
    --------
    >>> letters = Remote("letters.gz", md5="d41d8cd98f00b204e9800998ecf8427e", urls=("https://example.org",))
    >>> letters.name, letters.optional
    ('letters.gz', False)
    """

    name: str
    md5: str
    urls: tuple[str, ...]
    members: Mapping[str, str] | None = None
    optional: bool = False


@dataclass(frozen=True)
class Source:
    """The location of a data set's files below the data root.

    Attributes
    ----------
    places : tuple of str
        Folders below the root that may hold the files; downloads go to the first.
    files : tuple of str
        Needed files; "a|b" means that either will do.
    remotes : tuple of Remote
    advice : str
        How to get files that noisegate cannot download.

    Examples
    --------
    >>> source = Source(places=("letters", "more/letters"), files=("letters.csv|letters.parquet",))
    >>> source.places[0], source.remotes
    ('letters', ())
    """

    places: tuple[str, ...]
    files: tuple[str, ...]
    remotes: tuple[Remote, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Entry:
    """A named data set. Its loader takes any of `root`, `seed` and options of its own."""

    name: str
    description: str
    loader: Loader
    source: Source | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self, *, root: str | os.PathLike[str] | None = None, seed: int = 0, **options: Any) -> Dataset:
        """Call the loader. Options that it does not take raise InputError."""
        return call_loader(
            self.loader, self.name, root=root_folder(root), seed=seed, **{**self.options, **options}
        )


#: Every named data set.
DATASETS: Registry[Entry] = Registry("dataset")


def register(
    name: str, description: str, *, source: Source | None = None, options: Mapping[str, Any] | None = None
) -> Callable[[_L], _L]:
    """Register a loader under a name, for `load(name)`, `noisegate data list` and `data fetch`.

    >>> import numpy as np
    >>> from noisegate.data import DATASETS, from_arrays, load, register
    >>> @register("two-points", "the smallest dataset there is")
    ... def two_points(*, seed=0):
    ...     return from_arrays(np.eye(2), [0, 1], name="two-points")
    >>> load("two-points").n_classes
    2
    >>> _ = DATASETS.pop("two-points")
    """

    def add(loader: _L) -> _L:
        DATASETS.add(name, Entry(name, description, loader, source, dict(options or {})), loader.__module__)
        return loader

    return add


def lookup(name: str) -> Entry:
    """Look up a name, ignoring case and underscores."""
    same = name.lower().replace("_", "-")
    return DATASETS[name if name in DATASETS or same not in DATASETS else same]


def call_loader(loader: Loader, what: str, /, *args: Any, **options: Any) -> Dataset:
    """Call `loader` with `root` and `seed` if it takes them, and with all options."""
    parameters = inspect.signature(loader).parameters
    known = [
        p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY and p.name not in ("root", "seed")
    ]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for ambient in ("root", "seed"):
            if ambient not in parameters:
                options.pop(ambient, None)
        for option in options:
            if option not in parameters:
                takes = f"it takes: {', '.join(known)}" if known else "it takes none"
                raise InputError(f"{what} has no option {option!r} ({takes})")
    return loader(*args, **options)


def root_folder(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the data root: the argument, else $NOISEGATE_DATA, else noisegate's folder in the user's cache.

    >>> str(root_folder("elsewhere"))
    'elsewhere'
    """
    if root is not None:
        return Path(root).expanduser()
    if os.environ.get("NOISEGATE_DATA"):
        return Path(os.environ["NOISEGATE_DATA"]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "noisegate"


def _letters_and_digits(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def candidates(source: Source, root: Path) -> Iterator[Path]:
    """List the folders that may hold the files, in the order of the search.

    The root itself is included only if its name is the first part of a place, since two data sets may have
    files of the same names.
    """
    for place in source.places:
        yield root / place
    for place in source.places:
        first, *rest = place.split("/")
        if _letters_and_digits(first) == _letters_and_digits(root.resolve().name):
            yield root.joinpath(*rest)


def missing_files(source: Source, folder: Path) -> list[str]:
    """The required files that are missing in `folder`."""
    return [need for need in source.files if not any((folder / f).exists() for f in need.split("|"))]


def locate(source: Source, root: Path) -> Path | None:
    """The first folder that holds every needed file, or None."""
    return next((folder for folder in candidates(source, root) if not missing_files(source, folder)), None)


def find(name: str, source: Source, root: Path) -> Path:
    """Return the folder that holds the files of `name`; the error otherwise lists the searched folders."""
    folder = locate(source, root)
    if folder is not None:
        return folder
    places = list(dict.fromkeys(candidates(source, root)))
    # The user probably meant the folder with most of the files: report what is missing there.
    closest = min(places, key=lambda place: len(missing_files(source, place)))
    lacking = ", ".join(need.replace("|", " or ") for need in missing_files(source, closest))
    fetch = f"run `noisegate data fetch {name}`, or " if source.remotes else ""
    advice = f" ({source.advice})" if source.advice else ""
    raise MissingDataError(
        f"{name}: no {lacking} in {closest} (looked in {', '.join(map(str, places))}); "
        f"{fetch}put these files there{advice}, or name another root by root= or $NOISEGATE_DATA"
    )


def existing(folder: Path, need: str) -> Path:
    """The first of the alternatives "a|b" that exists in `folder`."""
    for name in need.split("|"):
        if (folder / name).exists():
            return folder / name
    raise MissingDataError(f"there is no {need.replace('|', ' or ')} in {folder}")
