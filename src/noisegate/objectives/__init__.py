"""Objectives: losses for noisy labels, and the probabilities that outputs stand for."""

import importlib
import pkgutil

from noisegate.objectives.base import Objective, objective_parameters, total_weight, weighted_mean
from noisegate.objectives.cross_entropy import CrossEntropy
from noisegate.objectives.heteroscedastic import Heteroscedastic
from noisegate.objectives.logistic_normal import LogisticNormal
from noisegate.objectives.robust import GCE, BiTempered, Bootstrap, NoiseAgainstNoise
from noisegate.objectives.smearing import (
    BackwardCorrection,
    ForwardCorrection,
    LabelSmearing,
    LabelSmoothing,
)

# A new objective is one new file: defining the class registers it.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

#: Every objective class by its name, users' own among them: what `noisegate list objectives` shows.
OBJECTIVES = Objective.classes

__all__ = [
    "GCE",
    "OBJECTIVES",
    "BackwardCorrection",
    "BiTempered",
    "Bootstrap",
    "CrossEntropy",
    "ForwardCorrection",
    "Heteroscedastic",
    "LabelSmearing",
    "LabelSmoothing",
    "LogisticNormal",
    "NoiseAgainstNoise",
    "Objective",
    "objective_parameters",
    "total_weight",
    "weighted_mean",
]
