"""Estimates that several methods need: out-of-sample probabilities, the noise rate, T.

Each is a generator of phases that a method delegates to: `rate = yield from noise_rate(job,
"estimate")`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from noisegate.data.loader import Rows
from noisegate.errors import InputError, is_real
from noisegate.evaluation.passes import predict
from noisegate.methods.direct import Direct
from noisegate.noise.transition import estimate_noise_rate, estimate_transition
from noisegate.objectives import CrossEntropy, Objective
from noisegate.objectives.smearing import MatrixLike
from noisegate.objectives.smearing import transition_matrix as checked_transition
from noisegate.training.job import Job
from noisegate.training.phase import History, Phase
from noisegate.training.recipe import Recipe

Found = TypeVar("Found")
#: A part of a method: a generator of phases that returns its result.
Estimate = Generator[Phase, History, Found]

ESTIMATE = "estimate"


class EstimatedTransition(NamedTuple):
    """A transition matrix, and the network it was estimated with, if that was trained on all rows."""

    transition: Tensor
    network: nn.Module | None


# Parameter checks that methods share. Constructors only store, so training begins with them.


def check_number(name: str, value: Any, low: float, high: float = math.inf, *, below: bool = False) -> float:
    """Check a real number in [low, high], or in [low, high) with `below`; return it as a float.

    >>> check_number("decay", 0.9, 0, 1, below=True)
    0.9
    """
    if not is_real(value) or value < low or value > high or (below and value == high):
        upper = "" if math.isinf(high) else f" and {'below' if below else 'at most'} {high:g}"
        raise InputError(f"{name} must be a number of at least {low:g}{upper}, got {value!r}")
    return float(value)


def check_count(name: str, value: Any, least: int = 0, *, optional: bool = False) -> None:
    """Check a whole number of at least `least`; None is accepted if `optional`."""
    if optional and value is None:
        return
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        words = " or None" if optional else ""
        raise InputError(f"{name} must be a whole number of at least {least}{words}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Check that a value is one of `choices`."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


# Lengths of stages.


def steps_per_epoch(recipe: Recipe, n_rows: int) -> int:
    """Updates in one pass over `n_rows` rows; batches are full."""
    return n_rows // min(recipe.batch_size, n_rows)


def lasting(recipe: Recipe, epochs: int | None, n_rows: int) -> Recipe:
    """Change the length of a recipe to `epochs` passes over `n_rows` rows; None keeps it.

    A recipe in steps stays one in steps, because its milestones and its warm-up are in steps too.

    >>> lasting(Recipe(steps=1000, epochs=None, batch_size=100), 3, 550).steps
    15
    """
    if epochs is None:
        return recipe
    if recipe.steps is None:
        return recipe.replace(epochs=int(epochs))
    return recipe.replace(steps=int(epochs) * steps_per_epoch(recipe, n_rows))


def length_in_epochs(recipe: Recipe, n_rows: int) -> int:
    """The length of a recipe in passes over `n_rows` rows, rounded up."""
    if recipe.epochs is not None:
        return recipe.epochs
    return math.ceil(int(recipe.steps or 1) / steps_per_epoch(recipe, n_rows))


# Probabilities of rows under networks that have not seen them.


class Watched(Direct):
    """A network that trains on some rows and keeps its best predictions of other rows.

    After each epoch it predicts the watched rows. `probs` keeps the probabilities of the epoch with the
    highest mean log-likelihood of their observed labels, before the network memorises wrong labels.

    Parameters
    ----------
    network, objective
        As in `Direct`.
    watched : Rows
        Rows the network is not trained on.
    """

    probs: Tensor
    score: Tensor

    def __init__(self, network: nn.Module, objective: Objective, watched: Rows) -> None:
        super().__init__(network, objective)
        self.watched = watched
        width = (len(watched), objective.n_classes)
        self.register_buffer("probs", torch.full(width, 1.0 / objective.n_classes, device=watched.device))
        self.register_buffer("score", torch.full((), -torch.inf, device=watched.device))

    def begin_epoch(self, epoch: int, job: Job) -> None:
        if epoch:
            self.look()

    @torch.no_grad()
    def look(self) -> None:
        """Predict the watched rows, and keep the prediction if it is the best so far."""
        probs = predict(self.network, self.objective, self.watched).to(self.probs.dtype)
        given = probs.gather(1, self.watched.y.unsqueeze(1))
        score = given.clamp_min(torch.finfo(given.dtype).tiny).log().mean()
        self.probs.copy_(torch.where(score > self.score, probs, self.probs))
        self.score.copy_(torch.maximum(score, self.score))


def out_of_sample_probs(job: Job, *, folds: int = 3, epochs: int | None = None) -> Estimate[Tensor]:
    """Predict every training row with a network that was not trained on it.

    Rows are assigned to folds at random, with every class spread evenly. For each fold a network is trained
    by cross-entropy on the others. Its predictions for the fold are those of the epoch in which the fold's
    observed labels were most likely, before it memorises wrong labels.

    Parameters
    ----------
    job : Job
    folds : int
        At least 2; no more than there are rows.
    epochs : int, optional
        Length of each training. Default: a third of the recipe's, but at least 10 epochs if the recipe has
        as many.

    Returns
    -------
    tensor (N, K)
        In the order of the training rows, on the device.
    """
    check_count("folds", folds, 2)
    check_count("epochs", epochs, 1, optional=True)
    labels = job.train.y
    if labels.dim() != 1:
        raise InputError(f"one label a row is needed to estimate noise, got labels of shape {labels.shape}")
    fold = deal_folds(labels, min(folds, len(labels)))
    probs = job.per_example(job.n_classes)
    for number in range(min(folds, len(labels))):
        rows, held = (torch.nonzero(mask).squeeze(1) for mask in (fold != number, fold == number))
        objective = CrossEntropy(job.n_classes)
        module = Watched(job.network(objective), objective, some_rows(job.train, held))
        recipe = _fold_recipe(job.recipe, epochs, len(rows))
        yield Phase(module, recipe, rows=rows, keep="last", name=f"fold {number + 1} of {folds}")
        module.look()
        probs[held] = module.probs
    return probs


def deal_folds(labels: Tensor, folds: int) -> Tensor:
    """Assign a random fold to every row, with every class spread evenly."""
    shuffled = torch.randperm(len(labels), device=labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    fold = torch.empty_like(labels)
    fold[by_class] = torch.arange(len(labels), device=labels.device) % folds
    return fold


def some_rows(rows: Rows, index: Tensor) -> Rows:
    """Select rows by their numbers, on the same device."""
    picked = index.cpu().numpy()
    source = rows.source[picked] if isinstance(rows.source, np.ndarray) else rows.source.take(picked)
    return Rows(source, rows.y[index].cpu().numpy(), rows.device)


def _fold_recipe(recipe: Recipe, epochs: int | None, n_rows: int) -> Recipe:
    if epochs is None:
        whole = length_in_epochs(recipe, n_rows)
        epochs = max(min(10, whole), math.ceil(whole / 3))
    # The best epoch is found by the watched rows: nothing here needs validation rows or averaged
    # weights.
    return lasting(recipe, epochs, n_rows).replace(keep="last", patience=None, ema=0.0)


def noise_rate(job: Job, value: float | str, *, folds: int = 3, epochs: int | None = None) -> Estimate[float]:
    """Return the share of wrong labels: the given number, or for "estimate" that of the confident joint.

    Parameters
    ----------
    job : Job
    value : float or "estimate"
        A number in [0, 1) is returned as it is.
    folds, epochs
        For the out-of-sample probabilities behind the estimate, see `out_of_sample_probs`.

    Returns
    -------
    float

    Notes
    -----
    Rows that the networks get wrong count as noise, so a recipe that is too short gives a too high estimate.
    On the digits with 40 % of the labels wrong it is 0.43 after 8 epochs.

    References
    ----------
    Northcutt, Jiang, Chuang. Confident learning: estimating uncertainty in dataset labels. JAIR 2021.
    """
    if isinstance(value, str):
        check_choice("noise_rate", value, (ESTIMATE,))
        probs = yield from out_of_sample_probs(job, folds=folds, epochs=epochs)
        return estimate_noise_rate(probs.double().cpu().numpy(), job.train.y.cpu().numpy())
    return check_number("noise_rate", value, 0, 1, below=True)


def transition_matrix(
    job: Job,
    value: MatrixLike | str,
    *,
    percentile: float | None = None,
    epochs: int | None = None,
    folds: int = 0,
    keep: str | None = None,
) -> Estimate[EstimatedTransition]:
    """Return T[i, j] = P(observed j | clean i): the given matrix, or an estimate from one example per class.

    A network is trained by cross-entropy; row i of T is its prediction for the training row whose
    probability of class i is at the percentile, normalised (`noisegate.noise.estimate_transition`).

    Parameters
    ----------
    job : Job
    value : array (K, K) or "estimate"
        A given matrix is checked and returned.
    percentile : float, optional
        97 in the original, 99.9 in the label-smoothing paper. None: chosen by the size of the class.
    epochs : int, optional
        Length of that training. Default: the recipe's, as in the papers.
    folds : int
        0: the network predicts the rows that it was trained on, as in the papers. If it has memorised wrong
        labels, T then looks like the identity. 2 or more: use `out_of_sample_probs` instead.
    keep : {"last", "best", "ema"}, optional
        Which weights to keep after that training. Default: the recipe's choice.

    Returns
    -------
    EstimatedTransition
        The matrix, float64 (K, K) with rows that sum to one, and the network, if one was trained on
        all rows.

    References
    ----------
    Patrini, Rozza, Menon, Nock, Qu. Making deep neural networks robust to label noise: a loss correction
    approach. CVPR 2017.
    """
    if not isinstance(value, str):
        return EstimatedTransition(checked_transition(value, job.n_classes), None)
    check_choice("transition", value, (ESTIMATE,))
    network: nn.Module | None = None
    if folds:
        probs = yield from out_of_sample_probs(job, folds=folds, epochs=epochs)
    else:
        objective = CrossEntropy(job.n_classes)
        network = job.network(objective)
        recipe = lasting(job.recipe, epochs, len(job.train))
        yield Phase(Direct(network, objective), recipe, keep=keep, name="estimating T")
        probs = job.predict(network, objective)
    found = estimate_transition(probs.double().cpu().numpy(), percentile=percentile)
    return EstimatedTransition(torch.from_numpy(found), network)
