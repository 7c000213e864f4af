"""Names that stand for plain training of one network on one objective."""

from noisegate.methods.registry import register_objective
from noisegate.objectives import CrossEntropy, LogisticNormal

register_objective("ce", CrossEntropy, "the common baseline")
register_objective("ln", LogisticNormal, "Englesson et al. 2023, Logistic-Normal likelihoods")
