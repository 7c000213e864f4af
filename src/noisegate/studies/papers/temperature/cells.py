"""Collier et al. 2020, Analysis of Softmax Approximation for Deep Classifiers under Input-Dependent Label Noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noisegate.studies.papers.numbers import table
from noisegate.studies.papers.temperature import laptop
from noisegate.studies.papers.temperature.numbers import TABLE1, TABLE3, TABLE4, TABLE5, TABLE6
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Cell, Figure, Number, Selection, Smoke, Study, Value

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
