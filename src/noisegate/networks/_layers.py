"""Layers and initialisers that several networks share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from noisegate.errors import InputError


class Head(nn.Linear):
    """A network's last layer; it computes in the precision of its weights, even under autocast.

    Objectives compute likelihoods from the outputs, and the 8 significant bits of bfloat16 are too
    few for those.
    """

    def forward(self, x: Tensor) -> Tensor:
        # Do not ask for x.device: under symbolic tracing there is none.
        with torch.autocast("cuda" if torch.is_autocast_enabled("cuda") else "cpu", enabled=False):
            return super().forward(x.to(self.weight.dtype))


class BodyAndHead(nn.Module):
    """A network of a `body`, which computes features, and a `head`, which computes outputs.

    The objective decides how many outputs the head has.
    """

    body: nn.Sequential
    head: Head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def image_shape(network: str, input_shape: tuple[int, ...], smallest: int = 1) -> tuple[int, int, int]:
    """Return `input_shape` as (C, H, W); raise InputError if `network` cannot take such inputs."""
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
    """A convolution with "same" padding and no bias, because a normalisation follows."""
    return nn.Conv2d(n_in, n_out, size, stride=stride, padding=size // 2, bias=False)


class GlobalAverage(nn.Module):
    """Mean over the two image dimensions: (B, C, H, W) to (B, C)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def init_glorot_(module: nn.Module) -> None:
    """Initialise linear layers and convolutions as TensorFlow does: Glorot uniform, zero biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def init_he_(module: nn.Module) -> None:
    """Initialise convolutions He normal by fan-out, and batch norms with scale 1 and shift 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)
