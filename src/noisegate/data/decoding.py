"""Pixels of image files: small PNGs and JPEGs by Pillow's decoders alone, others by Pillow whole.

For a PNG of 32 x 32, `Image.open` spends as much time in Python as the decoder does in C, and holds
the interpreter's lock meanwhile, so that threads wait for each other.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from noisegate._io.foreign import regular_size
from noisegate.errors import DamagedFileError, shown

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = npt.NDArray[np.uint8]

#: Larger files are left to Pillow, which reads them piece by piece.
_LARGEST = 1 << 26
#: With more pixels than this, the overhead of `Image.open` does not matter.
_SMALL_PIXELS = 1 << 18
#: With fewer pixels than this, a call to Pillow takes longer than copying lines.
FEW_PIXELS = 1 << 14
#: So that opening a pipe does not wait for a writer.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
#: None if the system cannot refuse links when it opens a file.
NO_LINKS: int | None = getattr(os, "O_NOFOLLOW", None)
_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_PNG_HEADER = struct.Struct(">IIBBBBBI")
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_MODES = {0: "L", 2: "RGB"}
_JPEG_SEGMENT = struct.Struct(">BBH")
_JPEG_FRAME = struct.Struct(">BHHB")
#: Markers of baseline, extended and progressive frames coded by Huffman.
_JPEG_FRAMES = (0xC0, 0xC1, 0xC2)


def decode(path: str | os.PathLike[str], size: int, channels: int) -> Pixels:
    """Read one image: shorter side scaled to `size`, middle cut out, (channels, size, size)."""
    return np.ascontiguousarray(decoded(content(path), path, size, channels))


def content(path: str | os.PathLike[str], flags: int = 0) -> bytes | None:
    """Return the bytes of a regular file.

    None if it is anything else, cannot be opened with `flags`, or is larger than 64 MiB.
    """
    try:
        handle = os.open(path, _FLAGS | flags)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST:
            return None
        return os.read(handle, found.st_size)
    except OSError:
        return None
    finally:
        os.close(handle)


def decoded(data: bytes | None, path: str | os.PathLike[str], size: int, channels: int) -> Pixels:
    """Decode the `content` of `path`: (channels, size, size), a view of another layout.

    If `data` is None the file is opened again, to read it in pieces or to report what is wrong.
    """
    image = None if data is None else _plain_png(data) or _plain_jpeg(data, size, channels)
    if image is not None:
        return planes(_square(converted(image, channels), size))
    from PIL import Image

    if data is None:
        regular_size(path, "an image")
    try:
        with Image.open(path if data is None else io.BytesIO(data)) as image:
            # A JPEG can be decoded at a half, a quarter or an eighth; twice the size leaves room to
            # smooth.
            image.draft("L" if channels == 1 else "RGB", (2 * size, 2 * size))
            return planes(_square(converted(image, channels), size))
    except Exception as error:  # a damaged image can make a decoder raise almost anything
        if data is not None:  # Pillow would name an object in memory
            return decoded(None, path, size, channels)
        raise DamagedFileError(f"{path} cannot be read as an image ({shown(error)})") from None


def planes(image: Image) -> Pixels:
    """Pixels of a grey or RGB image: a read-only view (channels, height, width)."""
    width, height = image.size
    if image.mode == "L":
        return np.frombuffer(image.tobytes(), np.uint8).reshape(1, height, width)
    if width * height > FEW_PIXELS:  # by channel, each of which costs a call
        bands = b"".join([image.tobytes("raw", band) for band in "RGB"])
        return np.frombuffer(bands, np.uint8).reshape(3, height, width)
    # One line of R, one of G, one of B: numpy then copies whole lines instead of single pixels.
    lines = np.frombuffer(image.tobytes("raw", "RGB;L"), np.uint8)
    return lines.reshape(height, 3, width).transpose(1, 0, 2)


def _plain_png(data: bytes) -> Image | None:
    """Decode a small grey or RGB PNG of 8 bits; None if it is another file or in doubt."""
    if data[: len(_PNG_START)] != _PNG_START or len(data) < 57:
        return None
    width, height, bits, colour, *packing, check = _PNG_HEADER.unpack_from(data, 16)
    mode = _PNG_MODES.get(colour)
    if bits != 8 or mode is None or any(packing) or check != zlib.crc32(data[12:29]):
        return None
    if not 0 < width * height <= _SMALL_PIXELS:
        return None
    parts, at = [], 33
    try:
        while (chunk := _PNG_CHUNK.unpack_from(data, at))[1] == b"IDAT":
            parts.append(data[at + 8 : at + 8 + chunk[0]])
            at += 12 + chunk[0]
        if chunk[1] != b"IEND":  # other colour types, or metadata: leave it to Pillow
            return None
        return _frombytes(mode, (width, height), b"".join(parts), "zip", mode)
    except Exception:  # `Image.open` reports what is wrong
        return None


def _plain_jpeg(data: bytes, size: int, channels: int) -> Image | None:
    """Decode a small grey or colour JPEG at its full size; None if it is another file or in doubt."""
    if data[:3] != b"\xff\xd8\xff":
        return None
    at = 2
    try:
        while (segment := _JPEG_SEGMENT.unpack_from(data, at))[1] not in _JPEG_FRAMES:
            # Every segment before the frame has a length; 0xDA would start the pixels.
            if segment[0] != 0xFF or not 0xC4 <= segment[1] <= 0xFE or segment[1] == 0xDA:
                return None
            at += 2 + segment[2]
        bits, height, width, components = _JPEG_FRAME.unpack_from(data, at + 4)
        scaled = min(width, height) >= 4 * size  # `decoded` decodes at a half or less
        if bits != 8 or components not in (1, 3) or scaled:
            return None
        if not 0 < width * height <= _SMALL_PIXELS:
            return None
        mode = "L" if channels == 1 or components == 1 else "RGB"
        return _frombytes(mode, (width, height), data, "jpeg", mode, "")
    except Exception:
        return None


def _frombytes(mode: str, size: tuple[int, int], data: bytes, decoder: str, *options: Any) -> Image:
    from PIL import Image as images

    return images.frombytes(mode, size, data, decoder, *options)


def converted(image: Image, channels: int) -> Image:
    """Make an image grey or RGB, of 8 bits."""
    from PIL import Image as images

    if image.mode.startswith("I"):  # 16 bits: PIL would clip at 255 instead of scaling
        high = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        image = images.fromarray(high)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    mode = "L" if channels == 1 else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _square(image: Image, size: int) -> Image:
    from PIL import Image as images

    width, height = image.size
    if width == height == size:
        return image
    short = min(width, height)
    left, top = (width - short) / 2, (height - short) / 2
    # Scaling the middle square alone equals scaling all and cutting, without the large image in
    # between.
    box = (left, top, left + short, top + short)
    return image.resize((size, size), images.Resampling.BILINEAR, box=box)
