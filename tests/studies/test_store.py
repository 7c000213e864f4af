import json

import numpy as np
import pytest

from noisegate._io.lock import locked
from noisegate.errors import InputError
from noisegate.studies.execute import execute
from noisegate.studies.store import Store


def test_a_result_comes_back(tiny, store):
    execute(tiny, store, "cpu")
    result = Store(store.folder).result(tiny)
    assert result.settings == tiny.full()
    assert result.seed == 0
    assert len(result.history[0]) == 2
    stored = json.loads((store.path(tiny) / "result.json").read_text())
    assert set(stored) >= {
        "settings",
        "seed",
        "versions",
        "hardware",
        "metrics",
        "history",
        "seconds",
        "peak_memory",
    }
    assert set(stored["metrics"]) >= {"test_accuracy_last", "test_accuracy_best_validation"}
    assert stored["seconds"] > 0
    assert stored["peak_memory"] > 2**20


def test_what_was_needed_to_resume_is_gone(tiny, store):
    execute(tiny, store, "cpu")
    assert sorted(p.name for p in store.path(tiny).iterdir()) == [".lock", "result.json"]


def test_arrays_come_back(tiny, store):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False]), "empty": np.zeros((0, 2))}
    execute(tiny, store, "cpu")
    content = json.loads((store.path(tiny) / "result.json").read_text())
    store.save(tiny, content, arrays)
    back = store.arrays(tiny)
    for name, value in arrays.items():
        np.testing.assert_array_equal(back[name], value)
    assert store.arrays(tiny.replace(seed=9)) == {}


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"format": 1}', "\x00\x01"])
def test_a_damaged_result_is_named_set_aside_and_done_again(tiny, store, damage):
    execute(tiny, store, "cpu")
    path = store.path(tiny) / "result.json"
    before = json.loads(path.read_text())
    path.write_text(damage)
    fresh = Store(store.folder)
    assert fresh.status(tiny) == "new"
    assert str(path) in fresh.set_aside[0]
    assert [p.read_text() for p in path.parent.glob("result.json.damaged-*")] == [damage]
    assert execute(tiny, fresh, "cpu").kind == "finished"
    again = json.loads(path.read_text())
    assert again["history"][0][-1]["test_accuracy"] == before["history"][0][-1]["test_accuracy"]


def test_the_result_of_another_run_is_not_taken(tiny, store):
    execute(tiny, store, "cpu")
    other = tiny.replace(seed=1)
    store.path(other).mkdir(parents=True)
    (store.path(other) / "result.json").write_bytes((store.path(tiny) / "result.json").read_bytes())
    assert store.result(other) is None
    assert "belongs to run" in store.set_aside[0]


def test_status(tiny, store):
    assert store.status(tiny) == "new"
    with locked(store.path(tiny), "testing"):
        assert store.status(tiny) == "running"
    assert store.status(tiny) == "new"
    store.fail(tiny, "diverged", "why")
    assert store.status(tiny) == "diverged"
    assert store.failure(tiny)["error"] == "why"
    store.forgive(tiny)
    assert store.status(tiny) == "new"
    execute(tiny, store, "cpu")
    assert store.status(tiny) == "finished"


def test_a_folder_of_another_version_is_refused(tmp_path):
    Store(tmp_path / "r")
    (tmp_path / "r" / "store.json").write_text('{"format": 99, "noisegate": "9.0"}')
    with pytest.raises(InputError, match=r"format 99 of noisegate 9\.0.*reads format 1"):
        Store(tmp_path / "r")


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(InputError, match="not empty and not a folder of results"):
        Store(tmp_path)
    with pytest.raises(InputError, match="found a file"):
        Store(tmp_path / "photo.jpg")


def test_an_empty_folder_will_do(tmp_path):
    assert Store(tmp_path).results() == []
    assert Store(tmp_path).folder == tmp_path


def test_two_processes_may_make_a_store_at_once(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".store.json.abc.part").touch()
    assert Store(tmp_path / "new").results() == []


@pytest.mark.parametrize("content", ["{}", "[]", '{"status": "diverged"}', "{"])
def test_a_damaged_failure_is_one(tmp_path, tiny, content):
    store = Store(tmp_path)
    store.path(tiny).mkdir(parents=True)
    (store.path(tiny) / "failed.json").write_text(content)
    assert store.status(tiny) == "crashed"
    assert "is damaged" in store.failure(tiny)["error"]
