"""Networks by name."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from torch import nn

from noisegate._registry import Registry
from noisegate.errors import InputError, UnknownNameError
from noisegate.networks.cnn9 import CNN9
from noisegate.networks.deeplab import ENCODERS, DeepLab
from noisegate.networks.lenet import LeNet5
from noisegate.networks.mlp import MLP
from noisegate.networks.resnet import CifarResNet, ResNet, ResNetV2, Stem
from noisegate.networks.small_cnn import SmallCNN
from noisegate.networks.wide_resnet import WideResNet

Shape = tuple[int, ...]
B = TypeVar("B", bound=Callable[..., nn.Module])


@dataclass(frozen=True)
class NetworkEntry:
    """A network with a name.

    Attributes
    ----------
    name : str
        The name in listings; capital letters stand for numbers.
    description : str
        One line for listings.
    pattern : str
        A regular expression that matches the names of the network.
    build : callable
        `(input_shape, n_outputs, *groups) -> nn.Module`, with the groups of the pattern.
    """

    name: str
    description: str
    pattern: str
    build: Callable[..., nn.Module]


#: Every network that has a name, in the order of `noisegate list networks`.
NETWORKS: Registry[NetworkEntry] = Registry("network")


def register(name: str, description: str, *, pattern: str | None = None) -> Callable[[B], B]:
    """Give a network a name.

    A decorator of a class or function `(input_shape, n_outputs) -> nn.Module`.

    Parameters
    ----------
    name : str
        The name for `ng.train(data, network=name)` and `noisegate fit --network name`.
    description : str
        One line for `noisegate list networks`.
    pattern : str, default=None
        A regular expression, for a family of names; its groups are passed to the function as
        strings. None: only the name itself.

    >>> from noisegate.networks import MLP, NETWORKS, build, register
    >>> @register("narrow", "one hidden layer of two")
    ... def narrow(input_shape, n_outputs):
    ...     return MLP(input_shape, n_outputs, [2])
    >>> build("narrow", (5,), 3).head
    Head(in_features=2, out_features=3, bias=True)
    >>> _ = NETWORKS.pop("narrow")
    """

    def add(build: B) -> B:
        entry = NetworkEntry(name, description, pattern or re.escape(name), build)
        NETWORKS.add(name, entry, build.__module__)
        return build

    return add


@register(
    "auto", "mlp for vectors; for images lenet5, wrn-28-2 or resnet18 by their size, on a CPU small-cnn"
)
def _auto(shape: Shape, n_outputs: int) -> nn.Module:
    return build(auto_name(shape), shape, n_outputs)


@register("linear", "a linear model")
def _linear(shape: Shape, n_outputs: int) -> nn.Module:
    return MLP(shape, n_outputs, ())


register("mlp", "two hidden layers of 256")(MLP)


@register("mlp-H1-H2-...", "hidden layers of the given widths", pattern=r"mlp((?:-\d+)+)")
def _mlp(shape: Shape, n_outputs: int, widths: str) -> nn.Module:
    return MLP(shape, n_outputs, [int(width) for width in widths[1:].split("-")])


register("lenet5", "LeNet-5 with ReLU")(LeNet5)
register("small-cnn", "three 3x3 convolutions on at most 32 x 32 pixels; for CPUs")(SmallCNN)
register("cnn9", "nine 3x3 convolutions with group norm")(CNN9)


def _resnet(shape: Shape, n_outputs: int, depth: str, stem: str | None) -> nn.Module:
    return ResNet(shape, n_outputs, int(depth), cast("Stem | None", stem))


def _cifar_resnet(shape: Shape, n_outputs: int, depth: str) -> nn.Module:
    return CifarResNet(shape, n_outputs, int(depth))


for _depth in (18, 34, 50):
    _stem = "3x3 stem below 64 pixels, else 7x7; -cifar or -imagenet forces one"
    register(
        f"resnet{_depth}", f"ResNet-{_depth}; {_stem}", pattern=rf"resnet({_depth})(?:-(cifar|imagenet))?"
    )(_resnet)
for _depth in (20, 32, 44, 56, 110):
    _kind = f"ResNet-{_depth} for CIFAR (16, 32, 64 filters, shortcuts without parameters)"
    register(f"resnet{_depth}", _kind, pattern=f"resnet({_depth})")(_cifar_resnet)
register("resnet-v2-50", "pre-activation ResNet-50")(ResNetV2)


@register(
    "wrn-D-K",
    "wide ResNet of depth D = 6n + 4 and width factor K, e.g. wrn-28-2",
    pattern=r"wrn-(\d+)-(\d+)",
)
def _wide_resnet(shape: Shape, n_outputs: int, depth: str, width: str) -> nn.Module:
    return WideResNet(shape, n_outputs, int(depth), int(width))


@register(
    "deeplab-ENCODER",
    f"DeepLabv3+ for maps, ENCODER one of {', '.join(ENCODERS)}; stride 16, or -os8, -os32",
    pattern=rf"deeplab-({'|'.join(ENCODERS)})(?:-os(8|16|32))?",
)
def _deeplab(shape: Shape, n_outputs: int, encoder: str, stride: str | None) -> nn.Module:
    return DeepLab(shape, n_outputs, encoder, int(stride or 16))


def build(name: str, input_shape: Sequence[int], n_outputs: int) -> nn.Module:
    """Make a freshly initialised network.

    Parameters
    ----------
    name : str
        One of `NETWORKS`, with numbers in place of capital letters, or "auto".
    input_shape : (d,) or (C, H, W)
        Shape of one example.
    n_outputs : int
        Width of the last layer, the attribute `head`.

    Returns
    -------
    nn.Module
        From float inputs (B, *input_shape) to (B, n_outputs).

    >>> build("wrn-28-2", (3, 32, 32), 10).head
    Head(in_features=128, out_features=10, bias=True)
    """
    shape = _check_shape(input_shape)
    try:
        n_outputs = operator.index(n_outputs)
    except TypeError:
        raise InputError(f"n_outputs must be an integer, got {n_outputs!r}") from None
    if n_outputs < 1:
        raise InputError(f"n_outputs must be at least 1, got {n_outputs}")
    entry, groups = _find(name)
    return entry.build(shape, n_outputs, *groups)


def check_name(name: str) -> None:
    """Raise UnknownNameError unless a network has this name.

    >>> check_name("wrn-28-2")
    """
    _find(name)


def _find(name: str) -> tuple[NetworkEntry, tuple[str | None, ...]]:
    """The entry whose pattern a name matches, and the groups of the match."""
    for entry in NETWORKS.values():
        match = re.fullmatch(entry.pattern, str(name))
        if match:
            return entry, match.groups()
    raise UnknownNameError("network", name, NETWORKS)


def auto_name(input_shape: Sequence[int], device: str = "cuda") -> str:
    """The network that "auto" stands for, by the shape of the input, and what it is trained on.

    Parameters
    ----------
    input_shape : (d,) or (C, H, W)
    device : str, default="cuda"
        Type of the device. "cpu": a network that is trained in minutes there.

    >>> auto_name((20,)), auto_name((1, 28, 28)), auto_name((3, 32, 32)), auto_name((3, 224, 224))
    ('mlp', 'lenet5', 'wrn-28-2', 'resnet18')
    >>> auto_name((3, 32, 32), "cpu")
    'small-cnn'
    """
    shape = _check_shape(input_shape)
    if len(shape) == 1 or min(shape[1:]) < 4:
        return "mlp"
    side = min(shape[1:])
    if device == "cpu" and side >= 32:
        return "small-cnn"
    if side < 32 or shape[0] == 1:
        return "lenet5"
    return "wrn-28-2" if side < 64 else "resnet18"


def find_head(network: nn.Module, n_outputs: int) -> nn.Linear | nn.Conv2d:
    """Find the last layer of a network, for `Objective.init_head_`.

    It is the attribute `head` if that is a layer with `n_outputs` outputs, else the linear layer or
    1x1 convolution with `n_outputs` outputs that was registered last.

    >>> from torch import nn
    >>> find_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), 3)
    Linear(in_features=8, out_features=3, bias=True)
    """
    for layer in (getattr(network, "head", None), *reversed(list(network.modules()))):
        if isinstance(layer, nn.Linear) and layer.out_features == n_outputs:
            return layer
        if isinstance(layer, nn.Conv2d) and layer.out_channels == n_outputs and set(layer.kernel_size) == {1}:
            return layer
    raise InputError(
        f"{type(network).__name__} has no linear layer or 1x1 convolution of {n_outputs} outputs: "
        "build it with as many outputs as objective.n_outputs"
    )


def _check_shape(input_shape: Sequence[int]) -> Shape:
    shape = tuple(int(size) for size in input_shape)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise InputError(f"expected one input of shape (d,) or (C, H, W), got {shape}")
    return shape
