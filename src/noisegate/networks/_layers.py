"""Layers and initialisers that several networks share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noisegate.errors import InputError


class Head(nn.Linear):
    """A network's last layer, in the precision of its weights also under autocast.

    Objectives compute likelihoods from these outputs, for which bfloat16's eight bits are too few.
    """

    def forward(self, x: Tensor) -> Tensor:
        # Not x.device.type: a symbolic trace has no device.
        with torch.autocast("cuda" if torch.is_autocast_enabled("cuda") else "cpu", enabled=False):
            return super().forward(x.to(self.weight.dtype))


class BodyAndHead(nn.Module):
    """A network of a `body` for features and a `head` for outputs.

    The objective decides the head's width.
    """

    body: nn.Sequential
    head: Head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def image_shape(network: str, input_shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """`input_shape` as (C, H, W), or an InputError that says what `network` takes."""
    if len(input_shape) != 3:
        got = f"vectors of {input_shape[0]} numbers" if len(input_shape) == 1 else f"of shape {input_shape}"
        raise InputError(f"{network} takes images (C, H, W), the inputs are {got}; use the network 'mlp'")
    channels, height, width = input_shape
    if min(height, width) < smallest:
        raise InputError(
            f"{network} takes images of at least {smallest} x {smallest}, got {height} x {width}"
        )
    return channels, height, width


def conv(n_in: int, n_out: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias (a normalisation follows) that keeps the size up to the stride."""
    return nn.Conv2d(n_in, n_out, size, stride=stride, padding=size // 2, bias=False)


class GlobalAverage(nn.Module):
    """Mean over the two image dimensions: (B, C, H, W) to (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def init_glorot_(module: nn.Module) -> None:
    """Glorot-uniform weights and zero biases in every linear layer and convolution, TensorFlow's default."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def init_he_(module: nn.Module) -> None:
    """He-normal weights by fan-out in every convolution; batch norms at scale 1 and shift 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
