"""Englesson et al. 2023, Logistic-Normal Likelihoods for Heteroscedastic Label Noise in Classification."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from noisegate.studies.papers.ln import laptop
from noisegate.studies.papers.ln.numbers import (
    CHOSEN_CIFAR10,
    TABLE3,
)
from noisegate.studies.papers.numbers import table
from noisegate.studies.settings import RunSettings, Settings
from noisegate.studies.study import Cell, Number, Smoke

if TYPE_CHECKING:
    pass

# The methods in the paper's order: our name, and the parameters that tables 4 to 6 list for them.
METHODS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "CE": ("ce", ()),
    "Bi-tempered": ("bi-tempered", ("t1", "t2")),
    "GCE": ("gce", ("q",)),
    "NAN": ("nan", ("sigma",)),
    "Forward": ("forward", ()),
    "Het": ("het", ()),
    "Het-τ": ("het-tau", ("temperature",)),
    "Het-τ-Σ_full": ("het-full", ("temperature", "rank")),
    "LN": ("ln", ("temperature", "min_scale")),
}

# Appendix B.2; on MNIST the search for LN takes in λ = 0.1 too.
TEMPERATURES = (0.1, 0.5, 1.0, 10.0, 20.0)
SEARCH: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "Bi-tempered": {"t1": (0.5, 0.7, 0.9), "t2": (1.1, 2.0, 4.0)},
    "GCE": {"q": (0.1, 0.3, 0.5, 0.7, 0.9)},
    "NAN": {"sigma": (0.1, 0.2, 0.5, 0.75, 1.0)},
    "Het-τ": {"temperature": TEMPERATURES},
    "Het-τ-Σ_full": {"temperature": TEMPERATURES, "rank": (1, 2, 4)},
    "LN": {"temperature": (0.1, 0.5, 1.0), "min_scale": (0.5, 1.0)},
}
SEARCH_MNIST = {**SEARCH, "LN": {"temperature": (0.1, 0.5, 1.0), "min_scale": (0.1, 0.5, 1.0)}}

SAMPLES = {"n_samples": 1000, "n_samples_eval": 1000}

# -- data, networks, recipes: appendix B.1 ---------------------------------------------------------

MNIST = RunSettings(
    data={"name": "mnist"},
    method="ce",
    network="lenet5",
    recipe=laptop.DIGITS,
)
CIFAR10 = RunSettings(
    data={"name": "cifar10"},
    method="ce",
    network="wrn-28-2",
    evaluate_every=5,
    recipe={
        **{"epochs": 300, "batch_size": 128, "optimizer": "nesterov", "momentum": 0.9, "lr": 0.01},
        **{"weight_decay": 5e-4, "crop": 2, "flip": True, "precision": "bf16"},
    },
)
CIFAR100 = CIFAR10.replace(data={"name": "cifar100"})
CLOTHING = RunSettings(
    data={"name": "clothing1m", "size": 256},
    method="ce",
    network="resnet50",
    weights="weights/resnet50-imagenet.safetensors",
    validation="own",
    balanced=True,
    recipe={
        **{"epochs": 10, "batch_size": 32, "optimizer": "nesterov", "momentum": 0.9, "lr": 1e-3},
        **{"schedule": "step", "milestones": (5,), "gamma": 0.1, "weight_decay": 1e-3},
        **{"crop_to": 224, "flip": True, "precision": "tf32"},
    },
)

# With as many classes as this a 97th percentile lies outside of the class that T is read for.
RARE = {"cifar100", "cifar100n", "clothing1m"}


def symmetric(rate: float) -> Settings:
    """Section 5.4: redrawn over all classes, the right one among them."""
    return {"name": "symmetric", "rate": rate, "include_self": True}


def asymmetric(rate: float, mapping: str) -> Settings:
    """Section 5.4: taken for one similar class."""
    return {"name": "asymmetric", "rate": rate, "mapping": mapping}


# -- tables 1 and 2: test accuracy in percent ------------------------------------------------------


ABLATION: Mapping[str, Settings] = {
    "Identity": {"covariance": "identity"},
    "Isotropic": {"covariance": "isotropic"},
    "Diagonal": {"covariance": "diagonal"},
    "Full": {},
    "Full, without dummy": {"dummy_class": False},
}

# -- tables 4, 5 and 6: the hyper-parameters the paper chose ---------------------------------------


def chosen(text: str, columns: Sequence[str]) -> dict[str, dict[str, dict[str, Any]]]:
    """Parameters by row and column label, under our names; methods without any have none."""
    found: dict[str, dict[str, dict[str, Any]]] = {row: {c: {} for c in columns} for row in METHODS}
    for line in text.strip().splitlines():
        row, _, values = line.partition("|")
        names = METHODS[row.strip()][1]
        for column, value in zip(columns, values.split(), strict=True):
            pairs = zip(names, value.split(","), strict=True)
            found[row.strip()][column] = {n: int(v) if n == "rank" else float(v) for n, v in pairs}
    return found


# -- cells -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table: its labels, and the settings that its methods share."""

    label: str
    settings: RunSettings
    group: str = ""


def synthetic_columns(base: RunSettings, mapping: str) -> list[Column]:
    """The nine columns of table 1."""
    return [
        Column("No Noise 0%", base, "No Noise"),
        *(
            Column(f"Symmetric {rate:.0%}", base.replace(noise=symmetric(rate)), "Symmetric Noise Rate")
            for rate in (0.2, 0.4, 0.6, 0.8)
        ),
        *(
            Column(
                f"Asymmetric {rate:.0%}",
                base.replace(noise=asymmetric(rate, mapping)),
                "Asymmetric Noise Rate",
            )
            for rate in (0.1, 0.2, 0.3, 0.4)
        ),
    ]


def natural(labels: str) -> RunSettings:
    """CIFAR with labels by people: "cifar10n-random1", ..., "cifar100n"."""
    return CIFAR10.replace(data={"name": labels})


NATURAL_COLUMNS = [
    Column("Random 1", natural("cifar10n-random1"), "CIFAR-10N"),
    Column("Random 2", natural("cifar10n-random2"), "CIFAR-10N"),
    Column("Random 3", natural("cifar10n-random3"), "CIFAR-10N"),
    Column("Aggregate", natural("cifar10n-aggregate"), "CIFAR-10N"),
    Column("Worst", natural("cifar10n-worst"), "CIFAR-10N"),
    Column("CIFAR-100N", natural("cifar100n")),
    Column("Clothing1M", CLOTHING),
]


def method_settings(base: RunSettings, row: str, params: Settings) -> RunSettings:
    """A method of the tables on some data, with what the paper's tables of hyper-parameters leave out."""
    method, own = METHODS[row][0], dict(params)
    if method.startswith("het"):
        own |= SAMPLES
    if method == "forward":
        own["percentile"] = 99.9 if base.data["name"] in RARE else 97.0
    if method == "ln" and base.data["name"] == "clothing1m":
        own["smoothing"] = 0.1
    return base.replace(method=method, params=own)


def comparison(
    columns: Sequence[Column],
    numbers: str,
    hyperparameters: str,
    search: Mapping[str, Mapping[str, Sequence[Any]]],
) -> tuple[Cell, ...]:
    """The cells of table 1 or 2: nine methods with the paper's numbers, its choices and its grids."""
    labels = [column.label for column in columns]
    paper, choices = table(labels, numbers), chosen(hyperparameters, labels)
    return tuple(
        Cell(
            row=row,
            column=column.label,
            group=column.group,
            settings=method_settings(column.settings, row, choices[row][column.label]),
            paper=_accuracy(paper[row][column.label]),
            search=search.get(row, {}),
        )
        for row in METHODS
        for column in columns
    )


def _accuracy(number: Number) -> dict[str, Number]:
    return {"test_accuracy": number}


def ablation_cells() -> tuple[Cell, ...]:
    """Table 3: LN with other covariances, and without the dummy class."""
    paper = table(["CIFAR-10N", "CIFAR-100N"], TABLE3)
    data = {"CIFAR-10N": natural("cifar10n-worst"), "CIFAR-100N": natural("cifar100n")}
    cells = []
    for row, change in ABLATION.items():
        # An identity covariance has no λ.
        kept = ("temperature",) if row == "Identity" else ("temperature", "min_scale")
        params = {**dict.fromkeys(kept, 0.5), **change}
        search = {name: SEARCH["LN"][name] for name in kept}
        for column, base in data.items():
            settings = method_settings(base, "LN", params)
            cell = Cell(
                row=row, column=column, settings=settings, paper=_accuracy(paper[row][column]), search=search
            )
            cells.append(cell)
    return tuple(cells)


# -- figures ---------------------------------------------------------------------------------------

TOYS = {
    "moons": ("Two Moons", {"name": "moons", "n": 200, "n_test": 1000, "noise": 0.2}),
    "circles": ("Circles", {"name": "circles", "n": 200, "n_test": 1000, "noise": 0.1, "factor": 0.5}),
}
SIGMA_I, SIGMA_THETA = "Σ_train = I", "Σ_train = Σ_θ"
FIGURE5_TAU, FIGURE5_LAMBDA = (0.1, 0.5, 1.0, 2.0), (0.1, 0.5, 1.0, 2.0)


def toy_cells(name: str) -> tuple[Cell, ...]:
    """Figure 3: cross-entropy and LN in the plane."""
    column, data = TOYS[name]
    base = RunSettings(
        data=data,
        method="ce",
        network="mlp-2000-2000",
        noise={"name": "symmetric", "rate": 0.2, "include_self": False},
        recipe={"epochs": 2000, "batch_size": 200, "optimizer": "adam", "lr": 1e-4, "normalize": "none"},
        validation=None,
        evidence=("test", "train"),
        evaluate_every=100,
        probes=({"name": "boundary", "resolution": 150},),
    )
    params: dict[str, Settings] = {"CE": {}, "LN": {"temperature": 0.5, "min_scale": 0.5}}
    return tuple(
        Cell(row=row, column=column, settings=method_settings(base, row, params[row])) for row in params
    )


def evolution_cells() -> tuple[Cell, ...]:
    """Figure 4: the two methods of table 1, watched on clean labels of all parts."""
    columns = synthetic_columns(CIFAR10, "cifar10")[1:5]
    labels = [column.label for column in synthetic_columns(CIFAR10, "cifar10")]
    choices = chosen(CHOSEN_CIFAR10, labels)
    return tuple(
        Cell(
            row=row,
            column=column.label,
            settings=method_settings(column.settings, row, choices[row][column.label]).replace(
                evidence=("test", "train", "validation"), evaluate_every=1
            ),
        )
        for row in ("Het-τ-Σ_full", "LN")
        for column in columns
    )


def sensitivity_cells() -> tuple[Cell, ...]:
    """Figure 5: temperatures and λ on CIFAR-10 with 40 % symmetric noise."""
    base = CIFAR10.replace(noise=symmetric(0.4))
    return tuple(
        Cell(
            row=f"λ = {lam:g}",
            column=f"τ = {tau:g}",
            settings=method_settings(base, "LN", {"temperature": tau, "min_scale": lam}),
        )
        for lam in FIGURE5_LAMBDA
        for tau in FIGURE5_TAU
    )


def term_cells(column: str, base: RunSettings, tau: float, lam: float) -> tuple[Cell, Cell]:
    """Figures 6 and 7: the label term of two networks, one without and one with a learnt covariance."""
    base = base.replace(probes=({"name": "label_terms"},))
    rows: dict[str, Settings] = {
        SIGMA_I: {"temperature": tau, "covariance": "identity"},
        SIGMA_THETA: {"temperature": tau, "min_scale": lam},
    }
    first, second = (
        Cell(row=row, column=column, settings=method_settings(base, "LN", params))
        for row, params in rows.items()
    )
    return first, second


def noise_type_cells() -> tuple[Cell, ...]:
    """Figure 7: τ and λ of tables 4 and 6; of MNIST the network with a learnt covariance alone."""
    return (
        *term_cells("Symmetric 20%", CIFAR10.replace(noise=symmetric(0.2)), 0.5, 0.5),
        *term_cells("CIFAR-10N Aggregate", natural("cifar10n-aggregate"), 1.0, 1.0),
        *term_cells("CIFAR-10N Random 2", natural("cifar10n-random2"), 1.0, 0.5),
        *term_cells("CIFAR-10N Worst", natural("cifar10n-worst"), 0.5, 0.5),
        term_cells("MNIST Symmetric 40%", MNIST.replace(noise=symmetric(0.4)), 1.0, 0.5)[1],
    )


# -- the size of smoke --------------------------------------------------------------------------

# Data whose labels come wrong by themselves: digits get symmetric noise of about that rate.
NATURAL_RATES = {
    **{"cifar10n-random1": 0.17, "cifar10n-random2": 0.18, "cifar10n-random3": 0.176},
    **{"cifar10n-aggregate": 0.09, "cifar10n-worst": 0.4, "cifar100n": 0.402, "clothing1m": 0.38},
}


def small(settings: RunSettings, epochs: int = 3) -> RunSettings:
    """A run on digits in place of one on pictures."""
    rate = NATURAL_RATES.get(settings.data["name"])
    noise = None if rate is None else {"name": "symmetric", "rate": rate, "include_self": False}
    settings = Smoke(noise=noise, epochs=epochs).apply(settings)
    if settings.noise is not None and settings.noise.get("mapping") == "cifar100":
        following = {str(i): (i + 1) % 10 for i in range(10)}
        settings = settings.replace(noise={**settings.noise, "mapping": following})
    if settings.method.startswith("het"):
        settings = settings.replace(params={**settings.params, "n_samples": 16, "n_samples_eval": 64})
    return settings


def small_toy(settings: RunSettings) -> RunSettings:
    """The same points with a network of a hundredth of the weights."""
    return settings.replace(
        network="mlp-200-200",
        recipe={**settings.recipe, "lr": 3e-3},
        probes=({"name": "boundary", "resolution": 60},),
    )


SMOKE = Smoke(data=None, change=small)
SMOKE_CURVES = Smoke(data=None, change=functools.partial(small, epochs=12))
