import numpy as np
import pytest

import noisegate as ng
from noisegate.errors import InputError, MissingDataError
from noisegate.noise import label_hash
from noisegate.studies.execute import Event, Execution, accuracies, events, execute, known_rate, load_data
from noisegate.studies.store import Store
from noisegate.training import trainer


def test_the_data_are_what_the_settings_say(tiny):
    data = load_data(tiny.replace(seed=3))
    by_hand = ng.data.load("moons", n=80, n_test=40, seed=3).corrupt(ng.noise.Symmetric(0.2), seed=3)
    by_hand = by_hand.hold_out(0.1, 3)
    np.testing.assert_array_equal(data.train.y, by_hand.train.y)
    np.testing.assert_array_equal(data.validation.y, by_hand.validation.y)
    np.testing.assert_array_equal(data.train.x, by_hand.train.x)


def test_methods_with_one_seed_see_the_same_labels(tiny):
    first, second = (load_data(tiny.replace(method=m, seed=5)) for m in ("ce", "ln"))
    assert label_hash(first.train.y) == label_hash(second.train.y)
    assert label_hash(load_data(tiny.replace(seed=6)).train.y) != label_hash(first.train.y)


def test_noisy_test_labels_keep_the_clean_ones_beside_them(tiny):
    settings = tiny.replace(noisy_test=True, noise={"name": "symmetric", "rate": 0.5}, data={"name": "moons"})
    data, clean = load_data(settings), load_data(tiny.replace(data={"name": "moons"}))
    np.testing.assert_array_equal(data.test.clean, clean.test.y)
    assert np.mean(data.test.y != data.test.clean) == pytest.approx(0.25, abs=0.06)


def test_fewer_rows(tiny):
    data = load_data(tiny.replace(rows=30, validation=None))
    assert len(data.train) == 30
    assert data.validation is None
    other = load_data(tiny.replace(rows=30, validation=None, seed=1))
    assert not np.array_equal(data.train.x, other.train.x)


def test_the_known_rate_is_the_realised_one(tiny):
    data = load_data(tiny)
    assert known_rate(data) == np.mean(data.train.wrong)
    with pytest.raises(InputError, match="noise_rate=estimate"):
        known_rate(ng.data.load("moons"))


def test_a_method_can_be_told_the_rate(tiny, store):
    settings = tiny.replace(method="co-teaching", params={"noise_rate": "known"})
    with Execution(settings, store, "cpu") as execution:
        list(execution)
        assert execution.run.fitted.extras["noise_rate"] == known_rate(execution.data)
        execution.conclude()
    assert store.result(settings).settings["method"]["noise_rate"] == "known"


def test_a_run_is_what_train_does(tiny, store):
    execute(tiny, store, "cpu")
    fitted = ng.train(
        load_data(tiny),
        "ce",
        "mlp-4",
        {"epochs": 2, "batch_size": 16, "lr": 1e-3, "schedule": "constant"},
        seed=0,
        device="cpu",
        evidence=("test",),
    )
    stored = store.result(tiny)
    for name in ("test_accuracy", "test_log_likelihood", "train_memorised"):
        assert stored.metrics[name] == fitted.metrics[name]
    assert [e["loss"] for e in stored.history[0]] == [e["loss"] for e in fitted.history[0]]


def test_events_tell_the_story(tiny, store):
    kinds = [event.kind for event in events(tiny, store, "cpu")]
    assert kinds == ["started", "epoch", "epoch", "finished"]
    assert [event.kind for event in events(tiny, store, "cpu")] == ["started", "finished"]


def test_divergence_is_recorded_and_not_a_number(tiny, store):
    bad = tiny.replace(recipe={"epochs": 2, "batch_size": 16, "lr": 1e30})
    event = execute(bad, store, "cpu")
    assert (event.kind, store.status(bad)) == ("diverged", "diverged")
    assert "not finite" in event.message
    assert store.result(bad) is None
    store.forgive(bad)
    assert execute(bad, store, "cpu").kind == "diverged"


def test_a_crash_is_recorded_with_its_traceback(tiny, store):
    bad = tiny.replace(validation=500)
    assert execute(bad, store, "cpu") == Event(
        "crashed", bad, "InputError: cannot hold out 500 of 80 training rows"
    )
    assert "held_out_rows" in store.failure(bad)["traceback"]


def test_a_full_disk_stops_everything(tiny, store, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "save", full)
    with pytest.raises(OSError, match="No space left"):
        execute(tiny, store, "cpu")
    assert store.failure(tiny) is None


def test_another_process_has_it(tiny, store):
    with Execution(tiny, store, "cpu"):
        assert execute(tiny, Store(store.folder), "cpu").kind == "busy"
    assert execute(tiny, store, "cpu").kind == "finished"


def test_a_stopped_run_goes_on_where_it_was(tiny, store, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    settings = tiny.replace(recipe={"epochs": 6, "batch_size": 16})
    half = events(settings, store, "cpu")
    seen = [next(half) for _ in range(4)]
    assert seen[-1].progress["epoch"] == 3
    half.close()
    epochs = [e.progress["epoch"] for e in events(settings, store, "cpu") if e.kind == "epoch"]
    assert epochs == [4, 5, 6]
    whole = Store(tmp_path / "whole")
    execute(settings, whole, "cpu")
    stopped, undisturbed = store.result(settings), whole.result(settings)
    timing = ("seconds", "train_seconds")
    for one, other in zip(stopped.history[0], undisturbed.history[0], strict=True):
        assert {k: v for k, v in one.items() if k not in timing} == {
            k: v for k, v in other.items() if k not in timing
        }
    assert stopped.metrics["test_accuracy"] == undisturbed.metrics["test_accuracy"]


def test_a_checkpoint_of_another_version_is_left(tiny, store, monkeypatch):
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    half = events(tiny, store, "cpu")
    next(half), next(half)
    half.close()
    (store.path(tiny) / "checkpoint" / "run.json").write_text('{"noisegate": "0.0.1"}')
    assert execute(tiny, store, "cpu").kind == "finished"


def test_the_accuracies_a_reader_may_ask_for():
    epochs = [
        {"test_accuracy": t, "validation_accuracy": v, "validation_log_likelihood": -v}
        for t, v in [(0.5, 0.4), (0.9, 0.5), (0.8, 0.7), (0.7, 0.7), (0.6, 0.6)]
    ]
    found = accuracies(epochs, {})
    assert found["test_accuracy_last"] == 0.6
    assert found["test_accuracy_oracle"] == 0.9
    assert found["test_accuracy_best_validation"] == 0.8
    assert found["test_accuracy_last10"] == pytest.approx(0.7)
    assert found["validation_accuracy"] == 0.6
    seldom = [{"test_accuracy": e / 100} if e % 5 == 0 else {} for e in range(1, 101)]
    assert accuracies(seldom, {})["test_accuracy_last10"] == pytest.approx((0.95 + 1.0) / 2)
    assert accuracies([*seldom[:80], *[{}] * 20], {})["test_accuracy_last10"] == pytest.approx(0.8)
    kept = accuracies(epochs, {"keep": "best"})
    assert (kept["validation_accuracy"], kept["validation_log_likelihood"]) == (0.7, -0.7)
    assert accuracies(epochs, {"keep": "best", "monitor": "log_likelihood"})["validation_accuracy"] == 0.4


def test_numbers_that_are_missing_are_missing():
    assert accuracies([{"loss": 1.0}], {}) == {}
    assert "test_accuracy_best_validation" not in accuracies([{"test_accuracy": 1.0}], {})


def test_validation_rows_of_the_data_take_part_only_where_they_are_asked_for(tiny, monkeypatch):
    from noisegate.data.registry import DATASETS, register
    from noisegate.studies import execute as module

    def with_rows(*, seed=0):
        return ng.data.load("moons", n=80, n_test=40, seed=seed).hold_out(20, seed=0)

    monkeypatch.setitem(DATASETS, "own-rows", None)
    register("own-rows", "moons with validation rows")(with_rows)
    module._loaded.cache_clear()
    settings = tiny.replace(data={"name": "own-rows"}, noise=None)
    assert len(load_data(settings.replace(validation="own")).validation) == 20
    assert len(load_data(settings.replace(validation=0.1)).validation) == 6
    assert load_data(settings.replace(validation=None)).validation is None
    assert len(load_data(settings.replace(noise={"name": "symmetric", "rate": 0.2})).train) == 54
    with pytest.raises(InputError, match="no validation rows of its own"):
        load_data(tiny.replace(validation="own"))


def test_a_balanced_training_set_has_as_many_rows_of_every_label(tiny):
    skewed = {"name": "asymmetric", "rate": 0.8, "mapping": {"0": 1}}
    loose = load_data(tiny.replace(data={"name": "moons"}, noise=skewed, seed=1))
    even = load_data(tiny.replace(data={"name": "moons"}, noise=skewed, seed=1, balanced=True))
    counts = np.bincount(loose.train.y)
    assert counts[0] < counts[1]
    assert np.bincount(even.train.y).tolist() == [counts[0], counts[0]]
    assert len(even.validation) == len(loose.validation)
    rows = {tuple(x) for x in loose.train.x}
    assert all(tuple(x) in rows for x in even.train.x)


def _stopped(tiny, store, monkeypatch):
    """A run that was stopped on its way; returns its checkpoint."""
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 0.0)
    under_way = events(tiny, store, "cpu")
    for event in under_way:
        if event.kind == "epoch" and event.progress["epoch"] >= 2:
            break
    under_way.close()
    (path,) = (store.path(tiny) / "checkpoint").glob("current.safetensors")
    return path


def test_a_damaged_checkpoint_costs_time_and_nothing_else(tiny, store, monkeypatch, tmp_path):
    path = _stopped(tiny, store, monkeypatch)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert execute(tiny, store, "cpu").kind == "finished"
    whole = Store(tmp_path / "whole")
    execute(tiny, whole, "cpu")
    assert store.result(tiny).metrics["test_accuracy"] == whole.result(tiny).metrics["test_accuracy"]


def test_a_checkpoint_outlives_trouble_that_is_not_its_own(tiny, store, monkeypatch):
    path = _stopped(tiny, store, monkeypatch)

    def trouble(settings, root):
        raise MissingDataError("the weights are not there today")

    with monkeypatch.context() as patched:
        patched.setattr("noisegate.studies.execute._network", trouble)
        assert "not there today" in execute(tiny, store, "cpu").message
    assert path.exists()


def test_memory_is_not_told_where_runs_share_a_process(tiny, store):
    with Execution(tiny, store, "cpu", beside=2) as execution:
        list(execution)
        execution.conclude()
    assert store.result(tiny).about["peak_memory"] is None
