"""Regions of masks as the rows of an audit: how they are stored, shown and corrected in the files."""

from __future__ import annotations

import functools
import io
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import atomic
from noisegate.auditing.content import View
from noisegate.auditing.stored import StoredAudit
from noisegate.data.maps import read_image
from noisegate.data.masks import Coding, mask_content
from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.quality.maps import Region, overlay

#: The value of `task` and of the source's kind in audit.json.
MASKS = "masks"
_FILE, _INPUTS = "regions.npz", "inputs.npz"
#: A close-up shows this many times the region's height and width, at least so many pixels.
_AROUND, _LEAST = 2.5, 48
_LAYERS = ("suggested", "given", "photograph", "whole image, suggested")
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class StoredRegions:
    """The places of regions, one entry per region, in the order of the audit's rows.

    Attributes
    ----------
    image : int64 array (N,)
        Row of the image in the data.
    boxes : int64 array (N, 4)
        top, left, bottom, right; the last two exclusive.
    bits : uint8 array
        The pixels of all boxes, one after the other, packed into bits.
    """

    image: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.int64]
    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, regions: Sequence[tuple[int, Region]]) -> StoredRegions:
        """Store pairs of (row of the image, region)."""
        pixels = [region.mask.ravel() for _, region in regions]
        return cls(
            np.array([row for row, _ in regions], np.int64),
            np.array([region.box for _, region in regions], np.int64).reshape(-1, 4),
            np.packbits(np.concatenate(pixels) if pixels else np.zeros(0, bool)),
        )

    @functools.cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        top, left, bottom, right = self.boxes.T
        return np.concatenate([[0], np.cumsum((bottom - top) * (right - left))])

    def mask(self, row: int) -> npt.NDArray[np.bool_]:
        """The pixels of one region within its box.

        >>> square = np.array([[True, False], [True, True]])
        >>> StoredRegions.of([(5, Region(0, 1, 3, 0.1, 0.9, (2, 2, 4, 4), square))]).mask(0)
        array([[ True, False],
               [ True,  True]])
        """
        top, left, bottom, right = self.boxes[row]
        start, stop = self._starts[row], self._starts[row + 1]
        first = start // 8
        flat = np.unpackbits(self.bits[first : (stop + 7) // 8])[start - 8 * first :][: stop - start]
        return flat.astype(bool).reshape(bottom - top, right - left)

    def save(self, folder: Path) -> None:
        """Write regions.npz into an audit folder."""
        with atomic(folder / _FILE) as file:
            np.savez_compressed(file, image=self.image, boxes=self.boxes, bits=self.bits)

    @classmethod
    def read(cls, audit: StoredAudit) -> StoredRegions:
        """The regions of an audit folder."""
        from noisegate.data.arrays import read_npz

        if audit.folder is None or not (audit.folder / _FILE).is_file():
            raise MissingDataError(f"there is no file {_FILE} beside the audit; audit the masks again")
        arrays = read_npz(audit.folder / _FILE)
        found = cls(*(arrays.get(name, np.zeros(0)) for name in ("image", "boxes", "bits")))
        if found.boxes.shape != (len(audit), 4) or len(found.image) != len(audit):
            raise DamagedFileError(f"{audit.folder / _FILE} does not fit the audit; audit the masks again")
        top, left, bottom, right = found.boxes.T
        whole = found.boxes.dtype.kind == found.image.dtype.kind == "i" and found.bits.dtype == np.uint8
        if not whole or (found.boxes < 0).any() or (bottom <= top).any() or (right <= left).any():
            raise DamagedFileError(f"{audit.folder / _FILE} holds no regions; audit the masks again")
        if found._starts[-1] > 8 * len(found.bits):
            raise DamagedFileError(f"{audit.folder / _FILE} is cut short; audit the masks again")
        return found


def keep_inputs(folder: Path, x: Array, y: Array, rows: npt.NDArray[np.int64]) -> None:
    """Store the images `rows` and their masks, of data that came from memory."""
    with atomic(folder / _INPUTS) as file:
        np.savez_compressed(file, x=x, y=y, rows=rows)


# -- shown -----------------------------------------------------------------------------------------


class RegionPictures:
    """Pictures of regions: close-ups with the suggested and the given classes, and the photograph.

    Parameters
    ----------
    audit : StoredAudit
        With `task` "masks", read from its folder.
    """

    def __init__(self, audit: StoredAudit) -> None:
        self.audit, self.regions = audit, StoredRegions.read(audit)
        self.colours = np.asarray(audit.info["colours"], np.uint8)
        self.lines: dict[int, Any] = {line["row"]: line for line in audit.rows.to_dict("records")}
        # Cache images: reviewers see the regions of an image one after the other.
        self.image = functools.lru_cache(maxsize=4)(_reader(audit))

    def view(self, row: int) -> View:
        """The image's name, the region's size and place, and the names of its pictures."""
        top, left, bottom, right = self.regions.boxes[row].tolist()
        line = self.lines[row]
        place = f"rows {top} to {bottom - 1}, columns {left} to {right - 1}"
        cells = [("image", str(line["image"])), ("region", f"{int(line['pixels']):,} pixels, {place}")]
        self.image(int(self.regions.image[row]))  # reports an image that cannot be read
        return View(cells, _LAYERS)

    def picture(self, row: int, layer: str, size: int) -> bytes:
        """A close-up, enlarged if it is small, or the whole image."""
        from PIL import Image

        from noisegate.auditing.content import encode

        if layer not in _LAYERS:
            raise MissingDataError(f"row {row} has no picture {layer!r}")
        image, labels = self.image(int(self.regions.image[row]))
        line, box = self.lines[row], tuple(self.regions.boxes[row].tolist())
        region = Region(
            int(line["given_label"]), int(line["suggested_label"]), int(line["pixels"]),
            float(line["quality"]), float(line["suggested_probability"]), box, self.regions.mask(row),
        )  # fmt: skip
        if layer == "photograph":
            pixels = np.repeat(image, 3, 0) if len(image) == 1 else image
            picture = pixels.transpose(1, 2, 0)
        else:
            picture = overlay(image, labels, [] if layer == "given" else [region], self.colours)
        if layer != _LAYERS[-1]:
            rows, columns = _close_up(box, picture.shape[:2])
            picture = picture[rows, columns]
        found = Image.fromarray(np.ascontiguousarray(picture))
        factor = size // max(found.size)
        if factor > 1:
            found = found.resize((factor * found.width, factor * found.height), Image.Resampling.NEAREST)
        return encode(found, size)


def _close_up(box: Sequence[int], shape: Sequence[int]) -> tuple[slice, slice]:
    """Rows and columns around a box, within an image.

    >>> _close_up((10, 0, 20, 4), (40, 100))
    (slice(0, 40, None), slice(0, 48, None))
    """
    found = []
    for low, high, length in zip(box[:2], box[2:], shape, strict=True):
        side = min(length, max(_LEAST, round(_AROUND * (high - low))))
        start = min(max(0, (low + high - side) // 2), length - side)
        found.append(slice(start, start + side))
    return found[0], found[1]


def _reader(audit: StoredAudit) -> Any:
    """A function from an image's row to the image (C, H, W) and its mask (H, W)."""
    if audit.source["kind"] == MASKS:
        folder, coding = _folder(audit), Coding.from_dict(audit.info["coding"])

        def from_files(row: int) -> tuple[Array, Array]:
            files = audit.info["pairs"][str(row)]
            image, mask = (inside(folder, name, _links(audit)) for name in files)
            labels = coding.decode(mask_content(mask))
            return read_image(image), labels

        return from_files
    from noisegate.data.arrays import read_npz

    if audit.folder is None or not (audit.folder / _INPUTS).is_file():
        raise InputError("the images came from memory and were not kept with the audit")
    arrays = read_npz(audit.folder / _INPUTS)
    places = {int(row): place for place, row in enumerate(arrays["rows"])}

    def from_memory(row: int) -> tuple[Array, Array]:
        if row not in places:
            raise MissingDataError("this image was not kept with the audit")
        return arrays["x"][places[row]], arrays["y"][places[row]]

    return from_memory


def _folder(audit: StoredAudit) -> Path:
    folder = Path(str(audit.source["path"]))
    if not folder.is_dir():
        raise MissingDataError(f"the folder of images and masks is not at {folder} any more")
    return folder


def _links(audit: StoredAudit) -> bool:
    return bool(audit.source.get("options", {}).get("follow_links"))


def inside(folder: Path, name: str, follow_links: bool = False) -> Path:
    """Return the path of a file of an audited folder; a name or link that leads out of it raises InputError."""
    path = folder / name
    place = os.path.normpath(path) if follow_links else os.path.realpath(path)
    top = os.path.normpath(folder) if follow_links else os.path.realpath(folder)
    if not place.startswith(top + os.sep):
        raise InputError(f"{name} leads out of {folder}")
    return path


# -- corrected -------------------------------------------------------------------------------------


def write_masks(audit: StoredAudit, changes: Mapping[int, int], out: Path) -> None:
    """Copy the folder, with the decided regions of masks set to their new class.

    Parameters
    ----------
    audit : StoredAudit
    changes : mapping
        Regions (rows of the audit) and the codes of their new classes.
    out : path
        Must not exist. Masks keep their format and palette; all other files are copied.
    """
    from noisegate.auditing.formats import files_of

    folder, regions, coding = (
        _folder(audit),
        StoredRegions.read(audit),
        Coding.from_dict(audit.info["coding"]),
    )
    by_mask: dict[str, list[int]] = {}
    for row in sorted(changes):
        by_mask.setdefault(audit.info["pairs"][str(int(regions.image[row]))][1], []).append(row)
    out.parent.mkdir(parents=True, exist_ok=True)
    # Write beside the target and rename at the end, so that an interrupted copy is never taken for complete.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".part", dir=out.parent) as scratch:
        target = Path(scratch) / "copy"
        for relative in files_of(folder, _links(audit)):
            place = target / relative
            place.parent.mkdir(parents=True, exist_ok=True)
            if relative in by_mask:
                painted = [(regions.boxes[row], regions.mask(row), changes[row]) for row in by_mask[relative]]
                place.write_bytes(_corrected(inside(folder, relative, _links(audit)), coding, painted))
            else:
                shutil.copy2(folder / relative, place)
        if lost := [name for name in by_mask if not (target / name).is_file()]:
            raise MissingDataError(f"there is no mask {folder / lost[0]}; audit the masks again")
        os.replace(target, out)


def _corrected(path: Path, coding: Coding, painted: Sequence[tuple[Any, Array, int]]) -> bytes:
    """The content of a mask file after its regions got their new classes."""
    from PIL import Image

    content = mask_content(path).copy()
    try:
        after, values = coding.decode(content), _values(coding, content)
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    for (top, left, bottom, right), mask, code in painted:
        if bottom > content.shape[0] or right > content.shape[1]:
            raise DamagedFileError(f"{path} is smaller than the mask that was audited; audit the masks again")
        content[top:bottom, left:right][mask] = values[code]
        after[top:bottom, left:right][mask] = code
    if not np.array_equal(coding.decode(content), after):  # a wrong file is worse than none
        raise DamagedFileError(f"{path}: no number or colour of its own is known for a decided class")
    with Image.open(path) as image:
        kind, mode, palette = image.format or "PNG", image.mode, image.getpalette()
    if kind == "JPEG":
        raise InputError(f"{path} is a JPEG, which cannot hold exact classes; convert the masks to PNG")
    if content.ndim == 3:
        picture = Image.fromarray(content.astype(np.uint8))
    elif content.max(initial=0) > 255 or mode.startswith("I"):
        picture = Image.fromarray(content.astype(np.uint16))
    elif mode == "1":
        picture = Image.fromarray(content.astype(bool))
    else:
        picture = Image.fromarray(content.astype(np.uint8))
        if mode == "P" and palette is not None:
            picture.putpalette(palette)
    buffer = io.BytesIO()
    picture.save(buffer, format=kind)
    return buffer.getvalue()


def _values(coding: Coding, content: Array) -> Array:
    """The mask's value of each class: numbers, or colours (K, 3)."""
    numbers = coding.encode(np.arange(len(coding.classes)))
    if content.ndim == 2:
        return numbers
    if coding.palette is None:  # numbers that were saved as grey colours
        return np.repeat(numbers[:, None], 3, 1)
    return coding.colours()
