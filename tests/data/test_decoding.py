"""The short ways through Pillow's decoders give the pixels of `Image.open`, or leave the file to it."""

import os
import zlib

import numpy as np
import pytest
from PIL import Image

from noisegate.data import ImageFiles, decoding
from noisegate.data.decoding import decode
from noisegate.errors import DamagedFileError, InputError


@pytest.fixture
def by_pillow(monkeypatch):
    """Decode without the short ways."""

    def run(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(decoding, "_plain_png", lambda *_: None)
            patch.setattr(decoding, "_plain_jpeg", lambda *_: None)
            return decode(*arguments)

    return run


SAVED = {
    "rgb.png": ("RGB", {}, True),
    "grey.png": ("L", {}, True),
    "noted.png": ("RGB", {"dpi": (72, 72)}, False),
    "transparent.png": ("RGB", {"transparency": (1, 2, 3)}, False),
    "alpha.png": ("RGBA", {}, False),
    "palette.png": ("P", {}, False),
    "bits.png": ("1", {}, False),
    "rgb.jpg": ("RGB", {"quality": 90}, True),
    "full.jpg": ("RGB", {"quality": 90, "subsampling": 0}, True),
    "progressive.jpg": ("RGB", {"progressive": True}, True),
    "grey.jpg": ("L", {}, True),
    "noted.jpg": ("RGB", {"dpi": (72, 72), "comment": b"\xff\xc0 in a comment"}, True),
    "ink.jpg": ("CMYK", {}, False),
    "rgb.bmp": ("RGB", {}, False),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [17, 24, 6])
def test_pixels_are_those_of_image_open(tmp_path, rng, by_pillow, name, channels, size):
    mode, options, short = SAVED[name]
    pixels = Image.fromarray(rng.integers(0, 256, (24, 31, 3), dtype=np.uint8))
    pixels.convert(mode).save(tmp_path / name, **options)
    path = tmp_path / name
    data = decoding.content(path)
    image = decoding._plain_png(data) or decoding._plain_jpeg(data, size, channels)
    # At 6 pixels a JPEG is decoded at a quarter, by Pillow.
    assert (image is not None) is (short and not (size == 6 and name.endswith("jpg")))
    np.testing.assert_array_equal(decode(path, size, channels), by_pillow(path, size, channels))


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (128, 129), (300, 70)])
def test_planes_of_few_and_of_many_pixels(rng, shape):
    pixels = rng.integers(0, 256, (*shape, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decoding.planes(Image.fromarray(pixels)), pixels.transpose(2, 0, 1))
    np.testing.assert_array_equal(decoding.planes(Image.fromarray(pixels[..., 0])), pixels[None, ..., 0])


@pytest.mark.parametrize("name", ["rgb.png", "rgb.jpg"])
def test_damaged_files_end_alike(tmp_path, rng, by_pillow, name):
    path = tmp_path / name
    Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    good = path.read_bytes()
    ends = set()
    for _ in range(200):
        bad = bytearray(good[: rng.integers(1, len(good) + 1)])
        for place in rng.integers(0, len(bad), 2):
            bad[place] = rng.integers(256)
        path.write_bytes(bad)
        results = []
        for way in (decode, by_pillow):
            try:
                results.append(way(path, 16, 3).tobytes())
            except DamagedFileError as error:
                results.append(str(error))
        assert results[0] == results[1]
        ends.add(type(results[0]))
    assert str in ends


def test_a_false_size_in_the_header_is_refused(tmp_path):
    path = tmp_path / "i.png"
    Image.new("RGB", (8, 8)).save(path)
    data = bytearray(path.read_bytes())
    data[16:20] = (200).to_bytes(4, "big")
    assert decoding._plain_png(bytes(data)) is None  # the checksum no longer fits
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=r"i\.png cannot be read as an image"):
        decode(path, 8, 3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_among_images_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(InputError, match="found a pipe"):
        ImageFiles(["a.png"], 8, folder=tmp_path).fetch(np.array([0]))


def test_a_folder_that_becomes_a_link_is_refused_at_the_next_read(tmp_path, write_image):
    write_image(tmp_path / "all" / "a" / "0.png", np.zeros((8, 8, 3)))
    write_image(tmp_path / "other" / "0.png", np.ones((8, 8, 3)))
    files = ImageFiles(["a/0.png"], 8, folder=tmp_path / "all")
    files.fetch(np.array([0]))
    (tmp_path / "all" / "a").rename(tmp_path / "old")
    (tmp_path / "all" / "a").symlink_to(tmp_path / "other")
    with pytest.raises(InputError, match="leads outside"):
        files.fetch(np.array([0]))
