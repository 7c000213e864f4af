"""Real processes: killed, interrupted, and beside each other."""

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from noisegate.data import DATASETS
from noisegate.errors import InputError
from noisegate.studies import runner
from noisegate.studies.engines import Context, build, local
from noisegate.studies.execute import Execution, execute
from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import Cell, Study

TINY = RunSettings(
    data={"name": "moons", "n": 80, "n_test": 40},
    method="ce",
    network="mlp-4",
    recipe={"epochs": 2, "batch_size": 16},
)


def one_row(settings, seeds):
    cell = Cell(row="CE", column="c", settings=settings)
    return Study(name="tiny", title="Tiny", reference="none", cells=(cell,), seeds=seeds)


def comparable(result):
    history = [
        [{k: v for k, v in epoch.items() if "seconds" not in k} for epoch in phase]
        for phase in result.history
    ]
    return {k: v for k, v in result.metrics.items() if k != "seconds"}, history


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path / "results", None, "cpu")


def test_two_processes_give_what_one_gives(context, tmp_path):
    study = one_row(TINY, 5)
    results = Results(study, Store(context.out))
    seen = []
    after = runner.do(results, build("local", workers=2), context, watch=seen.append)
    assert len(after.finished) == 5
    finals = [event.run.key for event in seen if event.final]
    assert sorted(finals) == sorted(run.key for run in results.planned())
    alone = Results(study, Store(tmp_path / "alone"))
    runner.do(alone, build("local", workers=1), Context(tmp_path / "alone", None, "cpu"))
    for run in results.planned():
        assert comparable(results.store.result(run)) == comparable(alone.store.result(run))


def test_a_killed_process_is_told_and_the_others_go_on(context):
    study = one_row(TINY.replace(recipe={"epochs": 4000, "batch_size": 16}), 3)
    results = Results(study, Store(context.out))
    events = build("local", workers=2).run(results.planned(), context)
    # Kill the process that does the first run, found by the lock it holds.
    victim = None
    for event in events:
        if event.kind == "epoch" and event.run.seed == 0:
            victim = event.run
            break
    os.kill(_holder(results.store.path(victim)), signal.SIGKILL)
    crashed = next(event for event in events if event.final)
    assert (crashed.kind, crashed.run.seed) == ("crashed", 0)
    assert "signal 9" in crashed.message
    assert "fewer --workers" in crashed.message
    later = next(event for event in events if event.run.seed == 2)
    assert later.kind == "started"
    events.close()
    assert results.store.status(victim) == "crashed"
    # Closing the engine ended the others at once.
    assert not _alive(results)


def test_a_process_that_dies_with_nothing_to_do_is_replaced(context):
    results = Results(one_row(TINY, 4), Store(context.out))
    events = build("local", workers=2).run(results.planned(), context)
    ended = []
    for event in events:
        if event.final:
            ended.append(event)
            if len(ended) == 2:
                for child in multiprocessing.active_children():
                    child.kill()
                    child.join()
    # A run that was under way when its process died is told; none of the others is lost, and the study goes on.
    assert sorted(event.run.seed for event in ended) == [0, 1, 2, 3]
    assert {event.kind for event in ended} <= {"finished", "crashed"}
    assert ended[-1].kind == "finished"


def test_a_process_that_dies_while_it_starts_is_replaced(context, monkeypatch):
    """It takes its run with it, as one that dies later does; that processes can be started is known by then."""
    made = []

    class Fragile(local._Worker):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)
            if len(made) == 2:
                self.process.kill()

    monkeypatch.setattr(local, "_Worker", Fragile)
    # Nobody listens before the first one is at work.
    monkeypatch.setattr(local._Pool, "_listen", _after_the_first(local._Pool._listen))
    results = Results(one_row(TINY, 4), Store(context.out))
    ended = [event for event in build("local", workers=2).run(results.planned(), context) if event.final]
    # Whether it had been given its run before it died is a matter of time; none of the others is lost.
    assert sorted(event.run.seed for event in ended) == [0, 1, 2, 3]
    kinds = [event.kind for event in ended]
    assert kinds.count("finished") >= 3
    assert set(kinds) <= {"finished", "crashed"}
    assert len(made) > 2


def _after_the_first(listen):
    def listening(pool, workers):
        if not pool.began:
            workers = workers[:1]
        yield from listen(pool, workers)

    return listening


def _holder(folder):
    """The process that has the lock file of a run open."""
    lock = os.stat(folder / ".lock").st_ino
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            opened = [os.stat(f"/proc/{pid}/fd/{fd}").st_ino for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if lock in opened and int(pid) != os.getpid():
            return int(pid)
    raise LookupError(folder)


def _alive(results):
    return [run.seed for run in results.planned() if results.store.status(run) == "running"]


SCRIPT = """
import sys
from pathlib import Path
from noisegate.studies import runner
from noisegate.studies.engines import Context, build
from noisegate.studies.results import Results
from noisegate.studies.store import Store
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Study
from noisegate.training import trainer

if __name__ == "__main__":
    out, epochs, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    settings = RunSettings(data={"name": "moons", "n": 80, "n_test": 40}, method="ce", network="mlp-4",
                           recipe={"epochs": epochs, "batch_size": 16})
    study = Study(name="t", title="", reference="", cells=(Cell(row="CE", column="c", settings=settings),), seeds=3)
    results = Results(study, Store(out))
    runner.do(results, build("local", workers=workers), Context(out, None, "cpu"),
              watch=lambda e: print(e.kind, e.run.seed, flush=True))
    print("all", flush=True)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "study.py"
    path.write_text(SCRIPT)
    return path


def start(script, *arguments):
    command = [sys.executable, str(script), *map(str, arguments)]
    # One thread each: on a busy machine threads wait for each other at every step.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=environment, **pipes)


def test_a_killed_study_leaves_no_process_and_repeats_nothing(script, context):
    epochs = 300
    with start(script, context.out, epochs, 2) as victim:
        next(line for line in victim.stdout if line.startswith("finished"))
        victim.send_signal(signal.SIGKILL)
    settings = TINY.replace(recipe={"epochs": epochs, "batch_size": 16})
    results = Results(one_row(settings, 3), Store(context.out))
    deadline = time.monotonic() + 30
    while _alive(results) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(results), "a worker outlived its parent"
    done = {r.key: json.dumps(r.about) for r in results.store.results()}
    assert done
    with start(script, context.out, epochs, 1) as again:
        output, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    started = output.count("started")
    assert started == 3 - len(done)
    fresh = Store(context.out)
    assert {key: json.dumps(fresh.result(key).about) for key in done} == done
    assert len(fresh.results()) == 3


def test_two_runners_share_a_folder(script, context):
    both = [start(script, context.out, 100, 1) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    finished = [
        int(line.split()[1]) for output, _ in outputs for line in output.splitlines() if "finished" in line
    ]
    # A run that the other one did between two looks may be seen as finished by both, but is stored once.
    assert set(finished) == {0, 1, 2}
    assert len(Store(context.out).results()) == 3
    assert all(output.splitlines()[-1] == "all" for output, _ in outputs)


def test_runs_side_by_side_in_one_process_give_what_each_gives_alone(context, tmp_path, monkeypatch):
    # What is done on a GPU, here on the CPU: one process, one thread, runs that take turns.
    monkeypatch.setattr(local, "_on_gpu", lambda device: True)
    bad = Cell(
        row="BAD", column="c", settings=TINY.replace(recipe={"epochs": 2, "batch_size": 16, "lr": 1e30})
    )
    crash = Cell(row="CRASH", column="c", settings=TINY.replace(validation=500))
    two = Cell(row="TWO", column="c", settings=TINY.replace(method="distillation"))
    study = one_row(TINY, 2)
    study = dataclasses.replace(study, cells=(*study.cells, bad, crash, two))
    results = Results(study, Store(context.out))
    planned = results.planned()
    done, busy = planned[0], planned[1]
    execute(done, results.store, "cpu")
    seen = []
    with Execution(busy, Store(context.out), "cpu"):
        for event in build("local", workers=3).run(planned, context):
            seen.append(event)
    finals = {(event.run.key, event.kind) for event in seen if event.final}
    assert len(finals) == len(planned) == 8
    assert (done.key, "finished") in finals
    assert (busy.key, "busy") in finals
    assert sorted(kind for _, kind in finals) == sorted(
        ["finished"] * 3 + ["busy"] + ["diverged"] * 2 + ["crashed"] * 2
    )
    alone = Store(tmp_path / "alone")
    for run in results.runs(two):
        execute(run, alone, "cpu")
        assert comparable(results.store.result(run)) == comparable(alone.result(run))
    stored = results.store.result(results.runs(two)[0])
    assert stored.about["beside"] == 3
    assert 0 < stored.about["own_seconds"] <= stored.about["seconds"]


def test_closing_it_frees_every_run(context, monkeypatch):
    monkeypatch.setattr(local, "_on_gpu", lambda device: True)
    results = Results(one_row(TINY, 3), Store(context.out))
    events = build("local", workers=2).run(results.planned(), context)
    while next(events).kind != "epoch":
        pass
    assert len(_alive(results)) == 2
    events.close()
    assert not _alive(results)


def test_how_many_fit_is_found_out_once_a_kind(context, monkeypatch):
    asked = []
    monkeypatch.setattr(local, "_on_gpu", lambda device: True)
    fits = {"mlp-4": 5, "mlp-400": 2}
    monkeypatch.setattr(
        local, "_fitting", lambda run, context: asked.append((run.network, run.method)) or fits[run.network]
    )
    engine = build("local")
    runs = [TINY.replace(seed=seed) for seed in range(7)]
    assert [engine.width(runs, context), engine.width(runs[:3], context), engine.width([], context)] == [
        5,
        3,
        1,
    ]
    # Objectives weigh little; of methods with more than a network one is asked.
    engine.width([TINY.replace(method="gce")], context)
    assert asked == [("mlp-4", "ce")]
    large = [TINY.replace(network="mlp-400", method=method) for method in ("ce", "co-teaching", "ln")]
    assert engine.width([*runs, *large], context) == 2
    assert asked == [("mlp-4", "ce"), ("mlp-400", "co-teaching")]
    monkeypatch.undo()
    assert build("local", workers=9).width(runs, context) == 7


BARE = """
import sys
from noisegate.studies import run
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Study
tiny = RunSettings(data={"name": "moons"}, method="ce", network="mlp-4", recipe={"epochs": 1})
cell = Cell(row="CE", column="moons", settings=tiny)
run(Study(name="tiny", title="Tiny", reference="none", cells=(cell,), seeds=3), sys.argv[1], workers=2)
"""


def test_processes_that_cannot_start_are_no_failure_of_their_runs(context, tmp_path):
    script = tmp_path / "bare.py"
    script.write_text(BARE)
    with start(script, context.out) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "cannot be started" in errors
    assert "if __name__ == '__main__'" in errors
    assert not list(context.out.glob("runs/*/failed.json"))


def test_a_name_that_only_this_process_knows_is_no_failure_of_the_run(context, monkeypatch):
    monkeypatch.setitem(DATASETS, "mine", DATASETS["moons"])
    study = one_row(TINY.replace(data={"name": "mine"}), 2)
    results = Results(study, Store(context.out))
    with pytest.raises(InputError, match="unknown dataset 'mine'.*put it into a module, or take workers=1"):
        runner.do(results, build("local", workers=2), context)
    assert not list(context.out.glob("runs/*/failed.json"))
    assert len(runner.do(results, build("local", workers=1), context).finished) == 2
