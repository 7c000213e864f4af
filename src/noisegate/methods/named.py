"""Names that stand for plain training of one network on one objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method, build_objective
from noisegate.methods.direct import Direct
from noisegate.methods.registry import register, register_objective
from noisegate.objectives import (
    GCE,
    BackwardCorrection,
    BiTempered,
    Bootstrap,
    CrossEntropy,
    ForwardCorrection,
    Heteroscedastic,
    LabelSmoothing,
    LogisticNormal,
    NoiseAgainstNoise,
)
from noisegate.training.job import Job
from noisegate.training.phase import Phase, Phases


def symmetric_transition(n_classes: int, alpha: float) -> Tensor:
    """T = (1 - alpha) I + alpha/K J, float64 (K, K): with probability alpha a label is redrawn over all classes.

    >>> symmetric_transition(2, 0.5)
    tensor([[0.7500, 0.2500],
            [0.2500, 0.7500]], dtype=torch.float64)
    """
    if not 0 <= alpha < 1:
        raise InputError(f"alpha must lie in [0, 1), got {alpha!r}")
    return (1 - alpha) * torch.eye(n_classes, dtype=torch.float64) + alpha / n_classes


@dataclass
class SymmetricCorrection(Method):
    """Plain training on a loss corrected by T = (1 - alpha) I + alpha/K J.

    T is a guess and alpha a tuning parameter; values well above the true rate can be best. For an estimated
    T see `forward` and `backward`.

    Parameters
    ----------
    alpha : float
        In [0, 1); 0 is no correction. For symmetric noise drawn over all classes the matching value is the
        noise rate.
    base : str, optional
        Name of the objective to correct. Default: cross-entropy.

    References
    ----------
    Patrini et al. Making deep neural networks robust to label noise: a loss correction approach. CVPR 2017.
    Lukasik et al. Does label smoothing mitigate label noise? ICML 2020 (alpha as a tuning parameter).
    """

    alpha: float = 0.1
    base: str | None = None

    takes_maps: ClassVar[bool] = True
    correction: ClassVar[type[ForwardCorrection] | type[BackwardCorrection]]
    #: The supported bases, and why others are not.
    bases: ClassVar[tuple[str, ...]]
    why: ClassVar[str]

    def phases(self, job: Job) -> Phases:
        transition = symmetric_transition(job.n_classes, self.alpha)
        base = build_objective(
            CrossEntropy if self.base is None else self.base,
            job.n_classes,
            allowed=self.bases,
            method=type(self).__name__,
            why=self.why,
        )
        objective = self.correction(job.n_classes, transition, base)
        network = job.network(objective)
        yield Phase(Direct(network, objective), job.recipe)
        return Fitted(network, objective, transition=transition)


class SymmetricForward(SymmetricCorrection):
    """Forward correction, -log (T'p)_y, by T = (1 - alpha) I + alpha/K J.

    `base` gives p. See `SymmetricCorrection` for the parameters.
    """

    correction = ForwardCorrection
    bases = ("CrossEntropy", "BiTempered", "Heteroscedastic")
    why = "it corrects probabilities, so that the base must learn through its probabilities alone"


class SymmetricBackward(SymmetricCorrection):
    """Backward correction, sum_j inv(T)[y, j] l_j, by T = (1 - alpha) I + alpha/K J.

    `base` gives the costs l. See `SymmetricCorrection` for the parameters.
    """

    correction = BackwardCorrection
    bases = (
        "CrossEntropy",
        "LabelSmoothing",
        "GCE",
        "BiTempered",
        "NoiseAgainstNoise",
        "Bootstrap",
        "Heteroscedastic",
    )
    why = "it subtracts costs of other labels, which has no limit where they grow like a square"


_COLLIER = "Collier et al. 2020, input-dependent label noise"

register_objective("ce", CrossEntropy, "the common baseline")
register_objective("ls", LabelSmoothing, "Lukasik et al. 2020, label smoothing under label noise")
_PATRINI = "Patrini et al. 2017, loss correction; Lukasik et al. 2020"
register("fc", "forward correction by a symmetric T of a given alpha", _PATRINI)(SymmetricForward)
register("bc", "backward correction by a symmetric T of a given alpha", _PATRINI)(SymmetricBackward)
register_objective("gce", GCE, "Zhang and Sabuncu 2018, generalised cross-entropy")
register_objective("bi-tempered", BiTempered, "Amid et al. 2019, bi-tempered logistic loss")
register_objective("nan", NoiseAgainstNoise, "Chen et al. 2021, noise against noise")
register_objective("bootstrap", Bootstrap, "Reed et al. 2015, bootstrapping")
register_objective(
    "het",
    Heteroscedastic,
    "Kendall and Gal 2017, uncertainties in computer vision",
    summary="heteroscedastic: logits with predicted independent noise",
)
# 10 is the median and the most frequent of the temperatures that the Logistic-Normal paper's search
# chose under noise (its tables 4 to 6), for both of the next; 1 is the most frequent rank.
register_objective(
    "het-tau",
    Heteroscedastic,
    _COLLIER,
    summary="heteroscedastic with a temperature to tune",
    temperature=10.0,
)
register_objective(
    "het-full",
    Heteroscedastic,
    "Collier et al. 2021, correlated input-dependent label noise",
    summary="heteroscedastic with noise correlated between classes, and a temperature to tune",
    temperature=10.0,
    covariance="low-rank",
    rank=1,
)
register_objective("ln", LogisticNormal, "Englesson et al. 2023, Logistic-Normal likelihoods")
