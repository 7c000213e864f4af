"""Captured execution of every method without a GPU: a recording of operations stands in for a CUDA graph.

Like a graph, a recording holds operations and the memory they work on, and no Python: whatever a step decides by a
Python value, or reads from a tensor that was put in another's place, is wrong when it is replayed. The rows are
those of benchmarks/capture_check.py, which is about real graphs, streams and random states.
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import noisegate as ng
from noisegate._device import Pending
from noisegate.methods.base import Method
from noisegate.methods.direct import Direct
from noisegate.training import cuda_graphs, trainer
from noisegate.training.phase import Phase
from noisegate.training.stream import ExecutionStream

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "capture_check.py"


def storages(tree):
    """The memory of the tensors in a tree, by address."""
    tensors = [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]
    return {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}


class Tape(TorchDispatchMode):
    """Notes every operation, and what the memory that it did not make itself held before."""

    def __init__(self):
        super().__init__()
        self.operations, self.own, self.before = [], {}, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = (args, kwargs or {})
        for address, memory in storages(given).items():
            if address not in self.own and address not in self.before:
                self.before[address] = memory, memory.clone()
        result = function(*given[0], **given[1])
        self.own |= {a: m for a, m in storages(result).items() if a not in self.before}
        self.operations.append((function, *tree_map(_alias, (*given, result))))
        return result

    def undo(self):
        for memory, value in self.before.values():
            memory.copy_(value)


def _alias(leaf):
    """The same memory under another name: what becomes of the original does not matter."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


class Recording:
    """In place of a CUDA graph: making it changes nothing, calling it repeats the operations in the same memory."""

    made, operations = 0, 0

    def __init__(self, function, pool):
        drawn = torch.get_rng_state()
        # What a capture refuses, the guard does.
        with Recording.guard(), Tape() as tape:
            function()
        tape.undo()
        torch.set_rng_state(drawn)
        self._tape = tape
        Recording.made += 1

    @torch.no_grad()
    def __call__(self):
        for function, args, kwargs, wanted in self._tape.operations:
            found = function(*args, **kwargs)
            for new, old in zip(tree_flatten(found)[0], tree_flatten(wanted)[0], strict=True):
                if isinstance(new, torch.Tensor) and storages(new).keys() != storages(old).keys():
                    old.copy_(new)
        Recording.operations += len(self._tape.operations)


class PretendedStream(ExecutionStream):
    """A run's stream that believes in a stream; host and device draw from one generator here."""

    def __init__(self, device, execution="auto"):
        super().__init__(device, "auto")
        self.execution, self.cuda = execution, object()

    def active(self):
        return self.random.active()

    on_stream = active

    def open(self):
        pass

    close = open

    def choices(self, *_):
        return ("eager",) if self.execution == "eager" else ("captured", "eager")


class Late:
    """An event that has not happened the first time one asks."""

    def __init__(self):
        self.asked = 0

    def query(self):
        self.asked += 1
        return self.asked > 1

    def synchronize(self):
        self.asked = 1


@pytest.fixture
def pretended(monkeypatch, capture_guard):
    """A CPU that is treated as a GPU is, but for memory layouts and pinned memory."""
    monkeypatch.setattr(Recording, "guard", capture_guard, raising=False)
    monkeypatch.setattr(Recording, "made", 0)
    monkeypatch.setattr(Recording, "operations", 0)
    monkeypatch.setattr(trainer, "ExecutionStream", PretendedStream)
    monkeypatch.setattr(cuda_graphs, "_make_room", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(Pending, "__init__", lambda self, device: setattr(self, "_event", Late()))
    monkeypatch.setattr(cuda_graphs, "Graph", Recording)
    monkeypatch.setattr(cuda_graphs, "no_waiting", capture_guard)
    return Recording


def load():
    spec = importlib.util.spec_from_file_location("capture_check", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules["capture_check"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["capture_check"]
    return module


ROWS = load().checks()


def with_dropout(input_shape, n_outputs):
    """A network that draws, as cnn9 does, and takes less time."""
    layers = nn.Conv2d(input_shape[0], 4, 3), nn.Dropout(0.25), nn.AdaptiveAvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, n_outputs))


@pytest.fixture
def benchmark(pretended, monkeypatch, capture_guard):
    module = load()
    original = module.run_of

    def run_of(data, method, network, *arguments, **options):
        return original(data, method, with_dropout if network == "cnn9" else network, *arguments, **options)

    monkeypatch.setattr(module, "run_of", run_of)
    monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(module, "no_waiting", capture_guard)
    return module


@pytest.mark.parametrize("row", ROWS)
def test_replays_do_what_eager_steps_do(row, benchmark, pretended, caplog):
    assert benchmark.checks()[row](benchmark.images()) == ""
    assert not caplog.records
    assert pretended.made
    assert pretended.operations


class ByPython(Direct):
    """Its steps differ by something that no graph holds."""

    def __init__(self, network, objective, kind):
        super().__init__(network, objective)
        self.kind, self.calls = kind, 0
        self.register_buffer("factor", torch.ones(()))

    def forward(self, batch):
        loss = super().forward(batch)
        if self.kind == "a count":
            self.calls += 1
            return loss * (1 + self.calls / 10)
        if self.kind == "another tensor":
            self.factor = self.factor + 0.1
            return loss * self.factor
        if self.kind == "the same tensor":
            return loss * self.factor.add_(0.1).clone()
        return loss * (1 + float(loss.detach()) / 10)


@dataclass
class Odd(Method):
    kind: str = "a value"

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        yield Phase(ByPython(network, objective, self.kind), job.recipe)
        return ng.Fitted(network, objective)


@pytest.mark.parametrize(
    ("kind", "equal"), [("a count", False), ("another tensor", False), ("the same tensor", True)]
)
def test_recordings_show_what_graphs_would_not_hold(kind, equal, data, pretended, weights, caplog):
    recipe = {"epochs": 2, "batch_size": 10, "lr": 0.01}
    eager, captured = (
        weights(ng.train(data, Odd(kind), "mlp-8", recipe, device="cpu", execution=way))
        for way in ("eager", "captured")
    )
    assert torch.equal(eager, captured) is equal
    assert not caplog.records


def test_a_step_that_reads_a_value_is_not_captured(data, pretended, weights, caplog):
    recipe = {"epochs": 2, "batch_size": 10, "lr": 0.01}
    eager, captured = (
        weights(ng.train(data, Odd("a value"), "mlp-8", recipe, device="cpu", execution=way))
        for way in ("eager", "captured")
    )
    assert torch.equal(eager, captured)
    (record,) = caplog.records
    assert record.message.startswith(
        "phase 'training' runs eager, not captured, because AssertionError: _local_scalar"
    )
