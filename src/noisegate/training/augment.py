"""Random scales, crops and flips of a batch, of images and masks alike; on its device, with fixed shapes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from noisegate.noise.base import VOID

#: What lies beyond the edge of a scaled image: grey.
BEYOND = 127 / 255


def random_crop(images: Tensor, padding: int, size: tuple[int, int]) -> Tensor:
    """Pad `(B, C, H, W)` by zeros and cut a random window of `size` out of each image."""
    return cut(images, padding, *windows(images, padding, size))


def windows(images: Tensor, padding: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Rows and columns of a random window of each image, `(B, h)` and `(B, w)`, counted from the padding."""
    b, _, h, w = images.shape
    rows = _windows(b, h + 2 * padding, size[0], images.device)
    return rows, _windows(b, w + 2 * padding, size[1], images.device)


def cut(images: Tensor, padding: int, rows: Tensor, columns: Tensor, fill: float = 0) -> Tensor:
    """The windows of `(B, C, H, W)` padded by `fill`.

    One gather with an index per row and one per column: no loop over images and no shape that depends on data.
    """
    b, c = images.shape[:2]
    padded = F.pad(images, [padding] * 4, value=fill)
    picked = padded.gather(2, rows.view(b, 1, -1, 1).expand(b, c, rows.shape[1], padded.shape[3]))
    return picked.gather(3, columns.view(b, 1, 1, -1).expand(b, c, rows.shape[1], columns.shape[1]))


def _windows(count: int, length: int, size: int, device: torch.device) -> Tensor:
    start = torch.randint(0, length - size + 1, (count, 1), device=device)
    return start + torch.arange(size, device=device)


def random_flip(images: Tensor) -> Tensor:
    """Mirror each image of `(B, C, H, W)` left to right with probability one half."""
    return flip(images, mirrored(images))


def mirrored(images: Tensor) -> Tensor:
    """Which images to mirror, `(B, 1, 1, 1)`."""
    return torch.rand(images.shape[0], 1, 1, 1, device=images.device) < 0.5


def flip(images: Tensor, which: Tensor) -> Tensor:
    """Mirror some of `(B, C, H, W)` left to right."""
    return torch.where(which, images.flip(3), images)


def random_scale_and_crop(
    images: Tensor, masks: Tensor, scales: tuple[float, ...], size: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Scale each image by one of `scales`, and cut a random window of `size`.

    Parameters
    ----------
    images : tensor (B, C, H, W)
        Bytes come out as numbers in [0, 1]; between pixels they are interpolated, beyond the edge they are grey.
    masks : integer tensor (B, H, W)
        The nearest label; beyond the edge `VOID`.
    """
    device = images.device
    # Not torch.tensor(scales): a copy from the host cannot be captured.
    known = torch.stack([torch.full((), each, device=device) for each in scales])
    scale = known[torch.randint(0, len(scales), (len(images), 1), device=device)]
    moved = torch.rand(len(images), 2, device=device)
    pixels = images.float() / 255 if images.dtype == torch.uint8 else images
    labels = masks.unsqueeze(1)
    inside = torch.ones((), dtype=torch.bool, device=device)
    for axis, (length, wanted) in enumerate(zip(images.shape[2:], size, strict=True)):
        # The window lies anywhere in a larger image, a smaller image anywhere in the window.
        start = (moved[:, axis : axis + 1] * (scale * length - wanted)).round()
        places = (torch.arange(wanted, device=device) + start + 0.5) / scale - 0.5
        within = (places > -0.5) & (places < length - 0.5)
        inside = inside & _along(within, axis)
        low = places.floor().clamp(0, length - 1)
        share = (places - low).clamp(0, 1)
        low_number = low.long()
        below = _gathered(pixels, low_number, axis)
        above = _gathered(pixels, (low_number + 1).clamp_max(length - 1), axis)
        pixels = torch.lerp(below, above, _along(share, axis).to(below.dtype))
        labels = _gathered(labels, places.round().clamp(0, length - 1).long(), axis)
    pixels = torch.where(inside, pixels, torch.full_like(pixels, BEYOND))
    return pixels, torch.where(inside, labels, torch.full_like(labels, VOID)).squeeze(1)


def _along(values: Tensor, axis: int) -> Tensor:
    """`(B, n)` as `(B, 1, n, 1)` for rows or `(B, 1, 1, n)` for columns."""
    return values[:, None, :, None] if axis == 0 else values[:, None, None, :]


def _gathered(images: Tensor, index: Tensor, axis: int) -> Tensor:
    """The rows or columns `index` (B, n) of each of `(B, C, H, W)`."""
    shape = list(images.shape)
    shape[2 + axis] = index.shape[1]
    return images.gather(2 + axis, _along(index, axis).expand(shape))
