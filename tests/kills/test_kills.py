"""Random SIGKILLs: whatever is killed, and whenever, the same command goes on and ends with equal results.

`make test-slow` kills each command once, `make kills` 25 times (KILLS): 100 kills over `study run`,
`study run --engine ray`, `fit --checkpoint` and `audit`. Victims (the command, or any process that
it started) and moments follow from a seed (KILL_SEED). A killed command leaves no process behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from noisegate.auditing import stored

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("KILLS", "1"))
SEED = int(os.environ.get("KILL_SEED", "0"))
#: Seconds that processes have to end once the command is killed; Ray's own take their time.
PATIENCE = 180.0
#: The command line with a checkpoint after every epoch instead of every 30 seconds: more to go wrong.
EAGER = """
import sys
from noisegate.cli import main
from noisegate.training import trainer

trainer.CHECKPOINT_SECONDS = 0.0
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
STUDY = ["study", "run", "demo", "--scale", "smoke", "--rows", "ce,elr", "--retry"]
STUDY += ["--columns", "symmetric-40", "--seeds", "2", "--set", "recipe.epochs=15", "--device", "cpu"]
TIMES = ("seconds", "memory")


def _study(folder: Path) -> Any:
    """What the runs of a study found, and that nothing is left of their progress."""
    found = {}
    for path in sorted(folder.glob("out/runs/*/result.json")):
        content = json.loads(path.read_text())
        found[content["key"]] = {
            "settings": content["settings"],
            "metrics": _timeless(content["metrics"]),
            "history": [[_timeless(epoch) for epoch in phase] for phase in content["history"]],
        }
        assert sorted(p.name for p in path.parent.iterdir() if p.name[0] != ".") == ["result.json"]
    return found


def _timeless(values: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if not name.endswith(TIMES)}


def _fit(folder: Path) -> Any:
    """The weights: their file is named by their hash."""
    (weights,) = (folder / "model").glob("weights-*")
    return weights.name, {name: array.tobytes() for name, array in load_file(weights).items()}


def _audit(folder: Path) -> Any:
    audit = stored.read(folder / "out")
    return audit.rows.to_csv(), np.array(audit.probs).tobytes()


@dataclass
class Command:
    """A command line, and what it found."""

    arguments: Callable[[Path, Path], list[str]]
    found: Callable[[Path], Any]
    like: Callable[[Path, Path], list[str]] | None = None


def _learn(data: Path, *arguments: str) -> list[str]:
    return [*arguments, str(data), "--label", "label", "--network", "mlp-16", "--device", "cpu"]


COMMANDS = {
    "study run": Command(lambda f, d: [*STUDY, "--workers", "2", "--out", str(f / "out")], _study),
    "study run by Ray": Command(
        lambda f, d: [*STUDY, "--workers", "2", "--engine", "ray", "--out", str(f / "out")],
        _study,
        like=lambda f, d: [*STUDY, "--workers", "1", "--out", str(f / "out")],
    ),
    "fit": Command(
        lambda f, d: [
            *_learn(d, "fit"),
            *("--method", "forward", "--recipe", "epochs=80", "--checkpoint", str(f / "runs")),
            *("--out", str(f / "model")),
        ],
        _fit,
    ),
    "audit": Command(
        lambda f, d: [
            *_learn(d, "audit"),
            *("--method", "ce", "--recipe", "epochs=60", "--folds", "3", "--out", str(f / "out")),
        ],
        _audit,
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    label = np.where(x[:, 0] + 0.5 * rng.normal(size=400) > 0, "yes", "no")
    path = tmp_path_factory.mktemp("data") / "table.csv"
    lines = [f"{a:.6f},{b:.6f},{c:.6f},{y}" for (a, b, c), y in zip(x, label, strict=True)]
    path.write_text("\n".join(["a,b,c,label", *lines]) + "\n")
    return path


@dataclass
class Trial:
    """A folder in which a command is started, killed, and started again."""

    script: Path
    command: Command
    folder: Path
    data: Path
    log: Path

    def start(self, arguments: Callable[[Path, Path], list[str]] | None = None) -> subprocess.Popen[bytes]:
        line = [
            sys.executable,
            str(self.script),
            *(arguments or self.command.arguments)(self.folder, self.data),
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with open(self.log, "wb") as log:
            return subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True, env=environment)

    def ended(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Wait; whether the command ended by itself within this time."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def check(self, process: subprocess.Popen[bytes], wounded: bool = False) -> bool:
        """Whether an ended command has done all its work; else it must say why, and how to go on."""
        told = self.log.read_text(errors="replace")
        assert "Traceback" not in told, told[-3000:]
        # A command that is killed after its last file was written has nothing left to do.
        done = process.wait() == 0 or "holds an audit already" in told
        if wounded and (not done or "failed; the same command with --retry" in told):
            return False
        assert done, f"code {process.wait()}: {told[-3000:]}"
        return True


def _members(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The command, and every process that it has started and that has not ended."""
    try:
        whole = psutil.Process(process.pid)
        return [each for each in (whole, *whole.children(recursive=True)) if _lives(each)]
    except psutil.NoSuchProcess:
        return []


def _kill(victim: psutil.Process) -> bool:
    """Whether the victim was alive."""
    try:
        victim.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
    return True


def _folders(top: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        folder = top / f"trial-{number}"
        folder.mkdir()
        yield folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_killed_goes_on_and_ends_the_same(name, data, tmp_path):
    if name.endswith("Ray"):
        pytest.importorskip("ray")
    command, rng = COMMANDS[name], np.random.default_rng([23, SEED, len(name)])
    (tmp_path / "eager.py").write_text(EAGER)
    folders = _folders(tmp_path)
    trial = Trial(tmp_path / "eager.py", command, next(folders), data, tmp_path / "log")
    began = time.monotonic()
    first = trial.start(command.like)
    assert trial.ended(first, 300)
    assert trial.check(first)
    expected, usual = command.found(trial.folder), time.monotonic() - began
    killed = finished = 0
    trial.folder = next(folders)
    while killed < KILLS or finished == 0:
        process, victim = trial.start(), None
        moment = rng.uniform(0.2, 1.0) * usual
        if killed < KILLS and not trial.ended(process, moment):
            members = _members(process)
            place = 0 if rng.random() < 0.5 else int(rng.integers(max(1, len(members))))
            victim = members[place] if members else None
            killed += victim is not None and _kill(victim)
            print(f"{name}: kill {killed} after {moment:.1f} s, {victim}, {finished} ended", flush=True)
            if victim is not None and place == 0:
                process.wait()
                _check_nobody_is_left(members[1:])
                continue
        assert trial.ended(process, 300)
        if trial.check(process, wounded=victim is not None):
            assert command.found(trial.folder) == expected
            finished += 1
            trial.folder = next(folders)
    print(f"{name}: {killed} kills, {finished} commands ended, all with the results of an undisturbed one")


def _check_nobody_is_left(children: list[psutil.Process]) -> None:
    """The processes of a killed command end by themselves."""
    deadline = time.monotonic() + PATIENCE
    while (left := [each for each in children if _lives(each)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    told = [" ".join(each.cmdline())[:200] for each in left]
    for each in left:
        _kill(each)
    assert not told


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
