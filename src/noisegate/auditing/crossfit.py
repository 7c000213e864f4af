"""Out-of-fold probabilities of any method. Each fold is a run that can be stored and sent to another process."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import atomic, read_json, write_json
from noisegate._io.lock import locked
from noisegate.auditing.places import Where
from noisegate.data.arrays import read_npz
from noisegate.data.dataset import Dataset, Inputs, Split
from noisegate.errors import DamagedFileError, InputError, OtherRunError
from noisegate.fitted import Fitted
from noisegate.runs.identity import hashed, input_hash
from noisegate.training.recipe import Recipe

log = logging.getLogger("noisegate")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Fitting:
    """How the networks of an audit are trained: arguments of `noisegate.train`."""

    method: Any = "auto"
    network: Any = "auto"
    recipe: Recipe | Mapping[str, Any] | None = None
    seed: int = 0
    device: str = "auto"

    def described(self) -> dict[str, Any]:
        """Plain data, for identity and record."""
        method = self.method if isinstance(self.method, str) else repr(self.method)
        network = self.network if isinstance(self.network, str) else repr(self.network)
        recipe = self.recipe.to_dict() if isinstance(self.recipe, Recipe) else self.recipe
        return {"method": method, "network": network, "recipe": recipe, "seed": self.seed}


@dataclass(frozen=True)
class Fold:
    """One fold: rows to train on, rows to predict, folder of checkpoints. It can be sent to another process."""

    train: Dataset
    held: Any
    weight: Floats | None
    fitting: Fitting
    folder: Path | None
    embed: bool = False

    def run(self) -> dict[str, Any]:
        """Train, and predict the rows that were held out; with `embed` also the last layer's features of all."""
        from noisegate.runs.train import train

        fitted = train(
            self.train,
            self.fitting.method,
            self.fitting.network,
            self.fitting.recipe,
            self.fitting.seed,
            self.fitting.device,
            sample_weight=self.weight,
            folder=self.folder,
            evaluate_every=0,
            evidence=(),
        )
        found: dict[str, Any] = {"probs": fitted.predict_proba(self.held)}
        if self.embed:
            features, held = (last_layer(fitted, x) for x in (self.train.train.x, self.held))
            if features is not None and held is not None:
                found |= {"features": features, "held_features": held}
        return found


def last_layer(fitted: Fitted, x: Inputs) -> npt.NDArray[np.float32] | None:
    """What goes into the last linear layer of a network, (N, d); None where there is no such layer."""
    import torch
    from torch import nn

    from noisegate.data.loader import Rows

    seen: list[Any] = []
    width = fitted.objective.n_outputs

    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen[:] = [inputs[0]]

    layers = [m for m in fitted.network.modules() if isinstance(m, nn.Linear) and m.out_features == width]
    hooks = [layer.register_forward_pre_hook(keep) for layer in layers]
    device = next((p.device for p in fitted.network.parameters()), torch.device("cpu"))
    parts = []
    fitted.network.eval()
    try:
        with torch.no_grad():
            for batch in Rows(x, None, device).inputs(512):
                fitted.network(batch)
                if not seen or len(seen[0]) != len(batch):
                    return None
                parts.append(seen[0].flatten(1).float().cpu().numpy())
    finally:
        for hook in hooks:
            hook.remove()
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class Labels:
    """How the training rows of folds differ from the data: other labels, rows left out, weights."""

    y: Ints
    keep: npt.NDArray[np.bool_] | None = None
    weight: Floats | None = None


def check_folds(folds: Any, n: int) -> int:
    """The number of folds, at most the number of rows."""
    if not isinstance(folds, int) or folds < 2:
        raise InputError(f"folds must be a whole number of at least 2, got {folds!r}")
    return min(folds, n)


def deal(y: npt.ArrayLike, folds: int, seed: int) -> Ints:
    """Assign a random fold 0..folds-1 to every row, with every class spread evenly.

    >>> np.bincount(deal([0] * 6 + [1] * 4, 2, seed=0)).tolist()
    [5, 5]
    """
    labels = np.asarray(y)
    order = np.random.default_rng([seed, 0xF01D]).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    fold = np.empty(len(labels), dtype=np.int64)
    fold[by_class] = np.arange(len(labels)) % folds
    return fold


@dataclass(frozen=True, eq=False)
class CrossFit:
    """The output of a detector for every row.

    Attributes
    ----------
    probs : array (N, K)
        Out-of-fold probabilities.
    features : array (N, d) or None
        The last layer's features of the first fold's network.
    signals : mapping of arrays (N,)
        Further signals from training, by name; high where a label is likely wrong.
    """

    probs: npt.NDArray[np.floating[Any]]
    features: npt.NDArray[np.float32] | None = None
    signals: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)


def cross_fit(
    data: Dataset, fitting: Fitting, folds: int, where: Where, *, embed: bool = False, name: str = "folds"
) -> CrossFit:
    """Compute probabilities of every training row with networks that were not trained on it.

    Parameters
    ----------
    data : Dataset
        Its clean labels, validation and test rows are not used.
    fitting : Fitting
    folds : int
        At least 2, at most the number of rows.
    where : Where
    embed : bool, default=False
        Whether to return features.
    name : str, default="folds"
        Name of the sub-folder.
    """
    n = len(data.train)
    folds = check_folds(folds, n)
    fold = deal(data.train.y, folds, fitting.seed)
    held = [fold == number for number in range(folds)]
    found = hold_out(data, fitting, held, where, embed=embed, name=name)
    probs = np.empty((n, data.n_classes))
    for rows, result in zip(held, found, strict=True):
        probs[rows] = result["probs"]
    features = None
    if "features" in found[0]:
        features = np.empty((n, found[0]["features"].shape[1]), dtype=np.float32)
        features[~held[0]], features[held[0]] = found[0]["features"], found[0]["held_features"]
    return CrossFit(probs, features)


def hold_out(
    data: Dataset,
    fitting: Fitting,
    held: Sequence[npt.NDArray[np.bool_]],
    where: Where,
    *,
    labels: Sequence[Labels] = (),
    embed: bool = False,
    name: str = "folds",
) -> list[dict[str, Any]]:
    """For each set of rows, train a network on the other rows and predict these.

    Parameters
    ----------
    data, fitting, where
        As for `cross_fit`.
    held : sequence of bool arrays (N,)
        The sets of rows.
    labels : sequence of Labels, default=()
        Train on other labels or fewer rows than the data's: one for each set of rows.
    embed : bool, default=False
        Whether the first network's features are returned.
    name : str, default="folds"
        Name of the sub-folder.

    Returns
    -------
    list of dict
        probs, (M, K) for the M rows of each set; features and held_features if asked for.
    """
    folder = None if where.folder is None else where.folder / name
    used = list(labels) or [Labels(data.train.y)]
    found: dict[int, dict[str, Any]] = {}
    with _identified(folder, data, used, fitting, len(held)):
        tasks = {}
        for number, rows in enumerate(held):
            done = None
            if folder is not None:
                done = _stored(folder / f"fold-{number + 1}.npz", int(rows.sum()), data.n_classes)
            if done is not None:
                found[number] = done
            else:
                mine = used[number] if labels else used[0]
                tasks[number] = _fold(data, mine, rows, number, fitting, folder, embed and number == 0)
        for number, result in where.train(tasks):
            found[number] = result
            if folder is not None:
                with atomic(folder / f"fold-{number + 1}.npz") as file:
                    np.savez(file, **result)
    return [found[number] for number in range(len(held))]


def _stored(path: Path, n: int, n_classes: int) -> dict[str, Any] | None:
    """What a finished fold found; None if there is no such file, or a damaged one."""
    if not path.exists():
        return None
    try:
        found: dict[str, Any] = read_npz(path)
    except DamagedFileError as error:
        log.warning("%s; that fold is trained once more", error)
        return None
    if "probs" not in found or found["probs"].shape != (n, n_classes):
        log.warning("%s does not hold the probabilities of its fold; it is trained once more", path)
        return None
    return found


def _fold(
    data: Dataset,
    labels: Labels,
    held: npt.NDArray[np.bool_],
    number: int,
    fitting: Fitting,
    folder: Path | None,
    embed: bool,
) -> Fold:
    rows = ~held
    if labels.keep is not None:
        rows = rows & labels.keep
    index = np.flatnonzero(rows)
    part = data.train.take(index)
    train = replace(
        data, train=Split(part.x, labels.y[index]), validation=None, test=None, info={}, reader=None
    )
    weight = None if labels.weight is None else labels.weight[index]
    checkpoint = None if folder is None else folder / f"fold-{number + 1}"
    predicted = data.train.take(np.flatnonzero(held)).x
    return Fold(train, predicted, weight, replace(fitting, seed=fitting.seed + number), checkpoint, embed)


@contextlib.contextmanager
def _identified(
    folder: Path | None, data: Dataset, labels: Sequence[Labels], fitting: Fitting, folds: int
) -> Iterator[None]:
    """Hold the folder's lock; raise OtherRunError if it has folds of other data or settings."""
    if folder is None:
        yield
        return
    parts: list[Any] = [labels[0].y, input_hash(data.train.x)]
    parts += [part for each in labels for part in (each.keep, each.weight) if part is not None]
    parts += [each.y for each in labels[1:]]
    identity = fitting.described() | {"folds": folds, "data": hashed(*parts)}
    identity = json.loads(json.dumps(identity, default=repr))
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "training these folds"):
        plan = folder / "plan.json"
        if plan.exists() and read_json(plan) != identity:
            raise OtherRunError(
                f"{folder} holds folds of other data or settings; choose another folder, or delete it"
            )
        write_json(plan, identity)
        yield
