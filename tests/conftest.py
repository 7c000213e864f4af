"""What all tests share."""

import os

# Lets scikit-learn run its array-API check instead of skipping it; it must be set before scipy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Small tensors are quicker on one thread, and the results do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _random_state_untouched():
    """No test, and nothing it calls, may change the global random state of torch without saying so."""
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)
