"""`ng.train`, and the rule that clean labels are evidence and never input."""

import dataclasses
import os
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate._device import resolve_device
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import InputError, OtherRunError, UnknownNameError
from noisegate.runs.identity import input_hash
from noisegate.runs.run import resolve_recipe
from noisegate.training import distributed
from noisegate.training.recipe import auto_recipe

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
    with pytest.raises(InputError, match="at least two classes, found only 0"):
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
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = dict(os.environ)
    for device in ("cpu", "auto"):
        assert resolve_device(device).type == "cpu"
    assert dict(os.environ) == before  # where there is none, nothing is left behind
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("cuda:0").type == "cuda"
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == wanted


def test_devices_are_found_by_name():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda")
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        resolve_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="torch sees no GPU"):
            resolve_device("cuda")


def _relu(shape, n_outputs):
    return nn.Sequential(nn.Linear(*shape, 4), nn.ReLU(), nn.Linear(4, n_outputs))


def _tanh(shape, n_outputs):
    return nn.Sequential(nn.Linear(*shape, 4), nn.Tanh(), nn.Linear(4, n_outputs))


_relu.__qualname__ = _tanh.__qualname__ = "factory"
_WEIGHTED = ng.CrossEntropy(3, weight=torch.tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"weigh": np.arange}),
        ({"weigh": np.ones}, {"weigh": np.arange}),
        ({"method": ng.CrossEntropy(3)}, {"method": _WEIGHTED}),
        ({"method": ng.CrossEntropy(3)}, {"method": ng.CrossEntropy(3, ignore_index=2)}),
        ({"network": _relu}, {"network": _tanh}),
        ({}, {"validation": 1}),
    ],
)
def test_a_folder_is_not_taken_for_that_of_another_run(data, tmp_path, one, other):
    def run(method="ce", network="mlp-4", validation=0, weigh=None):
        held = dataclasses.replace(data.validation, y=(data.validation.y + validation) % 3)
        given = dataclasses.replace(data, validation=held)
        recipe = {"epochs": 1, "batch_size": 50}
        weight = weigh and weigh(len(data.train))
        return ng.train(given, method, network, recipe, device="cpu", sample_weight=weight, folder=tmp_path)

    first = run(**one)
    again = run(**one)
    assert torch.equal(*(next(f.network.parameters()) for f in (first, again)))
    with pytest.raises(OtherRunError, match="holds another run"):
        run(**other)


def test_class_weights_are_in_the_settings_and_come_back():
    method = ng.methods.get(_WEIGHTED)
    settings = method.settings()
    assert settings["weight"] == [1.0, 2.0, 3.0]
    assert "ignore_index" not in settings
    again = ng.methods.Method.from_settings(settings)
    assert again.settings() == settings
    assert again._build(3).weight.tolist() == [1.0, 2.0, 3.0]
    assert ng.methods.Plain("CrossEntropy", weight=torch.ones(3)).settings()["weight"] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("n", [99, 101, 1])
def test_weights_must_be_one_a_row_also_where_rows_are_held_out(data, n):
    data = dataclasses.replace(data, validation=None)
    with pytest.raises(InputError, match="one number a row"):
        ng.train(data, "ce", recipe={"epochs": 1, "keep": "best"}, device="cpu", sample_weight=np.ones(n))


def test_a_refused_call_leaves_the_folder_free(data, tmp_path):
    with pytest.raises(UnknownNameError, match="execution") as kept:
        ng.train(data, "ce", "mlp-4", {"epochs": 1}, device="cpu", folder=tmp_path, execution="fast")
    ng.train(data, "ce", "mlp-4", {"epochs": 1}, device="cpu", folder=tmp_path)
    assert kept.value


class Recording(nn.Module):
    """Notes how matrix products are done whenever it is asked."""

    seen: ClassVar[set[str]] = set()

    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer = nn.Linear(n_in, n_out)

    def forward(self, x):
        Recording.seen.add(torch.get_float32_matmul_precision())
        return self.layer(x)


@pytest.mark.parametrize(("precision", "wanted"), [("fp32", "highest"), ("tf32", "high")])
@pytest.mark.parametrize("method", ["ce", "forward", "dividemix"])
def test_all_of_a_run_is_done_in_its_precision(data, method, precision, wanted):
    """Estimates between phases, what begins an epoch, and the metrics at the end."""
    Recording.seen.clear()
    recipe = {"epochs": 2, "precision": precision}
    ng.train(data, method, lambda shape, k: Recording(shape[0], k), recipe, device="cpu")
    assert Recording.seen == {wanted}


SWITCHES = """
import torch, noisegate as ng
{switch}
state = lambda: (torch.backends.cuda.matmul.fp32_precision, torch.backends.cudnn.conv.fp32_precision)
before = state()
for precision in ("fp32", "tf32", "bf16"):
    ng.train(ng.data.load("moons"), "ce", recipe={{"epochs": 1, "precision": precision}}, device="cpu")
    assert state() == before, (state(), before)
"""


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9")
@pytest.mark.parametrize(
    "switch", ["cuda.matmul.fp32_precision = 'tf32'", "cudnn.conv.fp32_precision = 'ieee'"]
)
def test_torchs_new_switches_of_precision_are_left_as_they_were(switch):
    code = SWITCHES.format(switch=f"torch.backends.{switch}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("data", ["digits", 3, (np.zeros((4, 2)),)])
def test_what_is_no_data_is_refused(data):
    with pytest.raises(InputError, match="ng.data.load"):
        ng.train(data, "ce")


def test_an_automatic_batch_can_be_split_over_the_processes(monkeypatch):
    monkeypatch.setattr(distributed, "world", lambda: distributed.World(size=4))
    # Two, four and eight processes take the batch of one.
    assert resolve_recipe(None, 400, (3,)).batch_size == auto_recipe(400, (3,)).batch_size == 16
    assert resolve_recipe({"epochs": 2}, 20, (3,)).batch_size == 8
    assert resolve_recipe({"batch_size": 25}, 400, (3,)).batch_size == 25


@pytest.mark.parametrize("n_rows", [1, 15, 16, 100, 255, 256, 1040, 2047, 2048, 10**6])
def test_an_automatic_batch_is_a_power_of_two_of_at_most_a_sixteenth(n_rows):
    size = auto_recipe(n_rows, (3,)).batch_size
    assert size in (8, 16, 32, 64, 128)
    assert size == 8 or size <= n_rows // 16
    assert size == 128 or 2 * size > n_rows // 16


def test_one_changed_number_makes_another_run_of_it(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2000, 3)), np.arange(2000) % 2
    ng.train((x, y), "ce", "mlp-4", {"epochs": 1}, device="cpu", folder=tmp_path)
    x[1337, 2] += 1e-9
    with pytest.raises(OtherRunError, match="differs in data"):
        ng.train((x, y), "ce", "mlp-4", {"epochs": 1}, device="cpu", folder=tmp_path)


def test_the_hash_of_inputs_is_that_of_their_numbers(monkeypatch):
    x = np.arange(600, dtype=np.float32).reshape(100, 6)
    whole = input_hash(x)
    assert input_hash(x.copy(order="F")) == whole
    assert input_hash(np.ascontiguousarray(x[::-1])) != whole
    assert input_hash(x.view(np.int32)) != whole
    monkeypatch.setattr("noisegate.runs.identity.BLOCK_BYTES", 100)
    assert input_hash(x) == whole
    # Of very large ones some rows are taken, from the first to the last part.
    monkeypatch.setattr("noisegate.runs.identity.HASHED_BYTES", 600)
    few = input_hash(x)
    assert few != whole
    x[96] += 1
    assert input_hash(x) != few
    assert input_hash(np.zeros((0, 3))) != input_hash(np.zeros((0, 3), np.uint8))


@pytest.mark.parametrize("labels", [np.array([4, 7]), np.array(["no", "yes"]), np.array([False, True])])
def test_predictions_are_the_labels_as_they_were_given(labels):
    y = labels[np.arange(40) % 2]
    x = np.stack([np.arange(40) % 2, np.ones(40)], 1)
    fitted = ng.train((x, y), "ce", "mlp-4", {"epochs": 60, "lr": 0.05}, device="cpu")
    assert (fitted.predict(x) == y).all()


def test_predictions_for_numbered_classes_are_numbers():
    digits = ng.data.load("digits")
    fitted = ng.train(digits, "ce", "mlp-32", {"epochs": 5}, device="cpu")
    assert (fitted.predict(digits.test.x) == digits.test.y).mean() == pytest.approx(
        fitted.metrics["test_accuracy"]
    )


@pytest.mark.parametrize("wrong", [np.nan, 0.5])
def test_labels_that_name_no_class_are_refused(wrong):
    y = np.array([0.0, 1.0] * 20)
    y[3] = wrong
    with pytest.raises(InputError, match="labels"):
        ng.train((np.ones((40, 2)), y), "ce", recipe={"epochs": 1})


def test_test_rows_must_fit_the_training_rows(data):
    narrow = dataclasses.replace(data, test=Split(data.test.x[:, :1], data.test.y))
    with pytest.raises(InputError, match=r"test rows have the shape \(1,\), training rows \(2,\)"):
        ng.train(narrow, "ce", recipe={"epochs": 1}, evaluate_every=0)
    outside = dataclasses.replace(data, test=Split(data.test.x, data.test.y + 1))
    with pytest.raises(InputError, match=r"test labels must lie in 0\.\.2, got 1\.\.3"):
        ng.train(outside, "ce", recipe={"epochs": 1}, evaluate_every=0)


def test_nothing_to_predict_is_predicted(data):
    fitted = ng.train(data, "ce", "mlp-4", {"epochs": 1}, device="cpu")
    assert fitted.predict_proba(data.test.x[:0]).shape == (0, 3)
    assert fitted.predict(data.test.x[:0]).shape == (0,)
