"""Several runs on one device, in one thread: while one waits, the others work."""

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

#: Seconds between two looks at GPUs that have work, when no run can go on.
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

    On a GPU each run has a stream, CUDA graphs and a random state of its own, and is given a few replays at a time;
    nobody waits for the numbers of another. Small networks leave most of a GPU idle: side by side they fill it. On
    a CPU the runs take turns epoch by epoch. Either way each result is that of the run alone, on a GPU bit for bit
    in fp32 with torch's deterministic algorithms.

    Parameters
    ----------
    runs : iterable of functions () -> Run
        Called when there is a free place; the run is closed when it has ended.
    width : int
        How many at a time; see `how_many_fit`.

    Yields
    ------
    number, run, what : int, Run, and
        An `Epoch`, after each; None, when the run has finished and `run.fitted` is there; or the exception that
        ended it (divergence, for one), which disturbs nobody else. `number` is the run's place in `runs`; `run` is
        None where making it failed. An exception that is no `Exception` (Ctrl-C) ends everything.

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
    """The next run, made; or what went wrong; or None if there is none left."""
    for number, make in waiting:
        try:
            run = make()
        except Exception as error:
            return number, None, error
        return _Seat(number, run, run.run_chunks())
    return None


def _turn(seats: list[_Seat]) -> Iterator[tuple[int, Run, Epoch | Exception | None]]:
    """Let every run that can do so go on by one piece; runs that have ended leave `seats`."""
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
            # What the frames of a failed run hold, it keeps as long as somebody looks at the error.
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
    """How many runs like this one fit in the memory of its GPU side by side; 1 on a CPU.

    It makes the run, lets it capture its step and train a few, measures what that took, and drops it.

    Parameters
    ----------
    make : function () -> Run
        Without a folder, or with one that nothing else uses.
    most : int
        The largest answer. More than 32 runs share streams, so that some wait for others.
    keep_free : float
        Share of the memory that stays free, for what comes later in a run: evaluation, further phases.
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
