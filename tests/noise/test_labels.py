from __future__ import annotations

import hashlib

import numpy as np
import pytest

from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.noise import Symmetric, build, describe, label_hash, load_labels, save_labels

CLEAN = np.random.default_rng(0).integers(4, size=200)
NOISE = Symmetric(0.5)
OBSERVED = NOISE.corrupt(CLEAN, n_classes=4, seed=3)


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "deep" / "labels.txt"
    save_labels(file, OBSERVED, clean=CLEAN, noise=NOISE, seed=3, classes=["a", "b", "c", "d"])
    return file


def test_describe_counts():
    report = describe([0, 0, 0, 1, 1, 3], [0, 2, 2, 1, 0, 3], 5)
    assert report.n == 6
    assert report.rate == pytest.approx(0.5)
    np.testing.assert_allclose(report.transition[0], [1 / 3, 0, 2 / 3, 0, 0])
    np.testing.assert_allclose(report.transition[1], [0.5, 0.5, 0, 0, 0])
    np.testing.assert_allclose(report.transition[[2, 4]], np.eye(5)[[2, 4]])
    np.testing.assert_allclose(report.class_rates, [2 / 3, 0.5, 0, 0, 0])
    np.testing.assert_array_equal(report.counts, [3, 2, 0, 1, 0])
    assert report.empty == (2, 4)
    assert "no examples of class 2, 4" in str(report)
    assert "class 0: 3 labels, 66.67% wrong; taken for 2 66.7%" in str(report)


def test_describe_finds_the_number_of_classes():
    assert describe([0, 1], [0, 2]).transition.shape == (3, 3)


def test_describe_refuses():
    with pytest.raises(InputError, match="2 clean labels but 1 observed"):
        describe([0, 1], [0], 2)
    with pytest.raises(InputError, match="observed labels must lie"):
        describe([0, 1], [0, 2], 2)


def test_hash_is_that_of_the_text():
    assert label_hash(np.array([3, 1, 4], dtype=np.uint8)) == hashlib.sha256(b"3\n1\n4\n").hexdigest()
    assert label_hash([3, 1, 4]) != label_hash([3, 1, 5])
    assert label_hash([1, 11]) != label_hash([11, 1])


def test_round_trip(path):
    loaded = load_labels(path, expect_length=200)
    np.testing.assert_array_equal(loaded.observed, OBSERVED)
    np.testing.assert_array_equal(loaded.clean, CLEAN)
    assert loaded.observed.dtype == np.int64
    assert build(loaded.noise) == NOISE
    assert (loaded.seed, loaded.classes, len(loaded)) == (3, ("a", "b", "c", "d"), 200)
    assert loaded.sha256 == label_hash(OBSERVED)


def test_round_trip_of_the_least(tmp_path):
    sha256 = save_labels(tmp_path / "labels", OBSERVED)
    loaded = load_labels(tmp_path / "labels")
    assert loaded.sha256 == sha256
    assert (loaded.clean, loaded.noise, loaded.seed, loaded.classes) == (None, None, None, ())
    body = (tmp_path / "labels").read_bytes().split(b"\n", 1)[1]
    assert hashlib.sha256(body).hexdigest() == sha256


def test_numpy_reads_it_too(path):
    np.testing.assert_array_equal(np.loadtxt(path, dtype=int), np.stack([OBSERVED, CLEAN], axis=1))


def test_every_changed_label_is_noticed(path):
    lines = path.read_text().splitlines(keepends=True)
    for row, column in ((1, 0), (200, 1)):
        cells = lines[row].split()
        cells[column] = str((int(cells[column]) + 1) % 4)
        changed = [*lines[:row], "\t".join(cells) + "\n", *lines[row + 1 :]]
        path.write_text("".join(changed))
        with pytest.raises(DamagedFileError, match=r"labels\.txt is damaged.*sha256"):
            load_labels(path)


def test_every_truncation_is_noticed(path):
    whole = path.read_bytes()
    for length in [0, 5, 21, 60, whole.index(b"\n"), *range(whole.index(b"\n") + 1, len(whole) - 1, 37)]:
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFileError, match=r"labels\.txt is"):
            load_labels(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"1\n2\n", "not a label file"),
        (b"\xff\xfe\x00", "not text"),
        (b"# noisegate-labels 1 []\n1\n", "not a whole header"),
        (b'# noisegate-labels 1 {"n": 1}\n1\n', "not a whole header"),
    ],
)
def test_other_files(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DamagedFileError, match=message):
        load_labels(tmp_path / "file")


def test_lines_that_are_not_labels(path):
    lines = path.read_text().splitlines()
    for bad in ("x\t1", "1", "99999999999999999999\t1"):
        path.write_text("\n".join([*lines[:-1], bad]) + "\n")
        with pytest.raises(DamagedFileError, match="label"):
            load_labels(path)


def test_places_that_are_no_files(tmp_path, path):
    with pytest.raises(MissingDataError, match="no file"):
        load_labels(tmp_path / "nothing")
    with pytest.raises(InputError, match="found a folder"):
        load_labels(tmp_path)
    with pytest.raises(InputError, match="is a folder"):
        save_labels(tmp_path, OBSERVED)
    with pytest.raises(InputError, match="200 labels, expected 100"):
        load_labels(path, expect_length=100)


def test_saving_refuses_and_leaves_the_old_file(path):
    before = path.read_bytes()
    with pytest.raises(InputError, match="must lie"):
        save_labels(path, [0, 5], classes=["a", "b"])
    with pytest.raises(InputError, match="2 observed labels but 1 clean"):
        save_labels(path, [0, 1], clean=[0])
    with pytest.raises(ValueError, match="JSON"):
        save_labels(path, [0, 1], noise={"name": "odd", "rate": float("nan")})
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["labels.txt"]


def test_labels_that_are_no_numbers_are_refused():
    for function in (label_hash, lambda y: describe(y, y), lambda y: describe([0], y)):
        with pytest.raises(InputError, match="expected integer"):
            function(["a"])
    assert describe([0, 2], [0, 0]).transition.shape == describe([0, 0], [0, 2]).transition.shape == (3, 3)
