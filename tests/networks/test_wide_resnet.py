from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize(("name", "published"), [("wrn-28-2", 1_467_610), ("wrn-28-10", 36_479_194)])
def test_published_parameter_counts(name, published, n_parameters):
    assert n_parameters(name, (3, 32, 32), 10) == published


def test_depth_and_resolution(seeded):
    network = seeded("wrn-16-1", (3, 12, 12), 10).eval()
    with torch.no_grad():
        assert network.body[:-1](torch.rand(1, 3, 12, 12)).shape == (1, 64, 3, 3)
    convolutions = [
        m for m in network.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3)
    ]
    # The depth counts the 3x3 convolutions, the two projections and the head.
    assert len(convolutions) + 2 + 1 == 16


def test_block_is_the_identity_with_a_silent_branch(seeded):
    block = seeded("wrn-16-1", (3, 8, 8), 10).eval().body[1]
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(block(x), x)
