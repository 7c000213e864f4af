import threading

import pytest

from noisegate.errors import MissingDataError
from noisegate.studies import runner
from noisegate.studies.engines import Context, build
from noisegate.studies.engines.base import Engine
from noisegate.studies.execute import Event, Execution, events, execute
from noisegate.studies.results import Results
from noisegate.studies.store import Store


class Counting(Engine):
    """Does runs one by one and counts them."""

    def __init__(self):
        self.done = []

    def width(self, todo, context):
        return 1

    def run(self, todo, context):
        store = Store(context.out)
        for settings in todo:
            self.done.append(settings.key)
            yield from events(settings, store, "cpu")


@pytest.fixture
def context(store):
    return Context(store.folder, None, "cpu")


def test_nothing_is_repeated(results, context):
    engine = Counting()
    after = runner.do(results, engine, context)
    assert (len(after.finished), after.total) == (8, 8)
    assert len(engine.done) == len(set(engine.done)) == 8
    runner.do(Results(results.study, Store(results.store.folder)), engine, context)
    assert len(engine.done) == 8


def test_a_failed_run_is_retried_on_request_only(diverging, store, context):
    results, engine = Results(diverging, store), Counting()
    after = runner.do(results, engine, context)
    assert (len(after.finished), len(after.failed)) == (1, 1)
    runner.do(results, engine, context)
    assert len(engine.done) == 2
    again = runner.do(results, engine, context, retry=True)
    assert len(engine.done) == 3
    assert len(again.failed) == 1


def test_a_search_goes_on_with_what_it_chose(study, tiny, store, context):
    import dataclasses

    cell = dataclasses.replace(
        study.cells[2], search={"q": (0.3, 0.9)}, settings=study.cells[2].settings.replace(params={"q": 0.3})
    )
    searching = dataclasses.replace(study, cells=(cell,), seeds=3)
    totals = []
    engine = Counting()
    after = runner.do(
        Results(searching, store, search=True), engine, context, planned=lambda p: totals.append(p.total)
    )
    assert len(after.finished) == 4
    assert totals[0] == 2
    assert totals[-1] == 4


def test_a_run_of_another_process_is_waited_for(results, context, monkeypatch):
    monkeypatch.setattr(runner, "POLL", 0.05)
    mine = results.planned()[0]
    begun, told = threading.Event(), threading.Event()

    def elsewhere():
        with Execution(mine, Store(context.out), "cpu") as execution:
            begun.set()
            told.wait(60)
            list(execution)
            execution.conclude()

    def watch(event):
        if event.kind == "epoch" and event.run.key == mine.key:
            told.set()

    # A lock of another open file is as good as one of another process.
    other = threading.Thread(target=elsewhere)
    other.start()
    begun.wait()
    engine = Counting()
    after = runner.do(results, engine, context, watch=watch)
    other.join()
    assert told.is_set()
    assert mine.key not in engine.done
    assert len(after.finished) == 8


def test_a_run_left_by_a_dead_process_is_taken_over(results, context, monkeypatch):
    monkeypatch.setattr(runner, "POLL", 0.05)
    mine = results.planned()[0]
    execution = Execution(mine, Store(context.out), "cpu")
    execution.__enter__()
    timer = threading.Timer(0.4, execution.__exit__, (None, None, None))
    timer.start()
    engine = Counting()
    assert len(runner.do(results, engine, context).finished) == 8
    assert engine.done[-1] == mine.key
    timer.join()


def test_a_run_that_was_stopped_comes_first(results, context):
    begun = results.planned()[5]
    with Execution(begun, Store(context.out), "cpu") as execution:
        next(iter(execution))
    engine = Counting()
    assert len(runner.do(results, engine, context).finished) == 8
    others = [run.key for run in results.planned() if run.key != begun.key]
    assert engine.done == [begun.key, *others]


def test_the_estimate_is_the_median_of_similar_runs(results, tiny):
    store = results.store
    assert runner.estimate(results.planned(), store) == runner.Estimate(0.0, 8)
    for run in results.planned()[:4]:
        execute(run, store, "cpu")
    seconds = sorted(r.seconds for r in store.results())
    guess = runner.estimate(results.planned()[4:], store)
    assert guess.unknown == 0
    assert guess.seconds == pytest.approx(4 * (seconds[1] + seconds[2]) / 2)
    assert runner.estimate([tiny.replace(network="mlp-99")], store).unknown == 1
    # Other hardware says nothing.
    here = build("local").hardware(Context(store.folder, device="cpu"))
    assert runner.estimate(results.planned()[4:], store, here) == guess
    assert runner.estimate(results.planned()[4:], store, "another") == runner.Estimate(0.0, 4)


def test_missing_data_say_how_to_get_them(study, tmp_path):
    needing = study.with_changes({"data.name": "svhn"})
    with pytest.raises(MissingDataError, match=r"tiny needs svhn: .*noisegate data fetch svhn"):
        runner.check_data(needing, str(tmp_path))
    runner.check_data(study, str(tmp_path))


def test_a_missing_part_can_be_left_out(study, tmp_path):
    import dataclasses

    cell = dataclasses.replace(
        study.cells[0], settings=study.cells[0].settings.replace(data={"name": "mnist"})
    )
    mixed = dataclasses.replace(study, cells=(cell, *study.cells[1:]))
    with pytest.raises(MissingDataError, match="or leave it out"):
        runner.check_data(mixed, str(tmp_path))


def test_engines_have_names(tmp_path):
    from noisegate.errors import InputError, UnknownNameError

    with pytest.raises(UnknownNameError, match="did you mean 'local'"):
        build("lokal")
    with pytest.raises(InputError, match="at least 1"):
        build("local", workers=0)


def test_an_event_is_final_or_not(tiny):
    assert [Event(kind, tiny).final for kind in ("started", "epoch", "finished", "busy", "crashed")] == [
        False,
        False,
        True,
        True,
        True,
    ]
