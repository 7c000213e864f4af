import gzip
import struct

import numpy as np
import pytest

from noisegate.data import load
from noisegate.data.named.idx import read_idx
from noisegate.errors import DamagedFileError, InputError, MissingDataError


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(("name", "place"), [("mnist", "mnist"), ("fashion-mnist", "FashionMNIST/raw")])
def test_the_four_files_become_images_and_labels(tmp_path, write_idx, name, place, compressed):
    content = write_idx(tmp_path / place, compressed=compressed)
    data = load(name, root=tmp_path)
    np.testing.assert_array_equal(data.train.x[:, 0], content["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(data.test.y, content["t10k-labels-idx1-ubyte"])
    assert data.train.x.shape == (30, 1, 28, 28)
    assert data.train.x.dtype == np.uint8
    assert data.train.y.dtype == np.int64
    assert data.classes[9] == ("9" if name == "mnist" else "Ankle boot")
    assert data.reader.to_dict() == {"kind": "images", "size": 28, "channels": 1}
    assert load(name, root=tmp_path / place.split("/")[0]).n_classes == 10  # the folder itself as root


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, write_idx):
    write_idx(tmp_path / "mnist")
    with pytest.raises(MissingDataError):
        load("fashion-mnist", root=tmp_path / "mnist")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: gzip.compress(raw)[:-20], "cut off or is not what it should be"),
        (lambda raw: gzip.compress(raw)[:40] + b"\0" * 40, "cut off or is not what it should be"),
        (lambda raw: gzip.compress(raw[:-1]), "should hold 23536 bytes by its header, but has 23535"),
        (lambda raw: raw + b"\0", "but has 23537"),
        (lambda raw: b"\x89PNG" + raw[4:], "not an IDX file: it starts with 89 50 4e 47"),
        (lambda raw: raw[:2] + b"\x07" + raw[3:], "not an IDX file"),
        (lambda raw: raw[:9], "cut off in its header"),
        (lambda raw: b"", "starts with nothing"),
        (lambda raw: raw[:4] + struct.pack(">3I", *[2**32 - 1] * 3) + raw[16:], "by its header"),
        (lambda raw: struct.pack(">HBB1I", 0, 8, 1, 30) + bytes(30), r"should hold grey images"),
        (lambda raw: struct.pack(">HBB3I", 0, 8, 3, 5, 28, 28) + bytes(5 * 784), "but .* has 5 images"),
    ],
)
def test_damaged_files_are_named(tmp_path, write_idx, damage, message):
    write_idx(tmp_path / "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))
    with pytest.raises(DamagedFileError, match=message) as error:
        load("mnist", root=tmp_path)
    assert "train-images-idx3-ubyte.gz" in str(error.value)


def test_labels_outside_the_classes_are_damage(tmp_path, write_idx):
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(
        struct.pack(">HBB1I", 0, 8, 1, 10) + b"\x0b" * 10
    )
    with pytest.raises(DamagedFileError, match=r"labels 0\.\.9, found 11\.\.11"):
        load("mnist", root=tmp_path)


def test_other_kinds_of_numbers_keep_their_values(tmp_path):
    values = np.array([[1.5, -2.25, 3e5]], ">f8")
    (tmp_path / "f").write_bytes(struct.pack(">HBB2I", 0, 14, 2, 1, 3) + values.tobytes())
    np.testing.assert_array_equal(read_idx(tmp_path / "f"), values)
    with pytest.raises(InputError, match="found a folder"):
        read_idx(tmp_path)
    with pytest.raises(MissingDataError):
        read_idx(tmp_path / "none")
