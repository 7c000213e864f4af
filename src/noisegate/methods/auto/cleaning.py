"""What the given labels are worth, and whether the evidence says to use it."""

from __future__ import annotations

from torch import Tensor

from noisegate.methods.auto.scores import mean_and_error
from noisegate.methods.auto.stacking import Stack

#: The gain of held-out accuracy that is taken for more than chance, in standard errors.
SURE_GAIN = 2.0


def label_weights(probs: Tensor, y: Tensor) -> Tensor:
    """p(given) / max p of each row: 1 where the label is the most probable one, small where it is far from it.

    >>> import torch
    >>> label_weights(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1]))
    tensor([1.0000, 0.2500])
    """
    given = probs.gather(1, y[:, None]).squeeze(1)
    return given / probs.max(1).values.clamp_min(1e-12)


def evidence_supports(first: Stack, second: Stack, y: Tensor, weight: Tensor) -> bool:
    """Whether models of weighed labels repeat more of the given labels of rows they have not seen.

    A wrong label is hard to repeat for a model that has not seen it, so what makes held-out
    accuracy rise is better knowledge of the right ones. On clean or hard data weights take away
    rows that are right, and it falls. By chance it rises too: by two standard errors it must.
    """
    gains = [(each.probs.argmax(1) == y).double() for each in (second, first)]
    mean, error = mean_and_error((gains[0] - gains[1])[None], weight)
    return bool(mean > SURE_GAIN * error)
