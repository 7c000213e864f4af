"""`ng.train`, and the rule that clean labels are evidence and never input."""

import os

import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import InputError, UnknownNameError
from noisegate.training.run import resolve_device

METHODS = sorted(ng.methods.METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_clean_labels_are_never_read(data, weights, method):
    rng = np.random.default_rng(0)
    poisoned = Dataset(
        data.name,
        Split(data.train.x, data.train.y, rng.integers(0, 3, len(data.train))),
        Split(data.test.x, rng.integers(0, 3, len(data.test))),
        Split(data.validation.x, data.validation.y, rng.integers(0, 3, len(data.validation))),
        classes=data.classes,
    )
    recipe = ng.Recipe(epochs=8, batch_size=10, lr=0.02, keep="best", patience=4)
    results = [ng.train(d, method, recipe=recipe) for d in (data, poisoned)]
    assert torch.equal(weights(results[0]), weights(results[1]))
    assert len(results[0].history[0]) == len(results[1].history[0])
    assert results[0].metrics["test_accuracy"] != results[1].metrics["test_accuracy"]


def test_the_metrics_are_those_of_the_predictions(data):
    fitted = ng.train(data, "ce", recipe={"epochs": 30, "lr": 0.02})
    predicted = fitted.predict_proba(data.test.x).argmax(1)
    assert fitted.metrics["test_accuracy"] == pytest.approx((predicted == data.test.y).mean())
    trained, wrong = fitted.predict_proba(data.train.x).argmax(1), data.train.wrong
    expected = {
        "train_right_accuracy": (trained == data.train.y)[~wrong].mean(),
        "train_memorised": (trained == data.train.y)[wrong].mean(),
        "train_recovered": (trained == data.train.clean)[wrong].mean(),
    }
    for name, value in expected.items():
        assert fitted.metrics[name] == pytest.approx(value), name


def test_evidence_is_collected_as_often_as_asked(data):
    cases = {1: [True] * 4, 2: [False, True, False, True], 3: [False, False, True, True], 0: [False] * 4}
    for every, expected in cases.items():
        fitted = ng.train(data, "ce", recipe={"epochs": 4}, evaluate_every=every)
        assert ["test_accuracy" in epoch for epoch in fitted.history[0]] == expected
        assert "test_accuracy" in fitted.metrics


def test_validation_rows_wait_for_the_evidence_unless_they_decide(data):
    def looks(every, **recipe):
        history = ng.train(data, "ce", recipe={"epochs": 4, **recipe}, evaluate_every=every).history[0]
        return ["validation_accuracy" in epoch for epoch in history]

    assert looks(0) == looks(1) == [True] * 4
    assert looks(3) == [False, False, True, True]
    assert looks(3, keep="best") == looks(3, patience=9) == [True] * 4


def test_looking_at_the_evidence_does_not_change_the_run(data, weights):
    results = [weights(ng.train(data, "ln", recipe={"epochs": 3}, evaluate_every=e)) for e in (0, 1, 2)]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_validation_rows_are_held_out_where_the_recipe_needs_them(data):
    without = Dataset(data.name, data.train, data.test, classes=data.classes)
    fitted = ng.train(without, "ce", recipe={"epochs": 2, "keep": "best"}, sample_weight=np.ones(60))
    assert "validation_accuracy" in fitted.history[0][0]
    assert "validation_accuracy" not in ng.train(without, "ce", recipe={"epochs": 2}).history[0][0]


def test_arrays_objectives_and_classes_are_taken_as_they_come(data):
    x, y = data.train.x, np.array(["ant", "bee", "cat"])[data.train.y]
    for method in (ng.LogisticNormal(3, min_scale=1.0), ng.LogisticNormal, ng.methods.get("ln")):
        fitted = ng.train((x, y), method, recipe={"epochs": 2})
        assert fitted.classes == ["ant", "bee", "cat"]
        assert set(fitted.predict(x)) <= {"ant", "bee", "cat"}


def test_an_objective_that_is_handed_over_is_not_changed(data):
    objective = ng.LogisticNormal(3)
    assert ng.train(data, objective, recipe={"epochs": 1}).objective is not objective


def test_logistic_normal_beats_cross_entropy_under_noise():
    data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=0)
    ce, ln = (ng.train(data, m, recipe={"epochs": 60}, evaluate_every=0).metrics for m in ("ce", "ln"))
    assert ln["test_accuracy"] > ce["test_accuracy"] + 0.1
    assert ln["train_memorised"] < 0.3 < ce["train_memorised"]


def test_the_record_says_how_it_came_about(data):
    record = ng.train(data, "ln", network="mlp-8", recipe={"epochs": 2}, seed=4).record
    method = record["identity"]["method"]
    assert (method["class"], method["objective"]) == ("Plain", "LogisticNormal")
    assert method["min_scale"] == ng.LogisticNormal(3).min_scale  # defaults are written out
    assert record["identity"]["recipe"]["epochs"] == 2
    assert (record["identity"]["seed"], record["identity"]["network"]) == (4, "mlp-8")
    assert set(record["versions"]) == {"python", "torch", "numpy"}


def test_bad_requests_are_met_with_a_message(data):
    with pytest.raises(UnknownNameError, match="did you mean 'ln'"):
        ng.train(data, "lnn")
    with pytest.raises(UnknownNameError, match="unknown recipe field 'epoch'; did you mean 'epochs'"):
        ng.train(data, "ce", recipe={"epoch": 3})
    with pytest.raises(UnknownNameError, match="unknown network 'resnet19'"):
        ng.train(data, "ce", network="resnet19")
    with pytest.raises(InputError, match="recipe must be a Recipe"):
        ng.train(data, "ce", recipe=3)
    with pytest.raises(InputError, match="expected the name of a method"):
        ng.train(data, 3)
    with pytest.raises(InputError, match="only one class"):
        ng.train((data.train.x, np.zeros(60, int)), "ce")
    with pytest.raises(InputError, match="is for 4 classes, the data has 3"):
        ng.train(data, ng.CrossEntropy(4))
    outside = Dataset("d", Split(data.train.x, data.train.y + 1), classes=data.classes)
    with pytest.raises(InputError, match=r"must lie in 0\.\.2, got 1\.\.3"):
        ng.train(outside, "ce")
    with pytest.raises(InputError, match="no training rows"):
        ng.train(Dataset("d", data.train.take([]), classes=data.classes), "ce")


@pytest.mark.parametrize(("given", "wanted"), [("", "32"), ("4", "4")])
def test_a_gpu_gets_a_queue_for_every_run_unless_the_user_knows_better(monkeypatch, given, wanted):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", given)
    if not given:
        monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")
    resolve_device("cpu")
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == wanted


def test_devices_are_found_by_name():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        resolve_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="torch sees no GPU"):
            resolve_device("cuda")
