"""What all tests share."""

import os

# Lets scikit-learn run its array-API check instead of skipping it; it must be set before scipy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
import torch

from noisegate.testing import CaptureGuard


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Small tensors are quicker on one thread, and the results do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _random_state_untouched():
    """A test draws the same numbers every time, and leaves torch's global random state as it was."""
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(0)
    yield
    torch.set_rng_state(before)


@pytest.fixture
def graphs(monkeypatch):
    """What `torch.compile` is given from now on, by a backend that runs it as it is."""
    found, compile_ = [], torch.compile

    def backend(graph, inputs):
        found.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", lambda f, **options: compile_(f, backend=backend, **options))
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


@pytest.fixture(scope="session")
def capture_guard():
    """The class of the guard: `with capture_guard() as guard: step()`."""
    return CaptureGuard
