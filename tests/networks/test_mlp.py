from __future__ import annotations

import math

import torch

from noisegate.networks import MLP


def test_parameter_counts(n_parameters):
    assert n_parameters("mlp", (20,), 3) == 20 * 256 + 256 + 256 * 256 + 256 + 256 * 3 + 3
    assert n_parameters("mlp-2000-2000", (2,), 4) == 2 * 2000 + 2000 + 2000 * 2000 + 2000 + 2000 * 4 + 4
    assert n_parameters("mlp-5", (3, 4, 4), 2) == 48 * 5 + 5 + 5 * 2 + 2
    assert n_parameters("linear", (7,), 2) == 16


def test_linear_is_a_matrix_product(seeded):
    network = seeded("linear", (3, 2, 2), 4)
    x = torch.arange(24.0).reshape(2, 3, 2, 2)
    torch.testing.assert_close(network(x), x.reshape(2, 12) @ network.head.weight.T + network.head.bias)


def test_glorot_bounds():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = MLP((100,), 10, hidden=(400,))
    bound = math.sqrt(6 / 500)
    weight = network.body[0].weight
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.99 * bound
    assert (network.body[0].bias == 0).all()
    assert (network.head.bias == 0).all()
