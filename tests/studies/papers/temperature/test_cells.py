"""The catalogue of the softmax-temperature paper: its numbers, its protocol, and runs at smoke size."""

import numpy as np
import pytest

from noisegate import networks, noise
from noisegate.data.registry import lookup
from noisegate.errors import InputError
from noisegate.studies import papers
from noisegate.studies.execute import execute
from noisegate.studies.papers.temperature import cells as temperature
from noisegate.studies.results import Results
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store

STUDIES = {study.name: study for study in temperature.STUDIES}
TABLES = [name for name in STUDIES if "table" in name]
FIGURES = ["temperature-figure1", "temperature-figure6"]


def printed(name, row, dataset, value):
    """(mean, mark) of a number of the paper."""
    study = STUDIES[name]
    (column,) = [column for group, column in study.columns if group == dataset]
    (metric,) = [v.name for v in study.values if v.title == value]
    number = study.cell(row, column, dataset).paper[metric]
    assert number.std is None
    return number.mean, number.mark


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("temperature-table1", "Homoscedastic", "CIFAR-10", "LL"), (-1.109, "‡")),
        (("temperature-table1", "Ours τ = τ*", "CIFAR-10", "Acc_clean"), (0.853, "bold")),
        (("temperature-table1", "MentorNet", "SVHN", "Acc_clean"), (0.952, "*")),
        (("temperature-table1", "Bootstrap", "SVHN", "Acc"), (0.838, "")),
        (("temperature-table3", "τ = 1.0", "SVHN", "LL"), (-0.156, "‡")),
        (("temperature-table3", "Ours τ = τ*", "MNIST", "Acc"), (0.995, "bold")),
        (("temperature-table4", "Homoscedastic", "MNIST", "Acc"), (0.814, "bold †")),
        (("temperature-table4", "τ = 1.0", "MNIST", "Acc"), (0.814, "bold *")),
        (("temperature-table4", "Co-teaching", "CIFAR-10", "Acc"), (0.700, "bold ‡")),
        (("temperature-table5", "Bootstrap", "CIFAR-10", "LL"), (-0.823, "‡")),
        (("temperature-table6", "Co-teaching", "CIFAR-10", "LL"), (-3.399, "‡")),
        (("temperature-table6", "MentorNet", "SVHN", "Acc_clean"), (0.944, "")),
    ],
)
def test_numbers_are_the_papers(place, expected):
    assert printed(*place) == expected


@pytest.mark.parametrize(
    ("name", "cells", "bold", "stars"),
    [
        ("temperature-table1", 18, 13, {"*": 6, "†": 8, "‡": 24}),
        ("temperature-table3", 9, 6, {"*": 3, "†": 2, "‡": 3}),
        ("temperature-table4", 18, 14, {"*": 7, "†": 7, "‡": 21}),
        ("temperature-table5", 18, 13, {"*": 7, "†": 4, "‡": 19}),
        ("temperature-table6", 18, 13, {"*": 4, "†": 3, "‡": 31}),
    ],
)
def test_tables_are_complete(name, cells, bold, stars):
    study = STUDIES[name]
    marks = [number.mark for cell in study for number in cell.paper.values()]
    assert len(study.cells) == cells
    assert len(marks) == cells * len(study.values)
    assert sum("bold" in mark for mark in marks) == bold
    assert {star: sum(star in mark for mark in marks) for star in "*†‡"} == stars


@pytest.mark.parametrize("name", TABLES)
def test_bold_is_the_best_of_its_column(name):
    # An independent check of marks against means: what the paper prints bold has the highest mean.
    study = STUDIES[name]
    for group, column in study.columns:
        for value in study.values:
            numbers = {row: study.cell(row, column, group).paper[value.name] for row in study.rows}
            best = max(number.mean for number in numbers.values())
            assert {r for r, n in numbers.items() if n.mean == best} == {
                r for r, n in numbers.items() if "bold" in n.mark
            }


@pytest.mark.parametrize("name", [name for name in TABLES if name != "temperature-table3"])
def test_mnist_numbers_fit_the_noise(name):
    # With balanced classes nobody's noisy accuracy is above mean_i T[i, i], and MNIST is nearly solved.
    cell = STUDIES[name].cells[0]
    transition = noise.build(cell.settings.noise).transition(10)
    bound = np.diag(transition).mean()
    entropy = np.where(transition > 0, transition * np.log(np.maximum(transition, 1e-300)), 0).sum(1).mean()
    assert printed(name, "Ours τ = τ*", "MNIST", "Acc")[0] == pytest.approx(bound, abs=0.01)
    assert printed(name, "Ours τ = τ*", "MNIST", "LL")[0] == pytest.approx(entropy, abs=0.035)


# -- protocol --------------------------------------------------------------------------------------


def test_chosen_temperatures():
    chosen = {
        name: [cell.settings.params["temperature"] for cell in STUDIES[name] if cell.row == "Ours τ = τ*"]
        for name in TABLES
    }
    assert chosen == {
        "temperature-table1": [5, 10, 5],
        "temperature-table3": [5, 3, 5],
        "temperature-table4": [35, 35, 5],
        "temperature-table5": [20, 5, 5],
        "temperature-table6": [10, 5, 5],
    }
    for name in TABLES:
        for cell in STUDIES[name]:
            if cell.row == "Ours τ = τ*":
                assert cell.column == f"paper's τ* = {cell.settings.params['temperature']:g}"


def test_search_grids():
    study = STUDIES["temperature-table1"]
    assert study.select.metric == "validation_log_likelihood"
    assert study.select.seeds == "all"
    ours, mentor = (study.cell(row, "paper's τ* = 10", "MNIST") for row in ("Ours τ = τ*", "MentorNet"))
    assert len(ours.candidates()) == 18
    assert {0.025, 2.6, 100.0} <= {c.params["temperature"] for c in ours.candidates()}
    assert ours.settings.key in {c.key for c in ours.candidates()}
    pairs = {(c.params["lambda_2"], c.params["burn_in"]) for c in mentor.candidates()}
    assert pairs == {(a, b) for a in (0, 0.5, 1, 2) for b in (0, 5, 10)}
    assert mentor.settings.key in {c.key for c in mentor.candidates()}


def test_recipe_and_sizes():
    for study in STUDIES.values():
        assert study.seeds == 25
        for cell in study:
            full = cell.settings.full()
            assert full["network"] == "cnn9"
            assert full["validation"] == 10_000
            recipe = full["recipe"]
            assert (recipe["optimizer"], recipe["lr"], recipe["eps"]) == ("adam", 1e-3, 1e-7)
            assert (recipe["epochs"], recipe["patience"], recipe["keep"]) == (1000, 5, "best")
            assert recipe["monitor"] == "accuracy"
            assert recipe["normalize"] == "none"
            if cell.settings.method == "het-tau":
                assert full["method"]["n_samples_eval"] == 1000
            if cell.settings.method in ("co-teaching", "mentornet"):
                assert cell.settings.params["noise_rate"] == "known"


@pytest.mark.parametrize("name", TABLES)
def test_noisy_metrics_where_there_is_noise(name):
    study = STUDIES[name]
    noisy = name != "temperature-table3"
    assert study.stars_against in study.rows
    assert study.bold == "best"
    assert [v.title for v in study.values] == (["LL", "Acc", "Acc_clean"] if noisy else ["LL", "Acc"])
    assert all(v.name.startswith("noisy_test") for v in study.values[: 2 if noisy else 0])
    assert all(cell.settings.noisy_test is noisy for cell in study)
    assert all((cell.settings.noise is not None) is noisy for cell in study)


def test_figures_share_their_runs_with_each_other_and_with_table_1():
    first, second = (STUDIES[name] for name in FIGURES)
    keys = {cell.settings.key for cell in first}
    assert keys == {cell.settings.key for cell in second}
    assert len(keys) == len(first.cells) == 3 * (4 * 18 + 1)
    shared = [
        c.settings.key in keys
        for c in STUDIES["temperature-table1"]
        if c.settings.method in ("ce", "het-tau")
    ]
    assert len(shared) == 9
    assert all(shared)


@pytest.mark.parametrize("scale", ["paper", "smoke"])
@pytest.mark.parametrize("name", list(STUDIES))
def test_settings_can_be_built(name, scale):
    study = STUDIES[name].at_scale(scale)
    for cell in study:
        full = cell.settings.full()  # knows the method, its parameters and the recipe
        assert full["method"]["name"] == cell.settings.method
        assert cell.settings.noise is None or noise.build(cell.settings.noise).transition(10).shape == (
            10,
            10,
        )
        assert lookup(cell.settings.data["name"]).name == cell.settings.data["name"]
    for network in {cell.settings.network for cell in study}:
        networks.build(network, (64,) if scale == "smoke" else (3, 32, 32), 20)
    assert scale == "smoke" or len({c.settings.key for c in study}) == len(study.cells)


def test_every_name_can_be_picked():
    study = papers.get("temperature-table1").only(rows=["ours-tau-tau", "ce"], columns=["cifar-10"])
    assert [cell.row for cell in study] == ["Homoscedastic", "Ours τ = τ*"]


# -- smoke -----------------------------------------------------------------------------------------


def run_all(study, folder):
    results = Results(study, Store(folder))
    for run in results.planned():
        execute(run, results.store, "cpu")
        assert results.store.result(run) is not None, results.store.failure(run)
    return results


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("temperature") / "results"


def test_smoke_table(store_folder):
    study = STUDIES["temperature-table1"].only(columns=["mnist"]).at_scale("smoke").with_seeds(1)
    results = run_all(study, store_folder)
    for cell in study:
        for value in study.values:
            values = results.values(cell, value.name)
            assert list(values) == [0]
            assert np.isfinite(list(values.values())).all()
    # Test labels are noisy: agreement with them is below agreement with clean ones.
    plain = study.cells[0]
    noisy, clean = (results.values(plain, v.name) for v in study.values[1:])
    assert all(noisy[seed] < clean[seed] for seed in noisy)


def test_smoke_table_without_noise(store_folder):
    study = STUDIES["temperature-table3"].only(columns=["svhn"]).at_scale("smoke").with_seeds(1)
    results = run_all(study, store_folder)
    assert all(results.values(cell, value.name) for cell in study for value in study.values)


@pytest.fixture(scope="module")
def drawn(store_folder):
    """A few temperatures of two datasets' panels."""
    study = STUDIES["temperature-figure1"].only(
        rows=["homoscedastic", "s-1", "s-1000"], columns=["no-tau", "tau-0.1", "tau-1", "tau-10"]
    )
    return run_all(study.at_scale("smoke").with_seeds(1), store_folder)


@pytest.mark.parametrize(
    ("name", "metric"),
    [("temperature-figure1", "noisy_test_log_likelihood"), ("temperature-figure6", "noisy_test_accuracy")],
)
def test_figure_shows_the_stored_numbers(drawn, name, metric):
    (figure,) = STUDIES[name].figures
    axes = figure.draw(drawn).axes
    assert [ax.get_title(loc="left") for ax in axes] == ["CIFAR-10", "MNIST", "SVHN"]
    lines = {line.get_label(): line for line in axes[1].get_lines()}
    assert list(lines) == ["S = 1", "S = 1000", "Homoscedastic"]
    assert list(lines["S = 1000"].get_xdata()) == [0.1, 1.0, 10.0]
    cell = drawn.study.cell("S = 1000", "τ = 10", "MNIST")
    assert lines["S = 1000"].get_ydata()[2] == pytest.approx(drawn.values(cell, metric)[0])
    level = drawn.values(drawn.study.cell("Homoscedastic", "no τ", "MNIST"), metric)[0]
    assert lines["Homoscedastic"].get_ydata()[0] == pytest.approx(level)


def test_figure_says_what_is_missing(tmp_path):
    study = STUDIES["temperature-figure6"].at_scale("smoke")
    with pytest.raises(InputError, match="temperature-figure6.*no finished run"):
        study.figures[0].draw(Results(study, Store(tmp_path / "none")))


def test_smoke_size_trains_on_little():
    for study in STUDIES.values():
        small = study.at_scale("smoke")
        assert small.seeds == 2
        for cell in small:
            run: RunSettings = cell.settings
            assert run.data == {"name": "digits"}
            assert run.recipe["epochs"] == 3
            assert run.rows == 400
            assert run.params.get("n_samples_eval", 100) == 100
