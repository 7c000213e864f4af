import dataclasses
import inspect
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure as Picture
from scipy.optimize import minimize

from noisegate import networks
from noisegate.data.registry import lookup
from noisegate.errors import InputError
from noisegate.noise import build
from noisegate.reporting.plots import png
from noisegate.studies import papers, probes
from noisegate.studies.execute import execute, load_data
from noisegate.studies.papers.smoothing import cells as smoothing
from noisegate.studies.papers.smoothing import studies
from noisegate.studies.results import Results
from noisegate.studies.store import Store

STUDIES = {study.name: study for study in studies.STUDIES}
SHAPES = {
    "linear": (2,),
    "mlp-64": (64,),
    "resnet32": (3, 32, 32),
    "resnet56": (3, 32, 32),
    "resnet-v2-50": (3, 224, 224),
}


def study_of(name):
    return STUDIES[f"smoothing-{name}"]


# The paper's numbers.


def test_every_table_and_figure_is_there():
    expected = {f"figure{i}" for i in range(1, 10)} | {f"table{i}" for i in (2, 3, 4, 5, 7)}
    assert set(STUDIES) == {f"smoothing-{name}" for name in expected}
    assert set(STUDIES) <= set(papers.studies())


@pytest.mark.parametrize(
    ("name", "row", "column", "value", "mean", "std"),
    [
        ("table2", "LS", "α = 0.0", "test_accuracy", 70.86, None),
        ("table2", "LS", "α = 0.2", "test_accuracy", 71.55, None),
        ("table2", "FC", "α = 0.4", "test_accuracy", 73.35, None),
        ("table2", "FC", "α = 0.6", "test_accuracy", 72.92, None),
        ("table3", "α = 0.0", "CIFAR-100 ResNet-32", "train_clean_accuracy", 77.39, None),
        ("table3", "α = 0.1", "CIFAR-100 ResNet-32", "train_right_accuracy", 87.99, None),
        ("table3", "α = 0.1", "CIFAR-100 ResNet-32", "train_recovered", 48.58, None),
        ("table3", "α = 0.2", "CIFAR-100 ResNet-32", "train_memorised", 8.32, None),
        ("table4", "α = 0.1", "LS", "test_ece100", 0.108, None),
        ("table4", "α = 0.2", "BC", "test_ece100", 0.266, None),
        ("table5", "CIFAR-100 ResNet-32", "FC on teacher", "test_accuracy", 66.65, 0.18),
        ("table5", "CIFAR-10 ResNet-32", "LS on student", "test_accuracy", 85.72, 2.61),
        ("table5", "CIFAR-10 ResNet-56", "Vanilla distillation", "test_accuracy", 77.98, 0.25),
        ("table7", "CIFAR-100 ResNet-32", "LS", "test_accuracy", 60.70, 0.28),
        ("table7", "CIFAR-100 ResNet-56", "BC Patrini", "test_accuracy", 55.00, 0.13),
        ("table7", "CIFAR-10 ResNet-32", "FC Patrini", "test_accuracy", 80.33, 0.29),
        ("table7", "CIFAR-10 ResNet-56", "BC smoothing", "test_accuracy", 77.32, 0.35),
    ],
)
def test_numbers_of_the_paper(name, row, column, value, mean, std):
    number = study_of(name).cell(row, column).paper[value]
    assert (number.mean, number.std, number.mark) == (mean, std, "")


@pytest.mark.parametrize(
    ("name", "cells", "numbers", "total"),
    [
        ("table2", 10, 10, 718.41),
        ("table3", 3, 12, 681.71),
        ("table4", 9, 9, 1.395),
        ("table5", 20, 20, 1500.51),
        ("table7", 24, 24, 1637.36),
        ("figure1", 0, 0, 0),
        ("figure2", 60, 0, 0),
        ("figure5", 9, 0, 0),
        ("figure6", 10, 0, 0),
        ("figure8", 7, 0, 0),
    ],
)
def test_totals(name, cells, numbers, total):
    study = study_of(name)
    found = [number for cell in study for number in cell.paper.values()]
    assert (len(study.cells), len(found)) == (cells, numbers)
    assert sum(number.mean for number in found) == pytest.approx(total, abs=1e-6)


def test_table_3_adds_up_by_the_flip_rate():
    # full = (1 - f) clean + f noisy, at f = .2: wrong labels never fall on the true class.
    for cell in study_of("table3"):
        number = {name: n.mean for name, n in cell.paper.items()}
        mixed = 0.8 * number["train_right_accuracy"] + 0.2 * number["train_recovered"]
        assert number["train_clean_accuracy"] == pytest.approx(mixed, abs=0.02)


def test_nothing_is_bold():
    assert {study.bold for study in STUDIES.values()} == {"none"}


# The protocol.


def test_cifar_runs_follow_appendix_b():
    for name in ("figure2", "figure3", "table3", "table4", "table5", "table7", "figure6", "figure8"):
        for cell in study_of(name):
            recipe = cell.settings.full()["recipe"]
            assert (recipe["steps"], recipe["epochs"], recipe["batch_size"]) == (64_000, None, 128)
            assert (recipe["optimizer"], recipe["momentum"], recipe["weight_decay"]) == (
                "nesterov",
                0.9,
                1e-4,
            )
            assert recipe["milestones"] == [32_000, 48_000]
            assert (recipe["lr"], recipe["gamma"], recipe["crop"], recipe["flip"]) == (0.1, 0.1, 4, True)
            assert cell.settings.noise == {"name": "symmetric", "rate": 0.2, "include_self": False}
            assert cell.settings.validation is None
    for name in ("figure2", "table3", "table4", "table5", "table7", "figure6"):
        assert study_of(name).seeds == 5


def test_imagenet_runs_follow_appendix_b():
    for cell in study_of("table2"):
        recipe = cell.settings.full()["recipe"]
        assert (recipe["steps"], recipe["batch_size"], recipe["optimizer"]) == (32_768, 3500, "lars")
        assert cell.settings.network == "resnet-v2-50"
        alpha = float(cell.column[-3:])
        assert cell.settings.method == (cell.row.lower() if alpha else "ce")
        assert cell.settings.params == ({"alpha": alpha} if alpha else {})


@pytest.mark.parametrize(
    ("column", "method", "params"),
    [
        ("Baseline", "ce", {}),
        ("LS", "ls", {"alpha": 0.1}),
        ("FC smoothing", "fc", {"alpha": 0.1}),
        ("BC smoothing", "bc", {"alpha": 0.1}),
        ("FC Patrini", "forward", {"percentile": 99.9}),
        ("BC Patrini", "backward", {"percentile": 99.9}),
    ],
)
def test_methods_of_table_7(column, method, params):
    cell = study_of("table7").cell("CIFAR-10 ResNet-56", column)
    assert (cell.settings.method, dict(cell.settings.params)) == (method, params)
    assert (cell.settings.network, cell.settings.data["name"]) == ("resnet56", "cifar10")


@pytest.mark.parametrize(
    ("column", "teacher", "student"),
    [
        ("Vanilla distillation", "ce", "ce"),
        ("LS on teacher", "ls", "ce"),
        ("LS on student", "ce", "ls"),
        ("FC on teacher", "fc", "ce"),
        ("FC on student", "ce", "fc"),
    ],
)
def test_methods_of_table_5(column, teacher, student):
    params = study_of("table5").cell("CIFAR-100 ResNet-56", column).settings.params
    assert params == {"teacher": teacher, "student": student, "alpha": 0.1, "temperature": 2.0}


def test_figure_6_distils_at_temperature_1():
    params = [cell.settings.params for cell in study_of("figure6")]
    assert {(p["teacher"], p["student"], p["temperature"]) for p in params} == {("ls", "ce", 1.0)}
    assert [p["alpha"] for p in params] == list(smoothing.ALPHAS)


def test_runs_are_shared_between_studies():
    def keys(name):
        return {run.key for cell in study_of(name) for run in study_of(name).runs(cell)}

    for name in ("table3", "table4", "figure3", "figure4", "figure7", "figure9"):
        assert keys(name) <= keys("figure2")
    assert len(keys("figure2")) == 2 * (1 + 3 * 9) * 5
    assert len(keys("table4")) == 7 * 5
    assert keys("table7") & keys("figure2")
    assert len(keys("table7")) == 120
    assert len(keys("table5")) == 100


# Everything that is named exists.


@pytest.mark.parametrize("scale", ["paper", "smoke"])
@pytest.mark.parametrize("name", STUDIES)
def test_settings_are_understood(name, scale):
    study = STUDIES[name].at_scale(scale)
    for cell in study:
        run = cell.settings
        assert run.full()["method"]["name"] == run.method
        options = {key for key in run.data if key != "name"}
        assert options <= set(inspect.signature(lookup(run.data["name"]).loader).parameters)
        for probe in run.probes:
            wanted = {key for key in probe if key != "name"}
            assert wanted <= set(inspect.signature(probes.get(probe["name"])).parameters)
        if run.noise is not None:
            assert build(run.noise).transition(2).shape == (2, 2)
    for network in {cell.settings.network for cell in study}:
        assert networks.build(network, SHAPES[network], 7).head.out_features == 7


def test_the_list_is_quick_to_read():
    module = "noisegate.studies.papers.smoothing.studies"
    code = f"import sys, {module}; print({{'torch', 'matplotlib'}} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


@pytest.mark.parametrize("name", STUDIES)
def test_notes_and_figures_are_told(name):
    study = STUDIES[name]
    assert study.notes
    assert all(note.endswith(".") for note in study.notes)
    assert all(figure.caption and figure.paper for figure in study.figures)
    assert bool(study.figures) == ("figure" in name)


# Small runs, from data to picture.


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("smoothing") / "results")


def done(study, store):
    """The results of a study, with all its runs carried out."""
    results = Results(study, store)
    for run in results.planned():
        assert execute(run, store, "cpu").kind == "finished"
    return results


def small(name, rows=(), columns=()):
    study = study_of(name).at_scale("smoke").with_changes({"recipe.epochs": 2}).with_seeds(1)
    return study.only(rows, columns)


@pytest.mark.parametrize(
    ("name", "rows", "columns", "axes"),
    [
        ("figure1", (), (), 1),
        ("figure2", (), ("0.0", "0.4"), 2),
        ("figure3", (), (), 2),
        ("figure4", (), (), 3),
        ("figure6", (), ("0.0", "0.4"), 1),
        ("figure7", (), (), 9),
        ("figure8", (), (), 8),
        ("figure9", (), (), 2),
    ],
)
def test_figures_are_drawn_from_stored_runs(name, rows, columns, axes, store):
    study = small(name) if not study_of(name).cells else small(name, rows, columns)
    results = done(study, store)
    for figure in study.figures:
        picture = figure.draw(results)
        assert isinstance(picture, Picture)
        assert len(picture.axes) == axes
        assert len(png(picture, dpi=40)) > 1000


def test_figure_2_shows_the_stored_accuracies(store):
    results = done(small("figure2", (), ("0.0", "0.4")), store)
    ax = results.study.figures[0].draw(results).axes[0]
    lines = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
    for method in ("LS", "FC", "BC"):
        for alpha, accuracy in lines[method]:
            cell = results.study.cell(method, f"α = {alpha:.1f}", "CIFAR-100")
            assert accuracy == pytest.approx(results.values(cell, "test_accuracy")[0])
    assert len(lines["LS"]) == 2


@pytest.mark.parametrize(
    ("name", "rows"), [("table3", ()), ("table4", ()), ("table5", ("cifar-10-resnet-32",)), ("table7", ())]
)
def test_tables_have_their_values(name, rows, store):
    results = done(small(name, rows), store)
    for cell in results.study:
        for value in results.study.values:
            (number,) = results.values(cell, value.name).values()
            assert 0 <= number <= 1
    if name == "table4":
        assert len({results.values(cell, "test_ece100")[0] for cell in results.study}) == 7


@pytest.mark.parametrize("name", [name for name, study in STUDIES.items() if study.figures and study.cells])
def test_figures_say_what_is_missing(name, tmp_path):
    study = STUDIES[name].at_scale("smoke")
    for figure in study.figures:
        with pytest.raises(InputError, match=f"{name}: no "):
            figure.draw(Results(study, Store(tmp_path / "empty")))


def test_half_finished_figures_are_drawn(tmp_path):
    study = small("figure8")
    store = Store(tmp_path / "half")
    done(dataclasses.replace(study, cells=study.cells[:1]), store)
    # At this size both networks are the same one, so that a run of each row of panels is there.
    assert len(study.figures[0].draw(Results(study, store)).axes) == 2


# Figure 5.


def optimum(run, alpha, strength):
    """The separator's offset by another optimiser; two weight vectors of equal size share the penalty."""
    data = load_data(run)
    x = np.column_stack([data.train.x.astype(float), np.ones(len(data.train))])
    target = (1 - alpha) * data.train.y + alpha / 2

    def loss(w):
        f = x @ w
        gap = 1 / (1 + np.exp(-f)) - target
        value = (np.logaddexp(0, f) - target * f).mean() + strength / 4 * (w @ w)
        return value, x.T @ gap / len(x) + strength / 2 * w

    w = minimize(loss, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}).x
    return -w[2] / (w[0] + w[1])


def test_figure_5_finds_the_optimum_and_draws_it(store):
    study = study_of("figure5").at_scale("smoke").with_changes({"data.n": 500, "recipe.epochs": 250})
    study = study.with_seeds(1).only(rows=["ls-0.4", "ls-0.8", "l2-1", "l2-0.1"])
    results = done(study, store)
    for cell in study:
        run = cell.settings
        expected = optimum(run, run.params.get("alpha", 0.0), run.recipe["weight_decay"])
        assert results.values(cell, "separator_offset")[0] == pytest.approx(expected, abs=0.01)
    picture = study.figures[0].draw(results)
    labels = [[line.get_label() for line in ax.get_lines()] for ax in picture.axes]
    assert labels == [["optimum", "α = 0.4", "α = 0.8"], ["optimum", "λ = 0.1", "λ = 1"]]


@pytest.mark.slow
def test_figure_5_offsets(store):
    # About what the figure shows; its sample is not known, and the first offset varies most.
    drawn = {"0.0": (-0.46, 0.06), "0.1": (-0.13, 0.02), "0.4": (-0.07, 0.02), "0.8": (-0.05, 0.02)}
    study = study_of("figure5").with_seeds(1).only(rows=[f"ls-{alpha}" for alpha in drawn])
    results = done(study, store)
    for cell, (alpha, (offset, tolerance)) in zip(study, drawn.items(), strict=True):
        found = results.values(cell, "separator_offset")[0]
        assert found == pytest.approx(offset, abs=tolerance)
        assert found == pytest.approx(optimum(cell.settings, float(alpha), 0.0), abs=1e-4)
