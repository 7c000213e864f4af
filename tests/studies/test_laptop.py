"""The size between smoke and paper: what is reduced, and that it is said."""

import dataclasses

import pytest

from noisegate.studies import papers
from noisegate.studies.laptop import Laptop, reduced, reductions
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Study

RUN = RunSettings(
    data={"name": "cifar10"},
    method="het-tau",
    params={"temperature": 1.0, "n_samples": 1000},
    network="wrn-28-2",
    recipe={"epochs": 200, "schedule": "step", "milestones": (100, 150), "lr": 0.1},
)
STUDY = Study(
    name="x",
    title="x",
    reference="x",
    cells=tuple(
        Cell(row=row, column="c", settings=RUN, search={"temperature": (0.1, 1.0, 10.0)}) for row in "ab"
    ),
    notes=("a note",),
)
SMALL = Laptop(
    change=lambda run: reduced(
        run, network="lenet5", rows=500, recipe={"epochs": 20}, params={"n_samples": 10}
    ),
    keep=lambda cell: cell.row == "a",
    seeds=2,
    search={"temperature": (0.1, 1.0)},
)


def test_what_is_smaller_is_smaller_and_the_rest_stays():
    small = dataclasses.replace(STUDY, laptop=SMALL).at_scale("laptop")
    (cell,) = small.cells
    run = cell.settings
    assert (run.network, run.rows, run.data, run.params) == (
        "lenet5",
        500,
        {"name": "cifar10"},
        {"temperature": 1.0, "n_samples": 10},
    )
    assert run.recipe == {"epochs": 20, "schedule": "step", "milestones": (10, 15), "lr": 0.1}
    assert (small.seeds, cell.search) == (2, {"temperature": (0.1, 1.0)})


def test_every_reduction_is_named_first():
    small = dataclasses.replace(STUDY, laptop=SMALL).at_scale("laptop")
    words, *notes = small.notes
    assert notes == ["a note"]
    for named in (
        "network lenet5 in place of wrn-28-2",
        "training on 500 rows in place of all rows",
        "epochs 20, milestones 10-15",
        "n_samples 10",
        "fewer seeds, unless more are asked for (the paper's: 5)",
        "1 of the 2 cells",
        "2 of 3 values of temperature in a search",
    ):
        assert named in words
    assert "lr" not in words


def test_without_reductions_the_study_is_its_own():
    assert STUDY.at_scale("laptop") == STUDY
    assert not STUDY.laptop.reduces
    assert reductions(STUDY, STUDY) == []


def test_steps_become_epochs_and_parameters_of_others_are_left_out():
    run = RUN.replace(recipe={"steps": 64_000, "milestones": (32_000, 48_000)}, method="ce", params={})
    small = reduced(run, recipe={"epochs": 100}, params={"n_samples": 10})
    assert small.recipe == {"epochs": 100, "milestones": (50, 75)}
    assert small.params == {}


#: Images of 28 x 28 that two cores train LeNet-5 on in two hours, by a slow measurement: 3,000 a second and core.
IMAGES = 2 * 2 * 3600 * 3000
ROWS = {
    "mnist": 60_000,
    "fashion-mnist": 60_000,
    "digit-pairs": 20_000,
    "svhn": 73_257,
    "digits": 1400,
    "moons": 1000,
}
#: What others take, in images of 28 x 28: by pixels, and vectors next to nothing.
PIXELS = {"digit-pairs": 2.0, "moons": 0.01, "circles": 0.1, "gaussians": 0.01, "digits": 0.1, "file": 0.01}
TWO = ("forward", "backward", "reweight", "distillation", "co-teaching", "decoupling")

#: Five folds; and the candidates of "auto" on some of the rows.
MORE = {"cross-fitted": 5, "auto": 10}


def cost(run):
    """Images that a run trains on, as if all were of one network of 28 x 28 pixels."""
    rows = min(run.data.get("n", ROWS.get(run.data["name"], 50_000)), run.rows or 10**9)
    held = run.validation if isinstance(run.validation, int | float) else 0
    rows -= held if held > 1 else held * rows
    epochs = 20 if "patience" in run.recipe else run.recipe.get("epochs", 100)
    times = 2 if run.method in TWO else 3 if run.method == "t-revision" else 1
    if run.method == "causalnl":
        times = 25 if run.params.get("variant") == "elbo" else 9
    times *= MORE.get(run.method, 1) * MORE.get(run.detector, 1)
    colour = 1.7 if run.data["name"].startswith(("cifar", "svhn")) else 1.0
    return rows * epochs * times * PIXELS.get(run.data["name"], colour)


#: Segmentation is for two cores in a study of its own, temperature-camvid, whose images are fewer
#: and whose cost in LeNets is not known.
SEGMENTATION = {"temperature-table2", "temperature-camvid"}
SEGMENTATION |= {f"temperature-figure{number}" for number in (2, 3, 4)}
#: Its detectors choose their own length of training; benchmarks/results/audit_quality.md has their seconds.
AUDITS = {"audit-quality"}


@pytest.mark.parametrize("name", sorted(papers.studies().keys() - SEGMENTATION - AUDITS))
def test_two_cores_do_it_in_two_hours(name):
    study = papers.get(name).at_scale("laptop")
    runs = {cell.settings.key: cell.settings for cell in study}
    assert study.seeds * sum(map(cost, runs.values())) < IMAGES
    assert bool(study.cells) == bool(papers.get(name).cells)
