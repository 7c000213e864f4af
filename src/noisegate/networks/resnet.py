"""Residual networks: for ImageNet, for CIFAR, and with pre-activation."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.networks._layers import BodyAndHead, GlobalAverage, Head, conv, image_shape, init_he_

Stem = Literal["cifar", "imagenet"]

STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}


class ResNet(BodyAndHead):
    """ResNet-18, -34 or -50 with projection shortcuts.

    Bottlenecks have their stride in the 3x3 convolution, not in the first 1x1.

    Parameters
    ----------
    input_shape : (C, H, W)
    n_outputs : int
    depth : 18, 34 or 50
    stem : "cifar" or "imagenet", optional
        cifar: a 3x3 convolution of stride 1 and no pooling; imagenet: 7x7 of stride 2 and a
        max-pool of stride 2. By default cifar where the smaller side has fewer than 64 pixels.

    References
    ----------
    He et al., Deep residual learning for image recognition, CVPR 2016.

    Examples
    --------
    >>> import torch
    >>> ResNet((3, 32, 32), n_outputs=10, depth=18)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """

    def __init__(
        self, input_shape: tuple[int, ...], n_outputs: int, depth: int = 18, stem: Stem | None = None
    ) -> None:
        super().__init__()
        if depth not in STAGES:
            raise InputError(f"depth must be one of {sorted(STAGES)}, got {depth}")
        channels, height, width = image_shape(f"resnet{depth}", input_shape)
        if stem is None:
            stem = "cifar" if min(height, width) < 64 else "imagenet"
        if stem not in ("cifar", "imagenet"):
            raise InputError(f"stem must be 'cifar' or 'imagenet', got {stem!r}")
        small = stem == "cifar"
        layers = [
            conv(channels, 64, 3 if small else 7, 1 if small else 2),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
        ]
        if not small:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        block: type[_Basic] | type[_Bottleneck] = _Bottleneck if depth >= 50 else _Basic
        n_in = 64
        for stage, blocks in enumerate(STAGES[depth]):
            for i in range(blocks):
                layers.append(block(n_in, 64 << stage, 2 if stage and not i else 1))
                n_in = (64 << stage) * block.expansion
        self.body = nn.Sequential(*layers, GlobalAverage())
        self.head = Head(n_in, n_outputs)
        init_he_(self)


class _Residual(nn.Module):
    """relu(branch(x) + shortcut(x)); the shortcut is a projection where the shape changes."""

    expansion = 1

    def __init__(self, branch: nn.Sequential, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.shortcut = nn.Sequential(conv(n_in, n_out, 1, stride), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


class _Basic(_Residual):
    """Two 3x3 convolutions."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__(_basic_branch(n_in, width, stride), n_in, width, stride)


class _Bottleneck(_Residual):
    """1x1 to a quarter of the width, 3x3 with the stride, 1x1 back."""

    expansion = 4

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        n_out = width * self.expansion
        branch = nn.Sequential(
            conv(n_in, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, n_out, 1),
            nn.BatchNorm2d(n_out),
        )
        super().__init__(branch, n_in, n_out, stride)


def _basic_branch(n_in: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        conv(n_in, width, 3, stride),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        conv(width, width, 3),
        nn.BatchNorm2d(width),
    )


class CifarResNet(BodyAndHead):
    """The ResNet for CIFAR: depth 6n + 2, three stages of 16, 32 and 64 filters, n basic blocks each.

    Shortcuts have no parameters (option A of the paper): every second pixel, zeros for the new
    channels.

    References
    ----------
    He et al., Deep residual learning for image recognition, CVPR 2016, section 4.2.

    Examples
    --------
    >>> import torch
    >>> CifarResNet((3, 32, 32), n_outputs=10, depth=8)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int, depth: int = 32) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise InputError(f"the depth of a CIFAR ResNet must be 6n + 2 (20, 32, 44, 56, 110), got {depth}")
        channels, _, _ = image_shape(f"resnet{depth}", input_shape)
        layers: list[nn.Module] = [conv(channels, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
        n_in = 16
        for width in (16, 32, 64):
            for _ in range((depth - 2) // 6):
                layers.append(_PlainShortcut(n_in, width))
                n_in = width
        self.body = nn.Sequential(*layers, GlobalAverage())
        self.head = Head(64, n_outputs)
        init_he_(self)


class _PlainShortcut(nn.Module):
    """A basic block whose shortcut drops pixels and adds channels of zeros."""

    def __init__(self, n_in: int, width: int) -> None:
        super().__init__()
        self.stride = 1 if n_in == width else 2
        self.pad = (width - n_in) // 2
        self.branch = _basic_branch(n_in, width, self.stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.stride != 1:
            shortcut = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(self.branch(x) + shortcut)


class ResNetV2(BodyAndHead):
    """ResNet-v2-50: bottlenecks with batch norm and ReLU before each convolution, and the ImageNet stem.

    References
    ----------
    He et al., Identity mappings in deep residual networks, ECCV 2016.

    Examples
    --------
    >>> import torch
    >>> ResNetV2((3, 64, 64), n_outputs=10)(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 10])
    """

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        channels, _, _ = image_shape("resnet-v2-50", input_shape)
        layers: list[nn.Module] = [conv(channels, 64, 7, 2), nn.MaxPool2d(3, stride=2, padding=1)]
        n_in = 64
        for stage, blocks in enumerate(STAGES[50]):
            for i in range(blocks):
                layers.append(_PreBottleneck(n_in, 64 << stage, 2 if stage and not i else 1))
                n_in = 256 << stage
        layers += [nn.BatchNorm2d(n_in), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers, GlobalAverage())
        self.head = Head(n_in, n_outputs)
        init_he_(self)


class _PreBottleneck(nn.Module):
    """Pre-activation bottleneck; where the shape changes the shortcut projects the activation."""

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        n_out = 4 * width
        self.activation = nn.Sequential(nn.BatchNorm2d(n_in), nn.ReLU(inplace=True))
        self.branch = nn.Sequential(
            conv(n_in, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            conv(width, n_out, 1),
        )
        self.project = conv(n_in, n_out, 1, stride) if stride != 1 or n_in != n_out else None

    def forward(self, x: Tensor) -> Tensor:
        activated = self.activation(x)
        shortcut = x if self.project is None else self.project(activated)
        return self.branch(activated) + shortcut
