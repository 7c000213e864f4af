"""`torch.compile` for the trained networks, where it pays."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from noisegate._fusing import fusing
from noisegate.networks._layers import Head
from noisegate.networks.prepare import Prepared

#: Minimum number of training images, and of convolutions, from which "auto" compiles (not in fp32).
COMPILED_IMAGES = 4_000_000
COMPILED_CONVOLUTIONS = 10


def compiling_pays(images: int, precision: str, module: nn.Module | None = None) -> bool:
    """Whether `torch.compile` saves more than the half minute it costs.

    It does in long bf16 or tf32 runs of deep convolutional networks. On one H200 it makes a
    captured step of WRN-28-2 about a quarter faster, and one of a LeNet an eighth. The decision
    depends on settings alone, never on a clock, so that the same run is always executed the same
    way. In fp32 nothing is compiled, so that captured and eager steps compute the same numbers.

    Parameters
    ----------
    images : int
        Number of steps times batch size.
    precision : {"fp32", "tf32", "bf16"}
    module : nn.Module, default=None
        What is trained. None: one of many runs of the same network in this process. They share one
        compilation, so even a shallow network pays.
    """
    if precision == "fp32" or images < COMPILED_IMAGES or importlib.util.find_spec("triton") is None:
        return False
    if module is None:
        return True
    return sum(isinstance(layer, nn.Conv2d) for layer in module.modules()) >= COMPILED_CONVOLUTIONS


@contextlib.contextmanager
def compiled_networks(module: nn.Module) -> Iterator[None]:
    """Inside, the trained networks of a module run through `torch.compile`; weights stay in place.

    Code around a network (the loss, a selection of rows) is not compiled, except functions marked
    `fused`: it may be anything that can be captured. Neither is the head of a network, because its
    size depends on the method: runs of several methods share one compilation.
    """
    networks = [m.network for m in module.modules() if isinstance(m, Prepared)]
    trained = [_before_head(n) for n in networks if any(p.requires_grad for p in n.parameters())]
    config: Any = torch._dynamo.config
    limit = {"recompile_limit": 256} if hasattr(config, "recompile_limit") else {"cache_size_limit": 256}
    with config.patch(**limit), warnings.catch_warnings(), contextlib.ExitStack() as afterwards:
        # torch itself causes this warning when it traces an autograd.Function. Where warnings are
        # errors it would make the compilation fail.
        warnings.filterwarnings("ignore", message=".*should not be instantiated", category=DeprecationWarning)
        for network in trained:
            own = vars(network).get("forward")
            afterwards.callback(_put_back, network, own)
            if own is None:
                network.forward = functools.partial(torch.compile(_forward, dynamic=False), network)
            else:
                network.forward = torch.compile(own, dynamic=False)
        afterwards.enter_context(fusing())
        yield


def _forward(network: nn.Module, *args: Any) -> Any:
    """Call the `forward` of a network's class, so that equal networks share compiled code.

    The extra frame is needed: torch does not compile frames of its own, such as that of
    nn.Sequential, and torch 2.8 and before would not share code compiled from a bound method.
    """
    return type(network).forward(network, *args)


def _put_back(network: nn.Module, forward: Callable[..., Any] | None) -> None:
    """Restore an instance's own `forward`; None restores that of its class."""
    vars(network).pop("forward", None)
    if forward is not None:
        network.forward = forward


def _before_head(network: nn.Module) -> nn.Module:
    """The body of our own networks, which all methods share; a user's network as a whole."""
    head, body = (getattr(network, name, None) for name in ("head", "body"))
    return body if isinstance(head, Head) and isinstance(body, nn.Module) else network
