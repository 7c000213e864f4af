"""Where the folds of an audit are trained: in this process, in several here, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate._version import __version__
from noisegate.errors import InputError, NoisegateError, UnknownNameError, first_line

if TYPE_CHECKING:
    from noisegate.auditing.crossfit import Fold

ENGINES = ("local", "ray")
Results = Iterator[tuple[int, dict[str, Any]]]


@dataclass(frozen=True)
class Where:
    """Where folds are trained.

    Attributes
    ----------
    folder : Path or None
        For finished folds and checkpoints: if the process is killed, the same call resumes.
    engine : {"local", "ray"}
    workers : int
        Number of folds at a time on this machine; 1 trains them in this process, one after the other.
        Ray trains as many as the cluster holds.
    address : str or None
        Address of a Ray cluster.
    """

    folder: Path | None = None
    engine: str = "local"
    workers: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise UnknownNameError("engine", self.engine, ENGINES)
        if self.workers < 1:
            raise InputError(f"workers must be at least 1, got {self.workers}")

    def train(self, folds: Mapping[int, Fold]) -> Results:
        """Yield (number, what `Fold.run` returns), in the order in which folds end."""
        if self.engine == "ray" and folds:
            return _by_ray(folds, self.address)
        if self.workers > 1 and len(folds) > 1:
            return _by_processes(folds, min(self.workers, len(folds)))
        return ((number, fold.run()) for number, fold in folds.items())


def _by_processes(folds: Mapping[int, Fold], workers: int) -> Results:
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_limit_threads, initargs=(workers,)
    )
    with pool:
        waiting = {pool.submit(fold.run): number for number, fold in folds.items()}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool:
            raise InputError(
                "a process that trained a fold died, perhaps for lack of memory; folds that had ended are "
                "stored if the audit has a folder: call it again, with fewer workers"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _limit_threads(workers: int) -> None:
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // workers))


# -- on a Ray cluster ------------------------------------------------------------------------------


def _by_ray(folds: Mapping[int, Fold], address: str | None) -> Results:
    """Train each fold as a Ray task, like a run of a study. If its worker or node dies, another one retries it."""
    from noisegate.studies.engines.ray import RETRIES, RayEngine, nodes_of
    from noisegate.studies.engines.ray_session import session

    device = next(iter(folds.values())).fitting.device
    with session(address) as ray:
        share = RayEngine(address).share(nodes_of(ray), device)
        options = {"num_cpus": share.cpus, "num_gpus": share.gpus, "max_retries": RETRIES}
        task = ray.remote(_task)
        device = "cuda" if share.gpus else "cpu"
        waiting = {}
        for number, fold in folds.items():
            there = replace(fold, fitting=replace(fold.fitting, device=device))
            name = f"noisegate:fold-{number + 1}"
            waiting[task.options(name=name, **options).remote(there, share.threads, __version__)] = number
        try:
            while waiting:
                (ready,), _ = ray.wait(list(waiting), num_returns=1)
                number = waiting.pop(ready)
                yield number, _fetched(ray, ready, number)
        finally:
            for ref in waiting:
                ray.cancel(ref, force=True)


def _task(fold: Fold, threads: int, version: str) -> dict[str, Any]:
    """What a worker of the cluster does. A node that does not see the folder trains without checkpoints."""
    import torch

    if version != __version__:
        raise InputError(f"noisegate is {__version__} on a node and {version} where the audit was started")
    torch.set_num_threads(threads)
    if fold.folder is not None and not fold.folder.parent.is_dir():
        fold = replace(fold, folder=None)
    return fold.run()


def _fetched(ray: Any, ref: Any, number: int) -> dict[str, Any]:
    """The result of a task. Ray's arrays lie in its shared memory, which ends with the session: copy them."""
    try:
        return {name: np.array(value) for name, value in ray.get(ref).items()}
    except ray.exceptions.RayTaskError as error:
        cause = error.cause or error
        if isinstance(cause, NoisegateError):
            raise cause from None
        raise InputError(f"fold {number + 1} failed on the Ray cluster: {first_line(cause)}") from error
    except ray.exceptions.RayError as error:
        raise InputError(
            f"the workers of fold {number + 1} died again and again: {first_line(error)}; folds that had ended "
            "are stored if the audit has a folder"
        ) from None
