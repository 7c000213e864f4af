"""The scikit-learn estimator."""

from __future__ import annotations

import copy
import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _check_y, check_is_fitted, column_or_1d
from torch import nn

from noisegate import methods
from noisegate._device import resolve_device
from noisegate._inputs import TakesFrames, labels_of, spread
from noisegate._io.foreign import reading
from noisegate._io.models import read_description
from noisegate.data.arrays import ArrayReader
from noisegate.data.dataset import Dataset, Inputs, Split
from noisegate.data.sparse import is_sparse
from noisegate.data.tables import TableReader
from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.networks import ensemble
from noisegate.quality import consensus, is_answers, read_answers
from noisegate.runs.train import train
from noisegate.training.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd


class NoisyLabelClassifier(ClassifierMixin, TakesFrames):
    """A classifier for labels that are partly wrong, as a scikit-learn estimator.

    One fit gives the classifier and, in `label_issues_`, the labels to check.

    Parameters
    ----------
    method : str, Method or objective
        A name (`noisegate list methods`) or an object; "auto" by default, an ensemble that judges
        and cleans the labels. Parameters are reached as `method__temperature`, also through a name,
        so that GridSearchCV can search them.
    network : str or function (input_shape, n_outputs) -> nn.Module
        "auto" chooses by the shape of X: for vectors a multi-layer perceptron (with method "auto"
        its candidates: linear models, kernels, trees, networks), a convolutional network for
        images.
    recipe : Recipe or mapping, optional
        None is a recipe for the size of the data; a mapping changes some of its fields, and so does
        `recipe__epochs` and the like.
    device : str
        "auto" is the GPU if there is one.
    random_state : int, RandomState or None
    class_weight : None, "balanced" or mapping from label to weight, default=None
        Weights of the classes, as in scikit-learn: they multiply `sample_weight`. "balanced" is N / (K n_k).
    verbose : int, default=0
        If at least 1, training shows a progress bar, and `fit` prints how each column of a frame was read.

    Notes
    -----
    There is neither `warm_start` nor `partial_fit`: the methods compare all rows with each other to tell wrong
    labels from right ones, and what they found out for some rows does not hold for others.

    Attributes
    ----------
    classes_ : array (K,)
    fitted_ : Fitted
        The network, its objective, the training history, and what else the method learnt.
    n_features_in_ : int

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
    >>> clf = ng.NoisyLabelClassifier(method="ln", recipe={"epochs": 30}, random_state=0)
    >>> clf.fit(data.train.x, data.train.y).score(data.test.x, data.test.y) > 0.8
    True

    The default finds the wrong labels too:

    >>> data = ng.data.load("moons").corrupt(ng.noise.Symmetric(0.2), seed=0)
    >>> clf = ng.NoisyLabelClassifier(random_state=0).fit(data.train.x, data.train.y)
    >>> worst = clf.label_issues_.head(50).row
    >>> bool(data.train.wrong[worst].mean() > 0.8)
    True
    """

    def __init__(
        self,
        method: Any = "auto",
        network: Any = "auto",
        recipe: Recipe | Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: Any = None,
        class_weight: str | Mapping[Any, float] | None = None,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.network = network
        self.recipe = recipe
        self.device = device
        self.random_state = random_state
        self.class_weight = class_weight
        self.verbose = verbose

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with `deep` also those of the method (`method__...`) and the recipe."""
        params = super().get_params(deep=False)
        if not deep:
            return params
        if isinstance(self.method, str) and self.method in methods.METHODS:
            inner = dict(methods.METHODS[self.method].defaults)
        else:
            inner = self.method.get_params() if isinstance(self.method, Method) else {}
        fields = self.recipe.to_dict() if isinstance(self.recipe, Recipe) else self.recipe
        params |= {f"method__{name}": value for name, value in inner.items()}
        if isinstance(fields, Mapping):
            params |= {f"recipe__{name}": value for name, value in fields.items()}
        return params

    def set_params(self, **params: Any) -> NoisyLabelClassifier:
        """Set parameters; `method__name` and `recipe__name` set those of the method and the recipe."""
        plain = {name: value for name, value in params.items() if "__" not in name}
        nested: dict[str, dict[str, Any]] = {"method": {}, "recipe": {}}
        for name in params.keys() - plain.keys():
            part, _, inner = name.partition("__")
            if part not in nested:
                raise InputError(f"unknown parameter {name!r}: only method__... and recipe__... are nested")
            nested[part][inner] = params[name]
        super().set_params(**plain)
        if nested["method"]:
            self.method = copy.deepcopy(methods.get(self.method)).set_params(**nested["method"])
        if nested["recipe"]:
            self._change_recipe(nested["recipe"])
        return self

    def _change_recipe(self, changes: dict[str, Any]) -> None:
        if isinstance(self.recipe, Recipe):
            self.recipe = self.recipe.replace(**changes)
        else:
            self.recipe = {**(self.recipe or {}), **changes}

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        X_val: Any = None,
        y_val: npt.ArrayLike | None = None,
    ) -> NoisyLabelClassifier:
        """Train on observed labels.

        Parameters
        ----------
        X : array (N, d), sparse matrix, images (N, H, W) or (N, C, H, W), texts (N,), or a frame
            A frame (pandas, Polars, Arrow) may hold numbers, categories, texts, dates, gaps and
            booleans; `reader_` then says what each column was read as
            (`print(clf.reader_.describe())`). Texts alone are a frame of one column.
        y : array (N,), or the answers of several annotators
            Labels, some of them wrong: text, whole numbers, booleans or dates. Several annotators:
            an array (N, A), where None, NaN or -1 is no answer, or a table with the columns row
            (counted from 0), annotator and label. Training is then on their soft consensus, and
            `consensus_` holds it (`ng.consensus`).
        sample_weight : array (N,), optional
            Rows of weight 0 are left out.
        X_val, y_val : arrays, optional
            Held-out rows, labelled like the training rows, for early stopping and the best epoch. A
            recipe that needs them holds out a tenth of X if they are not given.
        """
        if y is None:
            raise InputError("this estimator requires y to be passed, but the target y is None")
        x = self._read(X, reset=True)
        if self.verbose and self.reader_ is not None:
            print(self.reader_.describe())
        if is_answers(y):
            x, y, sample_weight = self._agree(x, y, sample_weight)
        y = _check_y(y if is_sparse(y) else labels_of(y), estimator=self)
        check_consistent_length(range(len(x)), y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(column_or_1d(y), return_inverse=True)
        sample_weight = self._weights(np.asarray(y), sample_weight)
        train_rows, counted = Split(x, codes), None
        if sample_weight is not None:
            weight = np.asarray(_check_sample_weight(sample_weight, codes, ensure_non_negative=True))
            if not (weight > 0).all():
                counted = np.flatnonzero(weight > 0)
                train_rows, weight = train_rows.take(weight > 0), weight[counted]
            codes, sample_weight = train_rows.y, weight
        if len(np.unique(codes)) < 2:
            raise InputError("y has only one class; a classifier needs at least two")
        if X_val is None and y_val is not None:
            raise InputError("y_val was given without X_val")
        validation = None if X_val is None else self._validation(X_val, y_val)
        data = Dataset(
            "fit",
            train_rows,
            validation=validation,
            classes=tuple(str(c) for c in self.classes_),
            reader=self.reader_ or (None if is_sparse(X) else ArrayReader(train_rows.input_shape)),
        )
        self.fitted_ = train(
            data,
            self.method,
            self.network,
            self.recipe,
            int(check_random_state(self.random_state).randint(2**31 - 1)),
            self.device,
            sample_weight=sample_weight,
            evaluate_every=0,
            progress=bool(self.verbose),
        )
        self.fitted_.classes = self.classes_.tolist()
        if counted is not None and "row" in self.fitted_.extras:
            self.fitted_.extras["row"] = torch.from_numpy(counted[self.fitted_.extras["row"]])
        return self

    def _weights(self, y: npt.NDArray[Any], sample_weight: npt.ArrayLike | None) -> npt.ArrayLike | None:
        """Multiply the weight of each row by that of its class."""
        if self.class_weight is None:
            return sample_weight
        if not (self.class_weight == "balanced" or isinstance(self.class_weight, Mapping)):
            raise InputError(
                'class_weight must be "balanced", a mapping from label to weight or None, '
                f"got {self.class_weight!r}"
            )
        unknown = [label for label in self.class_weight if label not in self.classes_]
        if isinstance(self.class_weight, Mapping) and unknown:
            raise InputError(f"class_weight has the label {unknown[0]!r}, which no training row has")
        weight = compute_sample_weight(self.class_weight, y)
        return (
            weight if sample_weight is None else weight * np.asarray(_check_sample_weight(sample_weight, y))
        )

    def _agree(
        self, x: Inputs, y: Any, sample_weight: npt.ArrayLike | None
    ) -> tuple[Inputs, npt.NDArray[Any], npt.NDArray[np.float64]]:
        """Replace the answers of several annotators by weighted rows with hard labels.

        Sets `consensus_`.
        """
        self.consensus_ = consensus(read_answers(y, n_rows=len(x)))
        if self.method == "auto":  # auto compares rows with each other, so each row must occur once
            rows = np.arange(len(x))
            labels, weights = self.consensus_.labels, self.consensus_.quality
        else:
            rows, codes, weights = spread(self.consensus_)
            labels = self.consensus_.classes[codes]
            x = x[rows] if isinstance(x, np.ndarray) else x.take(rows)
        if sample_weight is not None:
            given = np.asarray(_check_sample_weight(sample_weight, np.empty(len(self.consensus_.labels))))
            weights = weights * given[rows]
        return x, labels, weights

    @property
    def label_issues_(self) -> pd.DataFrame:
        """The labels of the training rows, worst first, as a data frame.

        Columns: row (counted from 0, as in `fit`), given_label, suggested_label, quality (the
        probability that the given label is right), is_label_issue (worth a look), is_sure (at least
        95 % of these are wrong).
        """
        check_is_fitted(self)
        if "quality" not in self.fitted_.extras:
            raise AttributeError(
                f"method {self.method!r} does not judge labels; method='auto' does, and so does ng.audit. "
                "fitted_.extras['contradicted'], where it is there, ranks them: the largest are worst"
            )
        return self.fitted_.label_issues()

    def _validation(self, X_val: Any, y_val: npt.ArrayLike | None) -> Split:
        if y_val is None:
            raise InputError("X_val was given without y_val")
        held = self._read(X_val, reset=False)
        labels = column_or_1d(labels_of(y_val), warn=True)
        check_consistent_length(range(len(held)), labels)
        codes = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
        unseen = self.classes_[codes] != labels
        if unseen.any():
            raise InputError(
                f"y_val has the label {labels[unseen][0]!r}, which is not among the training labels"
            )
        return Split(held, codes)

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Probabilities of the clean class, (N, K), in the order of `classes_`."""
        check_is_fitted(self)
        return self.fitted_.predict_inputs(self._read(X, reset=False))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable clean label of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]

    def score(self, X: Any, y: Any, sample_weight: npt.ArrayLike | None = None) -> float:
        """Return the accuracy on the given labels."""
        return float(super().score(X, y if is_sparse(y) else labels_of(y), sample_weight))

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Log-odds of the second class, (N,), for two classes; log-probabilities, (N, K), for more."""
        logs = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return np.asarray(logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs)

    def save(self, path: str | Path) -> None:
        """Write a model folder: JSON and safetensors, nothing executable."""
        check_is_fitted(self)
        method = self.method if isinstance(self.method, str) else methods.get(self.method).settings()
        recipe = self.recipe.to_dict() if isinstance(self.recipe, Recipe) else self.recipe
        params = {
            "method": method,
            "network": self.network if isinstance(self.network, str) else None,
            "recipe": recipe,
            "whole_recipe": isinstance(self.recipe, Recipe),
            "random_state": _plain_seed(self.random_state),
            "class_weight": _plain_weights(self.class_weight),
        }
        names = getattr(self, "feature_names_in_", None)
        learnt = {
            "dtype": self.classes_.dtype.str,
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else names.tolist(),
        }
        self.fitted_.save(path, estimator={"params": params, "learnt": learnt})

    @classmethod
    def load(
        cls,
        path: str | Path,
        network: Callable[[tuple[int, ...], int], nn.Module] | None = None,
        device: str | torch.device = "auto",
    ) -> NoisyLabelClassifier:
        """Read a model folder, written by `save`, by `Fitted.save` or by `noisegate fit`.

        A model from `save` comes back with the parameters that it was given; another one with those that its
        training used. Pass the factory of your own network as `network`.
        """
        description = read_description(path)
        # What a damaged description can make the parts raise is not foreseeable.
        with reading(Path(path) / "model.json", "copy the model again, or train it again"):
            fitted = Fitted.load(path, network, resolve_device(device))
            if getattr(fitted.network, "spec", {}).get("maps"):
                raise InputError(f"{path} holds a model of segmentation masks; use ng.Fitted.load")
            stored = description.get("estimator") or _of_record(description, fitted)
            return cls._restored(stored, fitted, network, str(device))

    @classmethod
    def _restored(
        cls, stored: Mapping[str, Any], fitted: Fitted, network: Any, device: str
    ) -> NoisyLabelClassifier:
        params, learnt = stored["params"], stored["learnt"]
        method, recipe = params["method"], params["recipe"]
        clf = cls(
            method=method if isinstance(method, str) else Method.from_settings(method),
            network=network or params["network"],
            recipe=Recipe.from_dict(recipe) if params["whole_recipe"] else recipe,
            device=device,
            random_state=params["random_state"],
            class_weight=_weights_from(params.get("class_weight")),
        )
        clf.fitted_ = fitted
        dtype = learnt["dtype"]
        clf.classes_ = np.array(clf.fitted_.classes, dtype=None if dtype is None else np.dtype(dtype))
        if learnt["n_features_in"] is not None:
            clf.n_features_in_ = learnt["n_features_in"]
        if learnt["feature_names_in"] is not None:
            clf.feature_names_in_ = np.array(learnt["feature_names_in"], dtype=object)
        reader = clf.fitted_.reader
        clf.reader_ = reader if isinstance(reader, TableReader) else None
        return clf


def _of_record(description: Mapping[str, Any], fitted: Fitted) -> dict[str, Any]:
    """Describe a model that no estimator has saved as `save` would have done."""
    identity, spec, reader = fitted.record.get("identity"), description["network"], fitted.reader
    if identity is None:
        raise InputError("the model does not say how it was trained; use ng.Fitted.load")
    name, body, shape = description.get("method"), spec["network"], spec["input_shape"]
    method = identity["method"]
    if isinstance(name, str) and name in methods.METHODS and methods.get(name).settings() == method:
        method = name  # it says all
    width = len(reader.order) if isinstance(reader, TableReader) else shape[0] if len(shape) == 1 else None
    params = {
        "method": method,
        "network": body if isinstance(body, str) else None if ensemble.needs_factory(body) else "auto",
        "recipe": identity["recipe"],
        "whole_recipe": True,
        "random_state": identity["seed"],
    }
    # Names would be compared with those of every table, and files have further columns.
    return {"params": params, "learnt": {"dtype": None, "n_features_in": width, "feature_names_in": None}}


def _plain_seed(random_state: Any) -> int | None:
    """Return the seed to store; None for a generator, whose state is not stored."""
    return int(random_state) if isinstance(random_state, numbers.Integral) else None


def _plain_weights(weights: Any) -> Any:
    """Convert class weights to JSON, where field names must be strings but labels may be anything."""
    if not isinstance(weights, Mapping):
        return weights
    return [[k.item() if isinstance(k, np.generic) else k, float(v)] for k, v in weights.items()]


def _weights_from(stored: Any) -> Any:
    return dict(stored) if isinstance(stored, list) else stored
