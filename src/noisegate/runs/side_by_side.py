"""Interleave several runs on one device in one thread: while one waits, the others work."""

from __future__ import annotations

import contextlib
import gc
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from noisegate._device import Pending
from noisegate.errors import InputError
from noisegate.runs.run import Run
from noisegate.training.trainer import Epoch

#: Seconds between two polls when every run waits for the GPU.
POLL = 5e-5


@dataclass
class _Seat:
    number: int
    run: Run
    chunks: Iterator[Epoch | Pending | None]
    waiting: Pending | None = None


def side_by_side(
    runs: Iterable[Callable[[], Run]], width: int
) -> Iterator[tuple[int, Run | None, Epoch | Exception | None]]:
    """Advance up to `width` runs at a time; whenever one ends, the next one starts.

    On a GPU each run has its own stream, CUDA graphs and random state, and replays a few steps at a
    time; no run waits for the numbers of another. Small networks leave most of a GPU idle: side by
    side they fill it. On a CPU the runs take turns epoch by epoch. Either way each run gives the
    result that it gives alone; on a GPU bit for bit in fp32 with torch's deterministic algorithms.

    Parameters
    ----------
    runs : iterable of functions () -> Run
        Each is called when there is room for another run. Runs are closed when they end.
    width : int
        Maximum number of runs at a time; see `how_many_fit`.

    Yields
    ------
    number, run, what : int, Run, and one of
        an `Epoch`, after each epoch; None, when the run has finished and `run.fitted` can be read;
        or the exception that ended the run, e.g. `DivergedError`, while the other runs go on.
        `number` is the position in `runs`. `run` is None if its construction failed.
        KeyboardInterrupt and other exceptions that are not an `Exception` end all runs.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("moons")
    >>> makers = [lambda s=s: Run(data, "ce", "mlp-8", {"epochs": 2}, seed=s, device="cpu") for s in (0, 1)]
    >>> [(number, what is None) for number, _, what in side_by_side(makers, width=2)]
    [(0, False), (1, False), (0, False), (1, False), (0, True), (1, True)]
    """
    if width < 1:
        raise InputError(f"width must be at least 1, got {width!r}")
    waiting, seats = iter(enumerate(runs)), list[_Seat]()
    try:
        while True:
            while len(seats) < width and (made := _next_seat(waiting)) is not None:
                if isinstance(made, _Seat):
                    seats.append(made)
                else:
                    yield made
            if not seats:
                return
            yield from _turn(seats)
    finally:
        with contextlib.ExitStack() as every:
            for seat in seats:
                every.callback(seat.run.__exit__)


def _next_seat(
    waiting: Iterator[tuple[int, Callable[[], Run]]],
) -> _Seat | tuple[int, None, Exception] | None:
    """Make the next run; return its error if that fails, and None if no run is left."""
    for number, make in waiting:
        try:
            run = make()
        except Exception as error:
            return number, None, error
        return _Seat(number, run, run.run_chunks())
    return None


def _turn(seats: list[_Seat]) -> Iterator[tuple[int, Run, Epoch | Exception | None]]:
    """Advance every run that is not waiting by one chunk; remove finished runs from `seats`."""
    moved = False
    for seat in list(seats):
        if seat.waiting is not None and not seat.waiting.ready:
            continue
        moved, started, ended, said = True, time.perf_counter(), False, None
        try:
            item = next(seat.chunks)
            seat.waiting = item if isinstance(item, Pending) else None
            said = item if isinstance(item, Epoch) else None
        except StopIteration:
            ended = True
        except Exception as error:
            # The traceback refers to the frames of the run: without this its GPU memory would live
            # as long as the error.
            traceback.clear_frames(error.__traceback__)
            ended, said = True, error  # type: ignore[assignment]
        _share(seats, started)
        if ended:
            seats.remove(seat)
            said = _closed(seat.run) or said  # type: ignore[assignment]
        if ended or said is not None:
            yield seat.number, seat.run, said
    if not moved:
        started = time.perf_counter()
        time.sleep(POLL)
        _share(seats, started)


def _closed(run: Run) -> Exception | None:
    try:
        run.__exit__()
    except Exception as error:
        return error
    return None


def _share(seats: list[_Seat], started: float) -> None:
    spent = (time.perf_counter() - started) / len(seats)
    for seat in seats:
        seat.run.seconds += spent


def how_many_fit(make: Callable[[], Run], most: int = 64, keep_free: float = 0.1) -> int:
    """Estimate how many such runs fit side by side in the memory of the GPU; 1 on a CPU.

    Makes a run, lets it capture its step and train a few, measures the memory, and discards the
    run.

    Parameters
    ----------
    make : function () -> Run
        The run must have no folder, or one that no other run uses.
    most : int, default=64
        Upper limit of the answer. Torch has 32 streams: more runs share them and wait for each
        other.
    keep_free : float, default=0.1
        Share of the memory to keep free for later parts of a run: evaluation and further phases.
    """
    torch.cuda.empty_cache()
    before = [torch.cuda.memory_reserved(index) for index in range(torch.cuda.device_count())]
    with make() as run:
        device = run.device
        if device.type != "cuda":
            return 1
        chunks = run.run_chunks()
        while not isinstance(next(chunks), Epoch | Pending):
            pass
        torch.cuda.synchronize(device)
        used = max(1, torch.cuda.memory_reserved(device) - before[device.index])
        free, _ = torch.cuda.mem_get_info(device)
    del chunks, run
    gc.collect()
    return max(1, min(most, int((free + used) * (1 - keep_free) / used)))
