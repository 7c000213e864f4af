"""Files of the user's own under the name "file"."""

import numpy as np
import pytest

import noisegate as ng
from noisegate.errors import InputError, MissingDataError

CLEAN = np.repeat([0, 1, 2], 10)


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    given = np.where(np.arange(30) % 5 == 0, (CLEAN + 1) % 3, CLEAN)
    (tmp_path / "sub").mkdir()
    np.savez(tmp_path / "sub" / "x.npz", train=rng.normal(size=(30, 4)).astype(np.float16))
    np.savez(tmp_path / "y.npz", given=given, true=CLEAN)
    lines = [
        f"{i}.5,{'abc'[g]},{'abc'[c]},{'abc'[c]}" for i, (g, c) in enumerate(zip(given, CLEAN, strict=True))
    ]
    (tmp_path / "t.csv").write_text("\n".join(["number,label,clean,secret", *lines]) + "\n")
    return tmp_path


def test_arrays_of_several_files(root):
    data = ng.data.load("file", root=root, x="sub/x.npz:train", y="y.npz:given", clean="y.npz:true")
    assert data.train.x.dtype == np.float32
    assert data.train.x.shape == (30, 4)
    np.testing.assert_array_equal(data.train.clean, CLEAN)
    np.testing.assert_array_equal(np.flatnonzero(data.train.wrong), np.arange(0, 30, 5))


def test_columns_of_a_table(root):
    data = ng.data.load("file", root=root, table="t.csv", label="label", clean="clean", ignore=["secret"])
    assert data.train.x.shape == (30, 1)
    np.testing.assert_array_equal(data.train.clean, CLEAN)
    np.testing.assert_array_equal(np.flatnonzero(data.train.wrong), np.arange(0, 30, 5))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "either table= and label="),
        ({"table": "t.csv"}, "either table= and label="),
        ({"x": "sub/x.npz:train"}, "either table= and label="),
        ({"x": "sub/x.npz", "y": "y.npz:given"}, 'expected "FILE.npz:ARRAY", got'),
        ({"x": "sub/x.npz:other", "y": "y.npz:given"}, "no array 'other'; it has train"),
    ],
)
def test_what_it_does_not_take_is_said(root, options, words):
    with pytest.raises(InputError, match=words):
        ng.data.load("file", root=root, **options)


def test_a_missing_file_is_named(root):
    with pytest.raises(MissingDataError, match="there is no file .*other.npz"):
        ng.data.load("file", root=root, x="other.npz:x", y="y.npz:given")
