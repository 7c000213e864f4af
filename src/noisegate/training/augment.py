"""Random scaling, cropping and flipping of images and masks, on their device, with fixed shapes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from noisegate.noise.base import VOID

#: Grey, the value of pixels beyond the edge of a scaled image.
BEYOND = 127 / 255


def random_crop(images: Tensor, padding: int, size: tuple[int, int]) -> Tensor:
    """Pad images `(B, C, H, W)` with zeros and cut a random window of `size` out of each."""
    return cut(images, padding, *windows(images, padding, size))


def windows(images: Tensor, padding: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Draw windows: pixel rows `(B, h)` and columns `(B, w)` of the padded images."""
    b, _, h, w = images.shape
    rows = _windows(b, h + 2 * padding, size[0], images.device)
    return rows, _windows(b, w + 2 * padding, size[1], images.device)


def cut(images: Tensor, padding: int, rows: Tensor, columns: Tensor, fill: float = 0) -> Tensor:
    """Cut windows out of images `(B, C, H, W)` padded with `fill` (default 0).

    Two gathers, one by rows and one by columns, need neither a loop over images nor a shape that
    depends on data.
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
    """Draw which images to mirror, `(B, 1, 1, 1)`, with probability one half."""
    return torch.rand(images.shape[0], 1, 1, 1, device=images.device) < 0.5


def flip(images: Tensor, which: Tensor) -> Tensor:
    """Mirror the images `(B, C, H, W)` for which `which` is true, left to right."""
    return torch.where(which, images.flip(3), images)


def random_scale_and_crop(
    images: Tensor, masks: Tensor, scales: tuple[float, ...], size: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Scale each image by one of `scales`, and cut a random window of `size`.

    Parameters
    ----------
    images : tensor (B, C, H, W)
        uint8 pixels are returned as numbers in [0, 1]. Values between pixels are interpolated,
        those beyond the edge are grey.
    masks : integer tensor (B, H, W)
        Each pixel gets the nearest label, and `VOID` beyond the edge.
    scales : tuple of float
        Factors to draw from.
    size : (int, int)
        Height and width of the window.
    """
    device = images.device
    # torch.tensor(scales) would copy from the host, which a CUDA graph cannot capture.
    known = torch.stack([torch.full((), each, device=device) for each in scales])
    scale = known[torch.randint(0, len(scales), (len(images), 1), device=device)]
    moved = torch.rand(len(images), 2, device=device)
    pixels = images.float() / 255 if images.dtype == torch.uint8 else images
    labels = masks.unsqueeze(1)
    inside = torch.ones((), dtype=torch.bool, device=device)
    for axis, (length, wanted) in enumerate(zip(images.shape[2:], size, strict=True)):
        # A window lies anywhere within a larger image; a smaller image lies anywhere within the
        # window.
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
    """Reshape `(B, n)` to `(B, 1, n, 1)` (axis 0: rows) or `(B, 1, 1, n)` (axis 1: columns)."""
    return values[:, None, :, None] if axis == 0 else values[:, None, None, :]


def _gathered(images: Tensor, index: Tensor, axis: int) -> Tensor:
    """Gather the rows (axis 0) or columns (axis 1) `index` (B, n) of images `(B, C, H, W)`."""
    shape = list(images.shape)
    shape[2 + axis] = index.shape[1]
    return images.gather(2 + axis, _along(index, axis).expand(shape))
