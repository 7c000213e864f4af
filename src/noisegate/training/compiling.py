"""Compiling the trained networks, where that pays."""

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

#: "auto" compiles where at least so many images go through at least so many convolutions, not in fp32.
COMPILED_IMAGES = 4_000_000
COMPILED_CONVOLUTIONS = 10


def compiling_pays(images: int, precision: str, module: nn.Module | None = None) -> bool:
    """Whether `torch.compile` earns its half minute: bf16 or tf32, a long run, a deep convolutional network.

    On one H200 it makes a captured step of WRN-28-2 about a quarter faster, and a LeNet's an eighth. It depends on
    settings alone, never on a clock, so the same run is always executed the same way; and fp32 is left as it is,
    so that there captured and eager steps compute the same.

    Parameters
    ----------
    images : int
        Steps times batch size.
    precision : {"fp32", "tf32", "bf16"}
    module : nn.Module, optional
        What is trained. None: one of many runs of the same network in this process, which is compiled once, so
        that it need not be deep.
    """
    if precision == "fp32" or images < COMPILED_IMAGES or importlib.util.find_spec("triton") is None:
        return False
    if module is None:
        return True
    return sum(isinstance(layer, nn.Conv2d) for layer in module.modules()) >= COMPILED_CONVOLUTIONS


@contextlib.contextmanager
def compiled_networks(module: nn.Module) -> Iterator[None]:
    """Inside, the trained networks of a module run through `torch.compile`; their weights stay where they are.

    What is around a network (the loss, a selection) is left alone, but for functions marked `fused`: it may be
    anything that can be captured. So is its head, whose size depends on the method: methods beside each other share
    what is compiled once.
    """
    networks = [m.network for m in module.modules() if isinstance(m, Prepared)]
    trained = [_before_head(n) for n in networks if any(p.requires_grad for p in n.parameters())]
    config: Any = torch._dynamo.config
    limit = {"recompile_limit": 256} if hasattr(config, "recompile_limit") else {"cache_size_limit": 256}
    with config.patch(**limit), warnings.catch_warnings(), contextlib.ExitStack() as afterwards:
        # Of torch's own way to trace an autograd.Function: where warnings are errors it would stop the compiling.
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
    """What a network's class does, in a frame of ours: what is compiled for one network serves all that are alike.

    A frame of torch's own, as nn.Sequential has, would not be compiled, and handed over by itself not be shared by
    torch 2.8 and before.
    """
    return type(network).forward(network, *args)


def _put_back(network: nn.Module, forward: Callable[..., Any] | None) -> None:
    """The `forward` that an object has of its own, or its class's."""
    vars(network).pop("forward", None)
    if forward is not None:
        network.forward = forward


def _before_head(network: nn.Module) -> nn.Module:
    """The part of one of our networks that does not depend on the number of outputs; a user's own as it is."""
    head, body = (getattr(network, name, None) for name in ("head", "body"))
    return body if isinstance(head, Head) and isinstance(body, nn.Module) else network
