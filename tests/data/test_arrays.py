import numpy as np
import pytest

from noisegate.data import ArrayReader, load
from noisegate.data.arrays import Classes, from_arrays, label_array, read_npz
from noisegate.errors import DamagedFileError, InputError, MissingDataError


@pytest.mark.parametrize(
    ("raw", "classes", "values", "numbers"),
    [
        (["b", "a", "b"], ("a", "b"), ["a", "b"], [1, 0, 1]),
        ([5, -2, 5], ("-2", "5"), [-2, 5], [1, 0, 1]),
        ([10, 9, 10], ("9", "10"), [9, 10], [1, 0, 1]),
        ([2.0, 1.0, 2.0], ("1", "2"), [1, 2], [1, 0, 1]),
        ([True, False, True], ("False", "True"), [False, True], [1, 0, 1]),
        ([b"x", b"w", b"x"], ("w", "x"), ["w", "x"], [1, 0, 1]),
        (np.array(["b", 3, "b"], object), ("3", "b"), ["3", "b"], [1, 0, 1]),
        (np.array([2, 1, 2], object), ("1", "2"), [1, 2], [1, 0, 1]),
        (np.array([[1], [0], [1]]), ("0", "1"), [0, 1], [1, 0, 1]),
    ],
)
def test_labels_of_any_kind(raw, classes, values, numbers):
    data = from_arrays(np.eye(3), raw)
    assert data.classes == classes
    assert data.info["label_values"] == values
    assert [type(v) for v in data.info["label_values"]] == [type(v) for v in values]
    assert data.train.y.tolist() == numbers


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([0.0, np.nan, 1.0], "1 of 3 labels are missing; drop"),
        (np.array(["a", None, None], object), "2 of 3 labels are missing"),
        ([0.5, 1.0, 2.0], r"fractions such as 0\.5"),
        ([0, np.inf, 1], "such as inf"),
        ([1, 1, 1], "at least two classes, found only 1"),
        ([1, 2], "3 inputs but 2 labels"),
        (np.eye(3), "one label a row"),
        ([1j, 2, 3], "text, whole numbers or booleans"),
    ],
)
def test_labels_that_cannot_be_meant(raw, message):
    with pytest.raises(InputError, match=message):
        from_arrays(np.eye(3), raw)


def test_a_label_of_its_own_for_every_row():
    with pytest.raises(InputError, match="every row has a label of its own"):
        from_arrays(np.eye(20), np.arange(20))


def test_test_and_clean_labels_share_the_numbering():
    data = from_arrays(np.eye(4), list("abab"), x_test=np.eye(4), y_test=list("bbba"), clean=list("aabb"))
    assert data.test.y.tolist() == [1, 1, 1, 0]
    assert data.train.clean.tolist() == [0, 0, 1, 1]
    with pytest.raises(InputError, match="1 labels such as 'c' do not occur"):
        from_arrays(np.eye(4), list("abab"), x_test=np.eye(4), y_test=list("abca"))
    with pytest.raises(InputError, match="come together"):
        from_arrays(np.eye(4), list("abab"), x_test=np.eye(4))
    with pytest.raises(InputError, match=r"shape \(2,\), x has \(4,\)"):
        from_arrays(np.eye(4), list("abab"), x_test=np.eye(2), y_test=list("ab"))


def test_numbers_and_numbers_as_text_are_one_label():
    coding = Classes.of(np.array([2, 10, 2]), "y")
    assert coding.number(np.array(["10", "2"]), "y").tolist() == [1, 0]
    assert Classes.of(np.array(["2", "10"]), "y").number(np.array([10, 2]), "y").tolist() == [0, 1]


def test_named_classes_may_lack_examples():
    data = from_arrays(np.eye(2), [0, 2], classes=["p", "q", "r"])
    assert data.train.y.tolist() == [0, 2]
    assert data.classes == ("p", "q", "r")
    with pytest.raises(InputError, match="do not occur"):
        from_arrays(np.eye(2), [0, 3], classes=["p", "q", "r"])


@pytest.mark.parametrize(("x", "y"), [("x", "y"), ("X", "labels"), ("images", "y"), ("data", "target")])
def test_npz_tables(tmp_path, rng, x, y):
    pixels = rng.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)
    arrays = {
        x: pixels,
        y: [3, 4, 3, 4, 3, 4],
        f"{x}_test": pixels[:2],
        f"{y}_test": [4, 3],
        "clean": [3] * 6,
    }
    np.savez_compressed(tmp_path / "t.npz", **arrays)
    data = load(tmp_path / "t.npz")
    np.testing.assert_array_equal(data.train.x, pixels.transpose(0, 3, 1, 2))
    assert data.train.y.tolist() == [0, 1] * 3
    assert data.train.clean.tolist() == [0] * 6
    assert data.test.y.tolist() == [1, 0]
    assert data.classes == ("3", "4")
    np.testing.assert_array_equal(data.reader.read(tmp_path / "t.npz"), data.train.x)
    assert data.reader.names(tmp_path / "t.npz") == list("012345")


def test_npz_files_that_are_none(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.eye(3), z=np.ones(3))
    with pytest.raises(InputError, match=r"no array called y or Y .*it has: x, z"):
        load(path)
    whole = path.read_bytes()
    for content in (whole[:-30], whole[:40], b"", b"text"):
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"t\.npz"):
            load(path)
    np.savez(path, x=np.array([{}, 1], object), y=[0, 1])
    with pytest.raises(DamagedFileError, match="Python objects"):
        load(path)
    with pytest.raises(MissingDataError):
        read_npz(tmp_path / "none.npz")
    with pytest.raises(InputError, match="found a folder"):
        read_npz(tmp_path)


def test_a_flipped_byte_is_noticed(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.arange(1000.0).reshape(-1, 2), y=np.arange(500) % 2)
    content = bytearray((tmp_path / "t.npz").read_bytes())
    content[2000] ^= 1
    (tmp_path / "t.npz").write_bytes(content)
    with pytest.raises(DamagedFileError, match="CRC"):
        load(tmp_path / "t.npz")


def test_reader_refuses_other_shapes(tmp_path):
    reader = ArrayReader((3,))
    np.save(tmp_path / "a.npy", np.ones((4, 3)))
    assert reader.read(tmp_path / "a.npy").shape == (4, 3)
    assert reader.names(np.ones((2, 3))) == ["0", "1"]
    with pytest.raises(InputError, match=r"rows of shape \(3,\), got \(2,\)"):
        reader.read(np.ones((4, 2)))
    with pytest.raises(InputError, match="row 1 has NaN"):
        reader.read([[1, 2, 3], [1, np.nan, 3]])
    (tmp_path / "b.npy").write_bytes(b"x")
    with pytest.raises(DamagedFileError):
        reader.read(tmp_path / "b.npy")
    with pytest.raises(MissingDataError):
        reader.read(tmp_path / "none.npy")


def test_label_array_keeps_plain_kinds():
    assert label_array(np.array([1, 2], np.uint8), "y").dtype == np.uint8
    assert label_array([True, False], "y").dtype == bool
