"""Normal points for sampling: of low discrepancy, stratified, or hashed.

Made in chunks and made again at will.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from noisegate._fusing import fused

#: Elements and samples of a chunk. On a CPU it should stay in the cache; a GPU wants few, large
#: kernels.
CHUNK_LIMITS = {"cpu": (2**19, 2**6), "cuda": (2**24, 2**14)}
#: Bits of a Sobol point.
BITS = 30


def chunk_size(elements: int, n_samples: int, device: torch.device) -> int:
    """Number of samples to hold at once: a power of two, at least 1, or all if they fit.

    >>> cpu = torch.device("cpu")
    >>> chunk_size(1280, 1000, cpu), chunk_size(1280, 50, cpu), chunk_size(2**20, 1000, cpu)
    (64, 64, 1)
    """
    most_elements, most_samples = CHUNK_LIMITS.get(device.type, CHUNK_LIMITS["cuda"])
    room = min(most_elements // max(elements, 1), most_samples)
    if n_samples <= room:
        return 1 << (n_samples - 1).bit_length()
    return 1 << max(room.bit_length() - 1, 0)


def sobol_directions(dimensions: int, n_bits: int, seed: int = 0) -> Tensor:
    """Direction numbers of a scrambled Sobol sequence, `(dimensions, n_bits)`, below 2^30."""
    return torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=seed).sobolstate[:, :n_bits]


class Points:
    """Low-discrepancy normal points, made in chunks from direction numbers and a digital shift.

    The shift randomises them: a point with a uniform shift is exactly N(0, I). The same shift gives
    the same points again, so that a backward pass needs no random numbers.

    Parameters
    ----------
    directions : int64 tensor (D, m)
    shift : int64 tensor (D,) of numbers below 2^30
    n_samples : int
        At most 2^m.
    """

    def __init__(self, directions: Tensor, shift: Tensor, n_samples: int) -> None:
        self.directions, self.shift, self.n_samples = directions, shift, n_samples

    def chunks(self, size: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """Tensors (D, s), s at most `size`, a power of two; together (D, n_samples)."""
        low = size.bit_length() - 1
        table = sobol_table(self.directions, low)
        for start in range(0, self.n_samples, size):
            first = self.shift
            for bit in range(low, start.bit_length()):
                if start >> bit & 1:
                    first = first ^ self.directions[:, bit]
            yield sobol_normals(table, first, min(size, self.n_samples - start), dtype)


@fused
def sobol_table(directions: Tensor, low: int) -> Tensor:
    """`(D, 2^low)` bits of the first points, without a shift."""
    table = torch.zeros_like(directions[:, :1])
    for bit in range(low):
        table = torch.cat([table, table ^ directions[:, bit : bit + 1]], 1)
    return table


@fused
def sobol_normals(table: Tensor, first: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """`(D, count)` points of a chunk whose first one has these bits `(D,)`."""
    bits = first.unsqueeze(1) ^ table[:, :count]
    # float64: a float32 would round the largest numbers up to one, which is infinity in normal
    # units.
    return torch.special.ndtri((bits.double() + 0.5) * 2.0**-BITS).to(dtype)


class Strata:
    """Normal points for many dimensions, stratified in each dimension alone (2^m strata).

    Every dimension is covered evenly, any two are as good as independent. As `Points` they are made
    a chunk at a time, and the same keys give the same points again.

    Parameters
    ----------
    keys : int64 tensor (D, 3) of numbers below 2^62
        Uniform ones make each point exactly N(0, I).
    n_samples : int
        At most 2^m.
    """

    def __init__(self, keys: Tensor, n_samples: int) -> None:
        self.keys, self.n_samples = keys, n_samples

    def chunks(self, size: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """Tensors (D, s), s at most `size`; together (D, n_samples)."""
        bits = max((self.n_samples - 1).bit_length(), 1)
        for start in range(0, self.n_samples, size):
            samples = torch.arange(start, min(start + size, self.n_samples), device=self.keys.device)
            inside = hashed_uniform(self.keys[:, :1], samples)
            places = (shuffled(samples, self.keys, bits) + inside) * 2.0**-bits
            # Rounding could make one of the last stratum, which is infinity in normal units.
            yield torch.special.ndtri(places.clamp(max=1 - 2.0**-53)).to(dtype)


def shuffled(index: Tensor, keys: Tensor, bits: int) -> Tensor:
    """Values `(D, s)` at `index` (s,) of the permutations of 0..2^bits - 1 keyed by `keys`."""
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    places = index.expand(len(keys), -1)
    for key in keys.unsqueeze(2).unbind(1):
        # Each step can be undone: another bit pattern, an odd multiple, the upper half onto the
        # lower one.
        places = ((places ^ (key >> 32)) * (key & mask | 1)) & mask
        places = places ^ (places >> half)
    return places


class PlacePoints(Protocol):
    """Normal numbers for every place of a map: any part of any sample can be made again."""

    @property
    def n_samples(self) -> int: ...

    def block(self, images: range, samples: range, rows: range, dtype: torch.dtype) -> Tensor:
        """`(len(images) or 1, len(samples), D, len(rows), w)` of maps `(D, h, w)`."""
        ...


class HashedNormals:
    """Independent N(0, 1) numbers from a key and their indices: any part can be computed again.

    Upsampling mixes neighbouring places, so each needs noise of its own: too many dimensions for
    Sobol.

    Parameters
    ----------
    key : int64 tensor ()
    shape : (D, h, w)
        Shape of one sample of one image.
    n_samples : int
    shared : bool
        All images have the same noise (evaluation: independent of the batch).
    """

    def __init__(self, key: Tensor, shape: tuple[int, int, int], n_samples: int, shared: bool) -> None:
        self.key, self.shape, self.n_samples, self.shared = key, shape, n_samples, shared

    def block(self, images: range, samples: range, rows: range, dtype: torch.dtype) -> Tensor:
        """`(len(images) or 1, len(samples), D, len(rows), w)`."""
        device = self.key.device
        image = range(1) if self.shared else images
        image_number = torch.arange(image.start, image.stop, device=device).unsqueeze(1)
        sample = torch.arange(samples.start, samples.stop, device=device)
        places = _places(self.shape, rows, device)
        start = (image_number * self.n_samples + sample) * math.prod(self.shape)
        index = start[:, :, None, None, None] + places
        return torch.special.ndtri(hashed_uniform(self.key, index)).to(dtype)


def _places(shape: tuple[int, int, int], rows: range, device: torch.device) -> Tensor:
    """The numbers of the places in some rows of a map `(D, h, w)`."""
    places = torch.arange(math.prod(shape), device=device).view(shape)
    return places[:, rows.start : rows.stop]


class TiledPoints:
    """Sobol points for maps: the places of every 2 x 2 tile are dimensions of one sequence.

    Bilinear upsampling mixes four neighbouring places, and those always are the four kinds of a
    tile: what a pixel sees is a low-discrepancy set. Each place and dimension has a random digital
    shift of its own, which makes every point exactly N(0, I) and the errors of distant places
    independent.

    Parameters
    ----------
    directions : int64 tensor (4 D, m)
    key : int64 tensor ()
    shape : (D, h, w)
    n_samples : int
        At most 2^m.
    shared : bool
        All images have the same shifts (evaluation: independent of the batch).
    """

    def __init__(
        self, directions: Tensor, key: Tensor, shape: tuple[int, int, int], n_samples: int, shared: bool
    ) -> None:
        self.key, self.shape, self.n_samples, self.shared = key, shape, n_samples, shared
        self._directions = directions.view(2, 2, shape[0], -1, 1)

    def block(self, images: range, samples: range, rows: range, dtype: torch.dtype) -> Tensor:
        """`(len(images) or 1, len(samples), D, len(rows), w)`."""
        device = self.key.device
        places = _places(self.shape, rows, device)
        if not self.shared:
            image = torch.arange(images.start, images.stop, device=device).view(-1, 1, 1, 1)
            places = places + image * math.prod(self.shape)
        shift = (hashed_uniform(self.key, places) * 2.0**BITS).long().view(-1, 1, *places.shape[-3:])
        row = (torch.arange(rows.start, rows.stop, device=device) % 2).unsqueeze(1)
        column = torch.arange(self.shape[2], device=device) % 2
        tiles = self._bits(samples)[row, column].permute(3, 2, 0, 1)
        return torch.special.ndtri(((tiles ^ shift).double() + 0.5) * 2.0**-BITS).to(dtype)

    def _bits(self, samples: range) -> Tensor:
        """`(2, 2, D, len(samples))` of some points, without a shift."""
        numbers = torch.arange(samples.start, samples.stop, device=self.key.device)
        found = torch.zeros_like(self._directions[..., 0, :])
        for bit in range((samples.stop - 1).bit_length()):
            found = found ^ self._directions[..., bit, :] * (numbers >> bit & 1)
        return found


def hashed_uniform(key: Tensor, index: Tensor) -> Tensor:
    """Uniform numbers in (0, 1) from integers (the finaliser of splitmix64), in float64."""
    bits = key + index * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        bits = (bits ^ _shifted(bits, shift)) * factor
    return (_shifted(bits ^ _shifted(bits, 31), 12).double() + 0.5) * 2.0**-52


def _shifted(bits: Tensor, by: int) -> Tensor:
    """A logical shift to the right: torch's own repeats the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
