"""The processes of a run, and sending values and errors between them."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist

from noisegate.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The number of processes, and the rank of this one.

    Attributes
    ----------
    rank : int, default=0
    size : int, default=1
    """

    rank: int = 0
    size: int = 1

    @property
    def several(self) -> bool:
        """Whether there is more than one process."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """The slice of a batch of n rows that belongs to this process.

        >>> World(rank=1, size=2).part(6)
        slice(3, 6, None)
        """
        if n % self.size:
            near = max(self.size, n - n % self.size)
            raise InputError(
                f"a batch of {n} rows cannot be split evenly over {self.size} processes; "
                f"choose a batch_size like {near} (and at least so many rows)"
            )
        each = n // self.size
        return slice(self.rank * each, (self.rank + 1) * each)


def world() -> World:
    """The processes of torch.distributed; a world of one if it is not initialised."""
    if not (dist.is_available() and dist.is_initialized()):
        return World()
    return World(dist.get_rank(), dist.get_world_size())


def from_first(value: T) -> T:
    """Send the first process's value, which must be picklable, to all processes; return it."""
    if not world().several:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def on_first(make: Callable[[], T]) -> T | None:
    """Call `make` in the first process only; return its result there and None in the others.

    If it raises an error, all processes raise that error.
    """
    here = world()
    if not here.several:
        return make()
    made, error = None, None
    if here.first:
        try:
            made = make()
        except Exception as raised:
            error = raised
    told = from_first(None if error is None else packed_error(error))
    if told is not None:
        raise error or unpacked_error(told)
    return made


def packed_error(error: Exception) -> bytes:
    """Serialise an error.

    Pickle fails for errors whose constructor takes other arguments than `args`. Then the class,
    arguments and attributes are pickled one by one; if that fails too, a RuntimeError with the same
    message.
    """
    ways = ((error, None, None), (type(error), error.args, error.__dict__))
    for way in ways:
        with contextlib.suppress(Exception):
            packed = pickle.dumps(way)
            if str(unpacked_error(packed)) == str(error):
                return packed
    return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), None, None))


def unpacked_error(packed: bytes) -> Exception:
    """Restore an error from the result of `packed_error`."""
    found, args, state = pickle.loads(packed)
    if isinstance(found, Exception):
        return found
    error = found.__new__(found, *args)
    error.__dict__.update(state)
    return error
