"""Findings about a whole data set: rates with intervals, confusions, duplicates, the kind of noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.auditing import nearness
from noisegate.auditing.crossfit import CrossFit
from noisegate.auditing.stored import Neighbours
from noisegate.data.dataset import Dataset
from noisegate.quality import Judgement
from noisegate.quality.dependence import dependence
from noisegate.quality.intervals import Intervals, intervals

#: Maximum numbers of listed pairs of classes and groups of duplicates, and of points of the curve.
MOST_CONFUSED, MOST_DUPLICATES, MOST_POINTS = 50, 200, 150
#: Maximum number of multiplications of a search for neighbours: a minute or two.
AFFORDABLE = 2e11


def findings(
    data: Dataset, fit: CrossFit, found: Judgement, *, neighbours: int, most: int, seed: int
) -> tuple[dict[str, Any], Neighbours | None]:
    """The entries of audit.json that follow from probabilities, and the neighbours of flagged rows."""
    y = data.train.y
    looked = curve_points(len(y), int(found.is_label_issue.sum()))
    spread = intervals(fit.probs, y, found, looked, seed=seed)
    groups = nearness.duplicates(data.train.x, y, seed=seed) if isinstance(data.train.x, np.ndarray) else []
    content: dict[str, Any] = {
        "noise_rate": _interval(found.noise_rate, spread.noise_rate) | {"level": spread.level},
        "errors": _interval(found.noise_rate * len(y), spread.errors),
        "precision": {
            name: {"n": int(flags.sum())} | _interval(found.precision[name], spread.precision[name])
            for name, flags in (("look", found.is_label_issue), ("sure", found.is_sure))
        },
        "transition": _transition(found, spread),
        "confused": confused(found.joint, y),
        "curve": _curve(found, looked, spread),
        "instance_dependence": instance_dependence(fit.probs, y, _inputs(data), seed),
        "duplicates": [
            {"rows": rows.tolist(), "labels": y[rows].tolist()} for rows in groups[:MOST_DUPLICATES]
        ],
        "duplicates_total": len(groups),
        "truth": truth(found, data.train.clean, y),
    }
    content["notes"] = notes(data, fit, found)
    return content, neighbours_of(data, fit, found, neighbours, most)


def _interval(value: float, around: tuple[float, float]) -> dict[str, float | None]:
    numbers = {"value": value, "low": around[0], "high": around[1]}
    return {name: None if np.isnan(number) else float(number) for name, number in numbers.items()}


def _transition(found: Judgement, spread: Intervals) -> dict[str, npt.NDArray[np.float64]] | None:
    if found.transition is None or spread.transition is None:
        return None
    return {"value": found.transition, "low": spread.transition[0], "high": spread.transition[1]}


def curve_points(n: int, flagged: int) -> npt.NDArray[np.int64]:
    """How many rows are looked at: densely over twice the flagged rows, sparsely over the others."""
    dense = np.linspace(0, min(n, max(2 * flagged, 20)), MOST_POINTS - 30)
    return np.unique(np.round(np.concatenate([dense, np.linspace(0, n, 30)]))).astype(np.int64)


def _curve(found: Judgement, looked: npt.NDArray[np.int64], spread: Intervals) -> dict[str, list[float]]:
    """Errors among the first rows of the ranking."""
    total = np.concatenate([[0.0], np.cumsum(np.sort(found.wrong)[::-1])])
    value = total[looked]
    return {
        "looked": looked.tolist(),
        "found": value.tolist(),
        "low": np.minimum(spread.curve[0], value).tolist(),
        "high": np.maximum(spread.curve[1], value).tolist(),
    }


def confused(joint: npt.NDArray[np.float64] | None, y: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """Pairs of classes by the estimated number of rows of the one that carry the other's label."""
    if joint is None:
        return []
    off = joint.copy()
    np.fill_diagonal(off, 0.0)
    total = off.sum()
    order = np.argsort(-off, axis=None, kind="stable")[:MOST_CONFUSED]
    pairs = [divmod(int(code), len(off)) for code in order]
    return [
        {"true": i, "given": j, "count": float(off[i, j]), "share": float(off[i, j] / total)}
        for i, j in pairs
        if off[i, j] >= 0.5
    ]


def _inputs(data: Dataset) -> npt.NDArray[Any] | None:
    """The inputs, if they are in memory: what was learnt from the labels cannot say whether noise follows them."""
    x = data.train.x
    return x if isinstance(x, np.ndarray) else None


def instance_dependence(
    probs: npt.NDArray[np.floating[Any]], y: npt.NDArray[np.int64], inputs: npt.NDArray[Any] | None, seed: int
) -> dict[str, Any]:
    """The test of `noisegate.quality.dependence`, with its answer in words."""
    statistic, p_value = dependence(probs, y, features=inputs, seed=seed)
    if statistic == 0:
        words = "There are too few rows, or too few wrong labels, to test whether noise depends on the input."
    elif p_value < 0.01:
        words = (
            "Labels go wrong more often, or towards other classes, on some inputs of a class than on others: "
            "noise seems to depend on the input. A weak classifier can give the same picture."
        )
    else:
        words = "Nothing here contradicts noise that depends on the true class alone."
    return {
        "p_value": p_value,
        "statistic": statistic,
        "method": "two scores of the rows whose true class is hardly in doubt, compared with those "
        "of labels drawn from a class-conditional model",
        "conclusion": words,
    }


def truth(
    found: Judgement, clean: npt.NDArray[np.int64] | None, y: npt.NDArray[np.int64]
) -> dict[str, Any] | None:
    """Measure the flags against clean labels, if these are known. Only this part of an audit uses them."""
    if clean is None:
        return None
    wrong = clean != y
    result: dict[str, Any] = {"errors": int(wrong.sum())}
    for name, flags in (("look", found.is_label_issue), ("sure", found.is_sure)):
        hits = int((flags & wrong).sum())
        result[f"found_by_{name}"] = hits
        result[f"precision_{name}"] = hits / int(flags.sum()) if flags.any() else None
        result[f"recall_{name}"] = hits / int(wrong.sum()) if wrong.any() else None
    right = (found.suggested == clean)[found.is_label_issue & wrong]
    result["suggestions_right"] = float(right.mean()) if len(right) else None
    return result


def notes(data: Dataset, fit: CrossFit, found: Judgement) -> list[str]:
    """Sentences for the head of the report."""
    y = data.train.y
    said = []
    agree = float((fit.probs.argmax(axis=1) == y).mean())
    majority = float(np.bincount(y).max() / len(y))
    if agree <= majority + 0.02:
        said.append(
            f"The classifier predicts {agree:.0%} of the given labels out of fold; always predicting the most "
            f"frequent label gets {majority:.0%}. It has learnt almost nothing, so these findings mean little."
        )
    rare = np.flatnonzero(np.bincount(y, minlength=data.n_classes) < 5)
    if len(rare):
        some = ", ".join(data.classes[i] for i in rare[:5]) + (", ..." if len(rare) > 5 else "")
        subject = "1 class has" if len(rare) == 1 else f"{len(rare):,} classes have"
        said.append(f"{subject} fewer than five rows ({some}): such labels cannot be judged well.")
    return said


def neighbours_of(data: Dataset, fit: CrossFit, found: Judgement, k: int, most: int) -> Neighbours | None:
    """The nearest rows of the flagged rows, in the last layer where there is one, else among the inputs."""
    features = fit.features
    if features is None:
        x = data.train.x
        if not isinstance(x, np.ndarray):
            return None
        features = nearness.normalised(x)
    elif not np.allclose(np.linalg.norm(features[:10], axis=1), 1.0, atol=1e-3):
        features = nearness.normalised(features)
    flagged = np.flatnonzero(found.is_label_issue)
    most = min(most, max(100, int(AFFORDABLE / features.size)))
    worst = flagged[np.argsort(-found.wrong[flagged], kind="stable")[:most]]
    return nearness.nearest(features, worst, k) if len(worst) and k > 0 and len(features) > 1 else None
