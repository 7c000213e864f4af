"""Principal directions, found a few rows at a time."""

import numpy as np
import torch

from noisegate.networks.projection import Projection


def test_it_finds_the_principal_components():
    torch.manual_seed(0)
    x = torch.randn(200, 4) @ torch.randn(4, 50) + 0.01 * torch.randn(200, 50)
    x = x - x.mean(0)
    front = Projection(50, 4)
    front.fit(lambda: iter(x.split(64)), torch.full((50,), 0.5), 200)
    z = front(x)
    np.testing.assert_allclose((z.T @ z / 200).numpy(), np.eye(4), atol=1e-4)
    lengths = torch.linalg.svdvals(0.5 * x)[:4] / 200**0.5
    torch.testing.assert_close(front.deviation, lengths, rtol=1e-4, atol=1e-6)


def test_more_directions_than_rows_are_zero():
    x = torch.eye(3, 20) - torch.eye(3, 20).mean(0)
    front = Projection(20, 10)
    front.fit(lambda: iter([x]), torch.ones(20), 3)
    assert torch.isfinite(front(x)).all()
    assert (front(x)[:, 3:] == 0).all()
