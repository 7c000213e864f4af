import numpy as np
import pytest
from scipy.io import savemat

from noisegate.data import load
from noisegate.errors import DamagedFileError, MissingDataError


@pytest.fixture
def svhn_root(tmp_path, rng):
    (tmp_path / "svhn").mkdir()
    for name, n in (("train", 12), ("test", 11), ("extra", 10)):
        x = rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
        y = (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]
        savemat(tmp_path / "svhn" / f"{name}_32x32.mat", {"X": x, "y": y}, do_compression=True)
        if name == "train":
            np.save(tmp_path / "x.npy", x)
    return tmp_path


def test_images_are_channels_first_and_ten_is_zero(svhn_root):
    data = load("svhn", root=svhn_root)
    x = np.load(svhn_root / "x.npy")
    assert data.train.x.shape == (12, 3, 32, 32)
    assert data.train.x[7, 2, 30, 4] == x[30, 4, 2, 7]
    assert data.train.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert data.classes == tuple("0123456789")
    assert len(data.test) == 11


def test_extra_rows_join_the_training_rows(svhn_root):
    assert len(load("svhn", root=svhn_root, extra=True).train) == 22
    (svhn_root / "svhn" / "extra_32x32.mat").unlink()
    with pytest.raises(MissingDataError, match="extra_32x32"):
        load("svhn", root=svhn_root, extra=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:3000]),
        lambda path: path.write_bytes(b"not a MATLAB file" * 20),
        lambda path: path.write_bytes(b""),
        lambda path: savemat(path, {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.ones((3, 1))}),
        lambda path: savemat(path, {"X": np.zeros((32, 32, 3, 4)), "y": np.ones((4, 1))}),
        lambda path: savemat(path, {"X": np.zeros((32, 32, 3, 4), np.uint8), "y": np.full((4, 1), 11)}),
        lambda path: savemat(path, {"other": 1}),
    ],
)
def test_damaged_files_are_named(svhn_root, damage):
    damage(svhn_root / "svhn" / "test_32x32.mat")
    with pytest.raises(DamagedFileError, match=r"test_32x32\.mat"):
        load("svhn", root=svhn_root)
