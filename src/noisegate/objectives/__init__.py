"""Objectives: what the outputs of a network mean, what they cost, which probabilities they stand for."""

from noisegate.objectives.base import Objective, objective_parameters, weighted_mean
from noisegate.objectives.cross_entropy import CrossEntropy
from noisegate.objectives.logistic_normal import LogisticNormal

#: The objectives of this package by the name of their class: what is listed, and what the contract tests cover.
OBJECTIVES: dict[str, type[Objective]] = {kind.__name__: kind for kind in (CrossEntropy, LogisticNormal)}

__all__ = [
    "OBJECTIVES",
    "CrossEntropy",
    "LogisticNormal",
    "Objective",
    "objective_parameters",
    "weighted_mean",
]
