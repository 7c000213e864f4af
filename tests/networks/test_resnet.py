from __future__ import annotations

import pytest
import torch

from noisegate.errors import InputError
from noisegate.networks import CifarResNet, ResNet


@pytest.mark.parametrize(
    ("name", "size", "n_outputs", "published"),
    [
        ("resnet18", 224, 1000, 11_689_512),
        ("resnet34", 224, 1000, 21_797_672),
        ("resnet50", 224, 1000, 25_557_032),
        ("resnet18", 32, 10, 11_173_962),
        ("resnet18-cifar", 224, 10, 11_173_962),
        ("resnet32", 32, 10, 464_154),
        ("resnet56", 32, 10, 853_018),
        ("resnet-v2-50", 224, 1000, 25_549_352),
    ],
)
def test_published_parameter_counts(name, size, n_outputs, published, n_parameters):
    assert n_parameters(name, (3, size, size), n_outputs) == published


@pytest.mark.parametrize(
    ("name", "side", "out"),
    [
        ("resnet18", 63, 8),
        ("resnet18", 64, 2),
        ("resnet18-cifar", 64, 8),
        ("resnet18-imagenet", 63, 2),
        ("resnet20", 32, 8),
        ("resnet-v2-50", 64, 2),
    ],
)
def test_stem_decides_the_resolution(name, side, out, seeded):
    network = seeded(name, (1, side, side), 2).eval()
    with torch.no_grad():
        assert network.body[:-1](torch.rand(1, 1, side, side)).shape[2:] == (out, out)


def test_he_initialisation_by_fan_out(seeded):
    weight = seeded("resnet18", (3, 32, 32), 10).body[0].weight
    assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.06)


def test_shortcut_without_parameters_passes_every_second_pixel(seeded):
    """With a silent branch a block that halves the image is the picked pixels between zero channels."""
    network = seeded("resnet20", (3, 8, 8), 10).eval()
    block = next(
        layer for layer in network.body if getattr(layer, "stride", 1) == 2 and hasattr(layer, "pad")
    )
    torch.nn.init.zeros_(block.branch[-1].weight)
    x = torch.rand(2, 16, 8, 8)
    with torch.no_grad():
        outputs = block(x)
    torch.testing.assert_close(outputs[:, 8:24], x[:, :, ::2, ::2])
    assert (outputs[:, :8] == 0).all()
    assert (outputs[:, 24:] == 0).all()


def test_pre_activation_block_is_the_identity_with_a_silent_branch(seeded):
    block = seeded("resnet-v2-50", (3, 32, 32), 10).eval().body[3]
    torch.nn.init.zeros_(block.branch[-1].weight)
    x = torch.randn(2, 256, 4, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(block(x), x)


def test_refusals():
    with pytest.raises(InputError, match="depth must be one of"):
        ResNet((3, 32, 32), 2, depth=101)
    with pytest.raises(InputError, match="stem"):
        ResNet((3, 32, 32), 2, stem="svhn")
    with pytest.raises(InputError, match=r"6n \+ 2"):
        CifarResNet((3, 32, 32), 2, depth=34)
