"""The registry of probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from noisegate.errors import UnknownNameError

Probe = Callable[..., Mapping[str, Any]]
PROBES: dict[str, Probe] = {}


def register(name: str) -> Callable[[Probe], Probe]:
    """Give a probe its name."""

    def add(probe: Probe) -> Probe:
        PROBES[name] = probe
        return probe

    return add


def get(name: str) -> Probe:
    """The probe of a name."""
    if name not in PROBES:
        raise UnknownNameError("probe", name, PROBES)
    return PROBES[name]
