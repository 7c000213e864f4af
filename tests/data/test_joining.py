"""Test rows and labels from further files."""

import numpy as np
import pandas as pd
import pytest

import noisegate as ng
from noisegate.errors import InputError


@pytest.fixture
def tables(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for name, n in (("train", 40), ("test", 12)):
        frame = pd.DataFrame({"size": rng.normal(size=n), "kind": np.where(np.arange(n) % 2, "b", "a")})
        frame["y"] = np.where(np.arange(n) % 3, "yes", "no")
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        paths.append(tmp_path / f"{name}.csv")
    return paths


def test_a_table_is_encoded_by_what_the_training_table_taught(tables):
    data = ng.data.load(tables[0], label="y")
    both = ng.data.with_test_file(data, tables[1], label="y")
    assert data.test is None
    assert len(both.test) == 12
    assert both.test.input_shape == data.input_shape
    given = pd.read_csv(tables[1])
    assert [data.label_values[code] for code in both.test.y] == given["y"].tolist()


def test_labels_of_other_arrays_are_numbered_as_in_training(tmp_path):
    rng = np.random.default_rng(0)
    for name, labels in (("a", ["x", "y", "z"] * 4), ("b", ["z", "x"] * 3), ("c", ["z", "w"] * 3)):
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(len(labels), 2)), y=np.array(labels))
    data = ng.data.load(tmp_path / "a.npz")
    both = ng.data.with_test_file(data, tmp_path / "b.npz")
    assert both.test.y.tolist() == [2, 0] * 3
    with pytest.raises(InputError, match="label 'w', which is not among the training labels: x, y, z"):
        ng.data.with_test_file(data, tmp_path / "c.npz")


def test_data_that_were_not_read_from_files_take_no_test_file(tmp_path):
    mine = ng.data.Dataset("mine", ng.data.Split(np.eye(4, dtype=np.float32), np.arange(4) % 2))
    with pytest.raises(InputError, match="for data read from files; mine was not"):
        ng.data.with_test_file(mine, tmp_path / "b.npz")


def test_labels_of_a_file_take_the_place_of_the_observed_ones(tmp_path):
    data = ng.data.load("digits")
    noisy = data.corrupt(ng.noise.Symmetric(0.3), seed=2)
    path = tmp_path / "labels.txt"
    ng.noise.save_labels(path, noisy.train.y, clean=data.train.y, noise=ng.noise.Symmetric(0.3), seed=2)
    read = ng.data.with_label_file(data, path)
    np.testing.assert_array_equal(read.train.y, noisy.train.y)
    np.testing.assert_array_equal(read.train.clean, data.train.y)
    with pytest.raises(InputError, match="made from other labels"):
        ng.data.with_label_file(noisy, path)
