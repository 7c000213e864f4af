"""The catalogue of the Logistic-Normal paper: its numbers, its protocol, and runs at smoke size."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from noisegate import networks, noise
from noisegate.data.registry import lookup
from noisegate.errors import InputError
from noisegate.studies import papers
from noisegate.studies.execute import execute
from noisegate.studies.papers.ln import cells as ln
from noisegate.studies.papers.ln import figures, studies
from noisegate.studies.results import Results
from noisegate.studies.store import Store
from noisegate.studies.study import signature_accepts, slug

STUDIES = {study.name: study for study in studies.STUDIES}
TABLES = [name for name in STUDIES if "table" in name]
SYMMETRIC, ASYMMETRIC = "Symmetric Noise Rate", "Asymmetric Noise Rate"
METHODS = ["CE", "Bi-tempered", "GCE", "NAN", "Forward", "Het", "Het-τ", "Het-τ-Σ_full", "LN"]


def cell(name, row, column, group=""):
    found = STUDIES[name].cell(row, column, group)
    assert found is not None
    return found


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("ln-table1-mnist", "CE", "No Noise 0%", "No Noise"), (99.27, 0.07, "")),
        (("ln-table1-mnist", "GCE", "Symmetric 20%", SYMMETRIC), (98.85, 0.18, "bold")),
        (("ln-table1-mnist", "LN", "Symmetric 80%", SYMMETRIC), (60.15, 5.01, "")),
        (("ln-table1-mnist", "LN", "Asymmetric 40%", ASYMMETRIC), (96.54, 1.20, "bold")),
        (("ln-table1-mnist", "Het-τ-Σ_full", "No Noise 0%", "No Noise"), (99.25, 0.15, "bold")),
        (("ln-table1-cifar10", "CE", "Asymmetric 40%", ASYMMETRIC), (71.89, 1.67, "")),
        (("ln-table1-cifar10", "Het-τ-Σ_full", "Symmetric 60%", SYMMETRIC), (44.20, 3.05, "")),
        (("ln-table1-cifar10", "GCE", "Asymmetric 10%", ASYMMETRIC), (88.02, 0.20, "bold")),
        (("ln-table1-cifar100", "NAN", "Symmetric 80%", SYMMETRIC), (24.00, 0.59, "bold")),
        (("ln-table1-cifar100", "LN", "Asymmetric 30%", ASYMMETRIC), (64.07, 0.77, "bold")),
        (("ln-table1-cifar100", "Het-τ", "Symmetric 80%", SYMMETRIC), (7.31, 0.37, "")),
        (("ln-table2", "Forward", "Worst", "CIFAR-10N"), (58.91, 0.57, "")),
        (("ln-table2", "NAN", "CIFAR-100N"), (50.00, 0.72, "bold")),
        (("ln-table2", "Het-τ-Σ_full", "Clothing1M"), (72.41, 0.15, "bold")),
        (("ln-table3", "Isotropic", "CIFAR-10N"), (71.12, 1.85, "")),
        (("ln-table3", "Full, without dummy", "CIFAR-100N"), (26.31, 1.43, "")),
    ],
)
def test_numbers_are_the_papers(place, expected):
    number = cell(*place).paper["test_accuracy"]
    assert (number.mean, number.std, number.mark) == expected


@pytest.mark.parametrize(
    ("name", "columns", "bold"),
    [
        ("ln-table1-mnist", 9, 11),
        ("ln-table1-cifar10", 9, 16),
        ("ln-table1-cifar100", 9, 22),
        ("ln-table2", 7, 13),
    ],
)
def test_tables_are_complete(name, columns, bold):
    study = STUDIES[name]
    assert study.rows == METHODS
    assert len(study.columns) == columns
    assert len(study.cells) == columns * 9 == sum(len(c.paper) for c in study)
    assert sum(c.paper["test_accuracy"].mark == "bold" for c in study) == bold
    assert len({c.settings.key for c in study}) == len(study.cells)


@pytest.mark.parametrize("name", TABLES)
def test_the_best_of_a_column_is_bold(name):
    # An independent check of marks against means.
    study = STUDIES[name]
    for group, column in study.columns:
        numbers = [study.cell(row, column, group).paper["test_accuracy"] for row in study.rows]
        assert max(numbers, key=lambda number: number.mean).mark == "bold"


# -- hyper-parameters ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("ln-table1-mnist", "Het-τ", "Symmetric 40%", SYMMETRIC), {"temperature": 20.0}),
        (("ln-table1-mnist", "LN", "Symmetric 60%", SYMMETRIC), {"temperature": 0.5, "min_scale": 0.1}),
        (("ln-table1-mnist", "LN", "Asymmetric 10%", ASYMMETRIC), {"temperature": 1.0, "min_scale": 0.1}),
        (("ln-table1-mnist", "Bi-tempered", "Asymmetric 20%", ASYMMETRIC), {"t1": 0.7, "t2": 4.0}),
        (("ln-table1-mnist", "GCE", "No Noise 0%", "No Noise"), {"q": 0.3}),
        (("ln-table1-cifar10", "Het-τ-Σ_full", "Symmetric 60%", SYMMETRIC), {"temperature": 10.0, "rank": 2}),
        (("ln-table1-cifar10", "NAN", "Asymmetric 30%", ASYMMETRIC), {"sigma": 0.1}),
        (("ln-table1-cifar100", "LN", "Asymmetric 30%", ASYMMETRIC), {"temperature": 0.5, "min_scale": 1.0}),
        (("ln-table1-cifar100", "Het-τ-Σ_full", "Symmetric 80%", SYMMETRIC), {"temperature": 1.0, "rank": 1}),
        (("ln-table2", "LN", "Aggregate", "CIFAR-10N"), {"temperature": 1.0, "min_scale": 1.0}),
        (("ln-table2", "LN", "Clothing1M"), {"temperature": 1.0, "min_scale": 1.0, "smoothing": 0.1}),
        (("ln-table2", "Bi-tempered", "CIFAR-100N"), {"t1": 0.5, "t2": 1.1}),
        (("ln-table2", "GCE", "Random 2", "CIFAR-10N"), {"q": 0.7}),
        (("ln-table2", "Forward", "CIFAR-100N"), {"percentile": 99.9}),
        (("ln-table1-mnist", "Forward", "Symmetric 20%", SYMMETRIC), {"percentile": 97.0}),
    ],
)
def test_chosen_parameters_are_the_papers(place, expected):
    params = dict(cell(*place).settings.params)
    if cell(*place).settings.method.startswith("het"):
        assert (params.pop("n_samples"), params.pop("n_samples_eval")) == (1000, 1000)
    assert params == expected


@pytest.mark.parametrize("name", TABLES)
def test_the_chosen_point_is_on_its_grid(name):
    for c in STUDIES[name]:
        searched = c.settings.method not in ("ce", "forward", "het")
        assert bool(c.search) is searched
        assert c.settings.key in {candidate.key for candidate in c.candidates()}


def test_grid_sizes():
    def sizes(name, column, group=""):
        return [len(cell(name, row, column, group).candidates()) for row in METHODS]

    assert sizes("ln-table1-mnist", "Symmetric 20%", SYMMETRIC) == [1, 9, 5, 5, 1, 1, 5, 15, 9]
    assert sizes("ln-table1-cifar10", "Symmetric 20%", SYMMETRIC) == [1, 9, 5, 5, 1, 1, 5, 15, 6]
    assert sizes("ln-table2", "Clothing1M") == [1, 9, 5, 5, 1, 1, 5, 15, 6]
    assert [len(c.candidates()) for c in STUDIES["ln-table3"]] == [3, 3, 6, 6, 6, 6, 6, 6, 6, 6]
    for name in TABLES:
        select = STUDIES[name].select
        assert (select.metric, select.seeds) == ("validation_accuracy", "first")


# -- protocol --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_five_seeds_last_weights_and_welch(name):
    study = STUDIES[name]
    assert (study.seeds, study.bold, [v.name for v in study.values]) == (5, "welch", ["test_accuracy"])
    assert study.notes
    for c in study:
        full = c.settings.full()
        assert full["validation"] == ("own" if full["data"]["name"] == "clothing1m" else 0.1)
        assert full["balanced"] is (full["data"]["name"] == "clothing1m")
        assert full["recipe"]["keep"] == "last"
        assert full["recipe"]["patience"] is None


def test_recipes():
    wanted = {
        "ln-table1-mnist": ("lenet5", "adam", 1e-3, 256, 100, 0.0, "constant", "none", 0, False),
        "ln-table1-cifar10": ("wrn-28-2", "nesterov", 0.01, 128, 300, 5e-4, "constant", "auto", 2, True),
        "ln-table1-cifar100": ("wrn-28-2", "nesterov", 0.01, 128, 300, 5e-4, "constant", "auto", 2, True),
    }
    fields = (
        "optimizer",
        "lr",
        "batch_size",
        "epochs",
        "weight_decay",
        "schedule",
        "normalize",
        "crop",
        "flip",
    )
    for name, expected in wanted.items():
        for c in STUDIES[name]:
            full = c.settings.full()
            assert (full["network"], *(full["recipe"][f] for f in fields)) == expected
            assert full["recipe"]["decay_norm_and_bias"] is True
    assert cell("ln-table1-mnist", "CE", "No Noise 0%", "No Noise").settings.full()["recipe"]["eps"] == 1e-7
    assert cell("ln-table2", "CE", "Worst", "CIFAR-10N").settings.recipe == ln.CIFAR10.recipe


def test_clothing1m_starts_from_imagenet():
    for row in METHODS:
        full = cell("ln-table2", row, "Clothing1M").settings.full()
        recipe = full["recipe"]
        assert (full["network"], full["data"]) == ("resnet50", {"name": "clothing1m", "size": 256})
        assert full["weights"].endswith(".safetensors")
        assert (recipe["lr"], recipe["milestones"], recipe["gamma"]) == (1e-3, [5], 0.1)
        assert (recipe["weight_decay"], recipe["batch_size"], recipe["epochs"]) == (1e-3, 32, 10)
    assert any("validation set" in note and "clean" in note for note in STUDIES["ln-table2"].notes)


@pytest.mark.parametrize(("name", "classes"), [("mnist", 10), ("cifar10", 10), ("cifar100", 100)])
def test_noise(name, classes):
    study = STUDIES[f"ln-table1-{name}"]
    noises = {c.column: c.settings.noise for c in study if c.row == "CE"}
    assert noises["No Noise 0%"] is None
    # Redrawn over all classes: the diagonal keeps rate / K.
    symmetric = noise.build(noises["Symmetric 60%"]).transition(classes)
    np.testing.assert_allclose(np.diag(symmetric), 0.4 + 0.6 / classes)
    asymmetric = noise.build(noises["Asymmetric 30%"]).transition(classes)
    assert (np.diag(asymmetric) < 1).sum() == {"mnist": 5, "cifar10": 5, "cifar100": 100}[name]
    if name == "cifar10":
        assert asymmetric[9, 1] == pytest.approx(0.3)
        assert any("truck" in note for note in study.notes)


def test_runs_are_shared_between_studies():
    def key(*place):
        return cell(*place).settings.key

    for column, place in (("CIFAR-10N", ("Worst", "CIFAR-10N")), ("CIFAR-100N", ("CIFAR-100N",))):
        assert key("ln-table3", "Full", column) == key("ln-table2", "LN", *place)
    table = key("ln-table1-cifar10", "LN", "Symmetric 40%", SYMMETRIC)
    assert table == key("ln-figure5", "λ = 0.5", "τ = 1")


def test_ablation():
    seen = {c.row: c.settings.full()["method"] for c in STUDIES["ln-table3"] if c.column == "CIFAR-10N"}
    assert [seen[row].get("covariance", "full") for row in seen] == [
        *("identity", "isotropic", "diagonal", "full", "full"),
    ]
    assert [seen[row].get("dummy_class", True) for row in seen] == [True, True, True, True, False]
    assert {c.settings.data["name"] for c in STUDIES["ln-table3"]} == {"cifar10n-worst", "cifar100n"}


def test_figures_look_at_what_they_draw():
    assert all(
        c.settings.evidence == ("test", "train", "validation") and c.settings.evaluate_every == 1
        for c in STUDIES["ln-figure4"]
    )
    assert [c.settings.noise["rate"] for c in STUDIES["ln-figure4"]] == [0.2, 0.4, 0.6, 0.8] * 2
    for name in ("ln-figure6", "ln-figure7"):
        assert all(c.settings.probes == ({"name": "label_terms"},) for c in STUDIES[name])
    assert len(STUDIES["ln-figure7"].cells) == 9
    for toy in ("moons", "circles"):
        for c in STUDIES[f"ln-figure3-{toy}"]:
            assert c.settings.network == "mlp-2000-2000"
            assert c.settings.recipe["batch_size"] == c.settings.data["n"]  # full batches


# -- everything can be built -----------------------------------------------------------------------


@pytest.mark.parametrize("scale", ["paper", "smoke"])
@pytest.mark.parametrize("name", list(STUDIES))
def test_settings_can_be_built(name, scale):
    study = STUDIES[name].at_scale(scale)
    for c in study:
        run = c.settings
        assert run.full()["method"]["name"] == run.method  # knows the method, its parameters and the recipe
        entry = lookup(run.data["name"])
        assert all(signature_accepts(entry.loader, option) for option in run.data if option != "name")
        if run.noise is not None:
            classes = 100 if run.data["name"] == "cifar100" else 10
            noise.build(run.noise).transition(2 if "figure3" in name else classes)
    shapes = {"mlp": (2,), "lenet5": (1, 28, 28), "wrn-28-2": (3, 32, 32), "resnet50": (3, 224, 224)}
    for network in {c.settings.network for c in study}:
        networks.build(network, shapes[network if network in shapes else "mlp"], 20)


def test_every_name_can_be_picked():
    assert slug("Het-τ-Σ_full") == "het-tau-sigma-full"
    study = papers.get("ln-table1-cifar100").only(
        rows=["het-tau-sigma-full", "ln"], columns=["asymmetric-40", "no-noise-0"]
    )
    assert [(c.row, c.column) for c in study] == [
        *(("Het-τ-Σ_full", "No Noise 0%"), ("Het-τ-Σ_full", "Asymmetric 40%")),
        *(("LN", "No Noise 0%"), ("LN", "Asymmetric 40%")),
    ]


def test_smoke_size_trains_on_little():
    for name, study in STUDIES.items():
        for c in study.at_scale("smoke"):
            run = c.settings
            assert run.weights is None
            assert run.params.get("n_samples", 16) == 16
            if "figure3" not in name:
                assert (run.data, run.rows) == ({"name": "digits"}, 400)
                assert run.recipe["epochs"] <= 12
            if name == "ln-table2":
                assert run.noise is not None


# -- closed forms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("r", [0.1, 0.9, 1.7, 4.0])
def test_figure_2_is_the_minimum_over_the_scale(lam, r):
    # sigma = c^2 + lambda; the loss of equation 21 is minimised over c numerically.
    def loss(c):
        sigma = c * c + lam
        return r * r / (2 * sigma**2) + np.log(sigma)

    c = minimize_scalar(loss, bounds=(0, 3), method="bounded", options={"xatol": 1e-10}).x
    assert figures.label_term(np.array([r]), lam)[0] == pytest.approx(r * r / (c * c + lam) ** 2, rel=1e-4)


def test_figure_2_draws_a_line_for_every_lambda():
    (figure,) = STUDIES["ln-figure2"].figures
    (ax,) = figure.draw(None).axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    x, y = lines["λ = 2"].get_data()
    assert y[np.argmin(abs(x - 1))] == pytest.approx(0.25)
    assert y[-1] == 1.0


def test_figure_1_is_a_normal_on_both_sides():
    from scipy.stats import multivariate_normal

    targets = np.array([[5.7, 0.0], [0.0, 5.7], [-5.7, -5.7]])
    residual = targets[0] - figures.MEAN
    unit = residual / np.linalg.norm(residual)
    # Equation 7: the standard deviation along the residual is its length; lambda across.
    across = np.eye(2) - np.outer(unit, unit)
    covariance = np.outer(residual, residual) + figures.LAMBDA**2 * across
    normal = multivariate_normal(figures.MEAN, covariance)
    z = np.array([[0.5, 1.0], [5.0, -0.5], [-2.0, 3.0]])
    s = np.exp(np.c_[z, np.zeros(3)])
    s /= s.sum(1, keepdims=True)
    expected = normal.logpdf(z) - np.log(s).sum(1)
    np.testing.assert_allclose(figures._log_density(targets, s), expected, rtol=1e-9)
    # The line that holds half of the mass: the squared Mahalanobis distance is the median of chi-square(2).
    line = figures._ellipse(targets, 0.5) - np.array(figures.MEAN)
    distance = np.einsum("ni,ij,nj->n", line, np.linalg.inv(covariance), line)
    np.testing.assert_allclose(distance, 2 * np.log(2))
    left, right, *_ = STUDIES["ln-figure1"].figures[0].draw(None).axes
    assert left.get_title(loc="left").startswith("Logits")
    assert right.get_title(loc="left").startswith("Probabilities")


# -- runs at smoke size ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ln") / "results"


def run_all(study, folder):
    results = Results(study.at_scale("smoke").with_seeds(1), Store(folder))
    for run in results.planned():
        execute(run, results.store, "cpu")
        assert results.store.result(run) is not None, results.store.failure(run)
    return results


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("ln-table1-cifar100", ["asymmetric-20"]),
        ("ln-table2", ["clothing1m"]),
        ("ln-table3", ["cifar-100n"]),
    ],
)
def test_smoke_table(folder, name, columns):
    results = run_all(STUDIES[name].only(columns=columns), folder)
    assert len(results.study.cells) == (5 if name == "ln-table3" else 9)
    for c in results.study:
        (accuracy,) = results.values(c, "test_accuracy").values()
        assert 0 < accuracy < 1
        assert "validation_accuracy" in results.results(c)[0].metrics


def test_smoke_boundaries(folder):
    results = run_all(STUDIES["ln-figure3-moons"], folder)
    (figure,) = results.study.figures
    axes = figure.draw(results).axes
    ce, ln_ = results.study.cells
    # What the paper's figure is about: CE repeats more wrong labels than LN.
    memorised = {c.row: results.values(c, "train_memorised")[0] for c in (ce, ln_)}
    assert memorised["CE"] > memorised["LN"] + 0.2
    accuracy = results.values(ce, "test_accuracy")[0]
    assert axes[0].get_title(loc="left") == f"CE: {accuracy:.1%} of clean test points"
    assert len(axes) == 2


def test_smoke_evolution(folder):
    results = run_all(STUDIES["ln-figure4"].only(columns=["symmetric-20", "symmetric-80"]), folder)
    axes = results.study.figures[0].draw(results).axes
    assert [ax.get_title(loc="left")[:5] for ax in axes] == ["Het-τ", "LN", "Het-τ", "LN: r"]
    assert [len(ax.get_lines()) for ax in axes] == [2, 2, 4, 4]
    c = results.study.cell("LN", "Symmetric 80%")
    epochs = results.results(c)[0].history[-1]
    x, y = axes[1].get_lines()[1].get_data()
    assert list(x) == list(range(1, 13))
    assert list(y) == [epoch["validation_clean_accuracy"] for epoch in epochs]
    dashed = axes[3].get_lines()[3]
    assert dashed.get_linestyle() == "--"
    assert list(dashed.get_ydata()) == [epoch["train_memorised"] for epoch in epochs]


def test_smoke_sensitivity(folder):
    results = run_all(STUDIES["ln-figure5"].only(rows=["0.5", "1"], columns=["tau-0.1", "tau-1"]), folder)
    (ax,) = results.study.figures[0].draw(results).axes
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines) == ["λ = 0.5", "λ = 1"]
    x, y = lines["λ = 1"].get_data()
    assert list(x) == [0.1, 1.0]
    assert y[1] == results.values(results.study.cell("λ = 1", "τ = 1"), "test_accuracy")[0]


def areas(ax):
    """The area under each histogram over the logarithm."""
    return {
        bars.patches[0].get_label(): sum(
            b.get_height() * np.log10((b.get_x() + b.get_width()) / b.get_x()) for b in bars.patches
        )
        for bars in ax.containers
    }


def test_smoke_histograms(folder):
    results = run_all(STUDIES["ln-figure6"], folder)
    axes = results.study.figures[0].draw(results).axes
    assert len(axes) == 3
    for ax in axes:
        assert areas(ax) == pytest.approx({"right labels": 1.0, "wrong labels": 1.0}, rel=1e-3)
    # The thresholds: none with I, lambda^2 under I, one under Sigma.
    marks = [[line.get_xdata()[0] for line in ax.get_lines()] for ax in axes]
    assert marks == [[], [0.25], [1.0]]
    identity, learnt = (results.arrays(c)[0] for c in results.study)
    np.testing.assert_allclose(identity["label_term_learnt"], identity["label_term_identity"], rtol=1e-5)
    assert not np.allclose(learnt["label_term_learnt"], learnt["label_term_identity"], rtol=0.1)


def test_smoke_noise_types(folder):
    study = STUDIES["ln-figure7"]
    results = run_all(study.only(columns=["cifar-10n-worst", "mnist-symmetric-40"]), folder)
    mnist, kinds = (figure.draw(results) for figure in results.study.figures)
    assert [ax.get_title(loc="left") for ax in mnist.axes] == ["with the learnt covariance", "without it"]
    assert len(kinds.axes) == 3
    limits = {ax.get_xlim() for ax in mnist.axes}
    assert len(limits) == 1


@pytest.mark.parametrize("name", [f"ln-figure{n}" for n in ("3-moons", "3-circles", "4", "5", "6", "7")])
def test_figures_say_what_is_missing(name, tmp_path):
    study = STUDIES[name].at_scale("smoke")
    for figure in study.figures:
        with pytest.raises(InputError, match="no finished run"):
            figure.draw(Results(study, Store(tmp_path / "none")))
