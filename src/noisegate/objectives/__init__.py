"""Objectives: what the outputs of a network mean, what they cost, which probabilities they stand for."""

from noisegate.objectives.base import Objective, objective_parameters, weighted_mean
from noisegate.objectives.cross_entropy import CrossEntropy
from noisegate.objectives.logistic_normal import LogisticNormal

#: Every objective by the name of its class: what a saved model names, and what the contract tests run over.
OBJECTIVES: dict[str, type[Objective]] = {kind.__name__: kind for kind in (CrossEntropy, LogisticNormal)}

__all__ = [
    "OBJECTIVES",
    "CrossEntropy",
    "LogisticNormal",
    "Objective",
    "objective_parameters",
    "weighted_mean",
]
