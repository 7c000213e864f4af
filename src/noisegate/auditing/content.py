"""Show rows of the data: cells of a table, a text, a picture, a picture with overlays.

The report and the review page show a `View` and do not depend on its source. Each kind of source has a
strategy, a `Content`; `register` adds one for another kind of task.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import reading
from noisegate.auditing.cells import CsvFile
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import DamagedFileError, InputError, MissingDataError, NoisegateError

if TYPE_CHECKING:
    from PIL.Image import Image

#: Longer texts are cut, so that pages load quickly.
MOST_CHARACTERS = 20_000
#: Maximum number of numbers of a vector to show.
MOST_NUMBERS = 40
_SMALL = 64


@dataclass(frozen=True)
class View:
    """What to show of a row.

    Attributes
    ----------
    cells : sequence of (name, text)
        Cells of a table or numbers of a vector, without the label.
    layers : sequence of str
        Names of its pictures; empty if it has none. "" is a plain picture.
    pixelated : bool
        The picture is small: enlarge it without smoothing.
    problem : str
        Why nothing can be shown.
    """

    cells: Sequence[tuple[str, str]] = ()
    layers: Sequence[str] = ()
    pixelated: bool = False
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "cells": [list(cell) for cell in self.cells],
            "layers": list(self.layers),
            "pixelated": self.pixelated,
            "problem": self.problem,
        }


class Content(Protocol):
    """A strategy: `view` returns what to show of a row, `picture` one of its pictures."""

    def view(self, row: int) -> View: ...

    def picture(self, row: int, layer: str, size: int) -> bytes: ...


class _NoPictures:
    def picture(self, row: int, layer: str, size: int) -> bytes:
        raise MissingDataError(f"row {row} has no picture")


class Nothing(_NoPictures):
    """Rows that cannot be shown, with the reason."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def view(self, row: int) -> View:
        """The reason."""
        return View(problem=self.problem)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " …"


class CsvCells(_NoPictures):
    """Cells of a .csv or .tsv file, unchanged; only the shown rows are read."""

    def __init__(self, path: str, rows: int, hidden: Sequence[str]) -> None:
        self.file = CsvFile(path, rows)
        self.shown = [(i, name) for i, name in enumerate(self.file.header) if name not in hidden]

    def view(self, row: int) -> View:
        """The row's cells."""
        cells = self.file.cells(row)
        return View([(name, _cut(cells[place])) for place, name in self.shown])


class FrameCells(_NoPictures):
    """Cells of a Parquet file or a frame."""

    def __init__(self, table: Any, hidden: Sequence[str], places: Mapping[int, int] | None = None) -> None:
        self.table = table.drop_columns([name for name in hidden if name in table.column_names])
        self.places = places

    def view(self, row: int) -> View:
        """The row's cells; empty where a value is missing."""
        place = row if self.places is None else self.places.get(row, -1)
        if not 0 <= place < self.table.num_rows:
            return View(problem="this row was not kept with the audit")
        values = self.table.slice(place, 1).to_pylist()[0]
        return View([(str(k), "" if v is None else _cut(_text(v))) for k, v in values.items()])


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class ArrayRows:
    """Rows of an array: images (N, C, H, W), vectors that are pictures, or plain vectors."""

    def __init__(
        self,
        x: npt.NDArray[Any],
        image_shape: Sequence[int] | None = None,
        places: Mapping[int, int] | None = None,
    ) -> None:
        self.x, self.places = x, places
        self.image_shape = None if image_shape is None else tuple(image_shape)
        self.is_image = x.ndim in (3, 4) or self.image_shape is not None
        # One scale for all rows: otherwise a dark picture would look like a bright one.
        sample = x[: min(len(x), 1000)] if self.is_image else x[:0]
        low, high = (float(sample.min()), float(sample.max())) if sample.size else (0.0, 1.0)
        self.range = (0.0, 255.0) if x.dtype == np.uint8 else (min(low, 0.0), max(high, 1e-12))

    def _row(self, row: int) -> npt.NDArray[Any] | None:
        place = row if self.places is None else self.places.get(row, -1)
        return self.x[place] if 0 <= place < len(self.x) else None

    def view(self, row: int) -> View:
        """A picture, or the first numbers of a vector."""
        value = self._row(row)
        if value is None:
            return View(problem="this row was not kept with the audit")
        if self.is_image:
            sides = self.image_shape or value.shape[-2:]
            return View(layers=("",), pixelated=max(sides[:2]) <= _SMALL)
        flat = value.ravel()
        cells = [(f"x{i}", _text(float(v))) for i, v in enumerate(flat[:MOST_NUMBERS])]
        more = [("…", f"{len(flat) - MOST_NUMBERS:,} more")] if len(flat) > MOST_NUMBERS else []
        return View(cells + more)

    def picture(self, row: int, layer: str, size: int) -> bytes:
        """The row as a PNG."""
        from PIL import Image as images

        value = self._row(row)
        if value is None or not self.is_image:
            raise MissingDataError(f"row {row} has no picture")
        pixels = value.reshape(self.image_shape) if self.image_shape is not None else value
        if pixels.ndim == 3 and pixels.shape[-1] not in (3, 4):
            pixels = pixels.transpose(1, 2, 0)
        low, high = self.range
        scaled = (
            np.clip((pixels.astype(np.float64) - low) / (high - low) * 255, 0, 255).round().astype(np.uint8)
        )
        return encode(images.fromarray(scaled[..., 0] if scaled.shape[-1] == 1 else scaled), size)


class ImageRows:
    """Image files of a folder; a name or a link that leads out of the folder is refused."""

    def __init__(self, folder: str, names: Sequence[str], *, follow_links: bool = False) -> None:
        from noisegate.data import ImageFiles

        self.files = ImageFiles(names, 1, folder=folder, follow_links=follow_links)
        if not Path(folder).is_dir():
            raise MissingDataError(f"the folder of images is not at {folder} any more")

    def view(self, row: int) -> View:
        """A picture, if the file can be opened."""
        try:
            with self._open(row) as image:
                return View(layers=("",), pixelated=max(image.size) <= _SMALL)
        except NoisegateError as error:
            return View(problem=str(error))

    def _open(self, row: int) -> Image:
        from PIL import Image as images

        path = self.files.path(row)
        try:
            return images.open(path)
        except FileNotFoundError:
            raise MissingDataError(f"there is no image {path}") from None
        except Exception as error:  # a damaged image can make a decoder raise almost anything
            raise DamagedFileError(f"{path} cannot be read as an image ({error})") from None

    def picture(self, row: int, layer: str, size: int) -> bytes:
        """The image, no side longer than `size`."""
        with self._open(row) as image:
            try:
                image.draft("RGB", (2 * size, 2 * size))
                return encode(image, size)
            except NoisegateError:
                raise
            except Exception as error:
                raise DamagedFileError(f"{self.files.names[row]} cannot be shown ({error})") from None


def encode(image: Image, size: int) -> bytes:
    """Encode a picture anew instead of passing on the file's bytes: PNG if it is small, else JPEG.

    >>> from PIL import Image
    >>> encode(Image.new("L", (8, 8)), 100)[:4], encode(Image.new("RGB", (900, 900)), 300)[:3]
    (b'\\x89PNG', b'\\xff\\xd8\\xff')
    """
    from PIL import Image as images

    if image.mode.startswith("I"):  # 16 bits: PIL would clip at 255 instead of scaling
        high = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        image = images.fromarray(high)
    if "A" in image.mode or "transparency" in image.info:
        shown = image.convert("RGBA")
        ground = images.new("RGBA", shown.size, "white")
        image = images.alpha_composite(ground, shown)
    image = image.convert("L" if image.mode in ("1", "L") else "RGB")
    image.thumbnail((size, size))
    buffer = io.BytesIO()
    if max(image.size) <= 2 * _SMALL:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


# -- which strategy --------------------------------------------------------------------------------

_AGAIN = "audit the data again if they have changed"
Opener = Callable[[StoredAudit, Path | None], Content]
_TASKS: dict[str, Opener] = {}


def register(task: str, opener: Opener) -> None:
    """Register how rows of another task than classification are shown."""
    _TASKS[task] = opener


def _open_regions(audit: StoredAudit, root: Path | None) -> Content:
    from noisegate.auditing.regions import RegionPictures

    return RegionPictures(audit)


register("masks", _open_regions)


def open_content(audit: StoredAudit, root: Path | None = None) -> Content:
    """Return the strategy for an audit's data; if the data cannot be read, one that shows the reason.

    Parameters
    ----------
    audit : StoredAudit
    root : path, default=None
        Where named data sets lie.
    """
    try:
        opener = _TASKS.get(str(audit.info.get("task", "classification")), _open_source)
        with reading(str(audit.source.get("path") or audit.folder or "the data"), "audit the data again"):
            return opener(audit, root)
    except (NoisegateError, OSError) as error:
        return Nothing(str(error))


def _open_source(audit: StoredAudit, root: Path | None) -> Content:
    source = audit.source
    kind, path = source["kind"], source.get("path")
    if kind == "memory":
        return _from_memory(audit)
    if kind == "named":
        return _named(audit, root)
    if not Path(str(path)).exists():
        raise MissingDataError(f"the data are not at {path} any more")
    if kind == "folder":
        return ImageRows(
            str(path), names_in_order(audit), follow_links=bool(source.get("options", {}).get("follow_links"))
        )
    if kind == "npz":
        from noisegate.data.arrays import read_array

        return ArrayRows(read_array(path), source.get("image_shape"))
    return _table(str(path), source)


def _table(path: str, source: Mapping[str, Any]) -> Content:
    hidden = [source["label"]] if source.get("label") else []
    if path.lower().endswith((".parquet", ".pq")):
        from noisegate.data.tables.parquet import read_whole

        return FrameCells(read_whole(path), hidden)
    return CsvCells(path, int(source["rows"]), hidden)


def names_in_order(audit: StoredAudit) -> list[str]:
    """The ids of the rows, in the order of the data."""
    names = np.empty(len(audit), object)
    names[audit.rows["row"].to_numpy()] = audit.rows["id"].to_numpy(object)
    return list(names)


def _named(audit: StoredAudit, root: Path | None) -> Content:
    from noisegate import data as datasets

    source = audit.source
    data = datasets.load(source["path"], root=root, **source.get("options", {}))
    x = data.train.x
    if isinstance(x, np.ndarray):
        return ArrayRows(x, source.get("image_shape") or _square(x))
    if isinstance(x, datasets.ImageFiles) and x.folder is not None:
        return ImageRows(x.folder, list(x.names), follow_links=x.follow_links)
    raise InputError(f"rows of {source['path']} cannot be shown")


def _square(x: npt.NDArray[Any]) -> tuple[int, int] | None:
    """Sides of vectors that are small grey pictures: a square of numbers in [0, 1] or of bytes."""
    side = round(x.shape[1] ** 0.5) if x.ndim == 2 else 0
    grey = side >= 8 and side * side == x.shape[1] and float(x.min()) >= 0
    return (side, side) if grey and (x.dtype == np.uint8 or float(x.max()) <= 1) else None


def _from_memory(audit: StoredAudit) -> Content:
    folder = audit.folder
    if folder is not None and (folder / "inputs.parquet").exists():
        from noisegate.data.tables.parquet import read_whole

        table = read_whole(folder / "inputs.parquet")
        places = None
        if "row" in table.column_names and audit.source["rows"] != table.num_rows:
            places = {row: place for place, row in enumerate(table["row"].to_pylist())}
            table = table.drop_columns(["row"])
        return FrameCells(table, [], places)
    if folder is not None and (folder / "inputs.npz").exists():
        from noisegate.data.arrays import read_npz

        arrays = read_npz(folder / "inputs.npz")
        places = None
        if "rows" in arrays:
            places = {int(row): place for place, row in enumerate(arrays["rows"])}
        return ArrayRows(arrays["x"], audit.source.get("image_shape"), places)
    raise InputError("the data came from memory and were not kept with the audit")


@dataclass
class Cached:
    """A strategy that caches its last views, since pages request the same rows repeatedly."""

    content: Content
    most: int = 2000
    _views: dict[int, View] = field(default_factory=dict)

    def view(self, row: int) -> View:
        """The view of a row."""
        found = self._views.get(row)
        if found is None:
            try:
                with reading(f"row {row}", _AGAIN):
                    found = self.content.view(row)
            except NoisegateError as error:
                found = View(problem=str(error))
            if len(self._views) >= self.most:
                self._views.pop(next(iter(self._views)), None)
            self._views[row] = found
        return found

    def picture(self, row: int, layer: str, size: int) -> bytes:
        """A picture of a row."""
        with reading(f"row {row}", _AGAIN):
            return self.content.picture(row, layer, size)
