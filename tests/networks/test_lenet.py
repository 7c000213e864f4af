from __future__ import annotations

import pytest
import torch

LAYERS = {1: 5 * 5 * 1 * 6 + 6, 3: 5 * 5 * 3 * 6 + 6}
REST = (5 * 5 * 6 * 16 + 16) + (5 * 5 * 16 * 120 + 120)


@pytest.mark.parametrize(
    ("shape", "positions"), [((1, 28, 28), 49), ((3, 32, 32), 64), ((1, 4, 4), 1), ((3, 7, 13), 3)]
)
def test_parameter_count(shape, positions, n_parameters):
    dense = 120 * positions * 84 + 84
    assert n_parameters("lenet5", shape, 10) == LAYERS[shape[0]] + REST + dense + 84 * 10 + 10


def test_smallest_image(seeded):
    assert seeded("lenet5", (1, 4, 4), 2)(torch.rand(1, 1, 4, 4)).shape == (1, 2)


def test_order_of_layers(seeded):
    shapes = []
    network = seeded("lenet5", (1, 28, 28), 10)
    for layer in network.body:
        layer.register_forward_hook(lambda module, inputs, outputs: shapes.append(tuple(outputs.shape[1:])))
    network(torch.rand(1, 1, 28, 28))
    convolutions = [(6, 28, 28), (6, 14, 14), (6, 14, 14), (16, 14, 14), (16, 7, 7), (16, 7, 7)]
    assert shapes == [*convolutions, (120, 7, 7), (120, 7, 7), (5880,), (84,), (84,)]


def test_pooling_before_relu_is_relu_before_pooling(seeded):
    """The values and the gradients of the order in the paper's network, bit for bit."""
    network, x = seeded("lenet5", (1, 28, 28), 10), torch.rand(8, 1, 28, 28)
    gradients, outputs = [], []
    for order in (range(11), (0, 2, 1, 3, 5, 4, *range(6, 11))):
        network.zero_grad()
        y = x
        for number in order:
            y = network.body[number](y)
        outputs.append(network.head(y))
        outputs[-1].square().mean().backward()
        gradients.append([p.grad.clone() for p in network.parameters()])
    assert torch.equal(*outputs)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
