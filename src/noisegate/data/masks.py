"""Masks: files with a class for every pixel, read and checked before anything is trained on them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import regular_size
from noisegate.errors import DamagedFileError, InputError, shown
from noisegate.noise.base import VOID

#: What masks commonly hold where there is no label.
COMMON_VOID = 255
#: The colour of VOC's palette for that.
VOC_VOID = (224, 224, 192)
_UNKNOWN = np.int16(-1)
#: The labelIds of Cityscapes' 19 classes, in the order of their trainIds.
CITYSCAPES_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
JPEG_ADVICE = "a JPEG blurs class numbers: write masks as PNG"
#: How many wrong files an error names.
NAMED = 5
Mask = npt.NDArray[np.int16]
Colour = tuple[int, int, int]


class MaskError(InputError):
    """A mask whose content means nothing: what is in it, and what that probably means."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(f"{what}; {advice}")
        self.what, self.advice = what, advice


def voc_palette(n: int = 256) -> tuple[Colour, ...]:
    """The colours of PASCAL VOC: the bits of a class, spread over red, green and blue from the top.

    >>> voc_palette(4)
    ((0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0))
    """
    colours = []
    for label in range(n):
        channels = [0, 0, 0]
        for place in range(8):
            for channel in range(3):
                channels[channel] |= (label >> (3 * place + channel) & 1) << (7 - place)
        colours.append((channels[0], channels[1], channels[2]))
    return tuple(colours)


@dataclass(frozen=True)
class Coding:
    """What stands in a mask file for which class.

    Parameters
    ----------
    classes : tuple of str
        Names of the classes 0..K-1.
    values : mapping of number to class, optional
        What an index mask holds; by default the numbers of the classes themselves.
    void : tuple of int
        Numbers of an index mask that mark pixels without a label.
    palette : tuple of colours, optional
        The colour of each class: masks may then be colour images, and predicted masks get these
        colours.
    void_colour : colour, optional

    Examples
    --------
    >>> Coding(("sky", "road"), values={7: 0, 11: 1}).decode(np.array([[7, 11], [255, 7]]))
    array([[   0,    1],
           [-100,    0]], dtype=int16)
    """

    classes: tuple[str, ...]
    values: Mapping[int, int] | None = None
    void: tuple[int, ...] = (COMMON_VOID,)
    palette: tuple[Colour, ...] | None = None
    void_colour: Colour | None = None
    _table: npt.NDArray[np.int16] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {k: k for k in range(len(self.classes))} if self.values is None else dict(self.values)
        table = np.full(2**16, _UNKNOWN, np.int16)
        for number in self.void:
            table[number] = VOID
        for number, label in known.items():
            if not 0 <= number < 2**16 or not 0 <= label < len(self.classes):
                raise InputError(
                    f"masks: value {number} -> class {label} does not fit the {len(self.classes)} classes; "
                    "give values={number in the files: class 0..K-1}"
                )
            table[number] = label
        object.__setattr__(self, "_table", table)

    def decode(self, numbers: npt.NDArray[Any]) -> Mask:
        """Classes (h, w), `VOID` where there is none, from the content of a mask (h, w) or (h, w, 3).

        An InputError says which numbers or colours stand for nothing, and what they probably mean.
        """
        if numbers.ndim == 3:
            return self._from_colours(numbers)
        found: Mask = self._table[numbers]
        unknown = np.unique(numbers[found == _UNKNOWN])
        if unknown.size:
            share = float((found == _UNKNOWN).mean())
            raise MaskError(
                f"holds {_listed(unknown.tolist())} ({share:.1%} of the pixels), which is none of the "
                f"{len(self.classes)} classes",
                self._advice(np.unique(numbers)),
            )
        return found

    def _from_colours(self, pixels: npt.NDArray[Any]) -> Mask:
        codes = colour_codes(pixels)
        if self.palette is None and (pixels[..., :1] == pixels).all():
            return self.decode(pixels[..., 0])  # numbers that were saved as grey colours
        if self.palette is None:
            seen = [_colour(code) for code in np.unique(codes)[:200].tolist()]
            raise MaskError("is a colour image where class numbers are expected", _palette_advice(seen))
        known = {_code(colour): label for label, colour in enumerate(self.palette)}
        if self.void_colour is not None:
            known.setdefault(_code(self.void_colour), VOID)
        values, places = np.unique(codes, return_inverse=True)
        labels = np.array([known.get(value, int(_UNKNOWN)) for value in values.tolist()], np.int16)
        unknown = [_colour(value) for value in values[labels == _UNKNOWN].tolist()]
        if unknown:
            raise MaskError(
                f"holds the colours {_listed(unknown)}, which stand for no class",
                "give each class its colour (option palette=[[r,g,b],...]); the colour of pixels without a label "
                "is the option void_colour=[r,g,b]",
            )
        return labels[places.reshape(codes.shape)]

    def _advice(self, seen: npt.NDArray[Any]) -> str:
        """The likely mapping, if the numbers seen suggest one."""
        k = len(self.classes)
        plain = [int(v) for v in seen if int(v) not in self.void]
        if set(plain) <= {0, COMMON_VOID} and k == 2:
            return "likely 255 is class 1 (option values=0:0,255:1)"
        if plain and min(plain) >= 1 and max(plain) == k:
            every = ",".join(f"{label + 1}:{label}" for label in range(k))
            return f"likely the classes are numbered from 1 (option values={every})"
        if max(plain) == k:
            likely = f"likely {k} marks pixels without a label (option void={k})"
            return f"{likely}; else name all classes (option classes)"
        if k == 19 and max(plain) <= 33:
            known = ",".join(f"{number}:{label}" for label, number in enumerate(CITYSCAPES_IDS))
            others = ",".join(str(number) for number in range(34) if number not in CITYSCAPES_IDS)
            return f"likely these are Cityscapes' labelIds, not trainIds (option values={known} and void={others})"
        return (
            "give its class (option values=NUMBER:CLASS,...), or mark it as no label (option void=NUMBER,...)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data that survives JSON."""
        return {
            "classes": list(self.classes),
            "values": None if self.values is None else sorted(self.values.items()),
            "void": list(self.void),
            "palette": None if self.palette is None else [list(colour) for colour in self.palette],
            "void_colour": None if self.void_colour is None else list(self.void_colour),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Coding:
        """The inverse of `to_dict`."""
        palette, colour, values = content["palette"], content["void_colour"], content["values"]
        return cls(
            tuple(content["classes"]),
            None if values is None else {int(number): int(label) for number, label in values},
            tuple(content["void"]),
            None if palette is None else tuple((c[0], c[1], c[2]) for c in palette),
            None if colour is None else (colour[0], colour[1], colour[2]),
        )

    def colours(self) -> npt.NDArray[np.uint8]:
        """A colour for every class, (K, 3): the palette's, or VOC's."""
        given = self.palette or voc_palette(len(self.classes))
        return np.array(given, np.uint8)

    def encode(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
        """Classes (h, w) as the numbers that index masks hold.

        Pixels without a label get the first void value.
        """
        numbers = np.arange(len(self.classes))
        for number, label in (self.values or {}).items():
            numbers[label] = number
        void = self.void[0] if self.void else COMMON_VOID
        return np.where(labels >= 0, numbers[np.maximum(labels, 0)], void).astype(np.uint16)


def colour_codes(pixels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """One number for each pixel's colour, (h, w, 3) -> (h, w)."""
    wide = pixels[..., :3].astype(np.int64)
    return wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]


def _code(colour: Sequence[int]) -> int:
    return colour[0] << 16 | colour[1] << 8 | colour[2]


def _colour(code: int) -> Colour:
    return code >> 16 & 255, code >> 8 & 255, code & 255


def _listed(values: Sequence[Any]) -> str:
    shown_values = ", ".join(map(str, values[:NAMED]))
    return shown_values + (f" and {len(values) - NAMED} more" if len(values) > NAMED else "")


def _palette_advice(seen: Sequence[Colour]) -> str:
    voc = {colour: label for label, colour in enumerate(voc_palette(256))}
    if len(seen) > 128:
        return "hundreds of colours, as a photograph has: were images and masks swapped?"
    if all(colour in voc or colour == VOC_VOID for colour in seen):
        numbers = sorted(voc[colour] for colour in seen if colour in voc)
        return f"its colours are those of PASCAL VOC's classes {_listed(numbers)} (option palette=voc)"
    void = next((colour for colour in ((255, 255, 255), VOC_VOID) if colour in seen and len(seen) > 2), None)
    classes = [list(colour) for colour in seen if colour != void]
    colours = json.dumps(classes[:NAMED], separators=(",", ":"))
    return (
        f"name its {len(seen)} colours in the order of the classes (option palette="
        + (f"{colours[:-1]},...]" if len(classes) > NAMED else colours)
        + f", and void_colour={json.dumps(void or (0, 0, 0), separators=(',', ':'))} "
        + ("if that" if void else "if one, e.g. black,")
        + " marks pixels without a label)"
    )


def mask_content(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """The content of a mask file: numbers (h, w), of a palette image its indices, or colours (h, w, 3)."""
    from PIL import Image

    regular_size(path, "a mask")
    try:
        with Image.open(path) as image:
            if image.mode in ("P", "L", "1") or image.mode.startswith("I"):
                return np.asarray(image).astype(np.int64)
            pixels: npt.NDArray[Any] = np.asarray(image.convert("RGB"))
    except Exception as error:  # a damaged image can make a decoder raise almost anything
        raise DamagedFileError(f"{path} cannot be read as a mask ({shown(error)})") from None
    return pixels


def coloured_as(coding: Coding, path: str | os.PathLike[str]) -> Coding:
    """The coding with the colours of a palette image, which predicted masks then get too.

    It stays as it is where the file has no palette, or one that does not tell the classes apart.
    """
    from PIL import Image

    mask_content(path)  # says what is wrong with a damaged file
    with Image.open(path) as image:
        entries = image.getpalette("RGB") if image.mode == "P" else None
    colours = [] if entries is None else list(zip(entries[::3], entries[1::3], entries[2::3], strict=True))
    numbers = coding.encode(np.arange(len(coding.classes))).tolist()
    if coding.palette is not None or max(numbers) >= len(colours):
        return coding
    palette = tuple(colours[number] for number in numbers)
    if len(set(palette)) < len(palette):
        return coding
    void = next((colours[number] for number in coding.void if number < len(colours)), None)
    return replace(coding, palette=palette, void_colour=None if void in palette else void)


def read_masks(
    paths: Sequence[str], coding: Coding, sizes: Sequence[tuple[int, int]], full: tuple[int, int]
) -> npt.NDArray[Any]:
    """Every mask, (N, H, W): int8 where the classes allow it, `VOID` in the padding of smaller ones.

    Parameters
    ----------
    paths : sequence of str
    coding : Coding
    sizes : sequence of (h, w)
        Of the images that the masks belong to: one of another size is an error.
    full : (H, W)

    Raises
    ------
    InputError
        Names the first files that are wrong, what is in them, and the likely mapping.
    """
    out = np.full((len(paths), *full), VOID, np.int8 if len(coding.classes) <= 127 else np.int16)
    wrong: dict[str, list[str]] = {}
    advice: list[str] = []

    def read(row: int) -> tuple[str, str] | None:
        numbers = mask_content(paths[row])
        if numbers.shape[:2] != tuple(sizes[row]):
            (h, w), (height, width) = numbers.shape[:2], sizes[row]
            return f"is of {w} x {h} pixels, its image of {width} x {height}", ""
        try:
            labels = coding.decode(numbers)
        except MaskError as error:
            swapped = "; or were images and masks swapped?" if numbers.ndim == 3 else ""
            return error.what, JPEG_ADVICE + swapped if is_jpeg(paths[row]) else error.advice
        out[row, : labels.shape[0], : labels.shape[1]] = labels
        return None

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for path, found in zip(paths, pool.map(read, range(len(paths))), strict=True):
            if found is not None:
                wrong.setdefault(found[0], []).append(path)
                advice += [found[1]] if found[1] else []
                if sum(map(len, wrong.values())) >= NAMED:
                    break
    if wrong:
        # What most of them suggest: of masks without the highest class the numbers say less.
        likely = [max(advice, key=advice.count)] if advice else []
        told = [_told(what, files) for what, files in wrong.items()]
        raise InputError("masks cannot be trained on: " + "; ".join([*told, *likely]))
    return out


def _told(what: str, files: Sequence[str]) -> str:
    """What is wrong with the first file, and the names of others of which it is true."""
    others = ", ".join(os.path.basename(file) for file in files[1:])
    return f"{files[0]} {what}" + (f" (also {others})" if others else "")


def is_jpeg(path: str) -> bool:
    """Whether the file's name is that of a JPEG, which cannot hold exact classes."""
    return os.path.splitext(path)[1].lower() in (".jpg", ".jpeg")


def paired(images: Mapping[str, str], masks: Mapping[str, str], what: str) -> Iterator[tuple[str, str]]:
    """Paths of images and their masks by their common key, in order.

    The keys of masks may all have the same ending more, e.g. `_L`. Files without a partner are named.

    >>> list(paired({"a": "images/a.jpg"}, {"a": "masks/a.png"}, "train"))
    [('images/a.jpg', 'masks/a.png')]
    >>> list(paired({"a": "images/a.jpg"}, {"a_L": "masks/a_L.png"}, "train"))
    [('images/a.jpg', 'masks/a_L.png')]
    """
    more = ending(images, masks)
    if more:
        masks = {key.removesuffix(more): path for key, path in masks.items()}
    alone = [*(f"image {images[k]}" for k in sorted(images.keys() - masks.keys()))]
    alone += [f"mask {masks[k]}" for k in sorted(masks.keys() - images.keys())]
    if alone:
        count = "1 file has" if len(alone) == 1 else f"{len(alone)} files have"
        raise InputError(
            f"{what}: {count} no partner of the same name: {_listed(alone)}; add what is missing or take them away"
        )
    if not images:
        raise InputError(f"{what}: there are no images with masks")
    yield from ((images[key], masks[key]) for key in sorted(images))


def ending(images: Iterable[str], masks: Iterable[str]) -> str:
    """What the name of every mask has more than that of its image; "" where they do not correspond.

    >>> ending(["a", "b"], ["a_L", "b_L"]), ending(["a", "b"], ["a_L", "c_L"])
    ('_L', '')
    """
    names, wanted = set(images), set(masks)
    first = min(wanted, default="")
    for key in (key for key in names if key and first.startswith(key)):
        more = first.removeprefix(key)
        if {name + more for name in names} == wanted:
            return more
    return ""
