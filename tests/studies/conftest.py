import dataclasses

import pytest

from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import Cell, Study

TINY = RunSettings(
    data={"name": "moons", "n": 80, "n_test": 40},
    method="ce",
    network="mlp-4",
    noise={"name": "symmetric", "rate": 0.2},
    recipe={"epochs": 2, "batch_size": 16},
)


@pytest.fixture
def tiny():
    return TINY


@pytest.fixture
def study():
    """Two methods, two noise rates, two seeds: eight runs of a few milliseconds."""
    cells = [
        Cell(
            row=method.upper(),
            column=f"Symmetric {rate:.0%}",
            settings=TINY.replace(method=method, noise={"name": "symmetric", "rate": rate}),
        )
        for method in ("ce", "gce")
        for rate in (0.2, 0.4)
    ]
    return Study(name="tiny", title="Tiny", reference="none", cells=tuple(cells), seeds=2)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "results")


@pytest.fixture
def results(study, store):
    return Results(study, store)


@pytest.fixture
def diverging(study):
    """The same study with a method of its rows that diverges at once."""
    bad = dataclasses.replace(
        study.cells[0],
        row="BAD",
        settings=study.cells[0].settings.replace(recipe={"epochs": 2, "batch_size": 16, "lr": 1e30}),
    )
    return dataclasses.replace(study, cells=(*study.cells[:1], bad), seeds=1)
