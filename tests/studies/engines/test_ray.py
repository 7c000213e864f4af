"""A real Ray cluster of two nodes on this machine, with a worker killed in the middle."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from noisegate._io.trees import load_tree
from noisegate.errors import InputError
from noisegate.studies import papers, runner
from noisegate.studies.engines import Context, build, ray_tasks
from noisegate.studies.engines import ray as ray_engine
from noisegate.studies.engines.ray import RETRIES, RayEngine
from noisegate.studies.execute import execute
from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import Cell, Study

MOONS = RunSettings(
    data={"name": "moons", "n": 80, "n_test": 40},
    method="ce",
    network="mlp-4",
    noise={"name": "symmetric", "rate": 0.2},
    recipe={"epochs": 3, "batch_size": 16},
    probes=({"name": "boundary", "resolution": 8},),
)
ENDLESS = {"epochs": 1_000_000, "batch_size": 16}


@pytest.fixture(scope="module")
def cluster():
    """The address of two nodes with one CPU each; afterwards none of their processes may be left."""
    pytest.importorskip("ray")
    # Short: sockets lie there. Of its own: other clusters on this machine must not be found, nor disturbed.
    folder = tempfile.mkdtemp(prefix="ng", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.delenv("RAY_ADDRESS", raising=False)
        from ray.cluster_utils import Cluster

        two = Cluster()
        try:
            for _ in range(2):
                two.add_node(num_cpus=1, object_store_memory=80 * 2**20, include_dashboard=False)
            yield two.address
        finally:
            two.shutdown()
            left = _wait(lambda: not _processes(folder), 30)
            shutil.rmtree(folder, ignore_errors=True)
    assert left, _processes(folder)


def _wait(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def _processes(text):
    """Process ids of commands that contain a text; Ray gives its workers the name of their task."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if text.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and int(pid) != os.getpid():
                found.append(int(pid))
    return found


def _doing(run):
    return _processes(f"ray::noisegate:{run.key}")


def comparable(result):
    history = [
        [{k: v for k, v in epoch.items() if "seconds" not in k} for epoch in phase]
        for phase in result.history
    ]
    return {k: v for k, v in result.metrics.items() if k != "seconds"}, history


def one_column(*runs):
    cells = [Cell(row=f"row {i}", column="c", settings=run) for i, run in enumerate(runs)]
    return Study(name="few", title="Few", reference="none", cells=tuple(cells), seeds=1)


def a_long_demo():
    """Four cells of `demo` at smoke size; two of them estimate T first, which leaves a checkpoint, then go on."""
    study = papers.get("demo").at_scale("smoke").with_seeds(1)
    study = study.only(["ce"], ["symmetric-20", "symmetric-40"])
    quick = [cell.settings for cell in study]
    slow = [run.replace(method="forward", params={"warmup": 2}) for run in quick]
    slow = [run.replace(recipe={**run.recipe, "epochs": 60}) for run in slow]
    return one_column(*slow, *quick)


def _kill_one(results, killed, over):
    """Kill the worker of the first run whose first phase is over and on disk: what died must go on behind it."""
    while not over.wait(0.02):
        for run in results.planned():
            first = results.store.path(run) / "checkpoint" / "phase-0.safetensors"
            if first.exists() and (workers := _doing(run)):
                stored = load_tree(first)["history"]
                os.kill(*workers, signal.SIGKILL)
                killed.append((run, stored))
                return


def test_every_run_arrives_once_though_a_worker_is_killed(cluster, tmp_path, capfd):
    context = Context(tmp_path / "results", None, "cpu")
    results = Results(a_long_demo(), Store(context.out))
    engine = RayEngine(cluster)
    assert engine.width(results.planned(), context) == 2
    seen, killed = [], []
    over = threading.Event()
    killer = threading.Thread(target=_kill_one, args=(results, killed, over), daemon=True)
    killer.start()
    try:
        after = runner.do(results, engine, context, watch=seen.append)
    finally:
        over.set()
        killer.join()
    assert (len(after.finished), after.failed, after.new, after.running) == (4, [], [], [])
    finals = [event for event in seen if event.final]
    assert sorted(event.run.key for event in finals) == sorted(run.key for run in results.planned())
    assert {event.kind for event in finals} == {"finished"}
    starts = [event.run.key for event in seen if event.kind == "started"]
    assert sorted(starts) == sorted(event.run.key for event in finals)

    ((victim, first_phase),) = killed
    result = results.store.result(victim)
    # The seconds of its first phase were measured before the kill: it was not trained again.
    assert result.history[0] == first_phase
    alone = Store(tmp_path / "alone")
    assert execute(victim, alone, "cpu").kind == "finished"
    assert comparable(result) == comparable(alone.result(victim))

    again = []
    runner.do(results, engine, context, watch=again.append)
    assert again == []
    # What Ray itself says of the death of the worker, and nothing else.
    told = [line for text in capfd.readouterr() for line in text.splitlines() if "raylet" in line]
    assert len(told) <= 1 + RETRIES


def test_results_come_back_where_the_folder_is_not_shared(cluster, tmp_path):
    bad = MOONS.replace(recipe={"epochs": 2, "batch_size": 16, "lr": 1e30})
    good = [MOONS, MOONS.replace(method="gce")]
    impossible = MOONS.replace(data={"name": "moons", "n": 80, "n_test": 40, "shape": "square"})
    study = one_column(*good, bad, impossible)
    context = Context(tmp_path / "results", None, "cpu")
    results = Results(study, Store(context.out))
    seen = []
    after = runner.do(results, RayEngine(cluster, shared=False), context, watch=seen.append)
    assert len(after.finished) == 2
    finals = {event.run.key: event for event in seen if event.final}
    assert len(finals) == len([event for event in seen if event.final]) == 4
    alone = Store(tmp_path / "alone")
    for run in good:
        execute(run, alone, "cpu")
        assert comparable(results.store.result(run)) == comparable(alone.result(run))
        arrays, expected = results.store.arrays(run), alone.arrays(run)
        assert set(arrays) == set(expected) >= {"boundary_probs"}
        assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
    execute(bad, alone, "cpu")
    assert finals[bad.key].kind == "diverged"
    assert results.store.failure(bad) == alone.failure(bad)
    assert finals[impossible.key].kind == "crashed"
    assert "Traceback" in results.store.failure(impossible)["traceback"]
    # Nothing but the store is written on the way, and nothing stays behind on the nodes.
    assert not list(Path(tempfile.gettempdir()).glob(f"noisegate-*-{MOONS.key}"))


def test_a_worker_that_dies_too_often_and_an_iterator_that_is_closed(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_engine, "RETRIES", 0)
    context = Context(tmp_path / "results", None, "cpu")
    store = Store(context.out)
    runs = [MOONS.replace(recipe=ENDLESS, seed=seed) for seed in range(3)]
    events = RayEngine(cluster, workers=2).run(runs, context)
    under_way = set()
    while len(under_way) < 2:
        event = next(events)
        under_way |= {event.run.seed} if event.kind == "epoch" else set()
    # Two at a time, though the third is waiting.
    assert under_way == {0, 1}
    assert store.status(runs[0]) == store.status(runs[1]) == "running"
    for pid in _doing(runs[0]):
        os.kill(pid, signal.SIGKILL)
    last = next(event for event in events if event.final)
    assert (last.kind, last.run.seed) == ("crashed", 0)
    assert "worker died" in last.message
    assert store.status(runs[0]) == "crashed"
    events.close()
    assert not [pid for run in runs for pid in _doing(run)]
    assert [store.status(run) for run in runs] == ["crashed", "new", "new"]


def test_a_folder_that_a_node_does_not_see_is_refused(tmp_path):
    order = ray_tasks.Order(str(tmp_path / "nowhere"), None, str(tmp_path), "cpu", 1)
    outcome = ray_tasks.task(MOONS, order, None)
    assert outcome.kind == "stopped"
    assert "--not-shared" in outcome.message
    assert not (tmp_path / "nowhere").exists()


def test_another_version_on_a_node_is_refused(tmp_path):
    order = ray_tasks.Order(None, None, str(tmp_path), "cpu", 1, version="0.0.0")
    assert "0.0.0" in ray_tasks.task(MOONS, order, None).message


# -- without a cluster -----------------------------------------------------------------------------


def test_the_engine_is_found_by_name():
    engine = build("ray", workers=3, address="a:1", shared=False)
    assert (engine.workers, engine.address, engine.shared) == (3, "a:1", False)


def test_width_is_what_the_machine_holds(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_engine, "this_machine", lambda: {"CPU": 8, "GPU": 2})
    runs, cpu, gpu = [MOONS] * 100, Context(tmp_path, None, "cpu"), Context(tmp_path, None, "auto")
    assert RayEngine().width(runs, cpu) == 8
    assert RayEngine(cpus=3).width(runs, cpu) == 2
    assert RayEngine(cpus=0.5).width(runs, cpu) == 16
    assert RayEngine(workers=5).width(runs, cpu) == 5
    assert RayEngine().width(runs[:3], cpu) == 3
    assert RayEngine().width(runs, gpu) == 2
    assert RayEngine(gpus=1 / 3).width(runs, gpu) == 6
    assert RayEngine(gpus=0.1).width(runs, gpu) == 8
    # More workers than GPUs: they share.
    assert RayEngine(workers=5).width(runs, gpu) == 5
    assert RayEngine(workers=5).share([{"CPU": 8, "GPU": 2}], "cuda").gpus == pytest.approx(0.3333)


def test_what_no_node_has_is_refused(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_engine, "this_machine", lambda: {"CPU": 2, "GPU": 0})
    with pytest.raises(InputError, match="needs 4 CPU, and no node .* 2 CPU"):
        RayEngine(cpus=4).width([MOONS], Context(tmp_path, None, "cpu"))
    with pytest.raises(InputError, match="needs 1 CPU and 1 GPU"):
        RayEngine().width([MOONS], Context(tmp_path, None, "cuda"))
    with pytest.raises(InputError, match="Ray says which GPU"):
        RayEngine().width([MOONS], Context(tmp_path, None, "cuda:1"))
    for wrong in ({"cpus": 1.5}, {"cpus": 0}, {"gpus": 2}, {"gpus": 0}, {"workers": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            RayEngine(**wrong)


def test_an_address_where_nobody_answers_is_refused_at_once(tmp_path):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    began = time.monotonic()
    for address in (f"127.0.0.1:{free}", f"ray://127.0.0.1:{free}", "no address"):
        with pytest.raises(InputError) as refused:
            next(RayEngine(address).run([MOONS], Context(tmp_path / "out", None, "cpu")))
        assert len(str(refused.value).splitlines()) == 1
    assert time.monotonic() - began < 20


LISTENS = """
import os, sys, threading
import psutil
from noisegate.studies.engines import Context
from noisegate.studies.engines.ray import RayEngine
from noisegate.studies.settings import RunSettings

run = RunSettings(data={"name": "moons", "n": 80}, method="ce", network="mlp-4", recipe={"epochs": 4000})
events = RayEngine(workers=1).run([run], Context(sys.argv[1], None, "cpu"))
next(event for event in events if event.kind == "epoch")
this = psutil.Process()
for process in [this, *this.children(recursive=True)]:
    for connection in process.net_connections(kind="inet"):
        if connection.status == psutil.CONN_LISTEN:
            print(process.name(), connection.laddr.ip)
events.close()
"""


def test_a_cluster_of_this_machine_listens_on_the_loopback_interface_only(tmp_path):
    pytest.importorskip("ray")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    command = [sys.executable, "-c", LISTENS, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    assert {"gcs_server", "raylet"} <= {name for name, _ in lines}
    assert {address.removeprefix("::ffff:") for _, address in lines} == {"127.0.0.1"}


def test_a_cluster_that_would_be_reachable_is_not_started(tmp_path):
    """Ray reads the switch when it is imported, here before noisegate."""
    pytest.importorskip("ray")
    code = (
        "import sys, ray; from noisegate.studies.engines.ray import RayEngine; "
        "from noisegate.studies.engines.ray_session import start; start(ray, sys.argv[1])"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert "would be reachable from the network" in done.stderr


def test_without_ray_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'noisegate\[ray\]'"):
        list(RayEngine().run([MOONS], Context(tmp_path / "out", None, "cpu")))
