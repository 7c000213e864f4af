"""Execute runs on this machine: in parallel processes, or interleaved in this process on a GPU."""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait

from noisegate._io.processes import how_it_ended, no_interrupt
from noisegate.errors import InputError, NoisegateError, UnknownNameError
from noisegate.runs.memory import memory_kept
from noisegate.runs.run import Run
from noisegate.studies import memory
from noisegate.studies.engines.base import Context, Engine
from noisegate.studies.execute import Event, Execution, describe_epoch, events, failed
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.training.trainer import Epoch

#: Main memory of a typical run with its process.
RUN_BYTES = 2 * 2**30
#: Maximum number of runs interleaved on one GPU; more are not faster.
SIDE_BY_SIDE = 16
#: Seconds between two events about epochs of the same run.
QUIET = 0.2
CANNOT_START = (
    "the processes for the runs cannot be started (the reason is printed above); a script calls "
    "noisegate.studies.run under `if __name__ == '__main__':`, or with workers=1, in its own process"
)
NOT_KNOWN_THERE = (
    "; runs are done in processes of their own, which know what is registered in an imported module, but not what "
    "is in a notebook or behind `if __name__ == '__main__':`: put it into a module, or take workers=1"
)


class LocalEngine(Engine):
    """On a CPU, as many processes as cores and memory allow.

    On a GPU, as many interleaved runs as fit.

    Interleaved runs share this process and thread; each has its own stream and random state. A
    single run also executes in this process.

    Parameters
    ----------
    workers : int, optional
        Runs at a time.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers
        # Measured by building a run, which is slow: cache it.
        self._fits: dict[str, int] = {}

    def width(self, todo: Sequence[RunSettings], context: Context) -> int:
        if self.workers is not None:
            return max(1, min(self.workers, len(todo)))
        if _on_gpu(context.device):
            fitting = [self._fitting(kind, run, context) for kind, run in representatives(todo).items()]
            return max(1, min([SIDE_BY_SIDE, len(todo), *fitting]))
        return max(1, min(memory.cores(), memory.available() // RUN_BYTES, len(todo)))

    def _fitting(self, kind: str, settings: RunSettings, context: Context) -> int:
        if kind not in self._fits:
            self._fits[kind] = _fitting(settings, context)
        return self._fits[kind]

    def hardware(self, context: Context) -> str | None:
        from noisegate._device import resolve_device
        from noisegate.runs.identity import hardware_name

        return hardware_name(resolve_device(context.device))

    def run(self, todo: Sequence[RunSettings], context: Context) -> Generator[Event, None, None]:
        width = self.width(todo, context)
        if width == 1 or _on_gpu(context.device):
            yield from _SideBySide(width, context).run(todo)
        else:
            yield from _Pool(width, context).run(todo)


def representatives(todo: Sequence[RunSettings]) -> dict[str, RunSettings]:
    """Pick one run of each kind: memory depends on data, network and batch size, little on the objective.

    Prefer runs that train more than one network on one objective.
    """
    from noisegate import methods

    found: dict[str, RunSettings] = {}
    for settings in todo:
        sizes = [settings.recipe.get(name) for name in ("batch_size", "precision", "crop_to")]
        kind = repr((settings.data, settings.network, sizes))
        if kind not in found or not methods.get(settings.method).one_network:
            found[kind] = settings
    return found


def _on_gpu(device: str) -> bool:
    from noisegate._device import resolve_device

    return resolve_device(device).type == "cuda"


def _fitting(settings: RunSettings, context: Context) -> int:
    """How many such runs fit in the GPU's memory; 1 if that cannot be measured."""
    from noisegate.runs.side_by_side import how_many_fit
    from noisegate.studies.execute import make_run

    try:
        return how_many_fit(lambda: make_run(settings, context.device, context.root), most=SIDE_BY_SIDE)
    except Exception:
        # Executing the run reports the error.
        return 1


class _Done(Exception):
    """The run was finished before."""


class _SideBySide:
    """Runs that are interleaved in this process."""

    def __init__(self, width: int, context: Context) -> None:
        self.width, self.context = width, context
        self.store = Store(context.out)
        self.open: dict[int, Execution] = {}
        self.said: deque[Event] = deque()

    def run(self, todo: Sequence[RunSettings]) -> Iterator[Event]:
        from noisegate.runs.side_by_side import side_by_side

        makers = [functools.partial(self._make, number, settings) for number, settings in enumerate(todo)]
        told: dict[int, float] = {}
        try:
            for number, _, what in side_by_side(makers, self.width):
                yield from self._said()
                if isinstance(what, Epoch):
                    self.open[number].tell(what)
                    now = time.monotonic()
                    if now - told.get(number, -math.inf) >= QUIET:
                        told[number] = now
                        yield Event("epoch", todo[number], progress=describe_epoch(what))
                else:
                    yield self._ended(number, todo[number], what)
        finally:
            for execution in self.open.values():
                execution.__exit__(None, None, None)

    def _said(self) -> Iterator[Event]:
        while self.said:
            yield self.said.popleft()

    def _make(self, number: int, settings: RunSettings) -> Run:
        self.said.append(Event("started", settings))
        execution = Execution(settings, self.store, self.context.device, self.context.root, beside=self.width)
        execution.__enter__()
        if execution.done:
            execution.__exit__(None, None, None)
            raise _Done
        self.open[number] = execution
        return execution.run

    def _ended(self, number: int, settings: RunSettings, error: Exception | None) -> Event:
        execution = self.open.pop(number, None)
        try:
            if execution is not None and error is None:
                execution.conclude()
        except Exception as trouble:
            error = trouble
        finally:
            if execution is not None:
                execution.__exit__(None, None, None)
        if error is None or isinstance(error, _Done):
            return Event("finished", settings)
        return failed(settings, self.store, error)


class _Worker:
    """A worker process, and the run it is executing."""

    def __init__(self, context: Context, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        arguments = (theirs, context, threads, os.getpid())
        self.process = spawn.Process(target=_work, args=arguments, daemon=True)
        with no_interrupt():
            self.process.start()
        theirs.close()
        self.doing: RunSettings | None = None

    @property
    def lost(self) -> bool:
        """Whether the process died while idle."""
        return self.doing is None and not self.process.is_alive()

    def give(self, settings: RunSettings) -> bool:
        """Send a run to the process; False if it has died."""
        try:
            self.pipe.send(settings)
        except OSError:
            return False
        self.doing = settings
        return True

    def stop(self) -> None:
        self.pipe.close()
        if self.doing is not None:
            self.process.terminate()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Pool:
    """A pool of worker processes. A worker that dies is replaced, and its run counts as crashed."""

    def __init__(self, width: int, context: Context) -> None:
        self.width, self.context = width, context
        self.threads = max(1, memory.cores() // width)
        self.store = Store(context.out)
        #: Whether any worker has started, so that processes can be started at all.
        self.began = False

    def run(self, todo: Sequence[RunSettings]) -> Iterator[Event]:
        queue = deque(todo)
        workers: list[_Worker] = []
        try:
            while queue or any(worker.doing for worker in workers):
                for worker in [each for each in workers if each.lost]:
                    worker.stop()
                    workers.remove(worker)
                idle = [worker for worker in workers if worker.doing is None]
                while queue and (idle or len(workers) < self.width):
                    worker = idle.pop() if idle else _Worker(self.context, self.threads)
                    if worker not in workers:
                        workers.append(worker)
                    if worker.give(queue[0]):
                        queue.popleft()
                yield from self._listen(workers)
        finally:
            for worker in workers:
                worker.stop()

    def _listen(self, workers: list[_Worker]) -> Iterator[Event]:
        busy = {worker.pipe: worker for worker in workers if worker.doing is not None}
        for pipe in wait(list(busy), timeout=1.0):
            worker = busy[pipe]  # type: ignore[index]
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                if not self.began:
                    raise InputError(CANNOT_START) from None
                yield self._died(worker)
                workers.remove(worker)
                continue
            self.began = True
            if message is None:
                continue
            if isinstance(message, BaseException):
                raise message
            if message.final:
                worker.doing = None
            yield message

    def _died(self, worker: _Worker) -> Event:
        settings, how = worker.doing, how_it_ended(worker.process, ": try fewer --workers")
        worker.doing = None
        worker.stop()
        message = f"the process of this run {how}"
        self.store.fail(settings, "crashed", message)  # type: ignore[arg-type]
        return Event("crashed", settings, message)  # type: ignore[arg-type]


def _work(pipe: Connection, context: Context, threads: int, parent: int) -> None:
    """The loop of a worker: receive settings, execute the run, send events.

    Exit when the parent is gone.
    """
    import torch

    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    try:
        store = Store(context.out)
        pipe.send(None)
        with memory_kept():
            while True:
                _do(pipe, pipe.recv(), store, context, parent)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except UnknownNameError as error:
        pipe.send(InputError(f"{error}{NOT_KNOWN_THERE}"))
    except (NoisegateError, OSError) as error:
        pipe.send(error)


def _do(pipe: Connection, settings: RunSettings, store: Store, context: Context, parent: int) -> None:
    told = 0.0
    for event in events(settings, store, context.device, context.root):
        if os.getppid() != parent:
            # The parent was killed: stop here and keep the checkpoint.
            os._exit(1)
        now = time.monotonic()
        if event.kind != "epoch" or now - told >= QUIET:
            told = now
            pipe.send(event)
