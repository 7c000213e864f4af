"""The parts of captured execution that a CPU can show; benchmarks/capture_check.py does the rest on a GPU."""

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate._device import Reading
from noisegate.data.loader import Rows
from noisegate.evaluation import passes as passes_module
from noisegate.evaluation.metrics import row_scores, summary, summary_of
from noisegate.evaluation.passes import Passes, given_labels, predict, read_given
from noisegate.networks.prepare import Prepared
from noisegate.training import cuda_graphs
from noisegate.training.checkpoint import on_host
from noisegate.training.compiling import compiled_networks, compiling_pays
from noisegate.training.execution import Eager, choose_execution
from noisegate.training.phase_run import PhaseRun
from noisegate.training.randomness import RandomState
from noisegate.training.stream import ExecutionStream

CPU = torch.device("cpu")


def test_numbers_of_all_types_are_read_by_name():
    numbers = {"count": torch.tensor(3), "flag": torch.tensor(True), "share": torch.tensor(0.25)}
    reading = Reading.of(numbers, CPU)
    assert reading.ready
    assert reading.read() == {"count": 3.0, "flag": 1.0, "share": 0.25}
    assert Reading.of({}, CPU).read() == {}


def test_a_copy_of_a_tree_does_not_follow_the_original():
    tree = {"a": [torch.zeros(2), 1], "b": (torch.ones(1), None)}
    copied = on_host(tree)
    tree["a"][0].fill_(5.0)
    assert copied["a"][0].tolist() == [0.0, 0.0]
    assert copied["b"][0].tolist() == [1.0]
    assert isinstance(copied["b"], tuple)


@pytest.mark.parametrize("size", [7, 16, 39, 40, 1000])
def test_a_pass_in_equal_batches_sees_every_row_once(data, job_for, monkeypatch, size):
    monkeypatch.setattr(passes_module, "pass_size", lambda rows: size)
    rows = job_for(data).validation
    objective = ng.CrossEntropy(3)
    network = job_for(data).network(objective)
    probs = predict(network, objective, rows)
    expected = [
        (probs.argmax(1) == rows.y).double().mean(),
        probs.gather(1, rows.y[:, None]).double().log().mean(),
    ]
    seen = given_labels(network, objective, rows, rows.y)
    torch.testing.assert_close(torch.tensor(list(seen.values())), torch.stack(expected).float())


def test_streamed_rows_are_seen_as_resident_ones_are(data, monkeypatch):
    monkeypatch.setattr(passes_module, "pass_size", lambda rows: 9)
    objective = ng.CrossEntropy(3)
    network = nn.Linear(2, 3)
    resident, streamed = (Rows(data.validation.x, data.validation.y, CPU, resident=r) for r in (True, False))
    values = []
    for rows in (resident, streamed):
        passes = Passes(network, objective)
        with passes.evaluating():
            values.append(passes("given", rows, read_given(rows.y)))
    torch.testing.assert_close(*values)


def test_stored_passes_are_not_run_again(data, job_for):
    rows = job_for(data).validation
    network, objective = nn.Linear(2, 3), ng.CrossEntropy(3)
    passes = Passes(network, objective)
    with passes.evaluating():
        before = passes("given", rows, read_given(rows.y)).clone()
        nn.init.zeros_(network.weight)
        passes.mode = "stored"
        assert torch.equal(passes("given", rows, read_given(rows.y)), before)
        passes.mode = "run"
        assert not torch.equal(passes("given", rows, read_given(rows.y)), before)
    assert network.training


def test_metrics_from_row_scores_are_those_of_the_summary():
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(2 * torch.randn(500, 4, generator=generator), 1)
    y = torch.randint(0, 4, (500,), generator=generator)
    # In two batches, as a pass makes them.
    scores = torch.cat([row_scores(probs[:123], y[:123]), row_scores(probs[123:], y[123:])])
    found = {name: float(value) for name, value in summary_of(scores).items()}
    assert found == pytest.approx(summary(probs, y), abs=1e-12)


def test_a_random_state_goes_on_where_it_was_left():
    state = RandomState()
    state.seed(1, "epoch", 0)
    with state.active():
        whole = torch.rand(4), np.random.rand(4)  # noqa: NPY002
    state.seed(1, "epoch", 0)
    parts = []
    for _ in range(2):
        with state.active():
            parts.append((torch.rand(2), np.random.rand(2)))  # noqa: NPY002
        torch.rand(7)  # somebody else's
    assert torch.equal(torch.cat([p[0] for p in parts]), whole[0])
    assert np.array_equal(np.concatenate([p[1] for p in parts]), whole[1])


def test_a_random_state_can_be_taken_back():
    state = RandomState()
    state.seed(5)
    with state.active():
        saved = state.save()
        first = torch.rand(3)
        state.restore(saved)
        assert torch.equal(torch.rand(3), first)
        state.renew(saved)
        assert torch.equal(torch.rand(3), first)


def deep(n_convolutions):
    return nn.Sequential(*[nn.Conv2d(1, 1, 1) for _ in range(n_convolutions)])


def test_compiling_is_for_long_runs_of_deep_networks_and_never_for_fp32(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert compiling_pays(13_500_000, "bf16", deep(20))
    assert compiling_pays(13_500_000, "tf32", deep(20))
    assert not compiling_pays(13_500_000, "fp32", deep(20))
    assert not compiling_pays(100_000, "bf16", deep(20))
    assert not compiling_pays(13_500_000, "bf16", deep(3))
    assert compiling_pays(13_500_000, "bf16")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not compiling_pays(13_500_000, "bf16", deep(20))


def test_compiled_networks_are_as_they_were_afterwards(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)  # importing inductor warns
    inner = nn.Linear(2, 3)
    frozen = nn.Linear(2, 3).requires_grad_(False)
    parts = [Prepared(n, torch.zeros(2), torch.ones(2), {"input_shape": [2]}) for n in (inner, frozen)]
    module = nn.ModuleList(parts)
    keys = list(module.state_dict())
    with compiled_networks(module):
        assert "forward" in vars(inner)
        assert "forward" not in vars(frozen)
        assert list(module.state_dict()) == keys
    assert "forward" not in vars(inner)


def test_a_sequence_of_layers_is_compiled(graphs):
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3))
    prepared = Prepared(network, torch.zeros(2), torch.ones(2), {"input_shape": [2]})
    with compiled_networks(prepared):
        prepared(torch.rand(4, 2))
    prepared(torch.rand(5, 2))
    assert len(graphs) == 1


@pytest.mark.parametrize("name", ["lenet5", "wrn-10-1", "resnet20"])
def test_networks_are_compiled_once_whatever_their_outputs(name, graphs):
    x = torch.rand(4, 3, 8, 8)
    for n_outputs in (2, 5, 9):
        network = ng.networks.build(name, (3, 8, 8), n_outputs)
        prepared = Prepared(network, torch.zeros(3, 1, 1), torch.ones(3, 1, 1), {"input_shape": [3, 8, 8]})
        network.eval()
        wanted = prepared(x)
        with compiled_networks(prepared):
            found = prepared(x)
            found.sum().backward()
        assert found.shape == (4, n_outputs)
        torch.testing.assert_close(found, wanted)
        assert all(p.grad is not None for p in network.parameters())
    assert len(graphs) == 1


def test_a_cpu_runs_eagerly(data, job_for):
    job = job_for(data)
    assert ExecutionStream(CPU, "auto").choices(deep(20), 13_500_000, "bf16") == ("eager",)
    run = PhaseRun(next(ng.methods.get("ce").phases(job)), job, 0, None, 0, ExecutionStream(CPU))
    assert type(choose_execution(run.step, run._numbers, run.stream, "one")) is Eager


def test_every_tensor_that_a_step_changes_is_known(data, job_for):
    """A capture rolls its warm-up back; what it does not know of would stay changed."""
    job = job_for(data, ng.Recipe(epochs=2, batch_size=10, ema=0.9))
    for method in ("ln", "co-teaching", "elr", "mentornet"):
        params = {"noise_rate": 0.2} if method in ("co-teaching", "mentornet") else {}
        run = PhaseRun(next(ng.methods.get(method, **params).phases(job)), job, 0, None, 0)
        run.module.train()
        run.shuffle()
        known = run.step.changing()
        before = [t.detach().clone() for t in known]
        state = {k: v for k, v in run.state().items() if k != "history"}
        stored = on_host(state)
        run.step()
        assert not all(torch.equal(a, b) for a, b in zip(before, known, strict=True))
        with torch.no_grad():
            for tensor, value in zip(known, before, strict=True):
                tensor.copy_(value)
        torch.testing.assert_close(
            {k: v for k, v in run.state().items() if k in ("module", "optimizer", "average", "step")},
            {k: v for k, v in stored.items() if k in ("module", "optimizer", "average", "step")},
            rtol=0,
            atol=0,
        )


class NoGraph:
    """Takes a function and captures nothing."""

    def __init__(self, function, pool):
        pass


@pytest.mark.parametrize(
    ("recipe", "epoch"),
    [({"epochs": 1, "batch_size": 1000}, 0), ({"steps": 2, "epochs": None}, 0), ({"epochs": 50}, 49)],
)
def test_a_warm_up_may_go_beyond_the_last_step(data, job_for, monkeypatch, recipe, epoch):
    """On a GPU reading a rate that is not there would end the process's use of it."""
    monkeypatch.setattr(cuda_graphs, "Graph", NoGraph)
    monkeypatch.setattr(cuda_graphs, "no_waiting", contextlib.nullcontext)
    monkeypatch.setattr(cuda_graphs, "_make_room", lambda device: None)
    job, stream = job_for(data, ng.Recipe(**({"batch_size": 100} | recipe))), ExecutionStream(CPU)
    with stream.active():
        run = PhaseRun(next(ng.methods.get("ce").phases(job)), job, 0, None, 0, stream)
        run.epoch = epoch
        run.step.number.fill_(epoch * run.steps_per_epoch)
        run.module.train()
        run.shuffle()
        before = [tensor.clone() for tensor in run.step.changing()]
        cuda_graphs.captured_step(run.step, run.step.changing(), stream.random, pool=None)
    assert all(torch.equal(a, b) for a, b in zip(before, run.step.changing(), strict=True))


def test_a_forward_of_a_networks_own_comes_back(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    network = nn.Linear(2, 2)
    network.forward = lambda x: 2 * nn.Linear.forward(network, x)
    prepared = Prepared(network, torch.zeros(2), torch.ones(2), {"input_shape": [2]})
    x = torch.rand(3, 2)
    wanted = prepared(x)
    with compiled_networks(prepared):
        torch.testing.assert_close(prepared(x), wanted)
    torch.testing.assert_close(prepared(x), wanted)


class Replayed:
    """In place of a CUDA graph: a function that is called again; the making of one may fail."""

    made, fails_at = 0, None

    def __init__(self, function, pool):
        Replayed.made += 1
        if Replayed.made == Replayed.fails_at:
            raise AssertionError  # without a word, as others' code may have it
        self.function = function

    def __call__(self):
        self.function()


@pytest.fixture
def pretended(monkeypatch):
    """Capture on a CPU, with functions in place of graphs; takes the number of the one that fails."""

    def pretend(fails_at=None):
        monkeypatch.setattr(Replayed, "made", 0)
        monkeypatch.setattr(Replayed, "fails_at", fails_at)
        monkeypatch.setattr(ExecutionStream, "choices", lambda *_: ("captured", "eager"))
        monkeypatch.setattr(cuda_graphs, "_make_room", lambda device: None)
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        monkeypatch.setattr(cuda_graphs, "Graph", Replayed)
        monkeypatch.setattr(cuda_graphs, "no_waiting", contextlib.nullcontext)

    return pretend


def trained(data):
    """What a run leaves, without its times."""
    recipe = {"epochs": 3, "batch_size": 10, "lr": 0.01, "ema": 0.9, "keep": "ema"}
    fitted = ng.train(data, "elr", "mlp-8", recipe, device="cpu")
    history = [{k: v for k, v in e.items() if "seconds" not in k} for e in fitted.history[0]]
    return history, nn.utils.parameters_to_vector(fitted.network.parameters()).tolist()


def test_captured_steps_do_what_eager_ones_do(data, pretended, caplog):
    eager = trained(data)
    pretended()
    assert trained(data) == eager
    # The step, a batch of each of three passes, and the numbers.
    assert Replayed.made == 5
    assert not caplog.records


@pytest.mark.parametrize(
    ("fails_at", "line"),
    [
        (1, "phase 'training' runs eager, not captured, because AssertionError"),
        (2, "training eagerly from here on, because capture failed (AssertionError)"),
        (5, "training eagerly from here on, because capture failed (AssertionError)"),
    ],
)
def test_what_cannot_be_captured_runs_eagerly_and_says_so(data, pretended, caplog, fails_at, line):
    eager = trained(data)
    pretended(fails_at)
    assert trained(data) == eager
    assert [record.message for record in caplog.records] == [line]
    assert Replayed.made == fails_at  # it is not tried again


def test_evaluations_that_would_wait_are_not_captured(data, pretended, caplog, monkeypatch):
    eager = trained(data)
    pretended()

    calls = iter(range(9))

    @contextlib.contextmanager
    def waits():
        if next(calls):  # the first call is the step's
            raise RuntimeError("called a synchronizing CUDA operation\nat some place")
        yield

    monkeypatch.setattr(cuda_graphs, "no_waiting", waits)
    assert trained(data) == eager
    (record,) = caplog.records
    assert record.message.startswith(
        "evaluating eagerly, because it cannot be captured (RuntimeError: called a sync"
    )
    assert "at some place" not in record.message
    assert Replayed.made == 1  # the step is
