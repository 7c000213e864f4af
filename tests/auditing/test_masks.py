"""Audits of masks: planted errors are found, no mask is judged by a network that has seen it, what is written."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from torch import nn

import noisegate as ng
from noisegate.auditing.masks import MaskAudit, audit_masks
from noisegate.auditing.words import repeated
from noisegate.cli import main
from noisegate.data import load
from noisegate.errors import InputError

RECIPE = {"epochs": 15, "batch_size": 8, "lr": 0.01, "optimizer": "adam", "schedule": "poly"}


def tiny(input_shape, n_outputs):
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, n_outputs, 1),
    )


@pytest.fixture(scope="module")
def planted():
    """Scenes of which every fourth has a disc that is called a square, or the other way round."""
    data = load("scenes", n=48, n_test=2)
    noise = ng.noise.MapSegments(1.0, "swap", mapping={1: 2, 2: 1}, smallest=60)
    y = data.train.y.copy()
    y[::4] = noise.corrupt(y[::4], n_classes=4, seed=0)
    return dataclasses.replace(data, validation=None).with_labels(y)


@pytest.fixture(scope="module")
def audit(planted):
    return audit_masks(planted, method="ce", network=tiny, recipe=RECIPE, folds=2, device="cpu")


def test_planted_errors_come_first(audit, planted):
    wrong = (planted.train.y != planted.train.clean).reshape(48, -1).any(1)
    n = int(wrong.sum())
    assert n >= 10
    first = audit.issues.row.to_numpy()[:n]
    assert wrong[first].mean() > 0.8
    # Regions say what was planted: one of the two for the other.
    table = audit.region_table
    named = table[table.row.isin(np.flatnonzero(wrong))]
    swapped = named.given.isin(["disc", "square"]) & named.suggested.isin(["disc", "square"])
    assert swapped.mean() > 0.6


def test_what_is_written(audit, planted, tmp_path):
    audit.save(tmp_path, planted, pictures=5)
    issues, regions = (pd.read_csv(tmp_path / name) for name in ("issues.csv", "regions.csv"))
    assert sorted(issues.row) == list(range(48))
    assert (issues.regions.to_numpy() > 0).sum() == issues.is_label_issue.sum()
    assert len(regions) == issues.regions.sum()
    pictures = sorted((tmp_path / "overlays").iterdir())
    assert {int(p.stem) for p in pictures} == set(issues.row[:5])
    with Image.open(pictures[0]) as picture:
        assert picture.size == (64, 48)


def test_what_the_networks_have_learnt_is_said(audit, planted):
    counts = np.bincount(planted.train.y[planted.train.y != -100])
    assert audit.majority == counts.max() / counts.sum()
    assert audit.majority + 0.1 < audit.agreement < 1
    assert "learnt nothing" not in repeated(audit.agreement, audit.majority)
    untrained = audit_masks(
        planted, method="ce", network=tiny, recipe=RECIPE | {"epochs": 1, "lr": 1e-9}, folds=2, device="cpu"
    )
    assert "learnt nothing" in repeated(untrained.agreement, untrained.majority)


def test_no_mask_is_judged_by_a_network_that_has_seen_it(planted, monkeypatch):
    import noisegate.auditing.masks as module
    import noisegate.runs.train as runs

    seen, judged = [], []

    class Fitted:
        def predict_proba(self, x):
            return np.full((1, 4, 48, 64), 0.25)

    def train(data, *args, **kwargs):
        seen.append({image.tobytes() for image in data.train.x})
        return Fitted()

    monkeypatch.setattr(runs, "train", train)
    monkeypatch.setattr(
        module, "one", lambda x, row: judged.append((len(seen) - 1, x[row].tobytes())) or x[row]
    )
    audit_masks(planted, folds=3)
    assert len(judged) == 48
    assert all(image not in seen[fold] for fold, image in judged)


def test_on_the_command_line(tmp_path, capsys):
    options = ["--network", "deeplab-resnet18-os32", "--method", "ce", "--folds", "2", "--device", "cpu"]
    options += ["--recipe", "epochs=1", "--option", "n=8", "--option", "n_test=2"]
    assert main(["audit", "scenes", "--out", str(tmp_path / "audit"), *options]) == 0
    assert len(pd.read_csv(tmp_path / "audit" / "issues.csv")) == 8
    said = "".join(capsys.readouterr())
    assert "have a region to check" in said
    assert "always predicting the most frequent class" in " ".join(said.split())


def test_probabilities_of_ones_own_need_no_training(planted, monkeypatch, tmp_path):
    monkeypatch.setattr("noisegate.runs.train.train", None)
    known = np.maximum(planted.train.clean, 0)
    probs = (0.02 + 0.92 * np.eye(4)[known]).transpose(0, 3, 1, 2)
    found = ng.audit(planted, probs=probs)
    assert isinstance(found, MaskAudit)
    wrong = (planted.train.y != planted.train.clean).any((1, 2))
    assert not (found.weights[~wrong] > 0).any()
    assert found.issues.row[0] == int(found.weights.argmax())
    again = audit_masks(planted, probs=list(probs))
    assert np.array_equal(again.quality, found.quality)
    np.save(tmp_path / "p.npy", probs)
    options = ["--option", "n=48", "--option", "n_test=2", "--probs", str(tmp_path / "p.npy")]
    assert main(["audit", "scenes", "--out", str(tmp_path / "audit"), *options]) == 0
    for given, message in (
        (probs[:5], "of 48 images, got 5"),
        (probs[:, :3], r"shape \(4, 48, 64\) for image 0"),
    ):
        with pytest.raises(InputError, match=message):
            audit_masks(planted, probs=given)


def test_settings_for_single_labels_are_refused(planted, tmp_path, capsys):
    for given in ({"detector": "neighbours"}, {"clean": "drop"}, {"workers": 2}):
        with pytest.raises(InputError, match="is for single labels"):
            ng.audit(planted, **given)
    assert main(["audit", "scenes", "--detector", "neighbours", "--out", str(tmp_path / "a")]) == 2
    assert main(["audit", "scenes", "--probs", "p.csv", "--out", str(tmp_path / "a")]) == 2
    noise = ["--noise", "map-segments", "--rate", "0.2", "--out", str(tmp_path / "y")]
    assert main(["data", "corrupt", "scenes", *noise]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "detector='neighbours' is for single labels" in said
    assert "--probs of masks is an .npy file" in said
    assert "data.corrupt(noisegate.noise.MapSegments(0.2), seed=0)" in said


def test_what_cannot_be_audited(planted):
    with pytest.raises(InputError, match="folds must lie between 2 and the 48"):
        audit_masks(planted, folds=1)
    with pytest.raises(InputError, match="no label for every pixel"):
        audit_masks(load("digits"))
