"""The nine-layer convolutional network of the softmax-temperature paper."""

from __future__ import annotations

from torch import nn

from noisegate.networks._layers import BodyAndHead, GlobalAverage, Head, image_shape, init_glorot_


class CNN9(BodyAndHead):
    """Nine 3x3 convolutions with group norm and leaky ReLU, in three stages, then a global average.

    Filters 128, 128, 128, pool, 256, 256, 256, pool, 512, 256, 128. Group norm has 2 groups, leaky
    ReLU the slope 0.01; dropout of 0.25 follows each 2x2 max-pool. Same padding and Glorot-uniform
    weights are our choice: the paper gives neither. The convolutions keep their bias, since a group
    norm over half the channels does not cancel it. Images of any number of channels, at least 4 x
    4.

    References
    ----------
    Collier et al., Analysis of softmax approximation for deep classifiers under input-dependent
    label noise, 2020, table 7; after Han et al., Co-teaching, NeurIPS 2018.

    Examples
    --------
    >>> import torch
    >>> CNN9((3, 32, 32), n_outputs=10)(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 10])
    """

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        channels, _, _ = image_shape("cnn9", input_shape, smallest=4)
        self.body = nn.Sequential(
            *_stage(channels, 128, 128, 128),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            *_stage(128, 256, 256, 256),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
            *_stage(256, 512, 256, 128),
            GlobalAverage(),
        )
        self.head = Head(128, n_outputs)
        init_glorot_(self)


def _stage(n_in: int, *widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in widths:
        layers += [
            nn.Conv2d(n_in, width, 3, padding=1),
            nn.GroupNorm(2, width),
            nn.LeakyReLU(0.01, inplace=True),
        ]
        n_in = width
    return layers
