"""Memory layout of convolutions: channels last, for networks that support it."""

from __future__ import annotations

import copy

import torch
from torch import nn

from noisegate._turns import TURN
from noisegate.networks.prepare import Prepared


def channels_last_(module: nn.Module) -> None:
    """Convert convolution weights to `torch.channels_last`, in place.

    Convolutions return outputs in the layout of their weights, so nothing else has to change. Steps
    get faster on a CPU (benchmarks/results/overhead.md), and on a GPU in bf16. Weights keep their
    values; results may differ in the last bits.

    All networks of noisegate support this layout. A user's own network may not: `x.view(len(x),
    -1)` after a convolution fails with it. So a copy of such a network is tried first, and the
    network stays as it is if that fails. Other modules of a user's method are left alone.

    Parameters
    ----------
    module : nn.Module
        A phase's module, or a network behind its preparation.
    """
    prepared = [part for part in module.modules() if isinstance(part, Prepared)]
    inside = {id(part) for each in prepared for part in each.modules()}
    for part in module.modules():
        ours = type(part).__module__.startswith(__package__)
        # Skip modules that contain a network: they may have other parts.
        if ours and not inside & {id(each) for each in part.modules()}:
            part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for each in prepared:
        if each.spec.get("network") is not None or _can_take_it(each):
            each.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _can_take_it(prepared: Prepared) -> bool:
    """Whether forward and backward passes work on a channels-last copy of the network."""
    weight = next((p for p in prepared.network.parameters() if p.dim() == 4), None)
    if weight is None:
        return True
    x = torch.zeros(2, *prepared.spec["input_shape"], dtype=weight.dtype, device=weight.device)
    devices = [weight.device] if weight.is_cuda else []
    try:
        trial = copy.deepcopy(prepared.network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with TURN, torch.random.fork_rng(devices), torch.enable_grad():
            trial.train()(x).sum().backward()
    except Exception:
        return False
    return True
