"""Runs on this machine: in processes beside each other, or one after the other in this one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait

from noisegate.errors import NoisegateError
from noisegate.studies import memory
from noisegate.studies.engines.base import Context, Engine
from noisegate.studies.execute import Event, events
from noisegate.studies.store import Store
from noisegate.studies.study import RunSettings

#: Main memory that a run of usual size with its process takes.
RUN_BYTES = 2 * 2**30
#: Seconds between two events about epochs of the same run.
QUIET = 0.2


class LocalEngine(Engine):
    """As many processes as there are cores and memory for; one run alone is done in this process.

    Parameters
    ----------
    workers : int, optional
        Runs at a time.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers

    def width(self, todo: Sequence[RunSettings], context: Context) -> int:
        if self.workers is not None:
            return max(1, min(self.workers, len(todo)))
        if _on_gpu(context.device):
            return 1
        return max(1, min(memory.cores(), memory.available() // RUN_BYTES, len(todo)))

    def run(self, todo: Sequence[RunSettings], context: Context) -> Iterator[Event]:
        width = self.width(todo, context)
        if width == 1:
            store = Store(context.out)
            for settings in todo:
                yield from events(settings, store, context.device, context.root)
        else:
            yield from _Pool(width, context).run(todo)


def _on_gpu(device: str) -> bool:
    import torch

    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


class _Worker:
    """A process that does one run at a time, and what it is doing."""

    def __init__(self, context: Context, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipe, theirs = spawn.Pipe()
        arguments = (theirs, context, threads, os.getpid())
        self.process = spawn.Process(target=_work, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.doing: RunSettings | None = None

    def give(self, settings: RunSettings) -> None:
        self.doing = settings
        self.pipe.send(settings)

    def stop(self) -> None:
        self.pipe.close()
        if self.doing is not None:
            self.process.terminate()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class _Pool:
    """Workers that each take the next run; one that dies is replaced, and its run counts as crashed."""

    def __init__(self, width: int, context: Context) -> None:
        self.width, self.context = width, context
        self.threads = max(1, memory.cores() // width)
        self.store = Store(context.out)

    def run(self, todo: Sequence[RunSettings]) -> Iterator[Event]:
        queue = deque(todo)
        workers: list[_Worker] = []
        try:
            while queue or any(worker.doing for worker in workers):
                idle = [worker for worker in workers if worker.doing is None]
                while queue and (idle or len(workers) < self.width):
                    worker = idle.pop() if idle else _Worker(self.context, self.threads)
                    if worker not in workers:
                        workers.append(worker)
                    worker.give(queue.popleft())
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
                yield self._died(worker)
                workers.remove(worker)
                continue
            if isinstance(message, BaseException):
                raise message
            if message.final:
                worker.doing = None
            yield message

    def _died(self, worker: _Worker) -> Event:
        worker.process.join(timeout=5)
        settings, code = worker.doing, worker.process.exitcode
        worker.doing = None
        worker.stop()
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"
        hint = "; perhaps memory ran out: try fewer --workers" if code == -signal.SIGKILL else ""
        message = f"the process of this run {how}{hint}"
        self.store.fail(settings, "crashed", message)  # type: ignore[arg-type]
        return Event("crashed", settings, message)  # type: ignore[arg-type]


def _work(pipe: Connection, context: Context, threads: int, parent: int) -> None:
    """What a worker does: take settings, do the run, tell; leave when nobody is there any more."""
    import torch

    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    try:
        store = Store(context.out)
        while True:
            _do(pipe, pipe.recv(), store, context, parent)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except (NoisegateError, OSError) as error:
        pipe.send(error)


def _do(pipe: Connection, settings: RunSettings, store: Store, context: Context, parent: int) -> None:
    told = 0.0
    for event in events(settings, store, context.device, context.root):
        if os.getppid() != parent:
            # The parent was killed and cannot be told: stop here, the checkpoint stays.
            os._exit(1)
        now = time.monotonic()
        if event.kind != "epoch" or now - told >= QUIET:
            told = now
            pipe.send(event)
