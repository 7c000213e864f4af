from __future__ import annotations

import pytest
import torch
from torch import nn

WIDTHS = (128, 128, 128, 256, 256, 256, 512, 256, 128)


@pytest.mark.parametrize(("channels", "n_outputs"), [(1, 20), (3, 10)])
def test_parameter_count(channels, n_outputs, n_parameters):
    ins = (channels, *WIDTHS[:-1])
    layers = sum(9 * a * b + b + 2 * b for a, b in zip(ins, WIDTHS, strict=True))
    assert n_parameters("cnn9", (channels, 32, 32), n_outputs) == layers + 128 * n_outputs + n_outputs


def test_settings_of_the_table(seeded):
    layers = list(seeded("cnn9", (3, 8, 8), 10).body)
    assert [m.out_channels for m in layers if isinstance(m, nn.Conv2d)] == list(WIDTHS)
    assert [m.num_groups for m in layers if isinstance(m, nn.GroupNorm)] == [2] * 9
    assert [m.negative_slope for m in layers if isinstance(m, nn.LeakyReLU)] == [0.01] * 9
    assert [m.p for m in layers if isinstance(m, nn.Dropout)] == [0.25] * 2
    kinds = [type(m) for m in layers]
    assert [i for i, kind in enumerate(kinds) if kind is nn.MaxPool2d] == [9, 20]


def test_shapes(seeded):
    network = seeded("cnn9", (1, 10, 7), 4).eval()
    with torch.no_grad():
        assert network.body[:-1](torch.rand(2, 1, 10, 7)).shape == (2, 128, 2, 1)
