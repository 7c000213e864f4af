"""Image files as inputs: paths in memory, pixels read on demand."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import regular_size
from noisegate.data.arrays import ArrayReader
from noisegate.data.dataset import Inputs
from noisegate.data.decoding import FEW_PIXELS, NO_LINKS, content, decoded
from noisegate.errors import DamagedFileError, InputError, MissingDataError, shown

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
RESIDENT_BYTES = 1 << 30
#: Maximum number of files whose sizes enter a fingerprint.
FINGERPRINTED = 100_000
#: Minimum and maximum number of images that a reading thread takes at a time.
_FEWEST, _MOST = 4, 256
_SKIPPED = ("__MACOSX", "__pycache__")


class ImageFiles:
    """Images that are read from their files on demand (a `LazyInputs`).

    Parameters
    ----------
    paths : sequence of str
        Relative to `folder`, if it is given.
    size : int
        The shorter side is scaled to `size`, then the middle is cut out: (channels, size, size),
        uint8.
    channels : {1, 3}
        Grey or RGB.
    folder : path, optional
        The files must lie in it; a link that leads outside is refused when it is read.
    follow_links : bool
        Allow links that lead out of `folder`.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (40, 30), "red").save(f"{folder}/red.png")
    ...     images = ImageFiles(["red.png"], size=16, folder=folder)
    ...     images.shape, len(images), images.fetch([0])[0, :, 8, 8].tolist()
    ((3, 16, 16), 1, [255, 0, 0])
    """

    def __init__(
        self,
        paths: Sequence[str],
        size: int,
        channels: int = 3,
        *,
        folder: str | os.PathLike[str] | None = None,
        follow_links: bool = False,
    ) -> None:
        if channels not in (1, 3) or size < 1:
            raise InputError(
                f"images need a size of 1 or more and 1 or 3 channels, got {size} and {channels}"
            )
        self.names = list(paths)
        self.size, self.channels, self.follow_links = int(size), channels, follow_links
        self.folder = None if folder is None else os.fspath(folder)
        self._real = None if folder is None or follow_links else os.path.realpath(folder)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, index: npt.NDArray[np.int64]) -> ImageFiles:
        """A subset of the files, without reading them."""
        return ImageFiles(
            [self.names[row] for row in np.asarray(index, np.int64).tolist()],
            self.size,
            self.channels,
            folder=self.folder,
            follow_links=self.follow_links,
        )

    def path(self, row: int) -> str:
        """The path of one row's file, after checking that it is inside the folder."""
        path = os.path.join(self.folder or "", self.names[row])
        if self._real is not None:
            real = os.path.realpath(path)
            if not _below(real, self._real):
                raise InputError(
                    f"{path} leads outside {self.folder}; pass follow_links=True if that is meant"
                )
        return path

    def fingerprint(self) -> str:
        """A string that changes with the names and sizes of the files, and with their preprocessing.

        With more than 100,000 files, the sizes of 100,000 evenly spaced ones are used.
        """
        digest = hashlib.sha256(repr((self.size, self.channels)).encode())
        step = max(1, -(-len(self) // FINGERPRINTED))
        for row, name in enumerate(self.names):
            digest.update(os.fsencode(name) + b"\0")
            if row % step == 0:
                with contextlib.suppress(OSError):  # reading the file later reports what is wrong with it
                    digest.update(str(os.stat(os.path.join(self.folder or "", name)).st_size).encode())
        return digest.hexdigest()

    def fetch(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Read the rows `index`: uint8 (len(index), channels, size, size)."""
        rows = np.asarray(index, np.int64).tolist()
        out = np.empty((len(rows), *self.shape), np.uint8)
        # A task is a run of images, not one: handing over a task costs as much as reading a small image.
        pieces = min(max(_thread_count(), -(-len(rows) // _MOST)), -(-len(rows) // _FEWEST))
        cuts = np.linspace(0, len(rows), max(1, pieces) + 1).astype(int).tolist()
        parts: Sequence[slice] = [slice(*ends) for ends in itertools.pairwise(cuts)]
        if len(parts) > 1 and self.shape[1] * self.shape[2] <= FEW_PIXELS:
            parts = self._alone(rows, out, parts)
        if _thread_count() < 2 or len(parts) < 2:
            for part in parts:
                self._read(rows[part], out[part])
        else:
            for _ in _threads(os.getpid()).map(lambda part: self._read(rows[part], out[part]), parts):
                pass
        return out

    def _alone(
        self, rows: Sequence[int], out: npt.NDArray[np.uint8], parts: Sequence[slice]
    ) -> Sequence[slice]:
        """Read small images in this thread, as long as that keeps it busy; return the parts that are left.

        Most of the work on a small image holds the interpreter's lock: threads that wait for it cost more
        than they add, unless they mostly wait for a disk.
        """
        with _turn(os.getpid()):
            for number, part in enumerate(parts):
                wall, busy = time.perf_counter(), time.thread_time()
                self._read(rows[part], out[part])
                if time.thread_time() - busy < 0.5 * (time.perf_counter() - wall):
                    return parts[number + 1 :]
        return ()

    def _read(self, rows: Sequence[int], out: npt.NDArray[np.uint8]) -> None:
        """Decode the images `rows` into `out`."""
        inside: dict[str, bool] = {}  # cache of real paths of folders, for this call only
        for row, place in zip(rows, out, strict=True):
            path, data = os.path.join(self.folder or "", self.names[row]), None
            if self._real is None:
                data = content(path)
            elif NO_LINKS is not None:
                folder = os.path.dirname(path)
                if folder not in inside:
                    inside[folder] = _inside(folder, self._real)
                if inside[folder]:
                    data = content(path, NO_LINKS)
            if data is None:  # a link, not a regular file, or very large
                path = self.path(row)
            place[...] = decoded(data, path, self.size, self.channels)

    def read_all(self) -> npt.NDArray[np.uint8]:
        """Every image, in one array."""
        return self.fetch(np.arange(len(self)))


def _thread_count() -> int:
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(16, mine)


@functools.lru_cache(maxsize=1)
def _turn(pid: int) -> threading.Lock:
    # One lock per process, for the same reason as the threads.
    return threading.Lock()


@functools.lru_cache(maxsize=1)
def _threads(pid: int) -> ThreadPoolExecutor:
    # One pool per process: after a fork the parent's threads do not exist in the child.
    return ThreadPoolExecutor(_thread_count(), thread_name_prefix="noisegate-images")


def probe(files: ImageFiles, count: int = 32) -> tuple[int, int]:
    """Choose a size and a number of channels from a few of the images.

    Small images (no side above 64) are as large as the longest side seen; anything else becomes
    224. All grey: one channel.
    """
    from PIL import Image

    sizes, grey = set(), True
    for row in np.unique(np.linspace(0, len(files) - 1, min(count, len(files))).astype(int)):
        path = files.path(int(row))
        regular_size(path, "an image")
        try:
            with Image.open(path) as image:
                sizes.add(image.size)
                grey &= image.mode in ("1", "L") or image.mode.startswith("I")
        except Exception as error:
            raise DamagedFileError(f"{path} cannot be read as an image ({shown(error)})") from None
    longest = max(map(max, sizes))
    return (longest if longest <= 64 else 224), (1 if grey else 3)


def walk(folder: str | os.PathLike[str], *, follow_links: bool = False) -> Iterator[str]:
    """Yield every visible image below `folder`, as a path relative to it, sorted within each folder.

    A link that leads out of the folder raises InputError unless `follow_links` is set.
    """
    top = os.fspath(folder)
    real_top = os.path.realpath(top)

    def descend(relative: str, above: tuple[str, ...]) -> Iterator[str]:
        here = os.path.realpath(os.path.join(top, relative))
        if here in above:  # a link that leads back up
            return
        with os.scandir(os.path.join(top, relative)) as entries:
            found = sorted((e for e in entries if visible(e.name)), key=lambda e: e.name)
        for entry in found:
            name = os.path.join(relative, entry.name) if relative else entry.name
            if entry.is_symlink() and not follow_links and not _inside(entry.path, real_top):
                raise InputError(
                    f"{entry.path} is a link out of {top}; pass follow_links=True if that is meant"
                )
            if entry.is_dir():
                yield from descend(name, (*above, here))
            elif entry.name.lower().endswith(SUFFIXES):
                yield name

    return descend("", ())


def visible(name: str) -> bool:
    """Whether a name is neither hidden nor an archiver's leftover."""
    return not name.startswith(".") and name not in _SKIPPED


def _inside(path: str, real_folder: str) -> bool:
    return _below(os.path.realpath(path), real_folder)


def _below(real: str, real_folder: str) -> bool:
    return real == real_folder or real.startswith(real_folder.rstrip(os.sep) + os.sep)


@dataclass(frozen=True)
class ImageReader:
    """Reads images without labels.

    A folder of them and its sub-folders, one file, or an array of pixels.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("RGB", (40, 30)).save(f"{folder}/black.png")
    ...     ImageReader(size=16).names(folder), ImageReader(size=16).read(folder).shape
    (['black.png'], (3, 16, 16))
    """

    size: int
    channels: int = 3

    def _files(self, path: str | os.PathLike[str]) -> ImageFiles:
        if os.path.isdir(path):
            files = ImageFiles(list(walk(path)), self.size, self.channels, folder=path)
            if not len(files):
                raise InputError(f"there are no images in {path} (looked for {' '.join(SUFFIXES)})")
            return files
        if not os.path.exists(path):
            raise MissingDataError(f"there is no image or folder {path}")
        folder, name = os.path.split(os.fspath(path))
        return ImageFiles([name], self.size, self.channels, folder=folder or ".", follow_links=True)

    def read(self, path: Any) -> Inputs:
        """Images (N, channels, size, size) of a folder (read when needed), a file, an .npz or an array."""
        if not isinstance(path, str | os.PathLike) or os.fspath(path).endswith((".npz", ".npy")):
            return ArrayReader((self.channels, self.size, self.size)).read(path)
        files = self._files(path)
        return files if os.path.isdir(path) else files.read_all()

    def names(self, path: Any) -> list[str]:
        """A name for every row: the file, relative to the folder, or the row's number in an array.

        Bytes of a file name that are not UTF-8 are written as \\xff: no table could hold them.
        """
        if not isinstance(path, str | os.PathLike) or os.fspath(path).endswith((".npz", ".npy")):
            return ArrayReader((self.channels, self.size, self.size)).names(path)
        names = self._files(path).names
        return [os.fsencode(name).decode("utf-8", "backslashreplace") for name in names]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "images", "size": self.size, "channels": self.channels}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ImageReader:
        return cls(int(content["size"]), int(content["channels"]))
