"""One contract over every registered method."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.methods import METHODS
from noisegate.training.job import make_job
from noisegate.training.phase_run import PhaseRun

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
def few(digits):
    return ng.data.Dataset(
        "few", digits.train.take(range(200)), digits.test, digits.validation, classes=digits.classes
    )


def state(fitted):
    tensors = [*fitted.network.state_dict().values(), *fitted.extras.values()]
    return [value.detach() for value in tensors if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("name", sorted(METHODS))
def test_the_same_seed_gives_the_same_result(name, few, tmp_path):
    recipe = ng.Recipe(epochs=2, batch_size=50)
    first, second, other = (
        ng.train(few, method(name), "mlp-16", recipe, seed=s, device="cpu") for s in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(state(first), state(second), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(state(first), state(other), strict=True))
    # What it learnt survives the model folder.
    first.save(tmp_path)
    assert (ng.Fitted.load(tmp_path).predict_proba(few.test.x) == first.predict_proba(few.test.x)).all()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_parameter_that_is_trained_gets_a_gradient(name, few):
    job = make_job(few, "mlp-16", ng.Recipe(epochs=2, batch_size=50), 0, torch.device("cpu"))
    phases = method(name).phases(job)
    phase = next(phases)
    trained = 0
    while True:
        run = PhaseRun(phase, job, 0, None, 0)
        moved = {
            n: torch.zeros((), dtype=torch.bool)
            for n, p in phase.module.named_parameters()
            if p.requires_grad
        }
        while not run.done:
            run.run_epoch()
            for n, p in phase.module.named_parameters():
                if p.grad is not None:
                    moved[n] |= bool(p.grad.abs().sum() > 0)
        assert all(moved.values()), [n for n, m in moved.items() if not m]
        trained += len(moved)
        try:
            phase = phases.send(run.finish())
        except StopIteration as stop:
            fitted = stop.value
            break
    assert trained > 0
    assert isinstance(fitted, ng.Fitted)
    assert isinstance(fitted.network, nn.Module)


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
