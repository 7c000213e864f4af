"""Cross-entropy."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from noisegate.objectives.base import Objective


class CrossEntropy(Objective):
    """Cross-entropy: the cost of label y is -log softmax(f)_y.

    Parameters
    ----------
    n_classes : int
        Number of classes K; the network gives K outputs.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.CrossEntropy(3)
    >>> objective.n_outputs
    3
    >>> objective(torch.zeros(2, 3), torch.tensor([0, 2]))
    tensor(1.0986)
    """

    ranks_by_outputs: ClassVar[bool] = True
    summary: ClassVar[str] = "cross-entropy, the baseline that memorises wrong labels"

    def costs(self, outputs: Tensor) -> Tensor:
        return -self.log_probs(outputs)

    def log_probs(self, outputs: Tensor) -> Tensor:
        return F.log_softmax(self.check_outputs(outputs), dim=1)

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")
