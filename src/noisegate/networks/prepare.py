"""Input preparation: convert raw inputs to standardised numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.errors import InputError

#: Where networks of other libraries put their outputs: transformers, torchvision's segmentation.
OUTPUTS = ("logits", "out")


class Prepared(nn.Module):
    """A network behind its input preparation: maps raw pixels or features to outputs.

    uint8 pixels are divided by 255; images larger than the network's input are cropped to their
    centre; then inputs become (x - mean) / std, per channel or per feature. Mean and std are
    buffers, so they are saved with the weights. A network may return its outputs in a mapping, as
    those of transformers (under "logits") and torchvision (under "out") do.

    Parameters
    ----------
    network : nn.Module
        Maps prepared inputs to outputs.
    mean, std : tensors (C, 1, 1) or (d,)
        Statistics of the training inputs.
    spec : dict
        How the network was built, as plain data: its name (None for a user's own module), its input
        shape, the shape of the training inputs before cropping, the number of outputs, and whether
        it was trained on pixels (uint8 images).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Tensor, std: Tensor, spec: dict[str, Any]) -> None:
        super().__init__()
        self.network = network
        # Kept in float64: features far from zero lose their digits if the mean is subtracted in
        # float32.
        self.register_buffer("mean", mean.double())
        self.register_buffer("std", std.double())
        self.spec = spec

    def forward(self, x: Tensor) -> Tensor:
        wanted = tuple(self.spec["input_shape"])
        # A network whose outputs are maps takes images of any size.
        if x.dim() == 4 and tuple(x.shape[1:]) != wanted and not self.spec.get("maps"):
            x = centre_crop(x, wanted[1:])
        return tensor_of(self.network(self.prepare(x)))

    def prepare(self, x: Tensor) -> Tensor:
        """Convert raw inputs to standardised numbers in the precision of the network.

        A method that mixes inputs must mix these and pass them to `self.network`, because raw
        pixels are integers.
        """
        first = first_parameter(self.network)
        dtype = torch.float32 if first is None else first.dtype
        if x.dtype == torch.uint8:
            x = x.to(dtype) / 255
        elif not x.is_floating_point():
            x = x.double()
        elif x.dtype != torch.float64:
            x = x.to(dtype)
        return ((x - self.mean.to(x.dtype)) / self.std.to(x.dtype)).to(dtype)


def first_parameter(module: nn.Module) -> nn.Parameter | None:
    """`next(module.parameters(), None)`, which takes several times as long as adding two vectors."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for part in module._modules.values():
        found = None if part is None else first_parameter(part)
        if found is not None:
            return found
    return None


def tensor_of(outputs: Any) -> Tensor:
    """The outputs of a network: a tensor, or what a mapping holds under "logits" or "out".

    >>> tensor_of({"out": torch.zeros(2, 3), "aux": torch.ones(2, 3)}).sum()
    tensor(0.)
    """
    if isinstance(outputs, Tensor):
        return outputs
    found = outputs if isinstance(outputs, Mapping) else {}
    for name in OUTPUTS:
        if isinstance(found.get(name), Tensor):
            return found[name]
    raise InputError(
        f"the network returned {type(outputs).__name__}; expected a tensor (B, n_outputs, ...), or a "
        "mapping that holds one under 'logits' or 'out'"
    )


def centre_crop(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Crop images `(B, C, H, W)` to their central `size`; smaller sides stay as they are."""
    top, left = ((have - want) // 2 for have, want in zip(images.shape[2:], size, strict=True))
    return images[:, :, max(0, top) :, max(0, left) :][:, :, : size[0], : size[1]]
