import random

import numpy as np
import torch

from noisegate.training.randomness import seed_of, seeded


def draw():
    return torch.rand(3).tolist(), np.random.rand(3).tolist(), random.random()  # noqa: NPY002


def test_the_key_decides_what_is_drawn():
    with seeded(1, "epoch", 2):
        first = draw()
    with seeded(1, "epoch", 2):
        assert draw() == first
    with seeded(1, "epoch", 3):
        other = draw()
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_the_caller_notices_nothing_even_after_an_error():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    expected = draw()
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    try:
        with seeded(0):
            draw()
            raise KeyError
    except KeyError:
        pass
    assert draw() == expected


def test_seeds_differ_in_every_part_of_the_key():
    keys = [(0,), (1,), (0, "a"), (0, "a", 0), (0, "a0"), ("0", "a")]
    assert len({seed_of(*key) for key in keys}) == len(keys)
    assert all(0 <= seed_of(*key) < 2**63 for key in keys)
