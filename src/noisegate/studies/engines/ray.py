"""Runs on a Ray cluster: each one is a task with its share of CPU or GPU."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noisegate._io.lock import locked
from noisegate._version import __version__
from noisegate.data.registry import root_folder
from noisegate.errors import BusyError, InputError, first_line
from noisegate.studies.engines.base import Context, Engine
from noisegate.studies.engines.ray_session import Resources, elsewhere, imported, session, this_machine
from noisegate.studies.engines.ray_tasks import QUIET, News, Order, Outcome, task
from noisegate.studies.execute import Event
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store

#: How often a run is retried after its worker or node died.
RETRIES = 3
#: Tasks queued beyond those that run, so that a node that joins or becomes free has work at once.
MARGIN = 2
#: Seconds between checks of the number of nodes.
LOOK = 10.0
#: Seconds that interrupted runs have to stop before their workers are killed.
GRACE = 5.0
#: Seconds until a file written by another node must be visible here. Network file systems lag.
VISIBLE = 60.0
# Ray counts shares of a CPU or GPU in steps of this size, rounding to the nearest.
_STEP = 1e-4


# -- the engine ------------------------------------------------------------------------------------


class RayEngine(Engine):
    """Execute each run as a Ray task. If its worker or node dies, another one retries it.

    noisegate, in the same version, and the data sets must be on every node. A retried task resumes
    from its checkpoint if the nodes share the folder of results, or if it runs on the same node again.

    Parameters
    ----------
    address : str, optional
        "HOST:PORT" of a cluster of which this machine is a node, "auto" for the one that runs on
        this machine, "ray://HOST:PORT" from outside. By default the session that this process
        already has, or $RAY_ADDRESS, or a cluster started on this machine, which ends with the
        work.
    workers : int, optional
        Number of runs at a time. Default: as many as fit on the cluster.
    shared : bool
        Whether all nodes see the folder of results. If not, each run uses a temporary folder of its node,
        and its result is sent back.
    cpus : float, optional
        Number of CPUs, and of threads, per run. Default: 1.
    gpus : float, optional
        Share of a GPU per run: 0.25 puts four runs on one GPU. Default: 1, or less if there are more
        `workers` than GPUs.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        shared: bool = True,
        cpus: float | None = None,
        gpus: float | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers must be at least 1, got {workers}")
        if cpus is not None and not (0 < cpus <= 1 or (cpus > 1 and cpus == int(cpus))):
            raise InputError(f"cpus of a run must be a whole number, or a share between 0 and 1, got {cpus}")
        if gpus is not None and not 0 < gpus <= 1:
            raise InputError(f"gpus of a run must be a share in (0, 1]: a run uses one GPU; got {gpus}")
        self.address, self.workers, self.shared, self.cpus, self.gpus = address, workers, shared, cpus, gpus

    def width(self, todo: Sequence[RunSettings], context: Context) -> int:
        if elsewhere(imported(self.address), self.address):
            with session(self.address) as ray:
                nodes = nodes_of(ray)
        else:
            nodes = [this_machine()]
        fits = self.share(nodes, context.device).fits(nodes)
        return max(1, min(fits, self.workers or fits, len(todo)))

    def run(self, todo: Sequence[RunSettings], context: Context) -> Generator[Event, None, None]:
        if not todo:
            return
        with session(self.address) as ray:
            share = self.share(nodes_of(ray), context.device)
            flight = _Flight(ray, self, share, context)
            try:
                yield from flight.run(todo)
            finally:
                flight.stop()

    def share(self, nodes: Sequence[Resources], device: str) -> Share:
        """The resources of a run, by the requested device and what the nodes have."""
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"with Ray the device is auto, cpu or cuda (Ray says which GPU), got {device!r}")
        there = sum(node.get("GPU", 0.0) for node in nodes)
        share = Share(_steps(self.cpus or 1.0))
        if device == "cuda" or (device == "auto" and there):
            each = self.gpus or 1 / max(1, math.ceil((self.workers or 1) / max(there, 1)))
            share = Share(share.cpus, _steps(each))
        if not share.fits(nodes):
            most = max(nodes, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)), default={})
            raise InputError(
                f"a run needs {share}, and no node of the Ray cluster has that (the most is {_describe(most)}); "
                "start such a node, or ask for less"
            )
        return share


# -- how much fits ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """The resources of one run."""

    cpus: float
    gpus: float = 0.0

    def fits(self, nodes: Sequence[Resources]) -> int:
        """How many runs the nodes hold at a time."""
        return sum(self._on(node) for node in nodes)

    def _on(self, node: Resources) -> int:
        needs = {"CPU": self.cpus, "GPU": self.gpus}
        return min(int(node.get(name, 0.0) / need + _STEP) for name, need in needs.items() if need)

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    def __str__(self) -> str:
        return _describe({"CPU": self.cpus, "GPU": self.gpus})


def _steps(share: float) -> float:
    """Round a share down to Ray's resolution: seven sevenths must not exceed one.

    >>> _steps(1 / 7)
    0.1428
    """
    return round(max(1, math.floor(share / _STEP + 1e-6)) * _STEP, 4)


def _describe(node: Resources) -> str:
    gpus = f" and {node['GPU']:g} GPU" if node.get("GPU") else ""
    return f"{node.get('CPU', 0):g} CPU{gpus}"


def nodes_of(ray: Any) -> list[Resources]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


# -- the driver's side -----------------------------------------------------------------------------


@dataclass
class _Doing:
    """A submitted run; `held` is its lock if results are sent back to this process."""

    settings: RunSettings
    held: contextlib.ExitStack
    started: bool = False


class _Flight:
    """The runs of one call: submits them, receives events, stores results."""

    def __init__(self, ray: Any, engine: RayEngine, share: Share, context: Context) -> None:
        self.ray, self.share, self.shared, self.workers = ray, share, engine.shared, engine.workers
        self.store = Store(context.out)
        self.order = Order(
            out=str(Path(context.out).absolute()) if engine.shared else None,
            root=None if context.root is None else str(root_folder(context.root).absolute()),
            default_root=str(root_folder().absolute()),
            device="cuda" if share.gpus else "cpu",
            threads=share.threads,
        )
        self.task = ray.remote(task)
        self.options = {"num_cpus": share.cpus, "num_gpus": share.gpus, "max_retries": RETRIES}
        self.news = ray.remote(News).options(num_cpus=0, max_restarts=-1).remote()
        self.asked: Any = None
        self.doing: dict[Any, _Doing] = {}
        self._asked_at = self._looked_at = -math.inf
        self._room = 1

    def run(self, todo: Sequence[RunSettings]) -> Iterator[Event]:
        queue = deque(todo)
        while queue or self.doing:
            room = self.room()
            while queue and len(self.doing) < room:
                yield from self._submit(queue.popleft())
            yield from self._listen()

    def room(self) -> int:
        """How many tasks may be submitted now. Nodes join and leave."""
        if self.workers is not None:
            return self.workers
        if time.monotonic() - self._looked_at > LOOK:
            self._looked_at = time.monotonic()
            self._room = self.share.fits(nodes_of(self.ray)) + MARGIN
        return self._room

    def _submit(self, settings: RunSettings) -> Iterator[Event]:
        held = contextlib.ExitStack()
        if not self.shared:
            # Tasks on other nodes cannot lock this folder, so this process does.
            try:
                held.enter_context(locked(self.store.path(settings), "running this run"))
            except BusyError as error:
                yield from (Event("started", settings), Event("busy", settings, str(error)))
                return
            if self.store.result(settings) is not None:
                held.close()
                yield from (Event("started", settings), Event("finished", settings))
                return
        task = self.task.options(name=f"noisegate:{settings.key}", **self.options)
        self.doing[task.remote(settings, self.order, self.news)] = _Doing(settings, held)

    def _listen(self) -> Iterator[Event]:
        """Wait briefly for the next event."""
        if self.asked is None and time.monotonic() - self._asked_at >= QUIET:
            self._asked_at, self.asked = time.monotonic(), self.news.take.remote()
        waiting = list(self.doing) if self.asked is None else [*self.doing, self.asked]
        ready, _ = self.ray.wait(waiting, num_returns=1, timeout=QUIET)
        for ref in ready:
            if ref in self.doing:
                yield from self._end(ref)
            else:
                self.asked = None
                yield from self._heard(ref)

    def _heard(self, ref: Any) -> Iterator[Event]:
        try:
            latest = self.ray.get(ref)
        except self.ray.exceptions.RayError:
            # Ray is restarting the news actor elsewhere; the runs continue.
            return
        by_key = {doing.settings.key: doing for doing in self.doing.values()}
        for key, progress in latest.items():
            if key in by_key:
                yield from self._started(by_key[key])
                if progress is not None:
                    yield Event("epoch", by_key[key].settings, progress=progress)

    def _started(self, doing: _Doing) -> Iterator[Event]:
        if not doing.started:
            doing.started = True
            yield Event("started", doing.settings)

    def _end(self, ref: Any) -> Iterator[Event]:
        doing = self.doing.pop(ref)
        with doing.held:
            last = self._outcome(ref, doing.settings)
        yield from self._started(doing)
        yield last

    def _outcome(self, ref: Any, settings: RunSettings) -> Event:
        errors = self.ray.exceptions
        try:
            outcome = self.ray.get(ref)
        except errors.RayTaskError as error:
            # Errors of a run are events; an exception here is about the worker.
            if any(text in str(error) for text in ("ImportError", "No module named", "failed to import")):
                raise InputError(
                    f"a node of the cluster cannot import noisegate; install version {__version__} on every "
                    f"node ({first_line(error.cause or error)})"
                ) from None
            return self._crashed(settings, f"its task failed: {first_line(error.cause or error)}", str(error))
        except errors.RayError as error:
            return self._crashed(
                settings, f"its worker died {RETRIES + 1} times: {first_line(error)}", str(error)
            )
        if outcome.kind == "stopped":
            if outcome.errno is not None:
                raise OSError(outcome.errno, outcome.message)
            raise InputError(outcome.message)
        if self.shared:
            return self._seen(settings, outcome)
        return self._stored(settings, outcome)

    def _crashed(self, settings: RunSettings, message: str, details: str) -> Event:
        with contextlib.ExitStack() as stack:
            if self.shared:
                try:
                    stack.enter_context(locked(self.store.path(settings), "running this run"))
                except BusyError as error:
                    # Ray lost the node, but its process still executes the run.
                    return Event("busy", settings, str(error))
            self.store.fail(settings, "crashed", message, traceback=details)
        return Event("crashed", settings, message)

    def _seen(self, settings: RunSettings, outcome: Outcome) -> Event:
        """The event of a run whose task stored the result, once the result is visible here."""
        deadline = time.monotonic() + VISIBLE
        while outcome.kind == "finished" and self.store.result(settings) is None:
            if time.monotonic() > deadline:
                raise InputError(
                    f"{outcome.host} says that it stored {settings.label}, but {self.store.path(settings)} has no "
                    "result: the nodes do not share this folder; use --not-shared"
                )
            time.sleep(0.2)
        return Event(outcome.kind, settings, outcome.message)

    def _stored(self, settings: RunSettings, outcome: Outcome) -> Event:
        """Store a result that was sent back.

        This process has held the run's lock since submitting it.
        """
        if outcome.kind == "finished":
            # Arrays from Ray are read-only shared memory: copy them.
            self.store.save(settings, outcome.content, {n: np.array(a) for n, a in outcome.arrays.items()})
        elif outcome.kind != "busy":
            ours = {"status", "error", "settings", "noisegate"}
            more = {name: value for name, value in outcome.content.items() if name not in ours}
            self.store.fail(settings, outcome.kind, outcome.message, **more)
        return Event(outcome.kind, settings, outcome.message)

    def stop(self) -> None:
        """Cancel unfinished tasks: interrupt them, then kill those that do not stop."""
        doing, self.doing = self.doing, {}
        try:
            if self.ray.is_initialized():
                self._cancel(list(doing))
                self.ray.kill(self.news)
        finally:
            for each in doing.values():
                each.held.close()

    def _cancel(self, refs: list[Any]) -> None:
        for force in (False, True):
            for ref in refs:
                self.ray.cancel(ref, force=force, recursive=False)
            if refs:
                _, refs = self.ray.wait(refs, num_returns=len(refs), timeout=GRACE)
