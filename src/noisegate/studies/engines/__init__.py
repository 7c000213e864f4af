"""Engines: where a study's runs are executed."""

from __future__ import annotations

from noisegate.errors import InputError, UnknownNameError
from noisegate.studies.engines.base import Context, Engine

ENGINES = ("local", "ray")


def build(
    name: str,
    *,
    workers: int | None = None,
    address: str | None = None,
    shared: bool = True,
    cpus: float | None = None,
    gpus: float | None = None,
) -> Engine:
    """Build an engine by name.

    Parameters
    ----------
    workers : int, optional
        Number of runs at a time. Default: as many as fit.
    address : str, optional
        Address of a Ray cluster. Default: start one on this machine.
    shared : bool
        Whether the machines of a Ray cluster share the results folder. If not, results are sent
        back.
    cpus, gpus : float, optional
        Resources of one run on a Ray cluster: CPUs, and a share of a GPU.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    if name == "local":
        from noisegate.studies.engines.local import LocalEngine

        return LocalEngine(workers)
    if name == "ray":
        from noisegate.studies.engines.ray import RayEngine

        return RayEngine(address=address, workers=workers, shared=shared, cpus=cpus, gpus=gpus)
    raise UnknownNameError("engine", name, ENGINES)


__all__ = ["ENGINES", "Context", "Engine", "build"]
