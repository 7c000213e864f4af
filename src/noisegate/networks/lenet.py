"""LeNet-5, in the form the Logistic-Normal paper's experiments on MNIST use."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisegate.networks._layers import BodyAndHead, Head, image_shape, init_glorot_

#: What tensor cores take: channels, and rows and columns of matrices, in multiples of this.
MULTIPLE = 8


class LeNet5(BodyAndHead):
    """Convolutions of 6, 16 and 120 filters (5x5, same padding), a dense layer of 84, ReLU throughout.

    A 2x2 max-pool follows each of the first two convolutions. Glorot-uniform weights, zero biases.
    Images of any number of channels, at least 4 x 4.

    References
    ----------
    LeCun et al., Gradient-based learning applied to document recognition, 1998.
    """

    def __init__(self, input_shape: tuple[int, ...], n_outputs: int) -> None:
        super().__init__()
        channels, height, width = image_shape("lenet5", input_shape, smallest=4)
        self.body = nn.Sequential(
            # The larger of four, then ReLU: the same as the other way round, on a quarter of the values.
            SlimConv2d(channels, 6, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(inplace=True),
            SlimConv2d(6, 16, 5, padding=2),
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


class SlimConv2d(nn.Conv2d):
    """A convolution of one or of a few channels, of stride 1.

    cuDNN has no tensor-core kernels for so few channels. Where the network is compiled for a GPU it is therefore
    computed in a form that has some. Of some twenty forms tried on bare steps this one was the fastest, at 0.83
    times the plain one in tf32 and 0.65 times in bf16, in single measurements, but whole runs in tf32, 16 side
    by side, gained no more than a twentieth (`benchmarks/results/gpu.md`). Uncompiled nothing is gained.
    """

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and x.is_cuda:
            if self.in_channels == 1:
                return self.of_patches(x)
            if MULTIPLE // 2 < self.in_channels < MULTIPLE:
                return self.filled_up(x)
        return super().forward(x)

    def of_patches(self, x: Tensor) -> Tensor:
        """One matrix product: a row for each place in `x` (B, C, H, W) with all that the filter sees there."""
        x = F.pad(x, self._reversed_padding_repeated_twice)
        seen = x.unfold(2, self.kernel_size[0], 1).unfold(3, self.kernel_size[1], 1).permute(0, 2, 3, 1, 4, 5)
        places, rows = seen.shape[:3], seen.flatten(3).flatten(0, 2)
        weight, bias = self._with_zeros(self.weight.flatten(1))
        y = F.linear(F.pad(rows, (0, -rows.shape[1] % MULTIPLE)), weight, bias)
        return y.unflatten(0, places).movedim(3, 1)[:, : self.out_channels]

    def filled_up(self, x: Tensor) -> Tensor:
        """The same convolution with channels of zeros."""
        weight, bias = self._with_zeros(self.weight)
        y = F.conv2d(F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % MULTIPLE)), weight, bias, padding=self.padding)
        return y[:, : self.out_channels]

    def _with_zeros(self, weight: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weight (out, in, ...) and bias with both sizes brought to the multiple."""
        more_out, more_in = (-size % MULTIPLE for size in weight.shape[:2])
        weight = F.pad(weight, [0, 0] * (weight.dim() - 2) + [0, more_in, 0, more_out])
        return weight, None if self.bias is None else F.pad(self.bias, (0, more_out))
