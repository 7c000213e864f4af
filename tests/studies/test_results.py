import dataclasses

import numpy as np
import pytest

from noisegate.errors import InputError
from noisegate.studies.execute import execute
from noisegate.studies.results import Results
from noisegate.studies.study import Cell, Selection


@pytest.fixture
def searching(study, tiny):
    """LN with a grid whose second point cannot learn anything: its steps are too small."""
    cell = Cell(
        row="GCE",
        column="c",
        settings=tiny.replace(method="gce", params={"q": 0.9}),
        search={"q": (0.9, 0.5, 0.1)},
    )
    return dataclasses.replace(study, cells=(cell,), seeds=3)


def run_all(runs, store):
    for run in runs:
        execute(run, store, "cpu")


def test_values_by_seed(results):
    run_all(results.planned(), results.store)
    for cell in results.study:
        stored = {r.seed: r.metrics["test_accuracy"] for r in results.results(cell)}
        assert results.values(cell, "test_accuracy") == stored
        assert set(stored) == {0, 1}
    assert results.values(cell, "no_such_metric") == {}
    assert [len(curve) for curve in results.curve(cell, "test_accuracy")] == [2, 2]


def test_runs_in_two_cells_are_planned_once(study, store):
    twice = dataclasses.replace(study.cells[0], row="again")
    shared = dataclasses.replace(study, cells=(*study.cells, twice))
    assert len(Results(shared, store).planned()) == 8


def test_without_search_the_papers_choice_is_run(searching, store):
    results = Results(searching, store)
    assert [run.params["q"] for run in results.planned()] == [0.9, 0.9, 0.9]


def test_a_search_runs_one_seed_of_the_grid_then_the_rest_of_the_best(searching, store):
    results = Results(searching, store, search=True)
    (cell,) = searching.cells
    first = results.planned()
    assert [(run.params["q"], run.seed) for run in first] == [(0.9, 0), (0.5, 0), (0.1, 0)]
    assert results.settings(cell) is None
    assert results.results(cell) == []
    run_all(first, store)
    scores = [store.result(run).metrics["validation_accuracy"] for run in first]
    best = first[int(np.argmax(scores))].params["q"]
    assert results.settings(cell).params["q"] == best
    assert {(run.params["q"], run.seed) for run in results.planned()} == {
        (0.9, 0),
        (0.5, 0),
        (0.1, 0),
        (best, 1),
        (best, 2),
    }


def test_a_search_can_average_over_all_seeds(searching, store):
    everywhere = dataclasses.replace(
        searching, select=Selection(metric="validation_log_likelihood", seeds="all"), seeds=2
    )
    results = Results(everywhere, store, search=True)
    run_all(results.planned(), store)
    means = []
    for candidate in everywhere.cells[0].candidates():
        found = [
            store.result(run).metrics["validation_log_likelihood"] for run in results.search_runs(candidate)
        ]
        means.append(np.mean(found))
    chosen = results.settings(everywhere.cells[0]).params["q"]
    assert chosen == (0.9, 0.5, 0.1)[int(np.argmax(means))]


def test_a_candidate_that_failed_is_out(searching, store):
    results = Results(searching, store, search=True)
    first = results.planned()
    run_all(first[:2], store)
    assert results.settings(searching.cells[0]) is None
    store.fail(first[2], "diverged", "why")
    assert results.settings(searching.cells[0]).params["q"] in (0.9, 0.5)
    for run in first[:2]:
        (store.path(run) / "result.json").unlink()
        store.fail(run, "diverged", "why")
    fresh = Results(searching, type(store)(store.folder), search=True)
    assert fresh.settings(searching.cells[0]) is None


def test_failures_are_told(diverging, store):
    results = Results(diverging, store)
    run_all(results.planned(), store)
    ((cell, run, failure),) = results.failures()
    assert (cell.row, run.seed, failure["status"]) == ("BAD", 0, "diverged")


def test_a_search_without_validation_rows_says_what_it_lacks(searching, store):
    results = Results(searching.with_changes({"validation": None}), store, search=True)
    run_all(results.planned(), store)
    with pytest.raises(InputError, match="hold out validation rows"):
        results.planned()


def test_the_key_of_another_seed_is_that_of_the_whole_settings(tiny):
    assert tiny.replace(seed=3).key == dataclasses.replace(tiny, seed=3).key
