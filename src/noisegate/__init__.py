"""noisegate: learning from labels that are partly wrong.

Names are imported when they are first used, so that `import noisegate` and `noisegate --help` stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from noisegate._version import __version__

if TYPE_CHECKING:
    from noisegate import data, errors, evaluation, methods, networks, noise, objectives, studies, training
    from noisegate.estimator import NoisyLabelClassifier
    from noisegate.fitted import Fitted
    from noisegate.methods.base import Phase
    from noisegate.objectives import (
        GCE,
        BackwardCorrection,
        BiTempered,
        Bootstrap,
        CrossEntropy,
        ForwardCorrection,
        Heteroscedastic,
        LabelSmearing,
        LabelSmoothing,
        LogisticNormal,
        NoiseAgainstNoise,
    )
    from noisegate.objectives.distribution import LogisticNormalDistribution
    from noisegate.training.recipe import Recipe
    from noisegate.training.run import train

_HOMES = {
    "CrossEntropy": "noisegate.objectives",
    "LabelSmoothing": "noisegate.objectives",
    "LabelSmearing": "noisegate.objectives",
    "ForwardCorrection": "noisegate.objectives",
    "BackwardCorrection": "noisegate.objectives",
    "GCE": "noisegate.objectives",
    "BiTempered": "noisegate.objectives",
    "NoiseAgainstNoise": "noisegate.objectives",
    "Bootstrap": "noisegate.objectives",
    "Heteroscedastic": "noisegate.objectives",
    "LogisticNormal": "noisegate.objectives",
    "LogisticNormalDistribution": "noisegate.objectives.distribution",
    "Recipe": "noisegate.training.recipe",
    "train": "noisegate.training.run",
    "Phase": "noisegate.methods.base",
    "Fitted": "noisegate.fitted",
    "NoisyLabelClassifier": "noisegate.estimator",
}
_PARTS = ("data", "errors", "evaluation", "methods", "networks", "noise", "objectives", "studies", "training")

__all__ = [
    "GCE",
    "BackwardCorrection",
    "BiTempered",
    "Bootstrap",
    "CrossEntropy",
    "Fitted",
    "ForwardCorrection",
    "Heteroscedastic",
    "LabelSmearing",
    "LabelSmoothing",
    "LogisticNormal",
    "LogisticNormalDistribution",
    "NoiseAgainstNoise",
    "NoisyLabelClassifier",
    "Phase",
    "Recipe",
    "__version__",
    "data",
    "errors",
    "evaluation",
    "methods",
    "networks",
    "noise",
    "objectives",
    "studies",
    "train",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"noisegate.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'noisegate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
