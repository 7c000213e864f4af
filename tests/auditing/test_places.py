"""Folds in other processes and on a Ray cluster of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import noisegate as ng
from noisegate.auditing.crossfit import Fitting, cross_fit
from noisegate.auditing.places import Where
from noisegate.errors import InputError, UnknownNameError

QUICK = Fitting("ce", "mlp-8", {"epochs": 2, "batch_size": 32}, device="cpu")


def _blobs():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90)
    return ng.data.load(((3 * np.eye(3)[y] + rng.normal(size=(90, 3))).astype(np.float32), y))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"engine": "rai"}, UnknownNameError, "did you mean 'ray'"),
        ({"workers": 0}, InputError, "workers must be at least 1"),
    ],
)
def test_impossible_places(arguments, error, message):
    with pytest.raises(error, match=message):
        Where(**arguments)


@pytest.mark.slow
def test_folds_in_processes_give_what_folds_here_give():
    blobs = _blobs()
    here = cross_fit(blobs, QUICK, 2, Where())
    np.testing.assert_allclose(cross_fit(blobs, QUICK, 2, Where(workers=2)).probs, here.probs, atol=1e-6)


DYING = """
import os, sys
import numpy as np
import noisegate as ng
from noisegate.auditing.crossfit import Fitting, Fold, cross_fit
from noisegate.auditing.places import Where

def die(self):
    os._exit(1)

Fold.run = die
if __name__ == "__main__":
    blobs = ng.data.load("moons", n=40)
    cross_fit(blobs, Fitting("ce", "mlp-4", {"epochs": 1}), 2, Where(workers=2))
"""


@pytest.mark.slow
def test_a_process_that_dies_is_told(tmp_path):
    """Spawned processes import the script, and so get the deadly fold."""
    script = tmp_path / "dying.py"
    script.write_text(DYING)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert "InputError: a process that trained a fold died" in done.stderr


RAY = """
import json, signal, sys, threading, time
from pathlib import Path
import psutil
from noisegate.auditing.crossfit import Fitting, cross_fit
from noisegate.auditing.places import Where
from noisegate.errors import InputError
sys.path.insert(0, sys.argv[2])
from test_places import _blobs

quick = Fitting("ce", "mlp-8", {"epochs": 40, "batch_size": 32}, device="cpu")
killed, listening = [], set()

def sockets():
    # (process, address) of everything that listens
    for process in psutil.Process().children(recursive=True):
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN:
                yield process.name(), connection.laddr.ip.removeprefix("::ffff:")

def kill_one():
    while not killed:
        for process in psutil.Process().children(recursive=True):
            try:
                if "ray::noisegate:fold-1" in " ".join(process.cmdline()):
                    listening.update(sockets())
                    process.send_signal(signal.SIGKILL)
                    killed.append(process.pid)
                    return
            except psutil.Error:
                pass
        time.sleep(0.02)

folder = Path(sys.argv[1])
threading.Thread(target=kill_one, daemon=True).start()
found = cross_fit(_blobs(), quick, 3, Where(folder, "ray"), embed=True)
try:
    cross_fit(_blobs(), Fitting("ce", "no-such-network"), 2, Where(engine="ray"))
except InputError as error:
    told = str(error)
print(json.dumps({
    "probs": found.probs.tolist(), "features": found.features.tolist(), "killed": len(killed), "told": told,
    "listening": sorted(listening),
    "stored": sorted(path.name for path in (folder / "folds").glob("fold-*.npz")),
}))
"""


@pytest.mark.slow
def test_folds_on_a_cluster_give_what_folds_here_give_though_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    command = [sys.executable, "-c", RAY, str(tmp_path / "runs"), os.path.dirname(__file__)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["killed"] == 1
    assert found["stored"] == ["fold-1.npz", "fold-2.npz", "fold-3.npz"]
    assert {"gcs_server", "raylet"} <= {name for name, _ in found["listening"]}
    assert {address for _, address in found["listening"]} == {"127.0.0.1"}
    assert "unknown network 'no-such-network'" in found["told"]
    here = cross_fit(
        _blobs(),
        Fitting("ce", "mlp-8", {"epochs": 40, "batch_size": 32}, device="cpu"),
        3,
        Where(),
        embed=True,
    )
    np.testing.assert_allclose(found["probs"], here.probs, atol=1e-6)
    np.testing.assert_allclose(found["features"], here.features, atol=1e-4)
