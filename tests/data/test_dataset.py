import numpy as np
import pytest

from noisegate.data import Dataset, ImageFiles, Split, as_inputs, from_arrays
from noisegate.errors import InputError


class Shift:
    """Every label one further: a noise whose result is known."""

    needs_x = False

    def corrupt(self, y, x=None, *, n_classes, seed=0):
        return (y + 1) % n_classes

    def to_dict(self):
        return {"name": "shift"}


@pytest.fixture
def data():
    return from_arrays(np.arange(40.0).reshape(20, 2), np.arange(20) % 4, x_test=np.eye(2), y_test=[0, 3])


def test_rows_are_taken_in_order_with_all_their_labels():
    split = Split(np.eye(4), np.array([0, 1, 0, 1]), np.array([0, 1, 1, 1])).take([3, 2])
    np.testing.assert_array_equal(split.x, np.eye(4)[[3, 2]])
    assert split.y.tolist() == [1, 0]
    assert split.wrong.tolist() == [False, True]
    lazy = Split(ImageFiles(["a.png", "b.png"], 8), np.array([0, 1])).take([1])
    assert list(lazy.x.names) == ["b.png"]
    assert lazy.input_shape == (3, 8, 8)
    assert lazy.wrong is None


@pytest.mark.parametrize(("y", "clean"), [([0, 1, 0], None), ([0, 1], [0])])
def test_labels_must_be_as_many_as_inputs(y, clean):
    with pytest.raises(InputError, match="2 inputs but"):
        Split(np.eye(2), y, clean)


def test_corrupting_keeps_the_clean_labels_apart(data):
    noisy = data.corrupt(Shift(), seed=3)
    np.testing.assert_array_equal(noisy.train.y, (data.train.y + 1) % 4)
    np.testing.assert_array_equal(noisy.train.clean, data.train.y)
    np.testing.assert_array_equal(noisy.test.y, data.test.y)
    assert noisy.info["noise"] == {"name": "shift"}
    again = noisy.corrupt(Shift())
    np.testing.assert_array_equal(again.train.clean, data.train.y)
    assert data.train.clean is None
    with pytest.raises(InputError, match=r"before hold_out"):
        data.hold_out(4).corrupt(Shift())


@pytest.mark.parametrize("y", [np.zeros(3, int), np.full(20, 4), np.full(20, -1)])
def test_other_labels_must_fit(data, y):
    with pytest.raises(InputError):
        data.with_labels(y)


def test_holding_out_depends_on_the_seed_and_the_size_alone(data):
    held, noisy = data.hold_out(0.25, seed=1), data.corrupt(Shift()).hold_out(5, seed=1)
    np.testing.assert_array_equal(held.validation.x, noisy.validation.x)
    assert len(held.validation) == 5
    rows = np.concatenate([held.train.x, held.validation.x])
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], data.train.x)
    assert not np.array_equal(held.validation.x, data.hold_out(0.25, seed=2).validation.x)
    np.testing.assert_array_equal(noisy.validation.y, (noisy.validation.clean + 1) % 4)
    for size in (0, 20, 0.0, 1.0, -1):
        with pytest.raises(InputError, match="cannot hold out"):
            data.hold_out(size)
    with pytest.raises(InputError, match="already has validation rows"):
        held.hold_out(2)


def test_arrays_with_labels_that_are_no_numbers_are_numbered():
    data = from_arrays(np.eye(3), ["b", "a", "b"], x_test=np.eye(3), y_test=["b", "a", "b"])
    assert data.classes == ("a", "b")
    assert data.train.y.tolist() == [1, 0, 1]
    assert data.test.y.tolist() == [1, 0, 1]
    assert isinstance(data, Dataset)
    assert (data.n_classes, data.input_shape) == (2, (3,))
    # Classes without an example are named.
    classes = ["c", "b", "a"]
    data = from_arrays(np.eye(3), ["b", "a", "b"], x_test=np.eye(3), y_test=["c", "a", "b"], classes=classes)
    assert data.train.y.tolist() == [1, 2, 1]
    assert data.test.y.tolist() == [0, 2, 1]
    assert data.label_values == classes


def test_label_values_are_the_given_labels_or_the_names():
    def of(classes, **info):
        return Dataset("d", Split(np.eye(2), [0, 1]), classes=classes, info=info).label_values

    assert of(("0", "1")) == [0, 1]
    assert of(("1", "2")) == ["1", "2"]
    assert of(("cat", "dog")) == ["cat", "dog"]
    assert of(("cat", "dog"), label_values=[3, 5]) == [3, 5]


def test_rows_are_taken_by_number_or_by_mask():
    split = Split(np.arange(8.0).reshape(4, 2), [0, 1, 2, 3])
    assert split.take(np.array([True, False, False, True])).y.tolist() == [0, 3]
    assert split.take([2, 2, -1]).y.tolist() == [2, 2, 3]
    assert len(split.take([])) == 0
    with pytest.raises(InputError, match=r"a mask of 4 rows has the shape \(4,\), got \(3,\)"):
        split.take([True, False, True])
    with pytest.raises(InputError, match="whole numbers or a mask, got float64"):
        split.take([0.0, 1.0])


def test_a_part_to_hold_out_may_be_any_number(data):
    assert len(data.hold_out(np.float32(0.3)).validation) == 6
    assert len(data.hold_out(np.int16(3)).validation) == 3
    for size in (True, "0.3", None):
        with pytest.raises(InputError, match="a fraction or a number of rows"):
            data.hold_out(size)


def test_inputs_are_vectors_or_images():
    assert as_inputs(np.zeros((2, 5, 6), np.uint8)).shape == (2, 1, 5, 6)
    assert as_inputs(np.zeros((2, 5, 6), np.uint8)).dtype == np.uint8
    for given, kept in (
        ("int16", "float32"),
        ("float16", "float32"),
        ("int32", "float64"),
        ("int64", "float64"),
    ):
        assert as_inputs(np.zeros((2, 3), given)).dtype == kept
    assert as_inputs(np.zeros((2, 3, 4, 4), int)).dtype == np.float32
    for bad in (np.zeros(3), np.array([["a"]]), np.array([[1j]]), np.zeros((1, 2, 3, 4, 5))):
        with pytest.raises(InputError):
            as_inputs(bad)
    with pytest.raises(InputError, match="row 1 has NaN or infinity"):
        as_inputs([[0.0], [np.inf]])
