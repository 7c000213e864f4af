"""Small data and methods that make the trainer show what it does."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.data.dataset import Dataset, Split
from noisegate.methods.base import Method
from noisegate.training.job import make_job
from noisegate.training.phase import Phase, PhaseModule


def blobs(n=200, seed=0, noise=0.2, validation=True):
    """Three Gaussian blobs in the plane, a fifth of their labels wrong."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    clean = rng.integers(0, 3, n)
    x = (centres[clean] + 0.6 * rng.standard_normal((n, 2))).astype(np.float32)
    y = (
        ng.noise.Symmetric(noise, include_self=False).corrupt(clean, n_classes=3, seed=seed)
        if noise
        else clean
    )
    half = n // 2
    held = Split(x[:40], y[:40], clean[:40]) if validation else None
    return Dataset(
        "blobs",
        Split(
            x[40 if validation else 0 : half],
            y[40 if validation else 0 : half],
            clean[40 if validation else 0 : half],
        ),
        Split(x[half:], clean[half:]),
        held,
        classes=("a", "b", "c"),
    )


@pytest.fixture
def data():
    return blobs()


@pytest.fixture
def job_for():
    def make(data, recipe=None, seed=0, network="mlp-8", **options):
        recipe = recipe or ng.Recipe(epochs=3, batch_size=10)
        return make_job(data, network, recipe, seed, torch.device("cpu"), **options)

    return make


class Recorder(PhaseModule):
    """Notes the batches it sees, and skips updates where it is told to."""

    def __init__(self, network, objective, skip=()):
        super().__init__()
        self.network, self.objective, self.skip = network, objective, skip
        self.batches, self.epochs_begun = [], []

    def forward(self, batch):
        self.batches.append(batch)
        loss = self.objective(self.network(batch.x), batch.y)
        if not self.skip:
            return loss
        return loss, torch.tensor(len(self.batches) - 1 not in self.skip)

    def predictor(self):
        return self.network, self.objective

    def begin_epoch(self, epoch, job):
        self.epochs_begun.append(epoch)


@dataclass
class Recorded(Method):
    """One phase of a Recorder; keeps it at hand."""

    skip: tuple = ()
    keep: str | None = None
    rows: object = None

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        self.module = Recorder(network, objective, self.skip)
        self.start = {k: v.clone() for k, v in network.state_dict().items()}
        self.history = yield Phase(self.module, job.recipe, rows=self.rows, keep=self.keep)
        return ng.Fitted(network, objective)


@pytest.fixture
def recorded():
    return Recorded


@pytest.fixture
def weights():
    def flat(fitted):
        module = fitted.network if isinstance(fitted, ng.Fitted) else fitted
        return nn.utils.parameters_to_vector(module.parameters()).detach().clone()

    return flat
