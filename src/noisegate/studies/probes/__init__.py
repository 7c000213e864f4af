"""Probes: measurements of a trained network beyond its metrics, for figures and tables.

A probe is a function `(fitted, data, **options) -> dict`: arrays are stored for the figures, plain
numbers join the run's metrics. Every file of this folder is imported; `@register(name)`
adds a probe.
"""

from __future__ import annotations

import importlib
import pkgutil

from noisegate.studies.probes.base import PROBES, Probe, get, register

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["PROBES", "Probe", "get", "register"]
