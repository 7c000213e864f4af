"""Vectors by an encoder: computed once, read after that, anew where anything has changed."""

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.errors import InputError


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.calls = nn.Linear(6, 4), nn.Dropout(0.5), 0

    def forward(self, x):
        self.calls += 1
        return self.drop(self.layer(x.flatten(1)))


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return Encoder()


def images(n=10, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 1, 2, 3)).astype(np.uint8)


def test_it_is_what_the_encoder_says_and_is_computed_once(encoder, tmp_path):
    x = images()
    first = ng.data.embed(x, encoder, batch_size=4, root=tmp_path)
    with torch.no_grad():
        expected = encoder.layer(torch.from_numpy(x).float().flatten(1) / 255)
    np.testing.assert_allclose(first, expected.numpy(), atol=1e-6)
    assert encoder.training  # as it was
    calls = encoder.calls
    assert np.array_equal(ng.data.embed(x, encoder, root=tmp_path), first)
    assert encoder.calls == calls


def test_other_inputs_or_weights_are_computed_anew(encoder, tmp_path):
    x = images()
    first = ng.data.embed(x, encoder, root=tmp_path)
    assert not np.array_equal(ng.data.embed(images(seed=1), encoder, root=tmp_path), first)
    with torch.no_grad():
        encoder.layer.weight[0, 0] += 1
    assert not np.array_equal(ng.data.embed(x, encoder, root=tmp_path), first)
    assert len(list((tmp_path / "embeddings").glob("*.npz"))) == 3


def test_a_dataset_keeps_its_labels(encoder, tmp_path):
    y = np.arange(10) % 2
    data = ng.data.Dataset(
        "d", ng.data.Split(images(), y, clean=1 - y), ng.data.Split(images(4, 1), y[:4]), classes=("a", "b")
    )
    vectors = ng.data.embed(data, encoder, root=tmp_path)
    assert vectors.train.x.shape == (10, 4)
    assert vectors.test.x.shape == (4, 4)
    assert (vectors.train.y == y).all()
    assert (vectors.train.clean == 1 - y).all()


def test_texts_by_a_function_with_a_key(tmp_path):
    calls = []

    def encode(texts):
        calls.append(len(texts))
        return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float64)

    texts = ["abc", "banana", "", "x"]
    for _ in range(2):
        found = ng.data.embed(texts, encode, key="lengths 1", batch_size=3, root=tmp_path)
        assert found.tolist() == [[3, 1], [6, 3], [0, 0], [1, 0]]
    assert calls == [3, 1]
    ng.data.embed(texts, encode, key="lengths 2", root=tmp_path)
    ng.data.embed(texts, encode, root=tmp_path)
    assert calls == [3, 1, 4, 4]
    assert len(list((tmp_path / "embeddings").iterdir())) == 2


def test_what_is_no_encoder_is_refused(tmp_path):
    with pytest.raises(InputError, match="function of a batch"):
        ng.data.embed(images(), "resnet18", root=tmp_path)
    with pytest.raises(InputError, match="one vector for each of 10 inputs"):
        ng.data.embed(images(), lambda x: x.sum(0), root=tmp_path)


def test_a_damaged_cache_is_computed_anew(encoder, tmp_path, caplog):
    x = images()
    first = ng.data.embed(x, encoder, root=tmp_path)
    (path,) = (tmp_path / "embeddings").iterdir()
    sound = bytearray(path.read_bytes())
    sound[sound.index(first.tobytes()) + 5] ^= 1  # one bit of a number
    for damage in (b"", bytes(sound), b"PK"):
        path.write_bytes(damage)
        np.testing.assert_array_equal(ng.data.embed(x, encoder, root=tmp_path), first)
    np.savez(path, vectors=first[:3])
    np.testing.assert_array_equal(ng.data.embed(x, encoder, root=tmp_path), first)
    assert caplog.text.count("once more") == 4
