"""What a worker of a Ray cluster does: one run, and news of it for the process that drives the study."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from noisegate._io.files import read_json
from noisegate._version import __version__
from noisegate.errors import InputError, NoisegateError
from noisegate.runs.memory import memory_kept
from noisegate.studies.execute import Event, events
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store

#: Seconds between two events about epochs of the same run.
QUIET = 1.0


class News:
    """An actor that collects the progress of tasks for the driver."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, Any] | None] = {}

    def tell(self, key: str, progress: dict[str, Any] | None) -> None:
        self._latest[key] = progress

    def take(self) -> dict[str, dict[str, Any] | None]:
        latest, self._latest = self._latest, {}
        return latest


@dataclass(frozen=True)
class Order:
    """What a task needs besides its run; `out` is None if results are sent back."""

    out: str | None
    root: str | None
    default_root: str
    device: str
    threads: int
    version: str = __version__
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def data_root(self) -> str | None:
        """The data root: as requested, else the node's own, else the driver's."""
        return self.root or os.environ.get("NOISEGATE_DATA") or self.default_root


@dataclass(frozen=True)
class Outcome:
    """How a task ended: the kind of the run's last event, or "stopped" if the study must stop."""

    kind: str
    message: str = ""
    errno: int | None = None
    content: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    host: str = field(default_factory=socket.gethostname)


def task(settings: RunSettings, order: Order, news: Any) -> Outcome:
    """Do one run. Ray gives the process its GPU by $CUDA_VISIBLE_DEVICES."""
    import torch

    torch.set_num_threads(order.threads)
    try:
        if order.version != __version__:
            raise InputError(
                f"noisegate is {__version__} here and {order.version} where the study was started"
            )
        if order.out is None:
            return _do_away(settings, order, news)
        return _do_there(settings, order, news)
    except (NoisegateError, OSError) as error:
        message = f"on node {socket.gethostname()}: {error}"
        return Outcome("stopped", message, getattr(error, "errno", None))


def _do_there(settings: RunSettings, order: Order, news: Any) -> Outcome:
    """Execute in the shared folder."""
    folder = Path(str(order.out))
    if not (folder / "store.json").exists():
        raise InputError(f"there is no {folder}: the nodes do not share this folder; use --not-shared")
    last = _follow(settings, Store(folder), order, news)
    return Outcome(last.kind, last.message)


def _do_away(settings: RunSettings, order: Order, news: Any) -> Outcome:
    """Execute in a temporary folder.

    Its name is the call's token, so that a retry finds the checkpoint.
    """
    folder = Path(tempfile.gettempdir()) / f"noisegate-{order.token}-{settings.key}"
    if not (folder / "store.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    store, busy = Store(folder), False
    try:
        with memory_kept():
            last = _follow(settings, store, order, news)
        busy = last.kind == "busy"
        if last.kind != "finished":
            return Outcome(last.kind, last.message, content=store.failure(settings) or {})
        content = read_json(store.path(settings) / "result.json")
        return Outcome(last.kind, content=content, arrays=store.arrays(settings))
    finally:
        if not busy:
            shutil.rmtree(folder, ignore_errors=True)


def _follow(settings: RunSettings, store: Store, order: Order, news: Any) -> Event:
    """Execute a run, reporting its progress; return its last event."""
    told = -math.inf
    for event in events(settings, store, order.device, order.data_root()):
        if not event.final and time.monotonic() - told >= QUIET:
            told = time.monotonic() if event.kind == "epoch" else told
            news.tell.remote(settings.key, dict(event.progress) if event.kind == "epoch" else None)
    return event
