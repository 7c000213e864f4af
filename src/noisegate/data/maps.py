"""Images with masks: loaded from folders, read when needed, padded to one size."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import regular_size
from noisegate.data.dataset import Dataset, Inputs, Split
from noisegate.data.decoding import converted
from noisegate.data.images import RESIDENT_BYTES, walk
from noisegate.data.masks import (
    COMMON_VOID,
    JPEG_ADVICE,
    NAMED,
    VOC_VOID,
    Coding,
    Colour,
    colour_codes,
    coloured_as,
    ending,
    is_jpeg,
    mask_content,
    paired,
    read_masks,
)
from noisegate.data.masks import voc_palette as voc_colours
from noisegate.errors import DamagedFileError, InputError, MissingDataError, shown

#: What the padding of smaller images holds: grey.
PADDING = 127
IMAGE_FOLDERS = ("images", "image", "img", "imgs", "JPEGImages")
MASK_FOLDERS = ("masks", "mask", "labels", "annotations", "annot", "SegmentationClass")
_SPLITS = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}
Pairs = list[tuple[str, str]]


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Height and width from the header of an image file."""
    from PIL import Image

    regular_size(path, "an image")
    try:
        with Image.open(path) as image:
            return image.size[1], image.size[0]
    except Exception as error:
        raise DamagedFileError(f"{path} cannot be read as an image ({shown(error)})") from None


def read_image(path: str | os.PathLike[str], channels: int = 3) -> npt.NDArray[np.uint8]:
    """One image at its own size, uint8 (channels, h, w)."""
    from PIL import Image

    regular_size(path, "an image")
    try:
        with Image.open(path) as image:
            pixels = np.asarray(converted(image, channels))
    except Exception as error:
        raise DamagedFileError(f"{path} cannot be read as an image ({shown(error)})") from None
    return pixels[None] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


class PaddedImages:
    """Images at their own size in the corner of a common one, read when they are needed (a `LazyInputs`).

    Parameters
    ----------
    paths : sequence of str
    size : (H, W)
        At least that of every image; the rest is grey.
    channels : {1, 3}
    """

    def __init__(self, paths: Sequence[str], size: tuple[int, int], channels: int = 3) -> None:
        self.names = list(paths)
        self.size, self.channels = (int(size[0]), int(size[1])), channels

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *self.size)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.names)

    def take(self, index: npt.NDArray[np.int64]) -> PaddedImages:
        """The files `index`, still unread."""
        return PaddedImages([self.names[row] for row in np.asarray(index).tolist()], self.size, self.channels)

    def fingerprint(self) -> str:
        """A text that changes with names and sizes of the files."""
        digest = hashlib.sha256(repr(self.shape).encode())
        for name in self.names:
            digest.update(os.fsencode(os.path.basename(name)) + str(os.stat(name).st_size).encode() + b"\0")
        return digest.hexdigest()

    def fetch(self, index: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        """Read the rows `index`: uint8 (len(index), channels, H, W)."""
        rows = np.asarray(index, np.int64).tolist()
        out = np.full((len(rows), *self.shape), PADDING, np.uint8)
        for place, row in enumerate(rows):
            image = read_image(self.names[row], self.channels)
            if image.shape[1] > self.size[0] or image.shape[2] > self.size[1]:
                raise InputError(
                    f"{self.names[row]} is of {image.shape[2]} x {image.shape[1]} pixels, larger than the "
                    f"{self.size[1]} x {self.size[0]} that were expected"
                )
            out[place, :, : image.shape[1], : image.shape[2]] = image
        return out

    def read_all(self) -> npt.NDArray[np.uint8]:
        """Every image, in one array."""
        return self.fetch(np.arange(len(self)))


@dataclass(frozen=True)
class MapReader:
    """Reads images of any size for a model of maps, and knows how to write the masks it predicts.

    Parameters
    ----------
    channels : {1, 3}
    coding : Coding

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> import noisegate as ng
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for part in ("images", "masks"):
    ...         Path(folder, part).mkdir()
    ...         for n in range(3):
    ...             Image.new("L", (32, 24), n % 2).save(Path(folder, part, f"{n}.png"))
    ...     data = ng.data.load(folder)
    ...     isinstance(data.reader, MapReader), data.reader.read(f"{folder}/images").shape
    (True, (3, 24, 32))
    """

    channels: int
    coding: Coding

    def files(self, path: str | os.PathLike[str]) -> list[str]:
        """The image files of a folder and its sub-folders, or the file itself.

        Of a folder that holds images and masks (see `load_map_folder`) the images alone.
        """
        if os.path.isdir(path):
            found = [os.path.join(top, name) for top in image_folders(Path(path)) for name in walk(top)]
            if not found:
                raise InputError(f"there are no images in {path}")
            return found
        if not os.path.exists(path):
            raise MissingDataError(f"there is no image or folder {path}")
        return [os.fspath(path)]

    def read(self, path: Any) -> Inputs:
        """The images of a folder or file, padded to the size of the largest."""
        files = self.files(path)
        sizes = [image_size(file) for file in files]
        return PaddedImages(files, (max(h for h, _ in sizes), max(w for _, w in sizes)), self.channels)

    def names(self, path: Any) -> list[str]:
        """The files, relative to the folder of images."""
        top = path if os.path.isdir(path) else os.path.dirname(os.fspath(path)) or "."
        folders = image_folders(Path(top)) if os.path.isdir(path) else []
        return [os.path.relpath(file, folders[0] if len(folders) == 1 else top) for file in self.files(path)]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "maps", "channels": self.channels, "coding": self.coding.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> MapReader:
        return cls(int(content["channels"]), Coding.from_dict(content["coding"]))


def map_dataset(
    name: str,
    parts: Mapping[str, Pairs],
    coding: Coding,
    *,
    channels: int = 3,
    resident: bool | str = "auto",
    info: Mapping[str, Any] | None = None,
) -> Dataset:
    """A dataset of pairs of image and mask files, "train" and, where there are any, "val" and "test".

    Masks are read and checked first, and held as one byte a pixel; images are held too if they take
    at most 1 GiB.

    Parameters
    ----------
    name : str
    parts : mapping of part to pairs of paths
    coding : Coding
    channels : {1, 3}
    resident : bool or "auto"
    info : mapping, optional
    """
    if resident not in (True, False, "auto"):
        raise InputError(f"resident must be True, False or 'auto', got {resident!r}")
    sizes = {part: [image_size(image) for image, _ in pairs] for part, pairs in parts.items()}
    every = [size for found in sizes.values() for size in found]
    full = max(h for h, _ in every), max(w for _, w in every)
    held = (
        len(every) * channels * full[0] * full[1] <= RESIDENT_BYTES if resident == "auto" else bool(resident)
    )
    splits = {}
    for part, pairs in parts.items():
        y = read_masks([mask for _, mask in pairs], coding, sizes[part], full)
        x = PaddedImages([image for image, _ in pairs], full, channels)
        splits[part] = Split(x.read_all() if held else x, y)
    return Dataset(
        name,
        splits["train"],
        splits.get("test"),
        splits.get("val"),
        classes=coding.classes,
        reader=MapReader(channels, coding),
        info={"layout": "maps", "resident": held, "pairs": dict(parts), "sizes": sizes, **(info or {})},
    )


# -- any folder ------------------------------------------------------------------------------------


def is_map_folder(folder: Path) -> bool:
    """Whether a folder, or its train folder, holds images and masks beside each other.

    An InputError names a folder that probably holds the masks, under a name that is not known.
    """
    if _layout(folder) is not None:
        return True
    for top in (folder, *(folder / sub for names in _SPLITS.values() for sub in names)):
        images = next((top / name for name in IMAGE_FOLDERS if (top / name).is_dir()), None)
        if images is not None:
            _refuse_unnamed_masks(images)
    return False


def _refuse_unnamed_masks(images: Path) -> None:
    """Refuse a folder of other files with the names of `images` beside them: no class is called "images"."""
    stems = _stems(images)
    for other in (path for path in sorted(images.parent.iterdir()) if path.is_dir() and path != images):
        found = _stems(other)
        if stems and (found == stems or ending(stems, found)):
            raise InputError(
                f"{other} holds files with the names of those in {images}: if they are masks, call the folder "
                f"masks (known names: {', '.join(MASK_FOLDERS)})"
            )


def image_folders(folder: Path) -> list[Path]:
    """The folders below `folder` that hold the images, where others hold their masks; else the folder itself."""
    layout = _layout(folder)
    if layout is not None:
        return [images for images, _ in layout.values()]
    inside = [folder / name for name in IMAGE_FOLDERS if (folder / name).is_dir()]
    return inside[:1] or [folder]


def _stems(folder: Path) -> set[str]:
    return {os.path.splitext(name)[0] for name in walk(folder)}


def load_map_folder(
    path: str | os.PathLike[str],
    *,
    classes: str | Sequence[str] | None = None,
    values: str | Mapping[int, int] | None = None,
    void: str | int | Sequence[int] | None = None,
    palette: str | Sequence[Colour] | None = None,
    void_colour: str | Colour | None = None,
    channels: int = 3,
    resident: bool | str = "auto",
    name: str | None = None,
) -> Dataset:
    """Images and masks of the same names: images/ and masks/, in the folder itself or in train/, val/ and test/.

    Names of masks may all have the same ending more, such as `_L`.

    Parameters
    ----------
    classes : sequence of str, or "sky,road,...", optional
        Names of the classes. By default those of `classes.txt`, one a line, else their numbers.
    values : mapping of number to class, or "7:0,11:1,...", optional
        What the masks hold; by default classes by number.
    void : int, sequence of int, or "11,255", optional
        Numbers that mark pixels without a label; by default 255, where it is not one of the
        classes.
    palette : "voc", sequence of colours, optional
        The colours of the classes, for masks that are colour images; by default those of the first
        mask's own palette, if it has one.
    void_colour : colour, optional
        With `palette`: the colour of pixels without a label; by default VOC's, (224, 224, 192).
    channels : {1, 3}
    resident : bool or "auto"
        Hold the images in memory; "auto": if they take at most 1 GiB. Masks always are.
    """
    folder = Path(path)
    layout = _layout(folder)
    if layout is None:
        raise InputError(
            f"expected {folder} (or its train folder) to hold the folders images and masks; found "
            + (", ".join(sorted(p.name for p in folder.iterdir() if p.is_dir())[:8]) or "no folders")
        )
    parts = {part: _pairs(images, masks, part) for part, (images, masks) in layout.items()}
    if set(parts) == {"train", "val"}:
        parts = {"train": parts["train"], "test": parts["val"]}
    names = classes.split(",") if isinstance(classes, str) else classes
    colours = _palette(palette)
    unlabelled = VOC_VOID if void_colour is None else _colours([void_colour], "void_colour")[0]
    coding = _coding(folder, parts["train"], names, _values(values), _numbers(void), colours, unlabelled)
    info = {"path": str(folder)}
    return map_dataset(
        name or folder.resolve().name, parts, coding, channels=channels, resident=resident, info=info
    )


def _values(given: str | Mapping[int, int] | None) -> dict[int, int] | None:
    """Numbers and their classes, as a mapping or in the words of the command line."""
    if given is None:
        return None
    try:
        if isinstance(given, str):
            pairs = [pair.split(":") for pair in given.split(",")]
            return {int(number): int(label) for number, label in pairs}
        return {int(number): int(label) for number, label in given.items()}
    except (AttributeError, TypeError, ValueError):
        raise InputError(f"values must say NUMBER:CLASS,..., e.g. 0:0,255:1, got {given!r}") from None


def _numbers(given: str | int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Numbers of pixels without a label, as numbers or in the words of the command line."""
    if given is None:
        return None
    several = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else given
    try:
        return tuple(int(number) for number in several if number != "")
    except (TypeError, ValueError):
        raise InputError(f"void must be one number or several, e.g. 11,255, got {given!r}") from None


def _palette(given: str | Sequence[Any] | None) -> tuple[Colour, ...] | None:
    """The colours of the classes."""
    if given is None or isinstance(given, str):
        if given not in (None, "voc"):
            raise InputError(f"palette must be 'voc' or a list of colours [[r,g,b],...], got {given!r}")
        return None if given is None else voc_colours(256)
    return _colours(given, "palette")


def _colours(given: Sequence[Any], name: str) -> tuple[Colour, ...]:
    """Colours as numbers or in the words of the command line, "255,255,255"."""
    found = []
    for colour in given:
        try:
            channels = [int(c) for c in (colour.split(",") if isinstance(colour, str) else colour)]
        except (TypeError, ValueError):
            channels = []
        if len(channels) != 3 or not all(0 <= c <= 255 for c in channels):
            raise InputError(f"{name}: a colour is three numbers [r,g,b] from 0 to 255, got {colour!r}")
        found.append((channels[0], channels[1], channels[2]))
    return tuple(found)


def _beside(folder: Path) -> tuple[Path, Path] | None:
    images = next((folder / n for n in IMAGE_FOLDERS if (folder / n).is_dir()), None)
    masks = next((folder / n for n in MASK_FOLDERS if (folder / n).is_dir()), None)
    return None if images is None or masks is None else (images, masks)


def _layout(folder: Path) -> dict[str, tuple[Path, Path]] | None:
    """Folders of images and of masks by part: beside each other, by part, or parts inside of images and masks."""
    found: dict[str, tuple[Path, Path]] = {}
    together = _beside(folder)
    for part, names in _SPLITS.items():
        for sub in names:
            inside = _beside(folder / sub) if (folder / sub).is_dir() else None
            if inside is None and (folder / sub).is_dir() and (folder / f"{sub}annot").is_dir():
                inside = folder / sub, folder / f"{sub}annot"
            if inside is None and together and all((top / sub).is_dir() for top in together):
                inside = together[0] / sub, together[1] / sub
            if inside is not None:
                found.setdefault(part, inside)
    if "train" in found:
        return found
    return None if together is None else {"train": together}


def _pairs(images: Path, masks: Path, part: str) -> Pairs:
    files = [
        {os.path.splitext(name)[0]: os.path.join(top, name) for name in walk(top)} for top in (images, masks)
    ]
    return list(paired(files[0], files[1], part))


def _coding(
    folder: Path,
    pairs: Pairs,
    classes: Sequence[str] | None,
    values: Mapping[int, int] | None,
    void: Sequence[int] | None,
    palette: Sequence[Colour] | None,
    void_colour: Colour,
) -> Coding:
    """What the masks mean, as far as the options leave it open: from `classes.txt` and the masks themselves."""
    listed = folder / "classes.txt"
    if classes is None and listed.is_file():
        classes = [line.strip() for line in listed.read_text(encoding="utf-8").splitlines() if line.strip()]
    if classes is None or void is None:
        seen = _seen(pairs)
        if void is None:
            void = _void(set(seen), values, None if classes is None else len(classes))
        if classes is None:
            numbers = {number: mask for number, mask in seen.items() if number not in void}
            count = _count(numbers, values, palette)
            classes = [str(label) for label in range(count)]
    colours = None if palette is None else tuple(palette[: len(classes)])
    coding = Coding(tuple(classes), values, tuple(void), colours)
    if len(colours or ()) == len(classes):
        coding = dataclasses.replace(coding, void_colour=void_colour)
    return coloured_as(coding, pairs[0][1])


def _seen(pairs: Pairs, at_most: int = 64) -> dict[int, str]:
    """The numbers that some of the masks hold, each with a file; of colour masks their codes, negative."""
    step = max(1, len(pairs) // at_most)
    seen: dict[int, str] = {}
    for _, mask in pairs[::step]:
        content = mask_content(mask)
        coloured = content.ndim == 3
        for number in np.unique(colour_codes(content) if coloured else content).tolist():
            seen.setdefault(-1 - number if coloured else number, mask)
    return seen


def _void(seen: set[int], values: Mapping[int, int] | None, n_classes: int | None) -> tuple[int, ...]:
    """255, unless it is a class: mapped to one, the only number beside 0, or one of so many classes."""
    mapped = values is not None and COMMON_VOID in values
    only = seen == {0, COMMON_VOID}
    return () if mapped or only or (n_classes or 0) > COMMON_VOID else (COMMON_VOID,)


def _count(
    seen: Mapping[int, str], values: Mapping[int, int] | None, palette: Sequence[Colour] | None
) -> int:
    """How many classes there are, by the numbers that masks hold and a file with each."""
    if values is not None:
        return max(values.values()) + 1
    lossy = next((mask for mask in seen.values() if is_jpeg(mask)), None)
    if lossy is not None:
        coloured = min(seen) < 0
        likely = (
            "were images and masks swapped?"
            if coloured
            else "if it is exact, name the classes (option classes)"
        )
        raise InputError(f"{lossy}: {JPEG_ADVICE}; {likely}")
    if palette is not None:
        codes = {(c[0] << 16 | c[1] << 8 | c[2]): label for label, c in enumerate(palette)}
        known = [codes[-1 - code] for code in seen if code < 0 and -1 - code in codes]
        known += [code for code in seen if 0 <= code < COMMON_VOID]
        return max(known, default=1) + 1
    if set(seen) == {0, COMMON_VOID}:
        raise InputError(
            "masks hold 0 and 255 alone; likely 255 is the second class (option values=0:0,255:1); if it marks "
            "pixels without a label, name the classes (option classes)"
        )
    plain = sorted(number for number in seen if number >= 0)
    # Whoever reads them next says what is wrong with colours.
    count = max(plain, default=1) + 1
    if plain and count - len(plain) >= len(plain):
        few = ",".join(f"{number}:{label}" for label, number in enumerate(plain[:NAMED]))
        more = ",..." if len(plain) > NAMED else ""
        raise InputError(
            f"{seen[plain[-1]]} holds {plain[-1]}, but of the numbers from 0 to {plain[-1]} masks hold only "
            f"{len(plain)}; likely they are classes by other numbers (option values={few}{more}), or some mark "
            "pixels without a label (option void=NUMBER,...); if they are classes as they stand, name all of "
            "them (option classes)"
        )
    return count
