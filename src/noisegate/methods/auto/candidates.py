"""The candidates of `auto` that need no gradient descent: linear, kernel, trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisegate.methods.auto.logistic import logistic_path
from noisegate.methods.auto.rows import TrainingRows
from noisegate.networks.forest import Forest
from noisegate.networks.shallow import LandmarkKernel, Linear, Scaled, squared_distances

#: Strengths of regularisation, as shares of the features' total variance.
LINEAR_PENALTIES = [10**power for power in (-5.5, -5, -4.5, -4, -3.5, -3, -2.5, -2, -1.5)]
KERNEL_PENALTIES = [10**power for power in (-4.5, -4, -3.5, -3, -2.5)]
#: Widths of kernels: gamma is one of these over the median squared distance.
KERNEL_SHARPNESS = (0.5, 2.0)
LANDMARKS = 800
#: Beyond this many rows every other strength and one width will do: regularisation matters less there.
MANY_ROWS = 20_000
#: Gradient steps of linear models and of kernels; half of them where there are many rows.
LINEAR_STEPS, KERNEL_STEPS = 60, 40
#: Standardised features are cut off here: one wild value should not decide a linear model.
LIMIT = 6.0
TREES = 100
#: A tree is grown on at most this many rows.
ROWS_OF_A_TREE = 10_000


@dataclass
class Candidate:
    """A classifier with one or more heads, and what it says about rows it was not trained on.

    Attributes
    ----------
    family : str
        What it is called, and by what it is fitted again on other weights.
    held_out : tensor (heads, N, K)
        Probabilities of every row by models that have not seen the row's label.
    network : nn.Module
        From standardised inputs to logits `(B, K)` or `(B, heads, K)`; trained on all rows, or the
        mean of the folds'.
    """

    family: str
    held_out: Tensor
    network: nn.Module


Fit = Callable[[TrainingRows], Candidate]


def views(rows: TrainingRows, deviation: Tensor) -> dict[str, Scaled]:
    """The scales that inputs may be taken on, by name.

    "each": every feature has variance 1, which suits tables; values beyond six deviations are cut
    off. "common": all features keep their own variance, divided by one number for all, which suits
    principal components and embeddings, whose directions of large variance carry the signal.

    Parameters
    ----------
    rows : TrainingRows
        Standardised.
    deviation : tensor (d,)
        What each feature was divided by.
    """
    dims = rows.x.shape[1]
    each = Scaled(dims)
    each.scale.fill_(1 / math.sqrt(dims))
    each.limit.fill_(LIMIT)
    common = Scaled(dims)
    varies = rows.x.std(0, correction=0) > 0
    deviation = deviation.to(rows.x).flatten() * varies
    common.scale.copy_(deviation / deviation.square().sum().sqrt().clamp_min(1e-30))
    return {"each": each.to(rows.x.device), "common": common.to(rows.x.device)}


def thinned(values: Sequence[float], rows: TrainingRows) -> list[float]:
    """All of some settings, or every other one where there are many rows."""
    return list(values if len(rows) <= MANY_ROWS else values[::2])


def fit_linear(
    rows: TrainingRows, view: Scaled, name: str, strengths: Sequence[int] | None = None
) -> Candidate:
    """Logistic regression at several strengths: all, or those of some places."""
    penalties = picked(thinned(LINEAR_PENALTIES, rows), strengths)
    steps = LINEAR_STEPS if len(rows) <= MANY_ROWS else LINEAR_STEPS // 2
    path = logistic_path(view(rows.x), rows.y, rows.n_classes, rows.once, rows.weight, penalties, steps)
    network = Linear(rows.x.shape[1], len(penalties), rows.n_classes).to(rows.x.device)
    _fill(network, view, path.weight, path.bias)
    return Candidate(name, path.held_out, network)


def picked(values: list[float], places: Sequence[int] | None) -> list[float]:
    """The values at some places, or all."""
    return values if places is None else [values[place] for place in places]


def fit_kernel(
    rows: TrainingRows,
    view: Scaled,
    name: str,
    sharpness: float,
    landmarks: Tensor,
    strengths: Sequence[int] | None = None,
) -> Candidate:
    """Kernel logistic regression at several strengths, on landmarks: some of the training inputs.

    The landmarks' labels are not used, so a row may be a landmark and yet held out.
    """
    features, chosen, whiten, gamma = kernel_features(rows, view, sharpness, landmarks)
    penalties = picked(thinned(KERNEL_PENALTIES, rows), strengths)
    path = logistic_path(
        features, rows.y, rows.n_classes, rows.once, rows.weight, penalties, kernel_steps(rows)
    )
    network = LandmarkKernel(rows.x.shape[1], len(chosen), len(penalties), rows.n_classes)
    network = network.to(rows.x.device)
    network.landmarks.copy_(chosen)
    network.gamma.fill_(gamma)
    _fill(network, view, path.weight @ whiten.T, path.bias)
    return Candidate(name, path.held_out, network)


def kernel_steps(rows: TrainingRows) -> int:
    """Gradient steps of a kernel model."""
    return KERNEL_STEPS if len(rows) <= MANY_ROWS else KERNEL_STEPS // 2


def kernel_features(
    rows: TrainingRows, view: Scaled, sharpness: float, landmarks: Tensor
) -> tuple[Tensor, Tensor, Tensor, float]:
    """Features `(N, r)` whose inner products are those of the kernel (Nystroem); landmarks, whitening, gamma."""
    viewed = view(rows.x)
    chosen = viewed[landmarks]
    between = squared_distances(chosen, chosen)
    apart = between[~torch.eye(len(chosen), dtype=torch.bool, device=chosen.device)]
    typical = float(apart.median()) if len(apart) else 1.0
    gamma = sharpness / max(typical, 1e-12)
    values, axes = torch.linalg.eigh(torch.exp(-gamma * between).double())
    kept = values > values[-1] * 1e-6
    whiten = (axes[:, kept] / values[kept].sqrt()).to(viewed.dtype)
    return torch.exp(-gamma * squared_distances(viewed, chosen)) @ whiten, chosen, whiten, gamma


def _fill(network: Linear | LandmarkKernel, view: Scaled, weight: Tensor, bias: Tensor) -> None:
    network.view.load_state_dict(view.state_dict())
    with torch.no_grad():
        network.weight.copy_(weight)
        network.bias.copy_(bias)
    network.requires_grad_(False)


def fit_forest(rows: TrainingRows, name: str, leaf: int, seed: int) -> Candidate:
    """A bootstrapped forest; a row is judged by the trees that were grown without it.

    Parameters
    ----------
    name : str
        "forest" for a random forest, "extra trees" for randomised thresholds.
    leaf : int
        The least number of rows in a leaf.
    """
    x, y = rows.x.float().contiguous().cpu().numpy(), rows.y.cpu().numpy()
    grown = grow(x, y, rows.weight.double().cpu().numpy(), name, leaf, seed)
    classes = np.unique(y)
    network = Forest.from_trees([tree for tree, _ in grown], classes, rows.n_classes)
    held = torch.zeros(len(rows), rows.n_classes)
    counts = torch.zeros(len(rows), 1)
    columns = torch.as_tensor(classes)
    for tree, drawn in grown:
        outside = np.ones(len(x), dtype=bool)
        outside[drawn] = False
        if not outside.any():  # few rows: a tree may have drawn them all
            continue
        where = torch.from_numpy(np.flatnonzero(outside))
        shares = torch.zeros(len(where), rows.n_classes)
        counted = torch.from_numpy(tree.predict(x[outside])).float()
        shares[:, columns] = counted / counted.sum(1, keepdim=True)
        held.index_add_(0, where, shares)
        counts.index_add_(0, where, torch.ones(len(where), 1))
    # A row that no tree left out: nothing is known about it.
    held = torch.where(counts > 0, held / counts.clamp_min(1), 1 / rows.n_classes)
    device = rows.x.device
    return Candidate(name, held.unsqueeze(0).to(device), network.to(device))


def grow(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    name: str,
    leaf: int,
    seed: int,
) -> list[tuple[Any, npt.NDArray[np.int64]]]:
    """The trees of scikit-learn's forests, and the rows that each of them drew.

    They are grown here because importing `sklearn.ensemble` and making a hundred estimators there takes as long as
    growing the trees of a small table.
    """
    from sklearn import config_context
    from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

    kind = ExtraTreeClassifier if name.startswith("extra") else DecisionTreeClassifier
    share, size = weight / weight.sum(), min(len(x), ROWS_OF_A_TREE)

    def one(seed: int) -> tuple[Any, npt.NDArray[np.int64]]:
        drawn = np.random.RandomState(seed).choice(len(x), size, p=share)
        tree = kind(min_samples_leaf=leaf, max_features="sqrt", random_state=seed)
        with config_context(skip_parameter_validation=True):  # it is set for each thread
            tree.fit(x, y, np.bincount(drawn, minlength=len(x)).astype(np.float64), check_input=False)
        return tree.tree_, drawn

    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=TREES).tolist()
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return list(pool.map(one, seeds))
