"""Objectives: what the outputs of a network mean, what they cost, which probabilities they stand for."""

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

#: The objectives of this package by the name of their class: what is listed, and what the contract tests cover.
OBJECTIVES: dict[str, type[Objective]] = {
    kind.__name__: kind
    for kind in (
        CrossEntropy,
        LabelSmoothing,
        LabelSmearing,
        ForwardCorrection,
        BackwardCorrection,
        GCE,
        BiTempered,
        NoiseAgainstNoise,
        Bootstrap,
        Heteroscedastic,
        LogisticNormal,
    )
}

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
