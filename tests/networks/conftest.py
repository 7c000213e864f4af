from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from noisegate import networks


@pytest.fixture
def n_parameters() -> Callable[..., int]:
    """Parameters of a network by name, counted without allocating them."""

    def count(name: str, shape: tuple[int, ...], n_outputs: int) -> int:
        with torch.device("meta"):
            network = networks.build(name, shape, n_outputs)
        return sum(p.numel() for p in network.parameters())

    return count


@pytest.fixture
def seeded() -> Callable[..., nn.Module]:
    """A network with reproducible weights, leaving the global random state alone."""

    def make(name: str, shape: tuple[int, ...], n_outputs: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return networks.build(name, shape, n_outputs)

    return make
