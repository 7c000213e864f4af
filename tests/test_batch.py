"""Parts of several studies in one go: each run once, in order, and none when the time is over."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest

from noisegate.studies.store import Store

FOLDER = Path(__file__).parent.parent / "reproduction"
LINES = (
    "# a comment",
    "demo --scale smoke --rows ce,gce --columns symmetric-40 --seeds 2",
    "demo --scale smoke --rows ce --columns symmetric-40 --seeds 1",
)


@pytest.fixture(scope="module")
def batch():
    spec = importlib.util.spec_from_file_location("batch", FOLDER / "batch.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["batch"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["batch"]


def test_every_run_is_there_once_and_seed_by_seed(batch, tmp_path):
    runs = batch.planned(LINES, Store(tmp_path / "r"))
    assert [(run.method, run.seed) for run in runs] == [("ce", 0), ("gce", 0), ("ce", 1), ("gce", 1)]


def test_a_part_can_have_changed_settings(batch, tmp_path):
    line = "demo --scale smoke --rows ce --columns symmetric-40 --seeds 1"
    (run,) = batch.planned([f"{line} --set recipe.epochs=1 --set noise.rate=0.3"], Store(tmp_path / "r"))
    assert (run.recipe["epochs"], run.noise["rate"]) == (1, 0.3)


def test_the_parts_that_were_run_are_parts_of_studies(batch, tmp_path):
    lines = (FOLDER / "parts.txt").read_text().splitlines()
    runs = batch.planned(lines, Store(tmp_path / "r"))
    assert len({run.key for run in runs}) == len(runs) > 400


def test_runs_are_done_and_stored_once(batch, tmp_path, capsys):
    store = Store(tmp_path / "r")
    runs = batch.planned(LINES[2:], store)
    batch.Batch(runs, store, "cpu", width=2, until=time.monotonic() + 600).do()
    (result,) = store.results()
    assert (result.key, result.about["beside"]) == (runs[0].key, 2)
    assert capsys.readouterr().out.count(": done") == 1
    batch.Batch(runs, store, "cpu", width=2, until=time.monotonic() + 600).do()
    assert capsys.readouterr().out == ""


def test_nothing_is_begun_in_the_last_minute(batch, tmp_path):
    store = Store(tmp_path / "r")
    batch.Batch(batch.planned(LINES, store), store, "cpu", width=2, until=time.monotonic() + 50).do()
    assert store.results() == []
