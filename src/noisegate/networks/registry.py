"""Networks by name."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from torch import nn

from noisegate.errors import InputError, UnknownNameError
from noisegate.networks.cnn9 import CNN9
from noisegate.networks.lenet import LeNet5
from noisegate.networks.mlp import MLP
from noisegate.networks.resnet import CifarResNet, ResNet, ResNetV2, Stem
from noisegate.networks.wide_resnet import WideResNet

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Entry:
    """One line of the registry: what users read, what names it matches, how those become a network."""

    name: str
    description: str
    pattern: str
    make: Callable[[re.Match[str], Shape, int], nn.Module]


def _mlp(match: re.Match[str], shape: Shape, n_outputs: int) -> nn.Module:
    return MLP(shape, n_outputs, [int(width) for width in re.findall(r"\d+", match[0])])


def _resnet(match: re.Match[str], shape: Shape, n_outputs: int) -> nn.Module:
    return ResNet(shape, n_outputs, int(match[1]), cast("Stem | None", match[2]))


_STEM = "3x3 stem below 64 pixels, else 7x7; -cifar or -imagenet forces one"
_ENTRIES = (
    _Entry("linear", "a linear model", "linear", lambda m, s, n: MLP(s, n, ())),
    _Entry("mlp", "two hidden layers of 256", "mlp", lambda m, s, n: MLP(s, n)),
    _Entry("mlp-H1-H2-...", "hidden layers of the given widths", r"mlp(-\d+)+", _mlp),
    _Entry("lenet5", "LeNet-5 with ReLU", "lenet5", lambda m, s, n: LeNet5(s, n)),
    _Entry("cnn9", "nine 3x3 convolutions with group norm", "cnn9", lambda m, s, n: CNN9(s, n)),
    *(
        _Entry(f"resnet{d}", f"ResNet-{d}; {_STEM}", rf"resnet({d})(?:-(cifar|imagenet))?", _resnet)
        for d in (18, 34, 50)
    ),
    *(
        _Entry(
            f"resnet{d}",
            f"ResNet-{d} for CIFAR (16, 32, 64 filters, shortcuts without parameters)",
            f"resnet({d})",
            lambda m, s, n: CifarResNet(s, n, int(m[1])),
        )
        for d in (20, 32, 44, 56, 110)
    ),
    _Entry("resnet-v2-50", "pre-activation ResNet-50", "resnet-v2-50", lambda m, s, n: ResNetV2(s, n)),
    _Entry(
        "wrn-D-K",
        "wide ResNet of depth D = 6n + 4 and width factor K, e.g. wrn-28-2",
        r"wrn-(\d+)-(\d+)",
        lambda m, s, n: WideResNet(s, n, int(m[1]), int(m[2])),
    ),
)

NETWORKS: dict[str, str] = {
    "auto": "mlp for vectors; for images lenet5, wrn-28-2 or resnet18 by their size",
    **{entry.name: entry.description for entry in _ENTRIES},
}


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
    entry, match = _named(auto_name(shape) if name == "auto" else name)
    return entry.make(match, shape, n_outputs)


def check_name(name: str) -> None:
    """Refuse a name that no network has.

    >>> check_name("wrn-28-2")
    """
    if name != "auto":
        _named(name)


def _named(name: str) -> tuple[_Entry, re.Match[str]]:
    for entry in _ENTRIES:
        match = re.fullmatch(entry.pattern, str(name))
        if match:
            return entry, match
    raise UnknownNameError("network", name, NETWORKS)


def auto_name(input_shape: Sequence[int]) -> str:
    """The network that "auto" stands for: by the kind and size of the input.

    >>> auto_name((20,)), auto_name((1, 28, 28)), auto_name((3, 32, 32)), auto_name((3, 224, 224))
    ('mlp', 'lenet5', 'wrn-28-2', 'resnet18')
    """
    shape = _check_shape(input_shape)
    if len(shape) == 1 or min(shape[1:]) < 4:
        return "mlp"
    side = min(shape[1:])
    if side < 32 or shape[0] == 1:
        return "lenet5"
    return "wrn-28-2" if side < 64 else "resnet18"


def find_head(network: nn.Module, n_outputs: int) -> nn.Linear | nn.Conv2d:
    """The last layer of any network: what `Objective.init_head_` initialises.

    Its attribute `head` if that is a layer of `n_outputs`, else the last linear layer or 1x1 convolution in
    order of registration that gives `n_outputs` numbers.

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
