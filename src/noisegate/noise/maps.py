"""Label noise on masks: at boundaries, in whole segments, in random patches."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from noisegate.errors import InputError
from noisegate.noise.base import VOID, Noise, check_n_classes, check_seed, stream

Map = npt.NDArray[Any]
BOUNDARIES = ("erode", "dilate", "displace")
SEGMENTS = ("swap", "drop", "shift")


class MapNoise(Noise):
    """Noise on maps of labels `(N, H, W)`: every image is drawn independently, and void pixels stay void.

    A subclass defines `draw_map`. `describe` of labels and noise gives the realised rate, over
    pixels with a label.

    >>> import noisegate as ng
    >>> maps = np.zeros((2, 32, 32), int)
    >>> maps[:, 8:24, 8:24] = 1
    >>> noise = ng.noise.MapBoundaries(width=2.0)
    >>> isinstance(noise, ng.noise.MapNoise)
    True
    >>> noisy = noise.corrupt(maps, n_classes=2, seed=0)
    >>> noisy.shape, bool((noisy != maps).any())
    ((2, 32, 32), True)
    """

    def corrupt(
        self, y: npt.ArrayLike, x: npt.ArrayLike | None = None, n_classes: int | None = None, *, seed: int = 0
    ) -> Map:
        """Draw observed maps for clean ones: a new array of the same type.

        Parameters
        ----------
        y : integer array (N, H, W)
            Labels in 0..K-1, and -100 for pixels without one; never changed.
        x : ignored
        n_classes : int, optional
            K; by default the largest label plus one.
        seed : int
            The same seed gives the same maps, image by image.
        """
        maps = np.asarray(y)
        if maps.ndim != 3 or maps.dtype.kind not in "iu":
            raise InputError(
                f"{self.kind} noise is for maps of labels (N, H, W), got {maps.dtype} of shape {maps.shape}"
            )
        counted = maps[maps != VOID]
        k = check_n_classes(int(counted.max(initial=0)) + 1 if n_classes is None else n_classes)
        if counted.size and not (counted.min() >= 0 and counted.max() < k):
            raise InputError(f"labels must lie in 0..{k - 1}, got {counted.min()}..{counted.max()}")
        out, known = maps.copy(), check_seed(seed)
        for image, (given, clean) in enumerate(zip(out, maps, strict=True)):
            drawn = self.draw_map(clean, k, stream(known, image))
            np.copyto(given, drawn.astype(maps.dtype), where=(clean != VOID) & (drawn != VOID))
        return out

    def draw(self, y: Any, x: Any, n_classes: int, seed: int) -> Any:
        return self.corrupt(y, x, n_classes, seed=seed)

    @abstractmethod
    def draw_map(self, y: Map, n_classes: int, rng: np.random.Generator) -> Map:
        """Draw one observed map `(H, W)`; its values at void pixels are ignored."""


@dataclass(frozen=True, eq=False)
class MapBoundaries(MapNoise):
    """Boundaries in the wrong place: segments eroded or dilated, or everything displaced smoothly.

    Parameters
    ----------
    error : {"erode", "dilate", "displace"}
        "erode": pixels of a segment near its edge get the nearest label beside it; "dilate": a
        segment takes its neighbours' pixels; "displace": labels come from a place that a smooth
        random field points to.
    width : float, default=3.0
        In pixels: how far the boundary moves; for "displace" the root mean square of each
        coordinate.
    share : float, default=0.5
        The share of segments that are eroded or dilated; those of an image's most frequent class
        never are.
    smoothness : float, default=12.0
        Of the field: the standard deviation of the Gaussian that smooths it, in pixels.

    Examples
    --------
    >>> y = np.zeros((1, 5, 9), np.int8); y[:, :, 3:6] = 1
    >>> MapBoundaries("dilate", width=1, share=1.0).corrupt(y, seed=3)[0, 0]
    array([0, 0, 1, 1, 1, 1, 1, 0, 0], dtype=int8)
    """

    error: str = "displace"
    width: float = 3.0
    share: float = 0.5
    smoothness: float = 12.0

    kind: ClassVar[str] = "map-boundaries"

    def __post_init__(self) -> None:
        if self.error not in BOUNDARIES:
            raise InputError(f"error must be one of {', '.join(BOUNDARIES)}, got {self.error!r}")
        _check_share("share", self.share)
        for name in ("width", "smoothness"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be a positive number of pixels, got {getattr(self, name)!r}")

    def draw_map(self, y: Map, n_classes: int, rng: np.random.Generator) -> Map:
        if self.error == "displace":
            return y[displaced_places(y.shape, self.width, self.smoothness, rng)]
        chosen = _chosen(_foreground(y), self.share, rng)
        counted = y != VOID
        inside = (chosen & counted) if self.error == "erode" else (~chosen & counted)
        return _from_beside(y, inside, counted & ~inside, self.width)


@dataclass(frozen=True, eq=False)
class MapSegments(MapNoise):
    """Whole segments wrong: another class, dropped into their surroundings, or shifted.

    Segments are connected regions of one class (8 neighbours).

    Parameters
    ----------
    rate : float
        The share of segments that go wrong.
    error : {"swap", "drop", "shift"}
        "swap": another class, by `mapping` or drawn evenly; "drop": the nearest labels around it;
        "shift": moved by `distance` in a random direction, with the nearest labels where it was.
        Segments of an image's most frequent class are not dropped or shifted.
    mapping : mapping of class to class, optional
        For "swap"; segments of other classes stay right.
    distance : float, default=8.0
        For "shift", in pixels.
    smallest : int, default=20
        Segments of fewer pixels stay right.

    Examples
    --------
    >>> maps = np.zeros((1, 32, 32), int)
    >>> maps[:, 4:20, 4:20] = 1
    >>> noisy = MapSegments(rate=1.0, error="drop").corrupt(maps, n_classes=2, seed=0)
    >>> int(maps.sum()), int(noisy.sum())
    (256, 0)
    """

    rate: float = 0.1
    error: str = "swap"
    mapping: Any = None
    distance: float = 8.0
    smallest: int = 20

    kind: ClassVar[str] = "map-segments"

    def __post_init__(self) -> None:
        _check_share("rate", self.rate)
        if self.error not in SEGMENTS:
            raise InputError(f"error must be one of {', '.join(SEGMENTS)}, got {self.error!r}")
        if self.mapping is not None:
            object.__setattr__(self, "mapping", {int(a): int(b) for a, b in dict(self.mapping).items()})

    def draw_map(self, y: Map, n_classes: int, rng: np.random.Generator) -> Map:
        out, counted = y.copy(), y != VOID
        numbers = segments(y) if self.error == "swap" else _foreground(y)
        sizes = np.bincount(numbers.ravel())
        for number in range(1, len(sizes)):
            hit, turn = rng.random() < self.rate, rng.random()
            if not hit or sizes[number] < self.smallest:
                continue
            where = numbers == number
            label = int(y[where][0])
            if self.error == "swap":
                target = self._other(label, n_classes, turn)
                out[where] = label if target is None else target
                continue
            out = _from_beside(out, where, counted & ~where, np.inf)
            if self.error == "shift":
                angle = 2 * np.pi * turn
                step = round(self.distance * np.sin(angle)), round(self.distance * np.cos(angle))
                out[_moved(where, *step)] = label
        return out

    def _other(self, label: int, n_classes: int, turn: float) -> int | None:
        if self.mapping is not None:
            found = self.mapping.get(label)
            if found is not None and not 0 <= found < n_classes:
                raise InputError(f"mapping leads to class {found}, but there are {n_classes}")
            return found
        return (label + 1 + int(turn * (n_classes - 1))) % n_classes if n_classes > 1 else None


@dataclass(frozen=True, eq=False)
class MapPatches(MapNoise):
    """Random square patches of a random class.

    Parameters
    ----------
    rate : float
        The share of pixels that patches cover, in expectation; those of the right class change
        nothing.
    size : int, default=16
        Side of a patch in pixels.

    Examples
    --------
    >>> maps = np.zeros((10, 64, 64), int)
    >>> noisy = MapPatches(rate=0.2, size=8).corrupt(maps, n_classes=4, seed=0)
    >>> round(float((noisy != maps).mean()), 2)
    0.14
    """

    rate: float = 0.1
    size: int = 16

    kind: ClassVar[str] = "map-patches"

    def __post_init__(self) -> None:
        _check_share("rate", self.rate)
        if self.rate == 1 or self.size < 1:
            raise InputError(
                f"patches need a rate below 1 and a size of at least 1, got {self.rate} and {self.size}"
            )

    def draw_map(self, y: Map, n_classes: int, rng: np.random.Generator) -> Map:
        out, (height, width) = y.copy(), y.shape
        side = self.size
        # Corners are even over all places from which a patch reaches the image: every pixel is as
        # likely covered.
        places = (height + side - 1) * (width + side - 1)
        count = rng.poisson(-np.log1p(-self.rate) * places / side**2)
        for _ in range(count):
            top, left = rng.integers(1 - side, height), rng.integers(1 - side, width)
            out[max(0, top) : top + side, max(0, left) : left + side] = rng.integers(n_classes)
        return out


def segments(y: Map) -> npt.NDArray[np.int32]:
    """Numbers 1, 2, ... of the connected regions of one class (8 neighbours), 0 for void pixels.

    >>> segments(np.array([[0, 0, 1], [1, 0, 1]]))
    array([[1, 1, 2],
           [3, 1, 2]], dtype=int32)
    """
    from scipy import ndimage

    numbers, total = np.zeros(y.shape, np.int32), 0
    for label in np.unique(y[y != VOID]):
        found, count = ndimage.label(y == label, structure=np.ones((3, 3)))
        numbers = np.where(found > 0, found + total, numbers).astype(np.int32)
        total += count
    return numbers


def _foreground(y: Map) -> npt.NDArray[np.int32]:
    """`segments` without those of the most frequent class, which is taken to be the background."""
    return np.where(y == np.bincount(y[y != VOID].ravel(), minlength=1).argmax(), 0, segments(y))


def displaced_places(
    shape: tuple[int, ...], width: float, smoothness: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A place near every pixel, by a smooth random field.

    `width` is the root mean square of each coordinate.
    """
    from scipy import ndimage

    places = []
    for axis, length in enumerate(shape):
        field = ndimage.gaussian_filter(rng.standard_normal(shape), smoothness, mode="reflect")
        field *= width / max(float(np.sqrt((field**2).mean())), 1e-12)
        at = np.arange(length).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        places.append(np.clip(np.rint(at + field), 0, length - 1).astype(np.int64))
    return places[0], places[1]


def _chosen(numbers: npt.NDArray[np.int32], share: float, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """The pixels of some of the segments."""
    hit = rng.random(int(numbers.max(initial=0)) + 1) < share
    hit[0] = False
    return hit[numbers]


def _from_beside(y: Map, inside: npt.NDArray[np.bool_], beside: npt.NDArray[np.bool_], width: float) -> Map:
    """Give pixels `inside` that lie within `width` of one `beside` the label of the nearest of those."""
    from scipy import ndimage

    if not beside.any() or not inside.any():
        return y.copy()
    distance, nearest = ndimage.distance_transform_edt(~beside, return_indices=True)
    return np.where(inside & (distance <= width), y[tuple(nearest)], y)


def _moved(where: npt.NDArray[np.bool_], down: int, right: int) -> npt.NDArray[np.bool_]:
    """The pixels shifted; what leaves the image is lost."""
    rows, columns = np.nonzero(where)
    rows, columns = rows + down, columns + right
    kept = (rows >= 0) & (rows < where.shape[0]) & (columns >= 0) & (columns < where.shape[1])
    out = np.zeros_like(where)
    out[rows[kept], columns[kept]] = True
    return out


def _check_share(name: str, value: float) -> None:
    if isinstance(value, bool) or not 0 <= value <= 1:
        raise InputError(f"{name} must lie in [0, 1], got {value!r}")
