"""The Xception of DeepLabv3+: deeper, with strided convolutions in place of pooling."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from noisegate.errors import InputError

#: Widths of a block's three convolutions, stride, and what its shortcut is.
_ENTRY = (((128, 128, 128), 2, "conv"), ((256, 256, 256), 2, "conv"), ((728, 728, 728), 2, "conv"))
_MIDDLE = (((728, 728, 728), 1, "sum"),) * 16
_EXIT = (((728, 1024, 1024), 2, "conv"), ((1536, 1536, 2048), 1, "none"))
#: Of TensorFlow's slim, whose weights these are.
EPS = 1e-3


class Xception65(nn.Module):
    """The modified aligned Xception-65 as an encoder: two maps of features for a decoder.

    Parameters
    ----------
    channels : int
        Of the images.
    output_stride : 8, 16 or 32
        Strides that would go beyond it become dilations of the convolutions after them.

    Attributes
    ----------
    channels : (int, int)
        Channels of the two maps that it returns: at stride 4, before the second block's stride, and
        the last one.

    Notes
    -----
    Names of parameters are those of timm's `xception65`, so that its state dict fits. Without
    timm's classifier that has 37,867,312 parameters (published: 39.9 million with it), and so has
    this one.

    References
    ----------
    Chen et al. Encoder-decoder with atrous separable convolution for semantic image segmentation.
    ECCV 2018.
    """

    channels = (256, 2048)

    def __init__(self, channels: int = 3, output_stride: int = 16) -> None:
        super().__init__()
        check_stride(output_stride, (8, 16, 32))
        self.stem = nn.Sequential(_ConvNorm(channels, 32, 3, 2), _ConvNorm(32, 64, 3))
        blocks, n_in, stride, rate = [], 64, 2, 1
        for widths, step, shortcut in (*_ENTRY, *_MIDDLE, *_EXIT):
            # The last block has an activation behind every convolution instead of before.
            inside = shortcut == "none"
            dilated = stride * step > output_stride
            blocks.append(_Block(n_in, widths, 1 if dilated else step, rate, shortcut, inside))
            # The stride is that of a block's last convolution: a dilation in its place begins after
            # it.
            rate, stride = (rate * step, stride) if dilated else (rate, stride * step)
            n_in = widths[-1]
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        low = x
        for number, block in enumerate(self.blocks):
            if number == 1:
                low = block.before_stride(x)  # type: ignore[operator]
            x = block(x)
        return low, x


def check_stride(output_stride: int, known: tuple[int, ...]) -> None:
    """Raise InputError for an output stride that the encoder does not have."""
    if output_stride not in known:
        raise InputError(f"output_stride must be one of {', '.join(map(str, known))}, got {output_stride!r}")


class _ConvNorm(nn.Module):
    """Convolution, normalisation, ReLU."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, act: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, size, stride, size // 2, bias=False)
        self.bn = nn.BatchNorm2d(n_out, eps=EPS)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn(self.conv(x))
        return F.relu(x) if self.act else x


class Separable(nn.Module):
    """A depthwise 3 x 3 and a pointwise convolution, each normalised.

    Parameters
    ----------
    inside : bool
        ReLU behind each of the two (else behind none: the caller puts it before).
    """

    def __init__(self, n_in: int, n_out: int, stride: int = 1, rate: int = 1, inside: bool = True) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(n_in, n_in, 3, stride, rate, rate, groups=n_in, bias=False)
        self.bn_dw = nn.BatchNorm2d(n_in, eps=EPS)
        self.conv_pw = nn.Conv2d(n_in, n_out, 1, bias=False)
        self.bn_pw = nn.BatchNorm2d(n_out, eps=EPS)
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn_dw(self.conv_dw(x))
        x = self.bn_pw(self.conv_pw(F.relu(x) if self.inside else x))
        return F.relu(x) if self.inside else x


class _Block(nn.Module):
    """Three separable convolutions, the last one with the stride, and a shortcut."""

    def __init__(
        self,
        n_in: int,
        widths: tuple[int, int, int],
        stride: int,
        rate: int,
        shortcut: str,
        inside: bool,
    ) -> None:
        super().__init__()
        self.stack = nn.ModuleDict()
        width = n_in
        for number, out in enumerate(widths, 1):
            self.stack[f"conv{number}"] = Separable(width, out, stride if number == 3 else 1, rate, inside)
            width = out
        self.inside, self.kind = inside, shortcut
        if shortcut == "conv":
            self.shortcut = _ConvNorm(n_in, width, 1, stride, act=False)

    def before_stride(self, x: Tensor) -> Tensor:
        """The features after the second convolution: what a decoder takes from the second block."""
        for name in ("conv1", "conv2"):
            x = self.stack[name](x if self.inside else F.relu(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        out = self.before_stride(x)
        out = self.stack["conv3"](out if self.inside else F.relu(out))
        if self.kind == "none":
            return out
        return out + (self.shortcut(x) if self.kind == "conv" else x)
