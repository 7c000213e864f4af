"""The audit: find the wrong labels, estimate the noise, and say how certain the estimates are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from noisegate import data as datasets
from noisegate.auditing import nearness, stored
from noisegate.auditing.audit_report import AuditReport
from noisegate.auditing.cleaning import Cleaning, clean_and_compare
from noisegate.auditing.crossfit import CrossFit, Fitting, cross_fit, last_layer
from noisegate.auditing.findings import findings
from noisegate.auditing.places import Where
from noisegate.data.dataset import Dataset
from noisegate.errors import InputError, UnknownNameError
from noisegate.noise.confident import check_probs
from noisegate.quality import Judgement, judge
from noisegate.training.recipe import Recipe

DETECTORS = ("cross-fitted", "in-training", "neighbours")
#: The method of the detector in-training where `auto` is asked for: cross-entropy learns the wrong labels too, so
#: its probabilities hardly doubt them.
IN_TRAINING = "elr"
#: Maximum number of rows whose neighbours are searched, the worst first; for more it would take too long.
MOST_NEIGHBOURS = 5000
SEEN = (
    "The network has seen the labels that it judges, and is too sure of them: the order of the rows can be "
    "trusted, but there are probably more wrong labels than estimated here. Folds (the detector cross-fitted) "
    "give the number."
)
#: Maximum number of rows of data from memory that are stored with an audit, so that it can show them.
MOST_INPUTS = 10_000


def audit(
    X: Any,
    y: npt.ArrayLike | None = None,
    *,
    method: Any = "auto",
    folds: int = 5,
    network: Any = "auto",
    recipe: Recipe | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    detector: str = "cross-fitted",
    probs: npt.ArrayLike | None = None,
    clean: str | None = None,
    neighbours: int = 5,
    folder: str | Path | None = None,
    engine: str = "local",
    workers: int = 1,
    address: str | None = None,
    source: Mapping[str, Any] | None = None,
    ids: list[str] | None = None,
) -> AuditReport:
    """Find out which labels are wrong, and what kind of noise it is.

    Parameters
    ----------
    X : array (N, d) or (N, C, H, W), data frame, or Dataset
    y : array (N,), default=None
        Given labels of any kind; None if X is a Dataset.
    method : str or Method, default="auto"
        The method to cross-fit.
    folds : int, default=5
    network, recipe, device
        As in `noisegate.train`.
    seed : int, default=0
    detector : {"cross-fitted", "in-training", "neighbours"}, default="cross-fitted"
        cross-fitted: out-of-sample probabilities from `folds` networks. in-training: one run, and the
        mean of its network's predictions for each row over its first epochs; a cheap alternative if
        folds take too long (`elr` trains if `method` is "auto"). What else the method learns about
        labels is kept in `AuditReport.signals`. neighbours: the vote of each row's nearest rows, without training.
    probs : array (N, K), default=None
        Your own out-of-sample probabilities, in the order of the classes. Nothing is trained then, and
        `method`, `network`, `recipe`, `folds` and `detector` are used only by `clean`.
    clean : {"drop", "relabel", "weight"}, default=None
        Also train on cleaned labels, and report what that changes out of fold and, if the Dataset has
        test rows, on those. Rows are judged by networks that have seen neither them nor the fold on which the
        change is measured: with 5 folds that takes 15 more trainings, with `auto` 20.
    neighbours : int, default=5
        Number of nearest rows to store for each flagged row.
    folder : path, default=None
        Folder for finished folds and checkpoints: if the process is killed, the same call resumes.
    engine : {"local", "ray"}, default="local"
    workers : int, default=1
        Number of folds to train at a time, each in a process of its own; Ray trains as many as the cluster
        holds. `auto` cross-fits within its one run; with several workers, and with Ray, each fold is such
        a run, so the work is `folds` times as much.
    address : str, default=None
        Address of a Ray cluster.
    source : mapping, default=None
        Where the data are (`noisegate.auditing.stored.source_of`), so that review and apply find them.
    ids : list of str, default=None
        Names of the rows for people. Default: their numbers; for the file of a table as a spreadsheet shows
        them (the first row of a CSV file is 2), otherwise counted from 0.

    Returns
    -------
    AuditReport
        Of data with a label for every pixel a `noisegate.auditing.masks.MaskAudit`: images and regions.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("moons").corrupt(ng.noise.Symmetric(0.3), seed=0)
    >>> report = ng.audit(data.train.x, data.train.y, detector="neighbours")
    >>> sure = report.issues[report.issues.is_sure]
    >>> bool(data.train.wrong[sure.row].mean() > 0.8)
    True
    """
    if detector not in DETECTORS:
        raise UnknownNameError("detector", detector, DETECTORS)
    dataset = as_dataset(X, y)
    place = Where(None if folder is None else Path(folder), engine, workers, address)
    fitting = Fitting(method, network, recipe, seed, device)
    if dataset.train.maps:
        from noisegate.auditing.masks import audit_masks, refuse_for_masks

        refuse_for_masks(detector=detector, clean=clean, engine=engine, workers=workers)
        masks: Any = audit_masks(
            dataset, method=method, network=network, recipe=recipe, folds=folds, seed=seed, device=device,
            folder=folder, probs=probs,
        )  # fmt: skip
        return masks
    if probs is None:
        fit = probabilities(dataset, fitting, folds, place, detector)
    else:
        fit = given_probabilities(dataset, probs)
    found = judge(fit.probs, dataset.train.y, seed=seed)
    content, near = findings(dataset, fit, found, neighbours=neighbours, most=MOST_NEIGHBOURS, seed=seed)
    if detector == "in-training" and probs is None:
        content["notes"].append(SEEN)
    if clean is not None:
        content["cleaning"] = clean_and_compare(dataset, fitting, folds, place, found, Cleaning(clean))
    settings = fitting.described() | {"folds": folds, "detector": detector, "clean": clean}
    content["settings"] = settings if probs is None or clean else {"probabilities": "given", "seed": seed}
    content["source"] = dict(source or stored.source_of("memory", None, len(dataset.train)))
    ids = stored.row_names(content["source"]) if ids is None else ids
    content |= {
        "audit_id": stored.new_audit_id(),
        "task": "classification",
        "classes": list(dataset.classes),
        "label_values": [v.item() if isinstance(v, np.generic) else v for v in dataset.label_values],
    }
    rows = ranked(found, dataset.train.y, ids)
    rows = rows.assign(**{name: value[rows["row"]] for name, value in fit.signals.items()})
    kept = dataset.train.x if source is None and isinstance(dataset.train.x, np.ndarray) else None
    frame = X if source is None and isinstance(X, pd.DataFrame) else None
    return AuditReport(stored.StoredAudit(content, rows, fit.probs, near), kept if frame is None else frame)


def as_dataset(X: Any, y: npt.ArrayLike | None) -> Dataset:
    """Convert the arguments to a Dataset. Its clean labels are used only in the report."""
    if isinstance(X, Dataset):
        if y is not None:
            raise InputError("a Dataset has its own labels: leave y out")
        if X.validation is None:
            return X
        raise InputError("audit a Dataset before hold_out(): its validation rows would not be looked at")
    if y is None:
        raise InputError("audit(X, y) needs the given labels y, or a Dataset alone")
    if isinstance(X, pd.DataFrame):
        label = "label"
        while label in X.columns:
            label += "_"
        labels = np.asarray(y)
        if len(labels) != len(X):
            raise InputError(f"{len(X)} rows but {len(labels)} labels")
        return datasets.load(X.reset_index(drop=True).assign(**{label: labels}), label=label)
    return datasets.load((X, y))


def given_probabilities(data: Dataset, probs: npt.ArrayLike) -> CrossFit:
    """The user's own probabilities, checked."""
    p = check_probs(probs)
    if p.shape != (len(data.train), data.n_classes):
        raise InputError(
            f"expected probs of {len(data.train)} rows for the {data.n_classes} classes "
            f"{', '.join(data.classes[:5])}{', ...' if data.n_classes > 5 else ''}, in this order; "
            f"got the shape {p.shape}"
        )
    return CrossFit(p)


def probabilities(
    data: Dataset, fitting: Fitting, folds: int, where: Where, detector: str = "cross-fitted"
) -> CrossFit:
    """Compute out-of-sample probabilities of every row with the detector."""
    y = data.train.y
    if detector == "neighbours":
        if not isinstance(data.train.x, np.ndarray):
            raise InputError("neighbours are looked up in arrays; turn these inputs into vectors first")
        features = nearness.normalised(data.train.x)
        return CrossFit(nearness.vote(features, y, data.n_classes), features)
    if detector == "in-training":
        return _in_training(data, fitting, where)
    if fitting.method == "auto" and where.engine == "local" and where.workers == 1:
        found = _auto(data, fitting, folds, where)
        if found is not None:
            return found
    return cross_fit(data, fitting, folds, where, embed=True)


def _auto(data: Dataset, fitting: Fitting, folds: int, where: Where) -> CrossFit | None:
    """One fit of `auto`, which cross-fits by itself; None if it has no held-out probabilities."""
    from noisegate import methods
    from noisegate.runs.train import train

    method = methods.get("auto", folds=folds)
    checkpoint = None if where.folder is None else where.folder / "auto"
    fitted = train(
        replace(data, test=None), method, fitting.network, fitting.recipe, fitting.seed, fitting.device,
        folder=checkpoint, evaluate_every=0, evidence=(),
    )  # fmt: skip
    probs = fitted.extras.get("probs")
    if probs is None or len(probs) != len(data.train):
        return None
    return CrossFit(np.asarray(probs, dtype=np.float64), last_layer(fitted, data.train.x))


def _in_training(data: Dataset, fitting: Fitting, where: Where) -> CrossFit:
    """One run of the method, `IN_TRAINING` for `auto`, with its predictions during training."""
    from noisegate import methods
    from noisegate.auditing.in_training import PREFIX, InTraining
    from noisegate.runs.train import train

    inner = methods.get(IN_TRAINING if fitting.method == "auto" else fitting.method)
    fitted = train(
        replace(data, test=None), InTraining(inner), fitting.network, fitting.recipe, fitting.seed,
        fitting.device, folder=None if where.folder is None else where.folder / "in-training",
        evaluate_every=0, evidence=(),
    )  # fmt: skip
    said = np.asarray(fitted.extras["said"], dtype=np.float64)
    signals = {
        name: np.asarray(value, dtype=np.float32)
        for name, value in fitted.extras.items()
        if name.startswith(PREFIX)
    }
    return CrossFit(said / said.sum(axis=1, keepdims=True), last_layer(fitted, data.train.x), signals)


def ranked(found: Judgement, y: npt.NDArray[np.int64], ids: list[str]) -> pd.DataFrame:
    """The rows of `stored.COLUMNS`, worst first."""
    n = len(y)
    if len(ids) != n:
        raise InputError(f"{n} rows but {len(ids)} ids")
    frame = pd.DataFrame(
        {
            "row": np.arange(n),
            "id": ids,
            "given_label": y.astype(np.int32),
            "suggested_label": found.suggested.astype(np.int32),
            "suggested_probability": found.suggested_probability.astype(np.float32),
            "quality": (1.0 - found.wrong).astype(np.float32),
            "p_wrong": found.wrong.astype(np.float32),
            "is_label_issue": found.is_label_issue,
            "is_sure": found.is_sure,
        }
    )
    return frame.iloc[np.argsort(-found.wrong, kind="stable")].reset_index(drop=True)
