"""How good given masks are: a score for every image, and regions that probably have another class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.noise.base import VOID

Array = npt.NDArray[Any]
#: Of the soft minimum; as in cleanlab.
TEMPERATURE = 0.1
#: Pixels are neighbours of the eight around them.
SQUARE = np.ones((3, 3), bool)


@dataclass(frozen=True)
class Region:
    """Connected pixels of one given class that are probably of another.

    Attributes
    ----------
    given, suggested : int
    pixels : int
    quality : float
        The mean likelihood of the given class.
    confidence : float
        The mean likelihood of the suggested class.
    box : (top, left, bottom, right)
        Rows and columns, the last ones exclusive.
    mask : bool array (bottom - top, right - left)
        Which pixels of the box.

    Examples
    --------
    >>> probs = np.full((2, 8, 8), 0.1)
    >>> probs[1, :, 4:] = 0.9
    >>> probs[0] = 1 - probs[1]
    >>> (region,) = map_regions(probs, np.zeros((8, 8), int), margin=0)
    >>> region.given, region.suggested, region.pixels, region.box
    (0, 1, 32, (0, 4, 8, 8))
    """

    given: int
    suggested: int
    pixels: int
    quality: float
    confidence: float
    box: tuple[int, int, int, int]
    mask: npt.NDArray[np.bool_]

    @property
    def weight(self) -> float:
        """Expected number of wrong pixels: what regions are ordered by."""
        return self.pixels * (1.0 - self.quality)


def pixel_quality(probs: Array, labels: Array) -> npt.NDArray[np.float64]:
    """The likelihood of the given class of every pixel, (H, W); NaN where there is no label.

    Parameters
    ----------
    probs : array (K, H, W)
        Out-of-sample probabilities.
    labels : integer array (H, W)
        0..K-1, and -100 for void.
    """
    p, y = np.asarray(probs), np.asarray(labels)
    if p.ndim != 3 or y.shape != p.shape[1:] or y.dtype.kind not in "iu":
        raise InputError(
            f"expected probabilities (K, H, W) and labels (H, W), got {p.shape} and {y.dtype} of {y.shape}"
        )
    counted = y != VOID
    if counted.any() and not (y[counted].min() >= 0 and y[counted].max() < len(p)):
        raise InputError(f"labels must lie in 0..{len(p) - 1} or be {VOID}, got {y[counted].max()}")
    given = np.take_along_axis(p, np.where(counted, y, 0)[None].astype(np.int64), 0)[0].astype(np.float64)
    return np.where(counted, given, np.nan)


def map_quality(probs: Array, labels: Array, temperature: float = TEMPERATURE) -> float:
    """The quality of one mask in [0, 1]: the soft minimum of the likelihood of its given classes.

        sum_i w_i q_i,    w = softmax((1 - q) / temperature)

    over pixels with a label; 1 where there is none. Low temperatures look at the worst pixels, high ones at the
    mean.

    >>> map_quality(np.array([[[0.9, 0.2]], [[0.1, 0.8]]]), np.array([[0, VOID]]))
    0.9
    """
    if not temperature > 0:
        raise InputError(f"temperature must be positive, got {temperature!r}")
    q = pixel_quality(probs, labels)
    q = q[~np.isnan(q)]
    if not q.size:
        return 1.0
    weights = np.exp((q.min() - q) / temperature)
    return float((weights * q).sum() / weights.sum())


def map_regions(
    probs: Array, labels: Array, *, threshold: float = 0.5, margin: int = 2, smallest: int = 20
) -> list[Region]:
    """Regions that probably have another class, those with most wrong pixels first.

    Parameters
    ----------
    probs : array (K, H, W)
        Out-of-sample probabilities.
    labels : integer array (H, W)
    threshold : float, default=0.5
        Pixels count whose most probable class is another one, and more probable than this.
    margin : int, default=2
        Given segments are eroded by so many pixels first: at their boundaries networks and people always disagree.
    smallest : int, default=20
        Regions of fewer pixels are left out.

    Examples
    --------
    >>> probs = np.zeros((2, 8, 8))
    >>> probs[1, :, 5:] = 0.9
    >>> probs[0] = 1 - probs[1]
    >>> [(region.pixels, region.box) for region in map_regions(probs, np.zeros((8, 8), int))]
    [(24, (0, 5, 8, 8))]
    """
    from scipy import ndimage

    quality, y = pixel_quality(probs, labels), np.asarray(labels)
    said = np.asarray(probs).argmax(0)
    sure = np.asarray(probs).max(0) > threshold
    suspect = sure & (said != y) & (y != VOID) & inner(y, margin)
    found = []
    # One number for a pair of classes: a region is connected pixels of one pair.
    pairs = np.where(y == VOID, -1, y.astype(np.int64) * len(probs) + said)
    for pair in np.unique(pairs[suspect]):
        same = pairs == pair
        numbers, _ = ndimage.label(_grown(_large(suspect & same, smallest), same, margin), structure=SQUARE)
        given, suggested = divmod(int(pair), len(probs))
        for number, place in enumerate(ndimage.find_objects(numbers), 1):
            mask = numbers[place] == number
            box = (place[0].start, place[1].start, place[0].stop, place[1].stop)
            mean = float(quality[place][mask].mean())
            sure_of = float(np.asarray(probs)[suggested][place][mask].mean())
            found.append(Region(given, suggested, int(mask.sum()), mean, sure_of, box, mask))
    return sorted(found, key=lambda region: -region.weight)


def _large(mask: npt.NDArray[np.bool_], smallest: int) -> npt.NDArray[np.bool_]:
    """The connected parts of a mask that have at least `smallest` pixels."""
    from scipy import ndimage

    numbers, count = ndimage.label(mask, structure=SQUARE)
    kept = np.bincount(numbers.ravel(), minlength=count + 1) >= smallest
    kept[0] = False
    return kept[numbers]


def _grown(mask: npt.NDArray[np.bool_], within: npt.NDArray[np.bool_], steps: int) -> npt.NDArray[np.bool_]:
    """A mask and the pixels `within` that are `steps` neighbours or fewer away from it."""
    from scipy import ndimage

    if not steps or not mask.any():
        return mask
    return ndimage.binary_dilation(mask, SQUARE, iterations=steps, mask=within)


def inner(labels: Array, margin: int) -> npt.NDArray[np.bool_]:
    """Pixels with none of another class, or void, within `margin` rows and columns.

    >>> inner(np.array([[0, 0, 0, 1, 1, 1]]), 1)
    array([[ True,  True, False, False,  True,  True]])
    """
    from scipy import ndimage

    size = 2 * margin + 1
    y = np.asarray(labels)
    return ndimage.maximum_filter(y, size, mode="nearest") == ndimage.minimum_filter(y, size, mode="nearest")


def overlay(image: Array, labels: Array, regions: list[Region], colours: Array) -> npt.NDArray[np.uint8]:
    """The image under its given classes, with suspicious regions in the colour of what they probably are.

    Parameters
    ----------
    image : uint8 array (C, H, W)
    labels : integer array (H, W)
    regions : list of Region
        Each is filled with the suggested class and framed in red.
    colours : array (K, 3)

    Returns
    -------
    uint8 array (H, W, 3)

    Examples
    --------
    >>> image, labels = np.zeros((3, 8, 8), np.uint8), np.zeros((8, 8), int)
    >>> probs = np.stack([np.full((8, 8), 0.1), np.full((8, 8), 0.9)])
    >>> regions = map_regions(probs, labels)
    >>> picture = overlay(image, labels, regions, np.array([[0, 0, 0], [0, 255, 0]]))
    >>> picture.shape, picture[0, 0].tolist(), picture[4, 4].tolist()
    ((8, 8, 3), [255, 0, 0], [0, 178, 0])
    """
    picture = np.asarray(image)
    pixels = np.repeat(picture, 3, 0) if len(picture) == 1 else picture
    out = pixels.transpose(1, 2, 0).astype(np.float64)
    palette, y = np.asarray(colours, np.float64), np.asarray(labels)
    out = np.where((y != VOID)[..., None], 0.65 * out + 0.35 * palette[np.where(y == VOID, 0, y)], out)
    for region in regions:
        top, left, bottom, right = region.box
        part = out[top:bottom, left:right]
        part[region.mask] = 0.3 * part[region.mask] + 0.7 * palette[region.suggested]
        part[_rim(region.mask)] = (255, 0, 0)
    return np.clip(out, 0, 255).astype(np.uint8)


def _rim(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    padded = np.pad(mask, 1)
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~inside


def rank_maps(probs: Iterator[Array] | Array, labels: Array, temperature: float = TEMPERATURE) -> Array:
    """`map_quality` of every mask, (N,); probabilities may come one image at a time."""
    return np.array([map_quality(p, y, temperature) for p, y in zip(probs, labels, strict=True)])
