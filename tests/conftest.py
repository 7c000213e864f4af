"""What all tests share."""

import os

# Lets scikit-learn run its array-API check instead of skipping it; it must be set before scipy is imported.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


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


# These read a tensor's values on the host, or make a shape depend on them.
REFUSED = {
    "_local_scalar_dense",
    "nonzero",
    "nonzero_static",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "histc",
    "repeat_interleave",
    "is_nonzero",
    "equal",
    "_assert_async",
}


class CaptureGuard(TorchDispatchMode):
    """Refuses operations that cannot be captured, and notes every operation with the shapes it gives."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        boolean_index = name in ("index", "index_put_", "index_put") and any(
            isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)
            for i in args[1]
            if i is not None
        )
        if name in REFUSED or boolean_index:
            raise AssertionError(f"{name} cannot be captured in a CUDA graph")
        result = function(*args, **(kwargs or {}))
        outputs = result if isinstance(result, tuple | list) else [result]
        self.seen.append((name, [tuple(o.shape) for o in outputs if isinstance(o, torch.Tensor)]))
        return result


@pytest.fixture(scope="session")
def capture_guard():
    """The class of the guard: `with capture_guard() as guard: step()`."""
    return CaptureGuard
