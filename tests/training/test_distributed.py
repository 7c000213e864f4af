"""One run on several processes: the same run as in one, with two real gloo processes on the CPU."""

import importlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn

import noisegate as ng
from noisegate.cli.app import message_of
from noisegate.errors import (
    DivergedError,
    InputError,
    MissingDataError,
    NoisegateError,
    ProcessDiedError,
    UnknownNameError,
)
from noisegate.methods.base import Method
from noisegate.objectives import weighted_mean
from noisegate.objectives.base import added_up
from noisegate.runs.train import train
from noisegate.training import distributed
from noisegate.training.distributed import World, starting
from noisegate.training.distributed.processes import packed_error, unpacked_error
from noisegate.training.phase import Phase, PhaseModule
from noisegate.training.randomness import seeded
from noisegate.training.stream import ExecutionStream

HERE = Path(__file__).parent
RECIPE = {"epochs": 3, "batch_size": 20, "lr": 0.02}


# -- what the processes do: they import this file by its own name --------------------------------------


def several(calls, checkpoint_seconds=30.0):
    """The outcome of each call: what it returned, or the error it raised, its type by name."""
    from noisegate.training import trainer

    trainer.CHECKPOINT_SECONDS = checkpoint_seconds
    return {name: outcome(call) for name, call in calls.items()}


def outcome(call):
    try:
        return call()
    except (NoisegateError, KeyboardInterrupt) as error:
        return type(error).__name__, str(error)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def killed_while_others_wait():
    distributed.from_first(None)  # both are connected
    if distributed.world().first:
        dist.barrier()
    killed()


def listening(call):
    """The addresses at which this process listens once a run is over."""
    call()
    connections = psutil.Process().net_connections(kind="inet")
    return [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]


class Stop:
    """An `on_epoch` that interrupts after some epochs."""

    def __init__(self, after):
        self.after = after

    def __call__(self, epoch):
        if epoch.epoch == self.after:
            raise KeyboardInterrupt


def batch_normed(input_shape, n_outputs):
    return nn.Sequential(nn.Linear(input_shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, n_outputs))


class Noting(PhaseModule):
    """Notes for each row who saw it, in which step, and what was drawn for it; some processes are idle."""

    def __init__(self, network, objective, seen, idle):
        super().__init__()
        self.network, self.objective, self.idle = network, objective, idle
        self.register_buffer("seen", seen)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, batch):
        rank = distributed.world().rank
        numbers = torch.tensor([float(rank), float(self.steps)]).expand(len(batch.index), 2)
        self.seen[batch.index] = torch.cat([numbers, torch.rand(len(batch.index), 1)], 1)
        self.steps.add_(1)
        losses = self.objective(self.network(batch.x), batch.y, reduction="none")
        return weighted_mean(losses, batch.weight), torch.tensor(rank not in self.idle)

    def predictor(self):
        return self.network, self.objective


@dataclass
class Noted(Method):
    idle: tuple = ()

    def phases(self, job):
        objective = ng.CrossEntropy(job.n_classes)
        network = job.network(objective)
        start = nn.utils.parameters_to_vector(network.parameters()).detach().clone()
        module = Noting(network, objective, job.per_example(3, fill=-1.0), self.idle)
        yield Phase(module, job.recipe)
        end = nn.utils.parameters_to_vector(network.parameters()).detach()
        return ng.Fitted(network, objective, seen=module.seen, moved=bool((start != end).any()))


# -- the calls ------------------------------------------------------------------------------------------


def calls_for(file, folder):
    """Calls by name, of the functions of `file`: this module as the processes know it."""
    data = ng.data.load("moons", n=200).corrupt(ng.noise.Symmetric(0.2), seed=0).hold_out(0.3, 0)
    call = partial(train, data, network="mlp-8", recipe=RECIPE, seed=3, device="cpu")
    weight = np.random.default_rng(0).random(len(data.train)).round(1)
    full = RECIPE | {"clip_norm": 0.5, "ema": 0.9, "keep": "best", "patience": 2, "optimizer": "nesterov"}
    few = (data.train.x[:21], data.train.y[:21])
    stopped = partial(call, method="ce", recipe=RECIPE | {"epochs": 4})
    return {
        "ce": partial(call, method="ce", sample_weight=weight),
        "ln": partial(call, method="ln", recipe=full, sample_weight=weight),
        "elr": partial(call, method="elr", recipe=RECIPE | {"ema": 0.9, "keep": "ema"}),
        "whole": stopped,
        "stopped": partial(stopped, folder=folder, on_epoch=file.Stop(2)),
        "resumed": partial(stopped, folder=folder),
        "finished": partial(stopped, folder=folder),
        "another": partial(call, method="gce", folder=folder),
        "normed": partial(call, method="ce", network=file.batch_normed),
        "kept": partial(call, method=ng.methods.get("co-teaching", noise_rate=0.4, gradual=1)),
        "noted": partial(call, method=file.Noted(), recipe=RECIPE | {"epochs": 1, "batch_size": 30}),
        "one idle": partial(call, method=file.Noted(idle=(1,))),
        "all idle": partial(call, method=file.Noted(idle=(0, 1))),
        "diverged": partial(call, method="ce", recipe=RECIPE | {"optimizer": "sgd", "lr": 1e38}),
        "odd batch": partial(call, method="ce", recipe=RECIPE | {"batch_size": 15}),
        "odd rows": partial(train, few, "ce", "linear", RECIPE | {"batch_size": 64}, device="cpu"),
        "one row": partial(train, few, "ce", "linear", RECIPE | {"batch_size": 1}, device="cpu"),
        "dividemix": partial(call, method="dividemix", on_epoch=file.Stop(1)),
        "peers": partial(call, method=ng.methods.get("co-teaching", variant="code"), on_epoch=file.Stop(1)),
        "revision": partial(call, method=ng.methods.get("t-revision", variant="code"), on_epoch=file.Stop(1)),
    }


@pytest.fixture(scope="module")
def file():
    """This module by a name under which a new process finds it."""
    sys.path.insert(0, str(HERE))
    try:
        yield importlib.import_module("test_distributed")
    finally:
        sys.path.remove(str(HERE))


@pytest.fixture(scope="module")
def calls(file, tmp_path_factory):
    return calls_for(file, tmp_path_factory.mktemp("run") / "checkpoints")


@pytest.fixture(scope="module")
def two(file, calls):
    """The outcomes in both processes, of all calls."""
    return distributed.launch(file.several, 2, calls, 0.0, device="cpu")


def weights(fitted):
    return nn.utils.parameters_to_vector(fitted.network.parameters()).detach()


@pytest.mark.parametrize("name", ["ce", "ln", "elr"])
def test_two_processes_make_the_run_of_one(calls, two, name):
    one, both = calls[name](), [outcomes[name] for outcomes in two]
    (alone,), (spread,) = one.history, both[0].history
    assert len(alone) == len(spread)
    for a, b in zip(alone, spread, strict=True):
        assert a.keys() == b.keys()
        for key in a.keys() - {"seconds", "train_seconds"}:
            assert b[key] == pytest.approx(a[key], rel=1e-5, abs=1e-7), key
    torch.testing.assert_close(weights(both[0]), weights(one), rtol=1e-5, atol=1e-6)
    assert torch.equal(weights(both[0]), weights(both[1]))
    assert (
        both[0].metrics["test_accuracy"] == both[1].metrics["test_accuracy"] == one.metrics["test_accuracy"]
    )
    assert both[0].record["identity"] == one.record["identity"]
    assert (both[0].record["processes"], "processes" in one.record) == (2, False)
    if name == "elr":  # what is kept for each row is brought together
        torch.testing.assert_close(both[1].extras["agreement"], one.extras["agreement"], rtol=1e-5, atol=1e-6)


def test_a_stopped_run_goes_on_and_only_the_first_process_writes(calls, two):
    whole, resumed, finished = (two[0][name] for name in ("whole", "resumed", "finished"))
    assert two[0]["stopped"] == two[1]["stopped"] == ("KeyboardInterrupt", "")
    for outcomes in two:
        assert torch.equal(weights(outcomes["resumed"]), weights(whole))
        assert torch.equal(weights(outcomes["finished"]), weights(whole))
    assert [e["loss"] for e in resumed.history[0]] == [e["loss"] for e in whole.history[0]]
    # Seconds are measured: had the finished run been trained again they would be others.
    assert finished.history == resumed.history
    kind, text = two[1]["another"]
    assert kind == "OtherRunError"
    assert "holds another run" in text
    assert two[0]["another"] == two[1]["another"]


def test_buffers_are_the_same_everywhere_after_training(two):
    a, b = (outcomes["normed"].network.state_dict() for outcomes in two)
    assert any(name.endswith("running_mean") for name in a)
    for name in a:
        assert torch.equal(a[name], b[name]), name


def test_each_process_keeps_its_share_of_its_part(two):
    first, second = (outcomes["kept"].extras["kept"] for outcomes in two)
    assert torch.equal(first, second)
    # 140 rows in batches of 20, of whose halves 6 of 10 are kept by each network.
    assert float(first.sum()) == pytest.approx(0.6 * 140)


def test_processes_see_their_parts_of_one_order_and_draw_numbers_of_their_own(two):
    seen = two[0]["noted"].extras["seen"]
    assert torch.equal(seen, two[1]["noted"].extras["seen"])
    with seeded(3, "epoch", 0, 0):
        order = torch.randperm(140)[:120].view(4, 30)
    expected = torch.full((140, 2), -1.0)
    for step, batch in enumerate(order):
        for rank in (0, 1):
            expected[batch[15 * rank : 15 * rank + 15]] = torch.tensor([float(rank), float(step)])
    assert torch.equal(seen[:, :2], expected)
    drawn = seen[order.view(-1), 2]
    assert len(drawn.unique()) == 120


def test_an_update_is_skipped_only_where_every_process_skips_it(two):
    assert [outcomes["one idle"].extras["moved"] for outcomes in two] == [True, True]
    assert [outcomes["all idle"].extras["moved"] for outcomes in two] == [False, False]
    assert torch.equal(*(weights(outcomes["one idle"]) for outcomes in two))


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("diverged", "DivergedError", "training diverged"),
        ("odd batch", "InputError", "a batch of 15 rows cannot be split evenly over 2 processes"),
        ("one row", "InputError", "a batch of 1 rows"),
        # Before anything is trained.
        ("dividemix", "InputError", "several processes cannot do dividemix"),
        ("peers", "InputError", "several processes cannot do co-teaching with variant='code'"),
        ("revision", "InputError", "several processes cannot do t-revision with variant='code'"),
    ],
)
def test_all_processes_refuse_alike(two, name, kind, words):
    assert two[0][name] == two[1][name]
    assert two[0][name][0] == kind
    assert words in two[0][name][1]


def test_of_fewer_rows_than_a_batch_an_even_number_is_taken(two):
    assert torch.equal(*(weights(outcomes["odd rows"]) for outcomes in two))
    assert len(two[0]["odd rows"].history[0]) == RECIPE["epochs"]


def test_divergence_is_found_at_the_same_step(calls, two):
    with pytest.raises(DivergedError) as alone:
        calls["diverged"]()
    assert two[0]["diverged"][1] == str(alone.value)


# -- starting -------------------------------------------------------------------------------------------


def fit(*command, out, options=()):
    arguments = ["fit", "digits", "--method", "ce", "--network", "mlp-16", "--device", "cpu", "--seed", "1"]
    arguments += ["--recipe", "epochs=2", "--recipe", "batch_size=64", "--out", str(out), *options]
    done = subprocess.run(
        [sys.executable, "-m", *command, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("accuracy on the test rows") == 1
    return json.loads((out / "model.json").read_text())


LEAVING = """
import os, torch, torch.distributed as dist
from noisegate.training import distributed
from noisegate.training.distributed import starting

def threads():
    return len(os.listdir("/proc/self/task"))

before = threads()
starting._stay_on_this_machine()
starting._join(0, 1, 0, "cpu", dist.HashStore())
inside = threads()
weight = torch.nn.Parameter(torch.ones(3))
weight.grad = torch.ones(3)
torch.optim.Adam([weight], fused=True).step()
distributed.leave_together()
print(inside - before, threads() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it counts threads in /proc")
def test_who_leaves_takes_its_threads_along():
    """One that was still at work when Python shut down ended the process by an abort, one time in twenty."""
    done = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, check=True)
    inside, after = map(int, done.stdout.split())
    assert inside > 0
    assert after == 0


def test_torchrun_writes_the_model_that_launched_processes_write(tmp_path):
    launched = fit("noisegate", out=tmp_path / "a", options=("--devices", "2"))
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "noisegate")
    joined = fit(*torchrun, out=tmp_path / "b")
    for stored in (launched, joined):
        assert stored["record"]["processes"] == 2
        stored["metrics"].pop("seconds")
    assert joined["metrics"]["test_accuracy"] > 0.5
    assert joined["metrics"] == pytest.approx(launched["metrics"], rel=1e-5)
    assert len(list((tmp_path / "b").glob("weights-*"))) == 1


def test_a_killed_process_is_called_killed(file):
    with pytest.raises(
        ProcessDiedError, match="process [01] of 2 was killed by signal 9; perhaps memory ran out"
    ) as raised:
        distributed.launch(file.killed, 2, device="cpu")
    assert "goes on where it stopped" in message_of(raised.value)
    assert "unexpected" not in message_of(raised.value)


def test_a_killed_process_is_named_though_another_one_complains_first(file, monkeypatch):
    """Its peer raises that the connection is closed; both are over when the parent looks."""
    start = starting.multiprocessing.start_processes

    def both_are_over(*args, **kwargs):
        context = start(*args, **kwargs)
        for process in context.processes:
            process.join()
        assert [process.exitcode for process in context.processes] == [1, -signal.SIGKILL]
        return context

    monkeypatch.setattr(starting.multiprocessing, "start_processes", both_are_over)
    with pytest.raises(ProcessDiedError, match="process 1 of 2 was killed by signal 9"):
        distributed.launch(file.killed_while_others_wait, 2, device="cpu")


def test_processes_listen_on_the_loopback_interface_alone(file, calls):
    found = distributed.launch(file.listening, 2, calls["elr"], device="cpu")
    assert all(found)
    assert {address for each in found for address in each} == {"127.0.0.1"}


def test_a_torch_without_distributed_trains_and_leaves(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    monkeypatch.delattr(torch.distributed, "is_initialized")
    assert distributed.world() == World()
    distributed.leave_together()


def test_more_devices_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for device in ("auto", "cuda"):
        with pytest.raises(InputError, match="3 devices were asked for, but torch sees 2 GPUs"):
            distributed.launch(print, 3, device=device)
    with pytest.raises(InputError, match="a GPU of its own"):
        distributed.launch(print, 2, device="cuda:1")
    with pytest.raises(InputError, match="at least 1"):
        distributed.launch(print, 0, device="cpu")


def test_processes_of_one_machine_talk_over_the_loop_back(monkeypatch):
    joined = []
    monkeypatch.setattr(starting, "_join", lambda *args: joined.append(os.environ.get("GLOO_SOCKET_IFNAME")))
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr("sys.platform", "linux")
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    for name in distributed.ENVIRONMENT:
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    for here, expected in (("1", None), ("2", "lo")):
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "any")
        monkeypatch.delenv("GLOO_SOCKET_IFNAME")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
        distributed.from_environment("cpu")
        assert joined.pop() == expected


def test_without_torchrun_nothing_is_joined(monkeypatch):
    for name in distributed.ENVIRONMENT:
        monkeypatch.setenv(name, "1")  # a world of one
    assert distributed.from_environment() == World()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert distributed.started_by_torchrun()
    monkeypatch.delenv("LOCAL_RANK")
    assert distributed.from_environment() == World()


def test_errors_keep_their_kind_on_the_way_to_another_process():
    for error in (
        DivergedError(1, 2, 3),
        UnknownNameError("method", "x", ["y"]),
        MissingDataError("no file"),
    ):
        again = unpacked_error(packed_error(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))

    class Local(Exception):
        pass

    again = unpacked_error(packed_error(Local("lost")))
    assert (type(again), str(again)) == (RuntimeError, "Local: lost")


# -- the pieces -----------------------------------------------------------------------------------------


def test_parts_of_a_batch_make_it_up():
    parts = [range(12)[World(rank, 3).part(12)] for rank in range(3)]
    assert [list(part) for part in parts] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(InputError, match="batch_size like 12"):
        World(0, 3).part(13)


def test_parts_of_a_mean_add_up_to_it():
    losses, share = torch.rand(6, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    with added_up(lambda total: share.sum()):
        parts = weighted_mean(losses[:2], share[:2]) + weighted_mean(losses[2:], share[2:])
    torch.testing.assert_close(parts, weighted_mean(losses, share))
    assert weighted_mean(losses[:2], share[:2]) != parts


def test_several_processes_train_eagerly_and_say_so(monkeypatch, caplog):
    stream = ExecutionStream(torch.device("cpu"))
    stream.cuda = object()  # as on a GPU
    assert stream.choices(nn.Linear(1, 1), 10, "fp32") == ("captured", "eager")
    monkeypatch.setattr(distributed, "world", lambda: World(0, 2))
    for _ in range(2):
        assert stream.choices(nn.Linear(1, 1), 10, "fp32") == ("eager",)
    assert [record.message for record in caplog.records] == [
        "training eagerly, because the run is spread over several processes"
    ]
