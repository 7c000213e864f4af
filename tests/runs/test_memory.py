"""Memory stays with the process where that is asked for, and goes back afterwards."""

import platform
import subprocess
import sys

import pytest

import noisegate as ng
from noisegate.cli import main
from noisegate.runs import memory
from noisegate.runs.memory import LARGEST, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, NEVER, memory_kept


class Told:
    """A C library that notes what it is told."""

    def __init__(self):
        self.calls = []

    def mallopt(self, name, value):
        self.calls.append((name, value))

    def malloc_trim(self, pad):
        self.calls.append("trim")


BEGIN = [(M_MMAP_THRESHOLD, LARGEST), (M_TRIM_THRESHOLD, NEVER)]
END = [(M_TRIM_THRESHOLD, 2 * LARGEST), "trim"]


@pytest.fixture
def libc(monkeypatch):
    told = Told()
    monkeypatch.setattr(memory, "_libc", lambda: told)
    for name in memory.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    return told


def test_the_outermost_decides(libc):
    with memory_kept():
        assert libc.calls == BEGIN
        with memory_kept():
            pass
        assert libc.calls == BEGIN
    assert libc.calls == BEGIN + END


def test_an_error_ends_it_too(libc):
    with pytest.raises(ValueError, match="no"), memory_kept():
        raise ValueError("no")
    assert libc.calls == BEGIN + END


def test_what_the_environment_says_is_left_alone(libc, monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    with memory_kept():
        pass
    assert not libc.calls


def test_without_such_a_library_nothing_happens(monkeypatch):
    monkeypatch.setattr(memory, "_libc", lambda: None)
    with memory_kept():
        assert not memory._inside


def test_a_run_leaves_malloc_alone(libc, data):
    ng.train(data, "ce", "mlp-4", {"epochs": 1}, device="cpu")
    assert not libc.calls


def test_the_command_line_keeps_memory_until_it_ends(libc, capsys):
    assert main(["list", "noises"]) == 0
    assert main(["list", "nothing"]) == 2
    assert libc.calls == 2 * (BEGIN + END)


PROGRAM = """
import ctypes, resource, torch
from noisegate.runs.memory import memory_kept

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        tensors = [torch.ones(2**20) for _ in range(10)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # as it is at the start of a process
usual, before = faults(), resident()
with memory_kept():
    faults()
    kept, inside = faults(), resident()
print(usual, kept, inside - before, resident() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is about glibc's malloc")
def test_pages_are_fetched_once():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    usual, kept, inside, after = map(int, done.stdout.split())
    # Twenty times forty megabytes are 200,000 pages of four kilobytes.
    assert usual > 150_000
    assert kept < 2_000
    assert inside > 5_000
    assert after < 2_000
