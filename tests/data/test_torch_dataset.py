import pickle
import random
import threading
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

import noisegate as ng
from noisegate.data import LazyInputs, from_torch
from noisegate.errors import InputError


class Pairs(Dataset):
    """Yields (input, label) pairs and counts how often it is asked."""

    def __init__(self, inputs, given, **attributes):
        self.inputs, self.given, self.asked = inputs, given, 0
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        self.asked += 1
        return self.inputs[row], self.given[row]


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (6, 5, 7, 3), dtype=np.uint8)


def test_a_tensor_dataset_is_held_in_memory():
    x, y = torch.randn(4, 1, 3, 3), torch.tensor([1, 0, 1, 0])
    data = from_torch(TensorDataset(x, y), test=TensorDataset(x[:2], y[:2]))
    np.testing.assert_array_equal(data.train.x, x.numpy())
    assert data.train.y.tolist() == [1, 0, 1, 0]
    assert len(data.test) == 2
    assert data.classes == ("0", "1")


@pytest.mark.parametrize(
    "convert",
    [Image.fromarray, lambda a: a, lambda a: torch.from_numpy(a.transpose(2, 0, 1).copy())],
    ids=["pil", "array", "tensor"],
)
def test_images_come_lazily_with_channels_first(pixels, convert):
    source = Pairs([convert(p) for p in pixels], [0, 1, 2, 0, 1, 2], targets=[0, 1, 2, 0, 1, 2])
    data = from_torch(source)
    assert source.asked <= 2  # labels come from .targets, one row tells the shape
    assert isinstance(data.train.x, LazyInputs)
    assert data.train.input_shape == (3, 5, 7)
    assert data.train.x.dtype == np.uint8
    np.testing.assert_array_equal(data.train.x.fetch(np.array([4, 1])), pixels[[4, 1]].transpose(0, 3, 1, 2))
    taken = data.train.take([5, 3]).x
    np.testing.assert_array_equal(taken.fetch(np.array([1])), pixels[[3]].transpose(0, 3, 1, 2))


def test_grey_images_and_float_tensors(rng):
    grey = rng.integers(0, 256, (2, 4, 4), dtype=np.uint8)
    data = from_torch(Pairs([Image.fromarray(g) for g in grey], [0, 1]))
    np.testing.assert_array_equal(data.train.x.fetch(np.arange(2)), grey[:, None])
    floats = from_torch(Pairs(torch.randn(3, 4, dtype=torch.float64), [0, 1, 0]))
    assert floats.train.x.dtype == np.float32
    assert floats.train.input_shape == (4,)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"targets": torch.tensor([1, 0, 1])}, [1, 0, 1]),
        ({"labels": np.array([1, 0, 1])}, [1, 0, 1]),
        ({"targets": [1, 0, 1], "target_transform": lambda y: 1 - y}, [0, 1, 0]),  # then the pairs are asked
        ({"targets": ["only one"]}, [0, 1, 0]),
        ({}, [0, 1, 0]),
    ],
)
def test_where_labels_come_from(attributes, expected):
    source = Pairs(torch.eye(3), [torch.tensor(0), 1, np.int64(0)], **attributes)
    assert from_torch(source).train.y.tolist() == expected


def test_labels_of_a_subset_come_from_the_whole():
    source = Pairs(torch.eye(5), [9] * 5, targets=[0, 1, 2, 1, 0])
    data = from_torch(Subset(source, [4, 1, 3]))
    assert data.train.y.tolist() == [0, 1, 1]
    np.testing.assert_array_equal(data.train.x.fetch(np.array([0])), np.eye(5)[[4]])


def test_names_of_classes():
    source = Pairs(torch.eye(3), [0, 2, 0], classes=["cat", "dog", "eel"])
    assert from_torch(source).classes == ("cat", "dog", "eel")
    assert from_torch(source, classes=["a", "b", "c"]).classes == ("a", "b", "c")
    words = from_torch(Pairs(torch.eye(3), ["x", "w", "x"]))
    assert (words.classes, words.train.y.tolist()) == (("w", "x"), [1, 0, 1])


def test_fetching_takes_turns_and_survives_pickling():
    class Busy(Pairs):
        inside = 0

        def __getitem__(self, row):
            self.inside += 1
            alone = self.inside == 1
            threading.Event().wait(0.001)
            self.inside -= 1
            return torch.full((2,), float(alone)), row % 2

    x = from_torch(Busy([0] * 8, None)).train.x
    results = []
    threads = [threading.Thread(target=lambda: results.append(x.fetch(np.arange(8)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.min(results) == 1
    plain = from_torch(Pairs(torch.eye(3), [0, 1, 0])).train.x
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(plain)).fetch(np.arange(3)), np.eye(3))


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (lambda: Stream(), "iterable dataset"),
        (lambda: Pairs([], []), "is empty"),
        (lambda: TensorDataset(torch.eye(3)), r"\(input, label\) pairs"),
        (lambda: Pairs(["text", "text"], [0, 1]), "vectors or images as inputs, got str"),
        (lambda: Pairs(torch.eye(3), [0, 0, 0]), "at least two classes"),
        (lambda: Pairs(torch.eye(3), [0.5, 1.0, 1.0]), "fractions"),
    ],
)
def test_datasets_that_cannot_be_used(source, message):
    with pytest.raises(InputError, match=message):
        from_torch(source())


def test_rows_that_do_not_fit_are_named():
    uneven = from_torch(Pairs([torch.zeros(2), torch.zeros(3)], [0, 1]))
    with pytest.raises(InputError, match=r"example 1 .* shape \(3,\), the first \(2,\)"):
        uneven.train.x.fetch(np.arange(2))
    broken = from_torch(Pairs(torch.tensor([[0.0], [np.nan]]), [0, 1]))
    with pytest.raises(InputError, match="NaN or infinity"):
        broken.train.x.fetch(np.arange(2))


class Jittered(Dataset):
    """Draws from all three global states, as transforms do."""

    labels: ClassVar = [0, 1] * 20

    def __len__(self):
        return 40

    def __getitem__(self, row):
        noise = torch.rand(()) + random.random() + np.random.rand()  # noqa: NPY002
        return torch.tensor([row % 2, row / 40]) + 0.3 * noise, self.labels[row]


def test_a_seed_gives_one_result_with_random_transforms():
    data = from_torch(Jittered())
    assert data.train.x.random

    def curve():
        recipe = {"epochs": 4, "batch_size": 8}
        fitted = ng.train(data, "ce", "mlp-8", recipe, seed=0, device="cpu")
        return [epoch["loss"] for epoch in fitted.history[0]]

    states = random.getstate(), torch.get_rng_state()
    first = curve()
    assert len(set(first)) == 4
    assert curve() == first
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])


def test_plain_transforms_are_read_ahead_by_threads():
    data = from_torch(Pairs([np.full(3, row / 5, np.float32) for row in range(6)], [0, 1] * 3))
    assert not data.train.x.random
    assert not data.train.x.take(np.array([1, 2])).random


def test_a_later_example_of_another_type_is_named():
    rows = [np.zeros((1, 2, 2), np.uint8), np.full((1, 2, 2), 0.5, np.float32)]
    inputs = from_torch(Pairs(rows, [0, 1])).train.x
    with pytest.raises(
        InputError, match="example 1 of the torch dataset is of type float32, the first of uint8"
    ):
        inputs.fetch(np.arange(2))
