"""DeepLabv3+: an encoder, pyramid pooling of its last features, a decoder at stride 4.

Maps as output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noisegate.networks._layers import image_shape, init_he_
from noisegate.networks.resnet import STAGES, ResNet
from noisegate.networks.xception import EPS, Separable, Xception65, check_stride
from noisegate.objectives.upsampled import upsample

#: Dilations of the pyramid pooling by output stride, as in DeepLab's code; of 32 half those of 16.
RATES = {8: (12, 24, 36), 16: (6, 12, 18), 32: (3, 6, 9)}
ENCODERS = ("resnet18", "resnet34", "resnet50", "xception65")
LOW_LEVEL = 48
DROPOUT = 0.1


class DeepLab(nn.Module):
    """DeepLabv3+: outputs `(B, n_outputs, h, w)`, at a quarter of the height and width of the images.

    Parameters
    ----------
    input_shape : (C, H, W)
        At least 16 x 16. Images of other sizes can be predicted too: the network is convolutional.
    n_outputs : int
    encoder : {"resnet18", "resnet34", "resnet50", "xception65"}
    output_stride : 8, 16 or 32
        Of the encoder's last features; 32 with a ResNet only.

    Notes
    -----
    The published network has the Xception and 256 channels in pyramid and decoder, whose 3 x 3
    convolutions are separable. With resnet18 and resnet34 it is the small one, with 128.
    Normalisations keep torch's momentum, 0.1, where DeepLab's code has 0.0003 for much longer
    training.

    References
    ----------
    Chen, Zhu, Papandreou, Schroff, Adam. Encoder-decoder with atrous separable convolution for
    semantic image segmentation. ECCV 2018.

    Examples
    --------
    >>> network = DeepLab((3, 64, 96), 5, encoder="resnet18").eval()
    >>> network(torch.zeros(1, 3, 64, 96)).shape
    torch.Size([1, 5, 16, 24])
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        n_outputs: int,
        encoder: str = "xception65",
        output_stride: int = 16,
    ) -> None:
        super().__init__()
        channels, _, _ = image_shape("deeplab", input_shape, smallest=16)
        width = 128 if encoder in ("resnet18", "resnet34") else 256
        self.encoder: Xception65 | ResNetEncoder
        if encoder == "xception65":
            self.encoder = Xception65(channels, output_stride)
        else:
            self.encoder = ResNetEncoder(int(encoder.removeprefix("resnet")), channels, output_stride)
        low, high = self.encoder.channels
        self.pyramid = Pyramid(high, width, RATES[output_stride])
        self.low_level = _pointwise(low, LOW_LEVEL)
        self.decoder = nn.Sequential(Separable(LOW_LEVEL + width, width), Separable(width, width))
        self.head = MapHead(width, n_outputs)
        init_he_(self)
        nn.init.normal_(self.head.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        low, high = self.encoder(x)
        pooled = upsample(self.pyramid(high), (low.shape[2], low.shape[3]))
        return self.head(self.decoder(torch.cat([pooled, self.low_level(low)], 1)))


class MapHead(nn.Conv2d):
    """A 1 x 1 convolution as last layer; like `Head` it ignores autocast."""

    def __init__(self, n_in: int, n_outputs: int) -> None:
        super().__init__(n_in, n_outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cuda" if torch.is_autocast_enabled("cuda") else "cpu", enabled=False):
            return super().forward(x.to(self.weight.dtype))


def _pointwise(n_in: int, n_out: int) -> nn.Sequential:
    norm = nn.BatchNorm2d(n_out, eps=EPS)
    return nn.Sequential(nn.Conv2d(n_in, n_out, 1, bias=False), norm, nn.ReLU(inplace=True))


class Pyramid(nn.Module):
    """Atrous spatial pyramid pooling: 1 x 1, three dilated separable convolutions, image mean."""

    def __init__(self, n_in: int, width: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.plain = _pointwise(n_in, width)
        self.dilated = nn.ModuleList([Separable(n_in, width, rate=rate) for rate in rates])
        self.image = _pointwise(n_in, width)
        self.project = _pointwise((2 + len(rates)) * width, width)

    def forward(self, x: Tensor) -> Tensor:
        image = self.image(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[2:])
        parts = [image, self.plain(x), *(each(x) for each in self.dilated)]
        return F.dropout(self.project(torch.cat(parts, 1)), DROPOUT, self.training)


class ResNetEncoder(nn.Module):
    """The body of a ResNet as an encoder: its features at stride 4, and the last ones.

    Strides beyond `output_stride` become dilations of the convolutions after them.
    """

    body: nn.Sequential

    def __init__(self, depth: int, channels: int = 3, output_stride: int = 16) -> None:
        super().__init__()
        check_stride(output_stride, (8, 16, 32))
        network = ResNet((channels, 224, 224), 1, depth, "imagenet")
        self.body = nn.Sequential(*list(network.body)[:-1])
        first = next(i for i, layer in enumerate(self.body) if hasattr(layer, "branch"))
        self.low_end = first + STAGES[depth][0]
        expansion = 4 if depth >= 50 else 1
        self.channels = (64 * expansion, 512 * expansion)
        self._dilate(STAGES[depth], output_stride)

    def _dilate(self, stages: tuple[int, ...], output_stride: int) -> None:
        """Replace the strides of stages beyond `output_stride` by dilations of what follows."""
        stride, rate, place = 4, 1, self.low_end
        for count in stages[1:]:
            undone = stride == output_stride
            for block in list(self.body)[place : place + count]:
                for layer in (layer for layer in block.modules() if isinstance(layer, nn.Conv2d)):
                    # The convolution that had the stride still sees its own neighbours.
                    strided, after = layer.stride == (2, 2), rate * 2 if undone else rate
                    if undone:
                        layer.stride = (1, 1)
                    if layer.kernel_size == (3, 3):
                        dilation = rate if strided else after
                        layer.dilation = layer.padding = (dilation, dilation)
            place += count
            stride, rate = (stride, rate * 2) if undone else (stride * 2, rate)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low = self.body[: self.low_end](x)
        return low, self.body[self.low_end :](low)
