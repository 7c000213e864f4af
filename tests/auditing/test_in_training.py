from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

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
    said, contradicted = watched.extras["said"], watched.extras["signal_contradicted"]
    torch.testing.assert_close(said.sum(dim=1), torch.ones(300))
    assert set((contradicted * 20).round(decimals=3).tolist()) <= set(map(float, range(21)))


def test_wrong_labels_are_contradicted_more_often(blobs):
    fitted = ng.train(blobs, InTraining(methods.get("ce")), "mlp-16", RECIPE, device="cpu")
    share = fitted.extras["signal_contradicted"].numpy()
    wrong = blobs.train.wrong
    assert share[wrong].mean() > share[~wrong].mean() + 0.3


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("ln", "residual"),
        ("co-teaching", "dropped"),
        ("mentornet", "dropped"),
        ("elr", "disagreement"),
        ("dividemix", "unlikely"),
        ("causalnl", "posterior"),
        ("forward", "contradicted"),
    ],
)
def test_what_methods_know_of_labels_ranks_the_wrong_ones(blobs, name, signal):
    method = methods.get(name, temperature=0.5) if name == "ln" else methods.get(name)
    fitted = ng.train(blobs, InTraining(method), "mlp-64", RECIPE | {"epochs": 30, "lr": 0.01}, device="cpu")
    known = fitted.extras[f"signal_{signal}"].numpy()
    assert fitted.extras["said"].shape == (300, 3)
    assert known.shape == (300,)
    assert roc_auc_score(blobs.train.wrong, known) > 0.9


def test_signals_are_means_of_what_the_module_says(blobs):
    """The residual of LN in a run of one epoch is the label term of the trained network."""
    recipe = RECIPE | {"epochs": 1}
    fitted = ng.train(blobs, InTraining(methods.get("ln")), "mlp-8", recipe, device="cpu")
    outputs = fitted.network(torch.from_numpy(blobs.train.x))
    expected = fitted.objective.label_term(outputs, torch.from_numpy(blobs.train.y))
    torch.testing.assert_close(fitted.extras["signal_label_term"], expected.detach())


def test_the_posterior_of_causalnl_is_that_of_bayes(blobs):
    seen = {}

    class Keeping(type(methods.get("causalnl"))):
        def phases(self, job):
            phases, history = super().phases(job), None
            while True:
                try:
                    phase = next(phases) if history is None else phases.send(history)
                except StopIteration as stop:
                    return stop.value
                if phase.rows is None:
                    seen["module"] = phase.module
                history = yield phase

    ng.train(blobs, Keeping(noise_rate=0.2), "mlp-8", {"epochs": 1}, device="cpu")
    branch, x = seen["module"].first.eval(), torch.from_numpy(blobs.train.x[:5])
    y = torch.tensor([0, 1, 2, 0, 1])
    with torch.no_grad():
        found = seen["module"].label_signals(x, y, torch.arange(5))["posterior"]
        q = branch.objective.probs(branch.classifier(x))
        t = branch.transition(branch.target(x))
    for row in range(5):
        joint = [float(q[row, k] * t[row, k, y[row]]) for k in range(3)]
        assert float(found[row]) == pytest.approx(1 - joint[y[row]] / sum(joint), abs=1e-5)


def test_an_audit_by_signals_in_training(blobs):
    report = ng.audit(
        blobs, method="ce", network="mlp-16", recipe=RECIPE, detector="in-training", device="cpu"
    )
    assert report.info["truth"]["precision_look"] > 0.75
    assert report.info["truth"]["recall_look"] > 0.5
    signals = report.signals
    assert list(signals) == ["contradicted"]
    assert len(signals) == 300
    assert roc_auc_score(blobs.train.wrong, signals.contradicted) > 0.9


def test_one_run_by_default_resists_the_wrong_labels():
    """Cross-entropy would learn them: of digits moved to the next class it flags next to none."""
    digits = ng.data.load("digits").corrupt(
        ng.noise.Asymmetric(0.3, {i: (i + 1) % 10 for i in range(10)}), seed=0
    )
    found = ng.audit(digits, detector="in-training", device="cpu").info["truth"]
    assert found["precision_look"] > 0.8
    assert found["recall_look"] > 0.6
