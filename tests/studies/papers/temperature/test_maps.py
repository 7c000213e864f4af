"""Section 5.2 of the temperature paper: its numbers, its protocol, and CamVid from end to end on drawn scenes."""

import numpy as np
import pytest

from noisegate.data import load
from noisegate.studies import papers
from noisegate.studies.execute import execute
from noisegate.studies.papers.temperature import map_figures, maps
from noisegate.studies.results import Results
from noisegate.studies.store import Store

NAMES = [study.name for study in maps.STUDIES]


def test_the_studies_are_known():
    assert NAMES == [
        "temperature-table2",
        "temperature-figure2",
        "temperature-figure3",
        "temperature-figure4",
        "temperature-camvid",
    ]
    assert set(NAMES) <= set(papers.studies())


def test_the_numbers_of_table_2():
    study = papers.get("temperature-table2")
    found = {
        (cell.group, cell.row): tuple(cell.paper[name].mean for name in ("test_mean_iou", "server_mean_iou"))
        for cell in study.cells
    }
    assert found == {
        ("Cityscapes", "Ours τ = τ*"): (75.32, 77.35),
        ("Cityscapes", "τ = 1.0"): (74.22, 76.36),
        ("Cityscapes", "Homoscedastic"): (74.24, 76.61),
        ("PASCAL VOC", "Ours τ = τ*"): (85.89, 84.65),
        ("PASCAL VOC", "τ = 1.0"): (84.55, 83.93),
        ("PASCAL VOC", "Homoscedastic"): (84.89, 84.01),
    }
    marks = {cell.row: cell.paper["test_mean_iou"].mark for cell in study.cells}
    assert marks == {"Ours τ = τ*": "bold", "τ = 1.0": "‡", "Homoscedastic": "‡"}
    assert study.seeds == 25
    assert study.stars_against == "Ours τ = τ*"


def test_the_third_stage_of_deeplab():
    for cell in papers.get("temperature-figure2").cells:
        full = cell.settings.full()
        recipe = full["recipe"]
        assert (recipe["steps"], recipe["lr"], recipe["momentum"], recipe["optimizer"]) == (
            30_000,
            1e-3,
            0.9,
            "sgd",
        )
        assert (recipe["schedule"], recipe.get("power", 0.9), recipe["weight_decay"]) == ("poly", 0.9, 4e-5)
        assert recipe["scales"] == [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]
        assert recipe["crop_to"] == (769 if cell.group == "Cityscapes" else 513)
        assert recipe["batch_size"] == 8
        assert recipe["flip"]
        assert full["network"] == "deeplab-xception65"
        if cell.settings.method == "het-tau":
            assert cell.settings.params["n_samples"] == 1000


def test_camvid_asks_the_papers_question_with_three_seeds():
    study = papers.get("temperature-camvid")
    temperatures = [cell.settings.params.get("temperature") for cell in study.cells]
    assert temperatures == [None, 0.05, 0.1, 0.2, 0.5, 1.0]
    assert study.seeds == 3
    assert study.select.metric == "validation_mean_iou"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    study = papers.get("temperature-camvid").at_scale("smoke").with_seeds(1)
    study = study.only(columns=("no-tau", "tau-0.05", "tau-1"))
    store = Store(tmp_path_factory.mktemp("out"))
    for cell in study.cells:
        for settings in study.runs(cell):
            assert execute(settings, store, "cpu").kind == "finished"
    return Results(study, store)


def test_camvid_runs_from_end_to_end(finished):
    cells = {cell.column: cell for cell in finished.study.cells}
    assert set(cells) == {"no τ", "τ = 0.05", "τ = 1"}
    for cell in cells.values():
        for value in maps.CAMVID_VALUES:
            numbers = list(finished.values(cell, value.name).values())
            assert len(numbers) == 1, value.name
            assert np.isfinite(numbers).all()


def test_its_figures(finished):
    assert len(map_figures.mean_iou(finished).axes) == 1
    # Three pictures: image, label and three models; then image, label, prediction and variance at τ = 1 and 0.05.
    assert len(map_figures.segmentations(finished).axes) == 3 * 5
    figure = map_figures.variances(finished)
    titles = [ax.get_title() for ax in figure.axes]
    assert [t for t in titles if t.startswith("prediction")] == ["prediction, τ = 1", "prediction, τ = 0.05"]


def test_void_is_grey():
    palette = np.array([[1, 2, 3], [4, 5, 6]], np.uint8)
    picture = map_figures.coloured(np.array([[0, 1], [-100, 0]]), palette)
    assert picture.tolist() == [[[1, 2, 3], [4, 5, 6]], [[230, 230, 230], [1, 2, 3]]]


def test_scenes_are_drawn_by_their_seed():
    data, same, other = (load("scenes", n=4, n_test=2, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(data.train.x, same.train.x)
    assert not np.array_equal(data.train.y, other.train.y)
    assert set(np.unique(data.train.y)) == {-100, 0, 1, 2, 3}
    assert len(data.validation) == len(data.test) == 2
