import numpy as np
import pytest

from noisegate.data import load
from noisegate.errors import InputError, MissingDataError


def test_two_digits_make_a_number(tmp_path, write_idx):
    content = write_idx(tmp_path / "mnist")
    images, labels = content["train-images-idx3-ubyte"], content["train-labels-idx1-ubyte"]
    data = load("digit-pairs", root=tmp_path, n=200, n_test=50)
    assert (data.train.x.shape, data.test.x.shape) == ((200, 1, 28, 56), (50, 1, 28, 56))
    assert (data.train.x.dtype, data.n_classes, data.classes[7]) == (np.uint8, 100, "07")
    for x, y in zip(data.train.x[:20, 0], data.train.y[:20], strict=True):
        left, right = divmod(int(y), 10)
        assert any(
            (x[:, :28] == image).all() and label == left for image, label in zip(images, labels, strict=True)
        )
        assert any(
            (x[:, 28:] == image).all() and label == right for image, label in zip(images, labels, strict=True)
        )


def test_the_seed_decides_the_pairs(tmp_path, write_idx):
    write_idx(tmp_path / "mnist")
    one, again, other = (
        load("digit-pairs", root=tmp_path, n=50, n_test=5, seed=seed).train.y for seed in (1, 1, 2)
    )
    assert (one == again).all()
    assert (one != other).any()


def test_what_cannot_be_is_refused(tmp_path, write_idx):
    with pytest.raises(MissingDataError):
        load("digit-pairs", root=tmp_path)
    write_idx(tmp_path / "mnist")
    with pytest.raises(InputError, match="n_test must be at least 1"):
        load("digit-pairs", root=tmp_path, n_test=0)
