"""One process at a time in a folder, and nothing that outlives it."""

import errno
import fcntl
import os
import signal
import subprocess
import sys

import pytest

from noisegate._io.lock import is_locked, locked
from noisegate.errors import BusyError, InputError


def test_the_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path, "working"):
        raise KeyError
    with (
        locked(tmp_path, "working"),
        pytest.raises(BusyError, match="another process is working in"),
        locked(tmp_path, "working"),
    ):
        pass


def test_a_lock_is_seen(tmp_path):
    assert not is_locked(tmp_path)
    assert os.listdir(tmp_path) == []
    with locked(tmp_path, "working"):
        assert is_locked(tmp_path)
        # Looking does not release it.
        with pytest.raises(BusyError), locked(tmp_path, "working"):
            pass
    assert not is_locked(tmp_path)


def test_the_lock_dies_with_its_process(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from noisegate._io.lock import locked\n"
        "with locked(Path(sys.argv[1]), 'working'):\n    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    assert is_locked(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not is_locked(tmp_path)
    with locked(tmp_path, "working"):
        pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch, code):
    def flock(file, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(InputError, match="cannot lock files") as refused, locked(tmp_path, "working"):
        pass
    assert not isinstance(refused.value, BusyError)
    assert not is_locked(tmp_path)
