from __future__ import annotations

import pytest
import torch

from noisegate.networks.lenet import SlimConv2d

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


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n_in", "n_out"), [(1, 6), (3, 8), (6, 16), (7, 9)])
def test_other_forms_of_a_convolution_are_that_convolution(n_in, n_out, bias):
    layer = SlimConv2d(n_in, n_out, 5, padding=2, bias=bias).double()
    x = torch.randn(3, n_in, 9, 7, dtype=torch.float64, requires_grad=True)
    leaves, seed = [x, *layer.parameters()], torch.randn(3, n_out, 9, 7, dtype=torch.float64)
    expected = [layer(x), *torch.autograd.grad(layer(x), leaves, seed)]
    for form in (layer.of_patches, layer.filled_up):
        torch.testing.assert_close([form(x), *torch.autograd.grad(form(x), leaves, seed)], expected)


@pytest.mark.parametrize(("n_in", "form"), [(1, "of_patches"), (6, "filled_up"), (3, None), (16, None)])
def test_only_what_is_compiled_for_a_gpu_takes_another_form(n_in, form, monkeypatch):
    class Elsewhere(torch.Tensor):
        is_cuda = True

    layer, taken = SlimConv2d(n_in, 8, 5, padding=2), []
    for each in ("of_patches", "filled_up"):
        monkeypatch.setattr(layer, each, lambda x, each=each: taken.append(each))
    x = torch.rand(2, n_in, 6, 6)
    layer(x.as_subclass(Elsewhere))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    layer(x)
    assert not taken
    layer(x.as_subclass(Elsewhere))
    assert taken == ([form] if form else [])
