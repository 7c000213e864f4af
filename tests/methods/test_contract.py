"""One contract over every registered method."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import noisegate as ng
from noisegate.methods import METHODS

#: How far below cross-entropy's clean accuracy a method may end on digits with 40 % wrong labels.
MARGIN = 0.08
#: One method for each mechanism of the trainer.
MECHANISMS = {
    "one phase": "ln",
    "several phases": "forward",
    "two networks": "co-teaching",
    "per-example state": "elr",
    "work between epochs": "dividemix",
}
#: Fewer samples than the papers' 1000, so that the tests stay quick.
QUICK = {name: {"n_samples": 100} for name in ("het", "het-tau", "het-full")}
RECIPE = ng.Recipe(epochs=30, batch_size=64, lr=3e-3, schedule="cosine")


def method(name):
    return ng.methods.get(name, **QUICK.get(name, {}))


@pytest.fixture(scope="module")
def digits():
    noise = ng.noise.Symmetric(0.4, include_self=False)
    return ng.data.load("digits").corrupt(noise, seed=0).hold_out(0.1)


@pytest.fixture(scope="module")
def cross_entropy(digits):
    return ng.train(digits, "ce", "mlp", RECIPE, device="cpu", evaluate_every=0).metrics["test_accuracy"]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_it_is_about_as_good_as_cross_entropy_under_noise_or_better(name, digits, cross_entropy):
    fitted = ng.train(digits, method(name), "mlp", RECIPE, device="cpu", evaluate_every=0)
    assert fitted.metrics["test_accuracy"] > cross_entropy - MARGIN
    probs = fitted.predict_proba(digits.test.x)
    assert probs.shape == (450, 10)
    assert abs(probs.sum(1) - 1).max() < 1e-9


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    script = Path(__file__).parents[1] / "training" / "killed_run.py"
    work = tmp_path_factory.mktemp("killed")
    command = [sys.executable, script, work, *MECHANISMS.values()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_run_killed_in_its_last_phase_resumes_to_the_same_result(mechanism, killed):
    outcome = killed[MECHANISMS[mechanism]]
    assert outcome["killed"]
    assert outcome["resumed"] == outcome["undisturbed"]


def test_every_name_of_the_design_is_there():
    names = {
        "ce",
        "ls",
        "fc",
        "bc",
        "gce",
        "bi-tempered",
        "nan",
        "bootstrap",
        "het",
        "het-tau",
        "het-full",
        "ln",
    }
    names |= {
        "forward",
        "backward",
        "reweight",
        "t-revision",
        "co-teaching",
        "decoupling",
        "mentornet",
        "mixup",
    }
    assert names | {"distillation", "causalnl"} <= set(METHODS)
