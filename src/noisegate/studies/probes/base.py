"""The registry of probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from noisegate._registry import Registry

Probe = Callable[..., Mapping[str, Any]]
PROBES: Registry[Probe] = Registry("probe")


def register(name: str) -> Callable[[Probe], Probe]:
    """Register a probe under a name."""

    def add(probe: Probe) -> Probe:
        return PROBES.add(name, probe, probe.__module__)

    return add


def get(name: str) -> Probe:
    """Return the probe of a name."""
    return PROBES[name]
