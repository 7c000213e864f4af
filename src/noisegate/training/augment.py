"""Random crops and flips of a batch, on its device and with fixed shapes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def random_crop(images: Tensor, padding: int, size: tuple[int, int]) -> Tensor:
    """Pad `(B, C, H, W)` by zeros and cut a random window of `size` out of each image.

    One gather with an index per row and one per column: no loop over images and no shape that depends on data.
    """
    b, c, h, w = images.shape
    padded = F.pad(images, [padding] * 4)
    rows = _windows(b, h + 2 * padding, size[0], images.device)
    columns = _windows(b, w + 2 * padding, size[1], images.device)
    picked = padded.gather(2, rows.view(b, 1, -1, 1).expand(b, c, size[0], padded.shape[3]))
    return picked.gather(3, columns.view(b, 1, 1, -1).expand(b, c, size[0], size[1]))


def _windows(count: int, length: int, size: int, device: torch.device) -> Tensor:
    start = torch.randint(0, length - size + 1, (count, 1), device=device)
    return start + torch.arange(size, device=device)


def random_flip(images: Tensor) -> Tensor:
    """Mirror each image of `(B, C, H, W)` left to right with probability one half."""
    mirrored = torch.rand(images.shape[0], 1, 1, 1, device=images.device) < 0.5
    return torch.where(mirrored, images.flip(3), images)
