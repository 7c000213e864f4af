"""Detectors of wrong labels as methods, so that a study can run, store and resume them like any other.

The `extras` of the fitted classifier hold the detector's output for the training rows: probabilities
(N, K), called `probs`, or `said` if they come from training itself, and signals
(`noisegate.auditing.in_training`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisegate.auditing import nearness
from noisegate.auditing.in_training import InTraining
from noisegate.data.loader import fetch
from noisegate.errors import InputError, UnknownNameError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.direct import Direct, Plain
from noisegate.methods.estimation import check_count, deal_folds, some_rows
from noisegate.networks.ensemble import Ensemble
from noisegate.networks.prepare import Prepared
from noisegate.objectives import CrossEntropy
from noisegate.training.job import Job
from noisegate.training.phase import Phase, Phases

#: Detectors that use the method of the run; the others need none.
LEARN = ("own", "in-training", "cross-fitted")


@dataclass
class CrossFitted(Method):
    """Plain training, one network per fold; each row is judged by the network that has not seen it.

    Parameters
    ----------
    inner : Plain, default=cross-entropy
        Plain training on an objective with one output per class. The classifier is the mean of the networks.
    folds : int, default=5
    """

    inner: Method = field(default_factory=lambda: Plain(CrossEntropy))
    folds: int = 5

    def phases(self, job: Job) -> Phases:
        check_count("folds", self.folds, 2)
        fold, probs = deal_folds(job.train.y, self.folds), job.per_example(job.n_classes)
        networks: list[Prepared] = []
        for number in range(self.folds):
            phase = next(self.inner.phases(job))
            module = phase.module
            if not isinstance(module, Direct) or module.objective.n_outputs != job.n_classes:
                raise InputError(
                    f"cross-fitted goes with an objective of one output a class, not {self.inner!r}"
                )
            kept, held = (torch.nonzero(mask).squeeze(1) for mask in (fold != number, fold == number))
            yield Phase(module, phase.recipe, rows=kept, name=f"fold {number + 1} of {self.folds}")
            left_out = some_rows(job.train, held)
            probs[held] = job.predict(module.network, module.objective, left_out).to(probs.dtype)
            networks.append(cast(Prepared, module.network))
        name = networks[0].spec["network"]
        mean = Ensemble([each.network for each in networks], [1] * self.folds, [name] * self.folds)
        predicts = job.prepared(mean.to(job.device), mean.spec(), job.n_classes)
        return Fitted(predicts, CrossEntropy(job.n_classes), probs=probs)


class _Untrained(Method):
    """A detector without phases: `look` gives a network and probabilities of the training rows."""

    def phases(self, job: Job) -> Phases:
        yield from ()
        x = fetch(job.train.source, np.arange(len(job.train)))
        network, probs = self.look(x, job.train.y.cpu().numpy().astype(np.int64), job)
        return Fitted(network.to(job.device), CrossEntropy(job.n_classes), probs=torch.from_numpy(probs))

    def look(
        self, x: npt.NDArray[Any], y: npt.NDArray[np.int64], job: Job
    ) -> tuple[nn.Module, npt.NDArray[np.float64]]:
        raise NotImplementedError


class Vote(nn.Module):
    """The vote of the nearest rows, (B, ...) to log-probabilities (B, K). See `nearness.vote`."""

    mean: Tensor
    scale: Tensor
    rows: Tensor
    votes: Tensor
    prior: Tensor

    def __init__(self, x: npt.NDArray[Any], y: npt.NDArray[np.int64], n_classes: int, k: int) -> None:
        super().__init__()
        self.k = min(k, len(x))
        flat = torch.from_numpy(np.asarray(x, np.float32).reshape(len(x), -1))
        mean = flat.mean(0)
        scale = (flat - mean).std(0, correction=0)
        self.register_buffer("mean", mean)
        self.register_buffer("scale", torch.where(scale > 0, scale, 1.0))
        self.register_buffer("rows", self._directions(flat))
        votes = nn.functional.one_hot(torch.from_numpy(y), n_classes).float()
        self.register_buffer("votes", votes)
        self.register_buffer("prior", votes.mean(0))

    def _directions(self, x: Tensor) -> Tensor:
        return nn.functional.normalize((x.flatten(1).to(self.mean.dtype) - self.mean) / self.scale)

    def forward(self, x: Tensor) -> Tensor:
        near = (self._directions(x) @ self.rows.T).topk(self.k)
        weights = near.values.clamp_min(0.0).unsqueeze(2)
        votes = (weights * self.votes[near.indices]).sum(1) + self.prior
        return votes.clamp_min(1e-12).log()


class Neighbours(_Untrained):
    """The vote of the 20 rows nearest to each row; nothing is trained."""

    def look(
        self, x: npt.NDArray[Any], y: npt.NDArray[np.int64], job: Job
    ) -> tuple[nn.Module, npt.NDArray[np.float64]]:
        return Vote(x, y, job.n_classes, nearness.VOTERS), nearness.vote(
            nearness.normalised(x), y, job.n_classes
        )


class Affine(nn.Module):
    """W x + b, (B, ...) to (B, K)."""

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: npt.NDArray[np.float64], bias: npt.NDArray[np.float64]) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(weight.copy()).float())
        self.register_buffer("bias", torch.from_numpy(bias.copy()).float())

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).to(self.weight.dtype) @ self.weight.T + self.bias


class Logistic(_Untrained):
    """scikit-learn's LogisticRegression() in five folds: the default of cleanlab's CleanLearning."""

    def look(
        self, x: npt.NDArray[Any], y: npt.NDArray[np.int64], job: Job
    ) -> tuple[nn.Module, npt.NDArray[np.float64]]:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        scale = 255.0 if x.dtype == np.uint8 else 1.0
        flat = x.reshape(len(x), -1).astype(np.float32) / scale
        folds = StratifiedKFold(5, shuffle=True, random_state=job.seed)
        with warnings.catch_warnings():
            # Keep scikit-learn's default of 100 steps, even where it is not enough: it is the baseline.
            warnings.simplefilter("ignore", ConvergenceWarning)
            probs = cross_val_predict(LogisticRegression(), flat, y, cv=folds, method="predict_proba")
            model = LogisticRegression().fit(flat, y)
        # Of two classes scikit-learn has one row of coefficients, for the second.
        learnt = np.column_stack([model.coef_ / scale, model.intercept_])
        if job.n_classes == 2:
            learnt = np.concatenate([np.zeros_like(learnt), learnt])
        return Affine(learnt[:, :-1], learnt[:, -1]), probs


class Log(nn.Module):
    """The logarithm of inputs that are probabilities."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp_min(1e-12).log()


class AsGiven(_Untrained):
    """The inputs already are out-of-sample probabilities, of another classifier."""

    def look(
        self, x: npt.NDArray[Any], y: npt.NDArray[np.int64], job: Job
    ) -> tuple[nn.Module, npt.NDArray[np.float64]]:
        if x.ndim != 2 or x.shape[1] != job.n_classes:
            raise InputError(
                f"expected probabilities of {job.n_classes} classes as inputs, got the shape {x.shape}"
            )
        return Log(), x.astype(np.float64)


_UNTRAINED: Mapping[str, type[_Untrained]] = {
    "neighbours": Neighbours,
    "logistic-regression": Logistic,
    "as-given": AsGiven,
}
DETECTORS = (*LEARN, *_UNTRAINED)


def detector(name: str, method: Method) -> Method:
    """The method of a detector.

    Parameters
    ----------
    name : str
        own: `method` has out-of-sample probabilities itself (`auto` does). in-training: signals from one
        training of `method`. cross-fitted: `method` is trained in five folds. neighbours,
        logistic-regression and as-given do not use `method`.
    method : Method
    """
    if name == "own":
        return method
    if name == "in-training":
        return InTraining(method)
    if name == "cross-fitted":
        return CrossFitted(method)
    if name not in _UNTRAINED:
        raise UnknownNameError("detector", name, DETECTORS)
    return _UNTRAINED[name]()
