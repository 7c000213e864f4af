"""The ledger: its tables are what the stored results say, and packing loses nothing."""

from __future__ import annotations

import importlib.util
import lzma
import shutil
import sys
from pathlib import Path

import pytest

from noisegate.studies.store import Store

FOLDER = Path(__file__).parent.parent / "reproduction"


@pytest.fixture(scope="module")
def ledger():
    spec = importlib.util.spec_from_file_location("ledger", FOLDER / "ledger.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["ledger"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["ledger"]


@pytest.fixture(scope="module")
def unpacked(ledger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    return folder, ledger.unpack(folder)


def test_every_stored_run_can_be_read(ledger, unpacked):
    folder, count = unpacked
    store = Store(folder)
    results = store.results()
    assert len(results) == count >= 135
    assert not store.set_aside
    assert all(result.about["hardware"] for result in results)


def test_the_tables_of_the_readme_are_those_of_the_stored_results(ledger, unpacked):
    text = (FOLDER / "README.md").read_text()
    assert ledger.BLOCK.search(text)
    assert ledger.written(text, Store(unpacked[0])) == text


def test_packing_again_makes_the_same_files(ledger, unpacked, tmp_path):
    counts = ledger.pack(unpacked[0], tmp_path)
    assert sum(counts.values()) == unpacked[1]
    stored = sorted((FOLDER / "results").glob("*.tar.xz"))
    assert [path.name for path in sorted(tmp_path.iterdir())] == [path.name for path in stored]
    for path in stored:
        assert lzma.decompress((tmp_path / path.name).read_bytes()) == lzma.decompress(path.read_bytes())
        assert path.stat().st_size < 500_000


def test_many_runs_make_several_files(ledger, unpacked, tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "PART", 200_000)
    folder, count = unpacked
    counts = ledger.pack(folder, tmp_path)
    assert sum(counts.values()) == count
    assert len(list(tmp_path.glob("ln-table1-mnist-ce.*tar.xz"))) > 3
    assert ledger.unpack(tmp_path / "again", tmp_path) == count


def test_a_run_with_a_changed_setting_is_kept_apart(ledger, unpacked, tmp_path):
    store = Store(unpacked[0])
    of_mnist = (r for r in store.results() if r.settings["data"]["name"] == "mnist")
    result = next(r for r in of_mnist if r.settings["method"]["name"] == "ln")
    own = tmp_path / "own"
    Store(own)
    target = own / "runs" / ("0" * len(result.key))
    shutil.copytree(store.path(result.key), target)
    text = (target / "result.json").read_text()
    (target / "result.json").write_text(text.replace(result.key, target.name))
    assert ledger.pack(own, tmp_path / "archives") == {"ln-table1-mnist-ln-changed": 1}
    assert ledger.unpack(tmp_path / "back", tmp_path / "archives") == 1
    assert Store(tmp_path / "back").result(target.name).metrics == result.metrics


def test_jumps_of_the_loss_are_listed_run_by_run(ledger):
    lines = list(ledger.jumps("ln-table1-mnist-ln-changed"))
    assert lines == sorted(lines)
    assert lines[1].startswith("asymmetric 0.1, seed 1, fp32: 99.1 %, 8 jumps [22, 31, ")
    none, tests = list(ledger.jumps("ln-table1-mnist-ln-changed", by=1e9))[1].split("; last tests ")
    assert none.endswith(": 99.1 %, 0 jumps []")
    assert len(tests.split()) == 20
    assert tests.endswith(" 99.1 99.1")
