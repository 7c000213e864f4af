import os
import pickle
import threading

import numpy as np
import pytest
from PIL import Image

from noisegate.data import ImageFiles, ImageReader, images
from noisegate.data.decoding import decode
from noisegate.data.images import probe, walk
from noisegate.errors import DamagedFileError, InputError, MissingDataError


def test_pixels_of_the_right_size_are_untouched(tmp_path, rng, write_image):
    colour, grey = rng.integers(0, 256, (8, 8, 3)), rng.integers(0, 256, (8, 8))
    np.testing.assert_array_equal(
        decode(write_image(tmp_path / "c.png", colour), 8, 3), colour.transpose(2, 0, 1)
    )
    np.testing.assert_array_equal(decode(write_image(tmp_path / "g.png", grey), 8, 1)[0], grey)
    np.testing.assert_array_equal(decode(tmp_path / "g.png", 8, 3), np.stack([grey] * 3))


@pytest.mark.parametrize("shape", [(40, 60), (60, 40), (41, 60), (20, 20), (7, 30)])
def test_scaling_the_middle_is_scaling_all_and_cutting(tmp_path, shape, write_image):
    """Oracle: scale the whole image so that the shorter side fits, then cut out the middle."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    smooth = np.stack([x * 3, y * 3, x + y], -1).astype(np.uint8)
    path, size = write_image(tmp_path / "i.png", smooth), 20
    short = min(shape)
    whole = Image.fromarray(smooth).resize(
        (round(shape[1] * size / short), round(shape[0] * size / short)), Image.Resampling.BILINEAR
    )
    left, top = (whole.width - size) // 2, (whole.height - size) // 2
    expected = np.asarray(whole.crop((left, top, left + size, top + size))).transpose(2, 0, 1)
    assert np.abs(decode(path, size, 3).astype(int) - expected).max() <= 9


def test_a_large_jpeg_is_close_to_its_full_decoding(tmp_path, write_image):
    y, x = np.mgrid[:400, :400]
    pixels = np.stack([x // 2, y // 2, (x + y) // 4], -1).astype(np.uint8)
    path = write_image(tmp_path / "i.jpg", pixels, quality=95)
    exact = np.asarray(Image.fromarray(pixels).resize((32, 32), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    assert np.abs(decode(path, 32, 3).astype(int) - exact).max() <= 4


def test_odd_modes_become_bytes(tmp_path):
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(decode(tmp_path / "deep.png", 8, 1)[0], ramp >> 8)
    Image.fromarray(np.full((8, 8, 4), 90, np.uint8)).save(tmp_path / "alpha.png")
    assert (decode(tmp_path / "alpha.png", 8, 3) == 90).all()
    palette = Image.fromarray(np.full((8, 8, 3), 204, np.uint8)).convert("P")
    palette.save(tmp_path / "palette.png", transparency=b"\0" * 256)
    assert (decode(tmp_path / "palette.png", 8, 3) == 204).all()


@pytest.mark.parametrize("content", [b"", b"not an image", "cut"])
def test_what_is_no_image_is_named(tmp_path, rng, content, write_image):
    good = write_image(tmp_path / "good.png", rng.integers(0, 256, (32, 32, 3)))
    bad = tmp_path / "bad.png"
    bad.write_bytes(good.read_bytes()[:-900] if content == "cut" else content)
    with pytest.raises(DamagedFileError, match=r"bad\.png cannot be read as an image"):
        ImageFiles(["good.png", "bad.png"], 8, folder=tmp_path).fetch(np.array([0, 1]))
    with pytest.raises(MissingDataError, match="there is no file"):
        decode(tmp_path / "none.png", 8, 3)
    with pytest.raises(InputError, match="found a folder"):
        decode(tmp_path, 8, 3)


@pytest.fixture
def three(tmp_path, rng, write_image):
    pixels = rng.integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    for i in range(3):
        write_image(tmp_path / "images" / f"{i}.png", pixels[i])
    return tmp_path / "images", pixels.transpose(0, 3, 1, 2)


def test_fetch_take_and_read_all(three):
    folder, pixels = three
    files = ImageFiles(["0.png", "1.png", "2.png"], 8, folder=folder)
    assert (files.shape, files.dtype, len(files)) == ((3, 8, 8), np.uint8, 3)
    np.testing.assert_array_equal(files.fetch(np.array([2, 0, 2])), pixels[[2, 0, 2]])
    np.testing.assert_array_equal(files.fetch(np.array([1])), pixels[[1]])
    assert files.fetch(np.array([], np.int64)).shape == (0, 3, 8, 8)
    some = files.take(np.array([2, 1]))
    np.testing.assert_array_equal(some.read_all(), pixels[[2, 1]])
    assert list(some.names) == ["2.png", "1.png"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(some)).read_all(), pixels[[2, 1]])


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_more_images_than_a_thread_takes_at_a_time(three, monkeypatch, n_threads):
    folder, pixels = three
    monkeypatch.setattr(images, "_thread_count", lambda: n_threads)
    monkeypatch.setattr(images, "_MOST", 6)
    rows = np.arange(50) * 2 % 3
    files = ImageFiles([f"{row}.png" for row in rows], 8, folder=folder)
    np.testing.assert_array_equal(files.read_all(), pixels[rows])


@pytest.mark.parametrize(("waits", "several"), [(0.0, False), (0.01, True)])
def test_small_images_are_read_by_one_thread_unless_it_waits(three, monkeypatch, waits, several):
    folder, pixels = three
    monkeypatch.setattr(images, "_thread_count", lambda: 3)
    wall, busy, seen, read = [0.0], [0.0], set(), images.ImageFiles._read

    def noting(self, rows, out):
        seen.add(threading.get_ident())
        read(self, rows, out)
        busy[0] += 1e-3 * len(rows)
        wall[0] += 1e-3 * len(rows) + waits

    monkeypatch.setattr(images.ImageFiles, "_read", noting)
    monkeypatch.setattr(images.time, "perf_counter", lambda: wall[0])
    monkeypatch.setattr(images.time, "thread_time", lambda: busy[0])
    rows = np.arange(24) % 3
    files = ImageFiles([f"{row}.png" for row in rows], 8, folder=folder)
    np.testing.assert_array_equal(files.read_all(), pixels[rows])
    assert bool(seen - {threading.get_ident()}) == several


def test_several_threads_may_fetch_at_once(three):
    folder, pixels = three
    files, results = ImageFiles(["0.png", "1.png", "2.png"], 8, folder=folder), {}

    def work(i):
        results[i] = files.fetch(np.array([i % 3, (i + 1) % 3]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(12):
        np.testing.assert_array_equal(results[i], pixels[[i % 3, (i + 1) % 3]])


def test_a_link_cannot_leave_the_folder(three, tmp_path, write_image):
    folder, pixels = three
    outside = write_image(tmp_path / "outside.png", pixels[0].transpose(1, 2, 0))
    (folder / "link.png").symlink_to(outside)
    (folder / "inner.png").symlink_to(folder / "1.png")
    files = ImageFiles(["link.png", "../outside.png", "inner.png"], 8, folder=folder)
    for row in (0, 1):
        with pytest.raises(InputError, match="leads outside"):
            files.fetch(np.array([row]))
    np.testing.assert_array_equal(files.fetch(np.array([2]))[0], pixels[1])
    allowed = ImageFiles(["link.png"], 8, folder=folder, follow_links=True)
    np.testing.assert_array_equal(allowed.fetch(np.array([0]))[0], pixels[0])
    with pytest.raises(InputError, match=r"link\.png is a link out of"):
        list(walk(folder))
    assert list(walk(folder, follow_links=True)) == ["0.png", "1.png", "2.png", "inner.png", "link.png"]


def test_walk_is_sorted_deep_and_skips_what_is_hidden(tmp_path):
    for name in (
        "b/2.JPG",
        "b/1.jpeg",
        "a.png",
        ".hidden.png",
        ".git/x.png",
        "__MACOSX/x.png",
        "b/deep/0.bmp",
        "n.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "b" / "loop").symlink_to(tmp_path / "b")
    assert list(walk(tmp_path)) == ["a.png", "b/1.jpeg", "b/2.JPG", "b/deep/0.bmp"]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        ([np.zeros((32, 32, 3))] * 2, (32, 3)),
        ([np.zeros((28, 28))] * 2, (28, 1)),
        ([np.zeros((28, 28)), np.zeros((28, 28, 3))], (28, 3)),
        ([np.zeros((65, 65, 3))], (224, 3)),
        ([np.zeros((32, 30, 3))], (32, 3)),
        ([np.zeros((32, 32)), np.zeros((16, 64))], (64, 1)),
        ([np.zeros((32, 32)), np.zeros((16, 65))], (224, 1)),
    ],
)
def test_probe_judges_size_and_channels(tmp_path, images, expected, write_image):
    names = [write_image(tmp_path / f"{i}.png", pixels).name for i, pixels in enumerate(images)]
    assert probe(ImageFiles(names, 1, folder=tmp_path)) == expected


def test_reader_reads_folders_files_and_arrays(three, monkeypatch):
    folder, pixels = three
    reader = ImageReader(8, 3)
    np.testing.assert_array_equal(reader.read(folder).fetch(np.arange(3)), pixels)
    assert reader.names(folder) == ["0.png", "1.png", "2.png"]
    np.testing.assert_array_equal(reader.read(folder / "1.png"), pixels[[1]])
    assert reader.names(str(folder / "1.png")) == ["1.png"]
    monkeypatch.chdir(folder)
    np.testing.assert_array_equal(reader.read("2.png"), pixels[[2]])
    np.savez(folder / "x.npz", x=pixels)
    np.testing.assert_array_equal(reader.read(folder / "x.npz"), pixels)
    np.testing.assert_array_equal(reader.read(pixels.transpose(0, 2, 3, 1)), pixels)
    assert reader.names(pixels) == ["0", "1", "2"]
    with pytest.raises(InputError, match="rows of shape"):
        reader.read(pixels[:, :1])


def test_reader_errors(tmp_path):
    with pytest.raises(InputError, match="there are no images in"):
        ImageReader(8).read(tmp_path)
    with pytest.raises(MissingDataError):
        ImageReader(8).read(tmp_path / "none.png")
    with pytest.raises(InputError, match="1 or 3 channels"):
        ImageFiles(["a.png"], 8, channels=2)


def test_the_fingerprint_tells_files_apart(tmp_path, rng, write_image):
    for name in ("0.png", "1.png", "2.png"):
        write_image(tmp_path / name, rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    files = ImageFiles(["0.png", "1.png", "2.png"], 4, folder=tmp_path)
    first = files.fingerprint()
    assert files.take(np.arange(3)).fingerprint() == first
    assert files.take(np.array([0, 2, 1])).fingerprint() != first
    assert ImageFiles(list(files.names), 3, folder=tmp_path).fingerprint() != first
    write_image(tmp_path / "1.png", np.zeros((4, 4, 3), np.uint8))
    assert files.fingerprint() != first
    (tmp_path / "1.png").unlink()
    assert files.fingerprint() != first


def test_names_that_are_not_utf8_can_be_written_to_a_table(tmp_path):
    from noisegate.data.images import ImageReader

    for name in (b"a\xff.png", b"b.png"):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file, "PNG")
    names = ImageReader(8, 3).names(tmp_path)
    assert sorted(names) == [r"a\xff.png", "b.png"]
    assert all(name.encode() for name in names)
    assert ImageReader(8, 3).read(tmp_path).shape == (3, 8, 8)
