"""Predict with models of vectors in numpy: for a small table this takes less time than importing torch.

The formulas are those of `noisegate.networks` and of the objectives' `log_probs`, in float64 as there. Models with
other parts, and damaged ones, are left to torch, which reports what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
#: A layer: from its inputs to its outputs.
Function = Callable[[Array], Array]

#: With more rows torch is faster, although importing it takes a second.
MOST_ROWS = 4096
#: Exceptions that an unexpected description or unexpected weights raise here.
_NOT_KNOWN = (KeyError, TypeError, ValueError, AttributeError, IndexError)
#: Lower limit of a forest's probabilities, `noisegate.networks.forest.FLOOR`.
_FLOOR = 1e-6
#: Objectives whose probabilities are the softmax of the outputs, and those that use their base's.
_SOFTMAX = frozenset({"CrossEntropy", "LabelSmoothing", "GCE", "Bootstrap", "NoiseAgainstNoise"})
_WRAPPERS = frozenset({"LabelSmearing", "BackwardCorrection", "ForwardCorrection"})


def predictor(description: Mapping[str, Any], tree: Mapping[str, Any]) -> Function | None:
    """A stored model as a function from inputs (N, d) to probabilities (N, K).

    Parameters
    ----------
    description : mapping
        The content of `model.json`.
    tree : mapping
        The weights as arrays: `noisegate._io.models.read_weights(folder, name, "np")`.

    Returns
    -------
    function or None
        None if predicting with this model needs torch.
    """
    try:
        return _predictor(description, _Arrays(tree["network"]))
    except _NOT_KNOWN:
        return None


class _Arrays:
    """The weights by name. Each must be used once and have the shape that the description implies."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.left = dict(arrays)

    def take(self, name: str, *shape: int) -> Array:
        array = self.left.pop(name)
        if array.shape != shape or (array.dtype.kind == "f" and not np.isfinite(array).all()):
            raise ValueError(name)
        return np.asarray(array.astype(np.float64) if array.dtype.kind == "f" else array)


def _predictor(description: Mapping[str, Any], arrays: _Arrays) -> Function:
    spec = description["network"]
    (width,), n_outputs = spec["input_shape"], int(spec["n_outputs"])
    if tuple(spec.get("raw_shape", (width,))) != (width,):
        raise ValueError("cropped inputs")
    mean, std = arrays.take("mean", width), arrays.take("std", width)
    if not (std > 0).all():
        raise ValueError("deviations that are not above 0")
    network = _network(spec["network"], arrays, width, n_outputs)
    probs = _objective(description["objective"], n_outputs)
    if arrays.left:
        raise ValueError("weights that no layer has")
    precision = _precision(spec["network"])

    def predict(x: Array) -> Array:
        x = x if x.dtype == np.float64 else x.astype(precision)
        prepared = ((x - mean.astype(x.dtype)) / std.astype(x.dtype)).astype(precision)
        found = probs(network(prepared))
        return np.asarray(found / found.sum(1, keepdims=True))

    return predict


def _precision(network: Any) -> type[np.floating[Any]]:
    """The precision of prepared inputs: float32 for networks without parameters (forests), else float64."""
    kinds = {each["kind"] for each in network["members"]} if isinstance(network, Mapping) else set()
    return np.float32 if kinds == {"forest"} else np.float64


# -- networks --------------------------------------------------------------------------------------


def _network(spec: Any, arrays: _Arrays, width: int, n_outputs: int) -> Function:
    if isinstance(spec, Mapping):
        return _ensemble(spec, arrays, width, n_outputs)
    return _mlp(spec, arrays, "network.", width, n_outputs)


def _ensemble(spec: Mapping[str, Any], arrays: _Arrays, width: int, n_outputs: int) -> Function:
    front = None
    if spec["front"]:
        inner = int(spec["front"]["n_outputs"])
        front = arrays.take("network.front.scale", width), arrays.take("network.front.matrix", width, inner)
        arrays.take("network.front.deviation", inner)
        width = inner
    members = [
        _member(each, arrays, f"network.members.{place}.", width, n_outputs)
        for place, each in enumerate(spec["members"])
    ]
    heads, total = [int(n) for n in spec["heads"]], sum(spec["heads"])
    weights, sharpnesses = arrays.take("network.weights", total), arrays.take("network.sharpnesses", total)
    sharpness = arrays.take("network.sharpness")
    parts = np.split(np.arange(total), np.cumsum(heads)[:-1])

    def outputs(x: Array) -> Array:
        x = x if front is None else (x * front[0]) @ front[1]
        mixture = np.full((len(x), n_outputs), -np.inf)
        for member, part in zip(members, parts, strict=True):
            logits = member(x)
            logits = logits[:, None] if logits.ndim == 2 else logits
            with np.errstate(divide="ignore"):  # a member of weight 0 contributes nothing
                terms = _log_softmax(logits * sharpnesses[part, None], 2) + np.log(weights[part])[:, None]
            mixture = np.logaddexp(mixture, np.logaddexp.reduce(terms, axis=1))
        return np.asarray(sharpness * mixture)

    return outputs


def _member(spec: Mapping[str, Any], arrays: _Arrays, at: str, width: int, n_outputs: int) -> Function:
    if spec["kind"] == "network":
        return _mlp(spec["name"], arrays, at, width, n_outputs)
    if spec["n_outputs"] != n_outputs or spec.get("n_inputs", width) != width:
        raise ValueError("sizes that do not fit each other")
    return MEMBERS[spec["kind"]](spec, arrays, at)


def _mlp(name: str, arrays: _Arrays, at: str, width: int, n_outputs: int) -> Function:
    match = re.fullmatch(r"linear|mlp((?:-\d+)*)", name)
    if match is None:
        raise KeyError(name)
    hidden = [] if name == "linear" else [int(n) for n in match[1].split("-")[1:]] or [256, 256]
    layers = []
    for place, size in enumerate(hidden):
        name, width, before = f"{at}body.{2 * place}", size, width
        layers.append((arrays.take(f"{name}.weight", size, before), arrays.take(f"{name}.bias", size)))
    head = arrays.take(f"{at}head.weight", n_outputs, width), arrays.take(f"{at}head.bias", n_outputs)

    def outputs(x: Array) -> Array:
        for weight, bias in layers:
            x = np.maximum(x @ weight.T + bias, 0)
        return np.asarray(x @ head[0].T + head[1])

    return outputs


def _view(arrays: _Arrays, at: str, width: int) -> Function:
    limit, scale = arrays.take(f"{at}view.limit"), arrays.take(f"{at}view.scale", width)
    return lambda x: np.minimum(np.maximum(x, -limit), limit) * scale


def _linear(spec: Mapping[str, Any], arrays: _Arrays, at: str) -> Function:
    inputs, heads, classes = spec["n_inputs"], spec["n_heads"], spec["n_outputs"]
    view = _view(arrays, at, inputs)
    weight, bias = (
        arrays.take(f"{at}weight", heads, classes, inputs),
        arrays.take(f"{at}bias", heads, classes),
    )
    flat = weight.reshape(-1, inputs).T
    return lambda x: (view(x) @ flat).reshape(-1, heads, classes) + bias


def _kernel(spec: Mapping[str, Any], arrays: _Arrays, at: str) -> Function:
    inputs, marks, heads, classes = (
        spec[f"n_{name}"] for name in ("inputs", "landmarks", "heads", "outputs")
    )
    view, gamma = _view(arrays, at, inputs), arrays.take(f"{at}gamma")
    landmarks = arrays.take(f"{at}landmarks", marks, inputs)
    weight, bias = arrays.take(f"{at}weight", heads, classes, marks), arrays.take(f"{at}bias", heads, classes)
    flat, lengths = weight.reshape(-1, marks).T, (landmarks**2).sum(1)

    def outputs(x: Array) -> Array:
        x = view(x)
        apart = np.maximum((x**2).sum(1)[:, None] + lengths - 2 * (x @ landmarks.T), 0)
        return np.asarray((np.exp(-gamma * apart) @ flat).reshape(-1, heads, classes) + bias)

    return outputs


def _bag(spec: Mapping[str, Any], arrays: _Arrays, at: str) -> Function:
    inputs, members, units, classes = (
        spec[f"n_{name}"] for name in ("inputs", "members", "hidden", "outputs")
    )
    view = _view(arrays, at, inputs)
    hidden = arrays.take(f"{at}hidden", inputs, members * units)
    hidden_bias = arrays.take(f"{at}hidden_bias", members * units)
    out = arrays.take(f"{at}out", members, units, classes)
    out_bias = arrays.take(f"{at}out_bias", members, 1, classes)

    def outputs(x: Array) -> Array:
        active = np.maximum(view(x) @ hidden + hidden_bias, 0)
        logits = active.reshape(-1, members, units).transpose(1, 0, 2) @ out + out_bias
        return np.asarray(np.logaddexp.reduce(_log_softmax(logits, 2), axis=0) - np.log(members))

    return outputs


def _forest(spec: Mapping[str, Any], arrays: _Arrays, at: str) -> Function:
    nodes, depth = spec["n_nodes"], min(spec["depth"], spec["n_nodes"])
    roots = arrays.take(f"{at}roots", spec["n_trees"])
    names = ("feature", "threshold", "left", "right", "leaf")
    feature, threshold, left, right, leaf = (arrays.take(at + name, nodes) for name in names)
    shares = arrays.take(f"{at}shares", spec["n_leaves"], spec["n_outputs"])

    def outputs(x: Array) -> Array:
        compared = x.astype(np.float32)
        node = np.broadcast_to(roots, (len(x), len(roots)))
        for _ in range(depth):
            goes_left = np.take_along_axis(compared, feature[node], 1) <= threshold[node]
            node, before = np.where(goes_left, left[node], right[node]), node
            if np.array_equal(node, before):  # every row has reached a leaf
                break
        return np.asarray(np.log(np.maximum(shares[leaf[node]].mean(1), _FLOOR)))

    return outputs


#: The kinds of `noisegate.networks.ensemble.MEMBERS`.
MEMBERS = {"linear": _linear, "kernel": _kernel, "bag": _bag, "forest": _forest}


# -- objectives ------------------------------------------------------------------------------------


def _objective(stored: Mapping[str, Any], n_outputs: int) -> Function:
    name, settings = stored["name"], stored["settings"]
    classes = int(settings["n_classes"])
    if name in _WRAPPERS:
        base = settings.get("base") or {"name": "CrossEntropy", "settings": {"n_classes": classes}}
        return _objective(base, n_outputs)
    if name == "LogisticNormal":
        return _logistic_normal(settings["temperature"], settings["dummy_class"], classes)
    if name not in _SOFTMAX or n_outputs != classes:
        raise KeyError(name)
    return lambda outputs: np.exp(_log_softmax(outputs, 1))


def _logistic_normal(temperature: float, dummy_class: bool, classes: int) -> Function:
    def probs(outputs: Array) -> Array:
        logits = outputs[:, : classes if dummy_class else classes - 1] / temperature
        if not dummy_class:
            logits = np.concatenate([logits, np.zeros_like(logits[:, :1])], axis=1)
        return np.asarray(np.exp(_log_softmax(logits, 1)))

    return probs


def _log_softmax(x: Array, axis: int) -> Array:
    shifted = x - x.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))
