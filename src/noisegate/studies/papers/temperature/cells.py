"""Collier et al. 2020, Analysis of Softmax Approximation for Deep Classifiers under Input-Dependent Label Noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noisegate.studies.papers.numbers import table
from noisegate.studies.papers.temperature import laptop
from noisegate.studies.study import Cell, Figure, Number, RunSettings, Selection, Smoke, Study, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from noisegate.studies.results import Results

PAPER = "Collier et al. 2020, Softmax Approximation"

DATASETS = {"CIFAR-10": "cifar10", "MNIST": "mnist", "SVHN": "svhn"}

# Appendix D.
TEMPERATURES = (
    *(0.025, 0.05, 0.1, 0.2, 0.6, 1.0, 1.4, 1.8, 2.2),
    *(2.6, 3.0, 5.0, 10.0, 15.0, 20.0, 35.0, 50.0, 100.0),
)
SAMPLES = 1000
MENTORNET_GRID = {"lambda_2": (0.0, 0.5, 1.0, 2.0), "burn_in": (0, 5, 10)}
# Figures 1 and 6: the curves' labels are not in the text of the paper.
TRAINING_SAMPLES = (1, 10, 100, 1000)
RECIPE = {
    **{"optimizer": "adam", "lr": 1e-3, "eps": 1e-7, "batch_size": 128, "epochs": 1000},
    **{"patience": 5, "keep": "best", "monitor": "accuracy", "normalize": "none"},
}

# Section 5.1 and appendix C.
NOISES: Mapping[str, Mapping[str, Any] | None] = {
    "table1": {"name": "class-dependent", "rates": "normal"},
    "table3": None,
    "table4": {"name": "symmetric", "rate": 0.2, "include_self": True},
    "table5": {"name": "class-dependent", "rates": "reduced"},
    "table6": {"name": "class-dependent", "rates": "increased"},
}

# τ* in the headers of the tables, chosen on the validation set.
CHOSEN = {
    "table1": {"CIFAR-10": 5.0, "MNIST": 10.0, "SVHN": 5.0},
    "table3": {"CIFAR-10": 5.0, "MNIST": 3.0, "SVHN": 5.0},
    "table4": {"CIFAR-10": 35.0, "MNIST": 35.0, "SVHN": 5.0},
    "table5": {"CIFAR-10": 20.0, "MNIST": 5.0, "SVHN": 5.0},
    "table6": {"CIFAR-10": 10.0, "MNIST": 5.0, "SVHN": 5.0},
}

# -- the paper's numbers: LL, Acc, Acc_clean of CIFAR-10, of MNIST, of SVHN ------------------------

TABLE1 = """
Homoscedastic | -1.109‡ 0.692‡ 0.838‡          -0.714‡ 0.817* 0.993              -0.639‡ 0.836‡ 0.951‡
τ = 1.0       | -1.093‡ 0.695† 0.842‡          -0.713‡ **0.818** 0.993           -0.634‡ 0.837‡ 0.952‡
Ours τ = τ*   | **-1.067** **0.702** **0.853** **-0.710** **0.818** **0.994**    **-0.622** **0.839** **0.955**
Co-teaching   | -2.225‡ 0.696* 0.845†          -1.535‡ 0.817† 0.992†             -1.682‡ 0.835‡ 0.950†
MentorNet     | -2.116‡ 0.696† 0.843‡          -1.157‡ 0.817* 0.992†             -0.986‡ 0.836† 0.952*
Bootstrap     | -1.105‡ 0.697* 0.847*          -0.720‡ **0.818** **0.994**       -0.637‡ 0.838 **0.955**
"""

# LL and Acc on clean test labels.
TABLE3 = """
Homoscedastic | -0.410† 0.874          -0.019 0.994*             -0.154‡ 0.961†
τ = 1.0       | -0.408* 0.875          -0.018 0.994*             -0.156‡ 0.960‡
Ours τ = τ*   | **-0.390** **0.879**   **-0.017** **0.995**      **-0.143** **0.963**
"""

TABLE4 = """
Homoscedastic | -1.232‡ 0.683† 0.827‡          -0.893‡ **0.814**† 0.993*         -0.985‡ 0.780‡ 0.950‡
τ = 1.0       | -1.204† 0.689 0.836*           -0.891‡ **0.814*** 0.993†         -0.974‡ 0.781‡ 0.951‡
Ours τ = τ*   | **-1.186** 0.689 0.842         **-0.884** **0.814** **0.994**    **-0.962** 0.784 0.955
Co-teaching   | -2.325‡ **0.700**‡ **0.849**   -1.730‡ 0.813† 0.993†             -1.974‡ **0.785** **0.956**
MentorNet     | -2.320‡ 0.696* 0.846           -1.202‡ **0.814** 0.993*          -2.107‡ 0.784 0.955
Bootstrap     | -1.236‡ 0.689 0.836*           -0.898‡ **0.814*** **0.994**      -0.984‡ 0.782† 0.952‡
"""

TABLE5 = """
Homoscedastic | -0.829‡ 0.783 0.860*           -0.439‡ **0.907** 0.994           -0.443‡ 0.898‡ 0.956‡
τ = 1.0       | -0.811† 0.786 0.864            -0.438† **0.907*** 0.994*         -0.442‡ 0.898‡ 0.957‡
Ours τ = τ*   | **-0.796** 0.785 **0.865**     **-0.434** **0.907** **0.995**    **-0.430** **0.901** **0.960**
Co-teaching   | -1.329‡ **0.787** **0.865**    -0.791‡ 0.906* 0.994†             -0.905‡ 0.899* 0.959*
MentorNet     | -1.329‡ 0.781 0.864            -0.574‡ 0.906* 0.994†             -0.883‡ 0.897‡ 0.957‡
Bootstrap     | -0.823‡ 0.786 0.863            -0.441‡ **0.907** 0.994           -0.441‡ 0.900 0.959
"""

TABLE6 = """
Homoscedastic | -1.436‡ 0.583‡ 0.796‡          -1.074‡ 0.713 0.990†              -0.980‡ 0.743‡ 0.938‡
τ = 1.0       | -1.417‡ 0.588‡ 0.806†          -1.072‡ **0.714** 0.990*          -0.968‡ 0.744‡ 0.940‡
Ours τ = τ*   | **-1.383** **0.596** **0.818** **-1.067** **0.714** **0.991**    **-0.956** **0.748** **0.946**
Co-teaching   | -3.399‡ 0.591* 0.810           -2.310‡ 0.712‡ 0.989‡             -2.630‡ 0.739‡ 0.933‡
MentorNet     | -3.115‡ 0.583‡ 0.797‡          -1.156‡ 0.712‡ 0.990*             -1.007‡ 0.732‡ 0.944
Bootstrap     | -1.454‡ 0.586‡ 0.807†          -1.085‡ **0.714** **0.991**       -0.981‡ 0.746* **0.946**
"""

NOISY_VALUES = (
    Value(name="noisy_test_log_likelihood", title="LL", percent=False, digits=3),
    Value(name="noisy_test_accuracy", title="Acc", percent=False, digits=3),
    Value(name="test_accuracy", title="Acc_clean", percent=False, digits=3),
)
CLEAN_VALUES = (
    Value(name="test_log_likelihood", title="LL", percent=False, digits=3),
    Value(name="test_accuracy", title="Acc", percent=False, digits=3),
)

# -- runs ------------------------------------------------------------------------------------------


def het(temperature: float, samples: int = SAMPLES) -> tuple[str, dict[str, Any]]:
    """The heteroscedastic model; prediction always takes 1000 samples."""
    return "het-tau", {"temperature": temperature, "n_samples": samples, "n_samples_eval": SAMPLES}


def methods(chosen: float) -> dict[str, tuple[str, dict[str, Any]]]:
    """Rows of the tables: method and parameters, the temperature chosen for the dataset in "Ours"."""
    return {
        "Homoscedastic": ("ce", {}),
        "τ = 1.0": het(1.0),
        "Ours τ = τ*": het(chosen),
        "Co-teaching": ("co-teaching", {"noise_rate": "known", "gradual": 10}),
        "MentorNet": (
            "mentornet",
            {"noise_rate": "known", "lambda_2": 0.0, "burn_in": 5, "decay": 0.9},
        ),
        "Bootstrap": ("bootstrap", {"beta": 0.8, "kind": "hard"}),
    }


SEARCH: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "Ours τ = τ*": {"temperature": TEMPERATURES},
    "MentorNet": MENTORNET_GRID,
}


def settings(
    dataset: str, noise: Mapping[str, Any] | None, method: str, params: Mapping[str, Any]
) -> RunSettings:
    """A run of the paper: the nine-layer network, stopped early on noisy validation accuracy."""
    return RunSettings(
        data={"name": DATASETS[dataset]},
        method=method,
        params=params,
        noise=noise,
        network="cnn9",
        recipe=RECIPE,
        validation=10_000,
        noisy_test=noise is not None,
    )


def table_cells(name: str, numbers: str, values: tuple[Value, ...]) -> tuple[Cell, ...]:
    """The cells of a table, datasets as groups with the temperature that the paper chose as their column."""
    places = [(dataset, value.name) for dataset in DATASETS for value in values]
    paper = table([f"{dataset} {value}" for dataset, value in places], numbers)
    cells = []
    for row in paper:
        for dataset, chosen in CHOSEN[name].items():
            method, params = methods(chosen)[row]
            found: dict[str, Number] = {v.name: paper[row][f"{dataset} {v.name}"] for v in values}
            cells.append(
                Cell(
                    row=row,
                    column=f"paper's τ* = {chosen:g}",
                    group=dataset,
                    settings=settings(dataset, NOISES[name], method, params),
                    paper=found,
                    search=SEARCH.get(row, {}),
                )
            )
    return tuple(cells)


def figure_cells() -> tuple[Cell, ...]:
    """Every temperature with every number of training samples, and the homoscedastic model beside them."""
    noise, cells = NOISES["table1"], []
    for dataset in DATASETS:
        plain = settings(dataset, noise, "ce", {})
        cells.append(Cell(row="Homoscedastic", column="no τ", group=dataset, settings=plain))
        for samples in TRAINING_SAMPLES:
            for temperature in TEMPERATURES:
                run = settings(dataset, noise, *het(temperature, samples))
                column = f"τ = {temperature:g}"
                cells.append(Cell(row=f"S = {samples}", column=column, group=dataset, settings=run))
    return tuple(cells)


def smaller(run: RunSettings) -> RunSettings:
    """Fewer samples at prediction, and a burn-in that ends before training does."""
    less = {"n_samples_eval": 100, "burn_in": 1}
    return run.replace(params={**run.params, **{k: v for k, v in less.items() if k in run.params}})


# -- studies ---------------------------------------------------------------------------------------

NOTES = (
    "Batches of 128, same padding of the convolutions and Glorot-uniform weights are our choice; the paper "
    "gives none of them.",
    "Which training images are held out for validation, and all that is random, is drawn by the seed: runs of "
    "one seed see the same labels.",
    "Monte-Carlo samples are low-discrepancy points, randomised anew at every step, with fixed points at "
    "prediction; the paper draws independent ones.",
    "The heteroscedastic scale is softplus + 0.001, as in the authors' code.",
)
NOISY_NOTES = (
    "Redrawn labels come from all ten classes, the clean one included, in the test set too.",
    "Co-teaching and MentorNet are told the realised share of wrong training labels. Co-teaching predicts with "
    "the first of its two networks.",
    "The paper does not print the λ₂ and burn-in that it chose for MentorNet: 0 and 5 epochs are ours. "
    "--search goes through the paper's grid and chooses by noisy validation log-likelihood like the "
    "temperature; what the paper chose them by it does not say.",
    "Bootstrap is the hard kind, for which its own paper has the β = 0.8 given here; the kind is not named.",
)
SEARCH_NOTE = (
    "Without --search τ* is the paper's; --search chooses it by the mean noisy validation log-likelihood over "
    "all seeds."
)

TITLES = {
    "table1": "Heteroscedastic noise on half of the classes",
    "table3": "No added noise",
    "table4": "Uniform noise, 20 % of the labels redrawn",
    "table5": "Reduced heteroscedastic noise",
    "table6": "Increased heteroscedastic noise",
}


def table_study(name: str, numbers: str) -> Study:
    """A table of the paper, with its paired t-tests against "Ours"."""
    noisy = NOISES[name] is not None
    values = NOISY_VALUES if noisy else CLEAN_VALUES
    return Study(
        name=f"temperature-{name}",
        title=f"{TITLES[name]}: log-likelihood and accuracy",
        reference=f"{PAPER}, {name.replace('table', 'Table ')}",
        cells=table_cells(name, numbers, values),
        values=values,
        seeds=25,
        bold="best",
        stars_against="Ours τ = τ*",
        select=Selection(metric="validation_log_likelihood", seeds="all"),
        notes=(SEARCH_NOTE, *(NOISY_NOTES if noisy else ()), *NOTES),
        smoke=Smoke(change=smaller),
        laptop=laptop.TABLE,
    )


def draw_log_likelihood(results: Results) -> Picture:
    """Figure 1."""
    from noisegate.studies.papers.temperature.figures import log_likelihood

    return log_likelihood(results)


def draw_accuracy(results: Results) -> Picture:
    """Figure 6."""
    from noisegate.studies.papers.temperature.figures import accuracy

    return accuracy(results)


FIGURE_NOTES = (
    "The numbers of training samples, 1, 10, 100 and 1000, are ours: the text of the paper does not give those "
    "of its curves. Validation and test take 1000 samples throughout, as in the paper.",
    "Figures 1 and 6 share their runs; those with 1000 samples are those of Table 1, too.",
    "Redrawn labels come from all ten classes, the clean one included, in the test set too.",
    *NOTES,
)


def figure_studies() -> tuple[Study, ...]:
    """Figures 1 and 6."""
    first = Study(
        name="temperature-figure1",
        title="Noisy test log-likelihood against temperature, by number of training samples",
        reference=f"{PAPER}, Figure 1",
        cells=figure_cells(),
        values=NOISY_VALUES,
        seeds=25,
        bold="none",
        table=False,
        select=Selection(metric="validation_log_likelihood", seeds="all"),
        notes=FIGURE_NOTES,
        smoke=Smoke(change=smaller),
        laptop=laptop.FIGURE,
        figures=(
            Figure(
                name="figure1",
                draw=draw_log_likelihood,
                caption="Noisy test log-likelihood; mean over the seeds, with a band of one standard deviation.",
                paper="One panel a dataset, a curve for every number of training samples: low at small "
                "temperatures, best well above 1, lower again at large ones; over a wide range above the "
                "homoscedastic model, for every number of samples.",
            ),
        ),
    )
    second = Figure(
        name="figure6",
        draw=draw_accuracy,
        caption="Noisy test accuracy; mean over the seeds, with a band of one standard deviation.",
        paper="The same panels as in Figure 1 for accuracy, with curves of a similar shape.",
    )
    return first, dataclasses.replace(
        first,
        name="temperature-figure6",
        title="Noisy test accuracy against temperature, by number of training samples",
        reference=f"{PAPER}, Figure 6",
        figures=(second,),
    )


STUDIES: tuple[Study, ...] = (
    *figure_studies(),
    table_study("table1", TABLE1),
    table_study("table3", TABLE3),
    table_study("table4", TABLE4),
    table_study("table5", TABLE5),
    table_study("table6", TABLE6),
)
