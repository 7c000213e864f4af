from __future__ import annotations

import numpy as np
import pytest

from noisegate.errors import DamagedFileError, InputError
from noisegate.noise import Human, Noise

CLEAN = np.array([0, 0, 1, 2, 2])
GIVEN = np.array([0, 1, 1, 2, 0])


def test_returns_the_labels_as_a_copy():
    noise = Human(GIVEN, "friends")
    observed = noise.corrupt(CLEAN)
    np.testing.assert_array_equal(observed, GIVEN)
    observed[:] = 0
    np.testing.assert_array_equal(noise.corrupt(CLEAN), GIVEN)


def test_another_order_is_noticed():
    noise = Human(GIVEN, "friends", clean=CLEAN)
    np.testing.assert_array_equal(noise.corrupt(CLEAN.astype(np.uint8)), GIVEN)
    with pytest.raises(InputError, match="friends: the training set is in another order"):
        noise.corrupt(CLEAN[::-1])


def test_another_length_is_noticed():
    with pytest.raises(InputError, match="5 labels but the training set has 4"):
        Human(GIVEN, "friends").corrupt(CLEAN[:4], n_classes=3)
    with pytest.raises(InputError, match="5 labels but 4 clean"):
        Human(GIVEN, "friends", clean=CLEAN[:4])


def test_labels_outside_the_classes():
    with pytest.raises(InputError, match=r"labels of friends must lie in 0\.\.1"):
        Human(GIVEN, "friends").corrupt([0, 1, 0, 1, 0])


def test_large_labels_pack_small_and_damage_is_noticed():
    labels = np.random.default_rng(0).integers(10, size=50_000)
    description = Human(labels, "many").to_dict()
    assert len(description["labels"]) < 60_000
    np.testing.assert_array_equal(Noise.from_dict(description).corrupt(labels), labels)
    for packed in ("?", description["labels"][:100]):
        with pytest.raises(DamagedFileError, match="packed"):
            Noise.from_dict({**description, "labels": packed})
    assert repr(Noise.from_dict(description)) == "Human('many', 50000 labels)"
