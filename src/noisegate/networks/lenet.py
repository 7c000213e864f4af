"""LeNet-5, in the form the Logistic-Normal paper's experiments on MNIST use."""

from __future__ import annotations

from torch import nn

from noisegate.networks._layers import BodyAndHead, Head, image_shape, init_glorot_


class LeNet5(BodyAndHead):
    """Convolutions of 6, 16 and 120 filters (5x5, same padding), a dense layer of 84, ReLU throughout.

    A 2x2 max-pool follows each of the first two convolutions. Glorot-uniform weights, zero biases.
    Images of any number of channels, at least 4 x 4.

    References
    ----------
    LeCun et al., Gradient-based learning applied to document recognition, 1998.

    Examples
    --------
    >>> import torch
    >>> LeNet5((1, 28, 28), n_outputs=10)(torch.zeros(1, 1, 28, 28)).shape
    torch.Size([1, 10])
    """

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        channels, height, width = image_shape("lenet5", input_shape, smallest=4)
        self.body = nn.Sequential(
            # Pooling before ReLU gives the same result as after it, and ReLU has a quarter of the
            # values to process.
            nn.Conv2d(channels, 6, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 16, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            nn.Conv2d(16, 120, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(120 * (height // 4) * (width // 4), 84),
            nn.ReLU(inplace=True),
        )
        self.head = Head(84, n_outputs)
        init_glorot_(self)
