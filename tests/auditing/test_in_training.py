from __future__ import annotations

import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate import methods
from noisegate.auditing.in_training import InTraining


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=300)
    x = (3 * np.eye(3)[true] + rng.normal(size=(300, 3))).astype(np.float32)
    given = np.where(rng.random(300) < 0.2, (true + 1) % 3, true)
    return ng.data.load((x, true)).with_labels(given)


RECIPE = {"epochs": 20, "batch_size": 32, "lr": 0.02}


def test_watching_changes_nothing_and_the_means_are_of_all_epochs(blobs):
    plain = ng.train(blobs, "ce", "mlp-16", RECIPE, device="cpu")
    watched = ng.train(blobs, InTraining(), "mlp-16", RECIPE, device="cpu")
    np.testing.assert_array_equal(watched.predict_proba(blobs.train.x), plain.predict_proba(blobs.train.x))
    said, contradicted = watched.extras["said"], watched.extras["contradicted"]
    torch.testing.assert_close(said.sum(dim=1), torch.ones(300))
    assert set((contradicted * 20).round(decimals=3).tolist()) <= set(map(float, range(21)))


def test_wrong_labels_are_contradicted_more_often(blobs):
    fitted = ng.train(blobs, InTraining(methods.get("ce")), "mlp-16", RECIPE, device="cpu")
    share = fitted.extras["contradicted"].numpy()
    wrong = blobs.train.wrong
    assert share[wrong].mean() > share[~wrong].mean() + 0.3


@pytest.mark.parametrize("name", ["forward", "co-teaching"])
def test_methods_of_several_phases_and_networks(blobs, name):
    fitted = ng.train(blobs, InTraining(methods.get(name)), "mlp-8", {"epochs": 2}, device="cpu")
    assert fitted.extras["said"].shape == (300, 3)


def test_an_audit_by_signals_in_training(blobs):
    report = ng.audit(
        blobs, method="ce", network="mlp-16", recipe=RECIPE, detector="in-training", device="cpu"
    )
    assert report.info["truth"]["precision_look"] > 0.75
    assert report.info["truth"]["recall_look"] > 0.5
