"""Noisy digits, what cross-entropy makes of them, and a way to run a method's phases by hand."""

import pytest
import torch

import noisegate as ng
from noisegate.methods import Batch
from noisegate.training.job import make_job
from noisegate.training.phase_run import PhaseRun

#: Long enough for cross-entropy to learn half of the wrong labels by heart.
RECIPE = ng.Recipe(epochs=12, batch_size=32, lr=5e-3, schedule="cosine")


@pytest.fixture(scope="session")
def noisy_digits():
    """Digits with 40 % of the training labels wrong."""
    return ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4, include_self=False), seed=0)


@pytest.fixture(scope="session")
def fit_digits(noisy_digits):
    """Train a method on the noisy digits, always in the same way."""

    def fit(method):
        return ng.train(noisy_digits, method, "mlp-128-128", RECIPE, seed=0, device="cpu", evaluate_every=0)

    return fit


@pytest.fixture(scope="session")
def cross_entropy(fit_digits):
    return fit_digits("ce")


@pytest.fixture
def job_for():
    def make(data, recipe=None, network="mlp-8", seed=0, **options):
        recipe = recipe or ng.Recipe(epochs=2, batch_size=20)
        return make_job(data, network, recipe, seed, torch.device("cpu"), **options)

    return make


@pytest.fixture
def run_phases():
    """Train all phases of a method; returns them and what the method returned."""

    def run(method, job):
        phases, seen, history = method.phases(job), [], None
        torch.manual_seed(0)
        while True:
            try:
                phase = phases.send(history)
            except StopIteration as stop:
                return seen, stop.value
            stretch = PhaseRun(phase, job, len(seen), None, 0)
            while not stretch.done:
                stretch.run_epoch()
            history = stretch.finish()
            seen.append(phase)

    return run


@pytest.fixture
def make_batch():
    def make(x, y, *, index=None, weight=None, epoch=0):
        index = torch.arange(len(y)) if index is None else index
        weight = torch.ones(len(y)) if weight is None else weight
        return Batch(x, y, index, weight, torch.tensor(epoch))

    return make
