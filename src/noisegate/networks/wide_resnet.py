"""Wide residual networks."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.networks._layers import BodyAndHead, GlobalAverage, Head, conv, image_shape, init_he_


class WideResNet(BodyAndHead):
    """WRN-D-K: depth D = 6n + 4, three stages of 16K, 32K and 64K filters, n pre-activation blocks each.

    References
    ----------
    Zagoruyko and Komodakis, Wide residual networks, BMVC 2016.

    Examples
    --------
    >>> import torch
    >>> WideResNet((3, 32, 32), n_outputs=10, depth=10, widen=1)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int, depth: int = 28, widen: int = 2) -> None:
        super().__init__()
        if not 10 <= depth <= 1000 or (depth - 4) % 6:
            raise InputError(
                f"the depth of a wide ResNet must be 6n + 4 (10, 16, 22, 28, 40) and below 1000, got {depth}"
            )
        if widen < 1:
            raise InputError(f"the width factor of a wide ResNet must be at least 1, got {widen}")
        channels, _, _ = image_shape(f"wrn-{depth}-{widen}", input_shape)
        layers: list[nn.Module] = [conv(channels, 16, 3)]
        n_in = 16
        for stage in range(3):
            width = (16 << stage) * widen
            for i in range((depth - 4) // 6):
                layers.append(_Block(n_in, width, 2 if stage and not i else 1))
                n_in = width
        layers += [nn.BatchNorm2d(n_in), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers, GlobalAverage())
        self.head = Head(n_in, n_outputs)
        init_he_(self)


class _Block(nn.Module):
    """Two 3x3 convolutions, each after batch norm and ReLU.

    Where the shape changes the shortcut is a 1x1 convolution of the activation, else it is the
    input itself.
    """

    def __init__(self, n_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(n_in)
        self.conv1 = conv(n_in, width, 3, stride)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.project = conv(n_in, width, 1, stride) if stride != 1 or n_in != width else None

    def forward(self, x: Tensor) -> Tensor:
        activated = F.relu(self.norm1(x))
        shortcut = x if self.project is None else self.project(activated)
        return self.conv2(F.relu(self.norm2(self.conv1(activated)))) + shortcut
