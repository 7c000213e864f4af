"""What the given labels are worth, and whether weighing them by it seems to do harm."""

from __future__ import annotations

import torch
from torch import Tensor

from noisegate.methods.auto.logistic import fold_probs
from noisegate.methods.auto.scores import mean_and_error, spherical_score
from noisegate.methods.estimation import deal_folds
from noisegate.quality import judge

FOLDS = 5
#: Hand over this many rows at most: the limit below is for numbers of rows like this one.
MOST_ROWS = 4000
#: Fewer rows tell nothing.
FEWEST_ROWS = 20
#: Weighing labels is taken to do harm where it costs more than this many standard errors of the score.
LIMIT = 3.5


def label_weights(probs: Tensor, y: Tensor) -> Tensor:
    """The probability that each given label is right, by held-out probabilities, `(N, K)` -> `(N,)`.

    >>> import torch
    >>> probs = torch.tensor([[0.9, 0.1]] * 6 + [[0.1, 0.9]] * 6)
    >>> label_weights(probs, torch.tensor([0] * 5 + [1] * 7)).argmin()
    tensor(5)
    """
    wrong = judge(probs.double().cpu().numpy(), y.cpu().numpy()).wrong
    return torch.from_numpy(1 - wrong).to(probs)


def gentle_weights(probs: Tensor, y: Tensor) -> Tensor:
    """p(given) / max p: small only where another class is much more probable, `(N, K)` -> `(N,)`.

    >>> import torch
    >>> gentle_weights(torch.tensor([[0.8, 0.2], [0.8, 0.2]]), torch.tensor([0, 1]))
    tensor([1.0000, 0.2500])
    """
    given = probs.gather(1, y[:, None]).squeeze(1)
    return given / probs.max(1).values.clamp_min(1e-12)


def does_harm(x: Tensor, y: Tensor, n_classes: int, weight: Tensor, penalty: float, n_steps: int) -> bool:
    """Whether models of weighed labels explain given labels much worse, on rows that neither has seen.

    Most noise is no better explained by a model that has learnt it, so weighing labels costs nothing.
    Where labels follow rules that the inputs show, or the classifier doubts right labels, it makes
    held-out labels less probable; so does strong noise that moves a class to one other class, which
    held-out labels alone cannot tell from a rule. No weight depends on a label it is judged
    by: for each fold f, the rows outside are weighed by models that have seen neither f nor the
    rows' own fold; then one model is fitted to these rows with the weights, one without, and both
    predict f.

    Parameters
    ----------
    x : tensor (N, d)
        Features for logistic regression.
    y : int64 tensor (N,)
    n_classes : int
    weight : tensor (N,)
        Of the rows, not negative.
    penalty : float
        As in `logistic_path`.
    n_steps : int

    Returns
    -------
    bool
        True if the mean spherical score falls by more than 3.5 standard errors, and where there are
        too few rows to tell.
    """
    if len(y) < FEWEST_ROWS:
        return True
    fold, rows = deal_folds(y, FOLDS), torch.arange(len(y), device=y.device)
    out = torch.nn.functional.one_hot(fold, FOLDS).bool()
    first, second = torch.triu_indices(FOLDS, FOLDS, 1, device=y.device)
    pairs = fold_probs(x, y, n_classes, _weights(~(out[:, first] | out[:, second]), weight), penalty, n_steps)
    plain = _weights(~out, weight)
    weighed = plain.clone()
    for f in range(FOLDS):
        inside = rows[fold != f]
        left_out = torch.stack([fold[inside].minimum(y.new_tensor(f)), fold[inside].maximum(y.new_tensor(f))])
        pair = ((first[:, None] == left_out[0]) & (second[:, None] == left_out[1])).int().argmax(0)
        weighed[inside, f] *= label_weights(pairs[inside, pair], y[inside]).clamp_min(1e-6)
    scores = [
        spherical_score(fold_probs(x, y, n_classes, each, penalty, n_steps)[rows, fold], y)
        for each in (weighed, plain)
    ]
    mean, error = mean_and_error((scores[0] - scores[1])[None], weight)
    return bool(mean < -LIMIT * error)


def _weights(trains: Tensor, weight: Tensor) -> Tensor:
    return trains.to(weight.dtype) * weight[:, None]
