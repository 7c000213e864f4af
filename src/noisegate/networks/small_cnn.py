"""A small convolutional network, for processors without a GPU."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from noisegate.networks._layers import BodyAndHead, Head, image_shape

#: Larger images are averaged down to this side first.
SIDE = 32


class SmallCNN(BodyAndHead):
    """Three 3x3 convolutions of 32, 64 and 128 filters with batch norm, on at most 32 x 32 pixels.

    A 2x2 max-pool follows each of the first two, the mean over the image the last. Larger images
    are averaged down to 32 pixels a side first, so that an image costs 20 million operations
    forward at any size.

    Shapes
    ------
    (B, C, H, W) -> (B, n_outputs)

    >>> import torch
    >>> SmallCNN((3, 48, 64), 10)(torch.zeros(2, 3, 48, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        channels, height, width = image_shape("small-cnn", input_shape, smallest=4)
        self.size = (min(height, SIDE), min(width, SIDE))
        self.shrinks = self.size != (height, width)
        layers: list[nn.Module] = []
        for n_in, n_out in ((channels, 32), (32, 64), (64, 128)):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out)]
            layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        layers[-1] = nn.AdaptiveAvgPool2d(1)
        self.body = nn.Sequential(*layers, nn.Flatten())
        self.head = Head(128, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.adaptive_avg_pool2d(x, self.size) if self.shrinks else x)
