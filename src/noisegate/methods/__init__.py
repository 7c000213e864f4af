"""Methods: how a noisy dataset becomes a classifier.

To add a method, call `register` in a file in this folder (or anywhere else).
"""

import importlib
import pkgutil

from noisegate.methods.base import Method
from noisegate.methods.direct import Direct, Plain
from noisegate.methods.registry import METHODS, MethodEntry, get, register, register_objective
from noisegate.training.phase import Batch, Phase, PhaseModule, Update

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = [
    "METHODS",
    "Batch",
    "Direct",
    "Method",
    "MethodEntry",
    "Phase",
    "PhaseModule",
    "Plain",
    "Update",
    "get",
    "register",
    "register_objective",
]
