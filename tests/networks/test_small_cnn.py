"""The network for CPUs: the same cost at any size."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from noisegate import networks
from noisegate.errors import InputError


def operations(shape):
    network = networks.build("small-cnn", shape, 10).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        assert network(torch.zeros(1, *shape)).shape == (1, 10)
    return counter.get_total_flops()


def test_a_large_image_costs_as_much_as_one_of_32_pixels():
    assert operations((3, 224, 300)) == operations((3, 32, 32))
    assert operations((3, 32, 32)) < 25e6
    assert operations((1, 8, 8)) < operations((3, 32, 32)) / 10


def test_a_large_image_is_averaged():
    network = networks.build("small-cnn", (3, 64, 64), 5).eval()
    small = torch.randn(2, 3, 32, 32)
    large = small.repeat_interleave(2, 2).repeat_interleave(2, 3)
    direct = networks.build("small-cnn", (3, 32, 32), 5).eval()
    direct.load_state_dict(network.state_dict())
    torch.testing.assert_close(network(large), direct(small))


def test_what_is_too_small_is_refused():
    with pytest.raises(InputError, match="small-cnn"):
        networks.build("small-cnn", (3, 2, 2), 5)
