"""Lukasik et al. 2020: does label smoothing mitigate label noise?

Studies of the CIFAR networks ask for the same runs wherever they can, with the same probes, so that
a run that serves several tables and figures is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from noisegate.studies.papers.smoothing import laptop
from noisegate.studies.papers.smoothing.numbers import TABLE2, TABLE3, TABLE4, TABLE5, TABLE7
from noisegate.studies.study import Cell, Figure, Number, RunSettings, Smoke, Study, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from noisegate.studies.results import Results

_PAPER = "Lukasik, Bhojanapalli, Menon, Kumar. Does label smoothing mitigate label noise? ICML 2020"

# -- the paper's numbers ---------------------------------------------------------------------------


# -- the protocol ----------------------------------------------------------------------------------

_NOISE = {"name": "symmetric", "rate": 0.2, "include_self": False}

_CIFAR_RECIPE = {
    "steps": 64_000,
    "batch_size": 128,
    "optimizer": "nesterov",
    "momentum": 0.9,
    "lr": 0.1,
    "schedule": "step",
    "milestones": (32_000, 48_000),
    "gamma": 0.1,
    "weight_decay": 1e-4,
    "crop": 4,
    "flip": True,
    "precision": "bf16",
}

_IMAGENET_RECIPE = {
    "steps": 32_768,
    "batch_size": 3500,
    "optimizer": "lars",
    "momentum": 0.9,
    "lr": 8.5,
    "schedule": "cosine",
    "warmup": 1830,
    "weight_decay": 2e-4,
    "decay_norm_and_bias": False,
    "crop_to": 224,
    "flip": True,
    "precision": "bf16",
}

# One step of the whole sample an epoch, at a constant rate: the separator ends within 1e-5 of the
# optimum. With the strongest penalty a rate of 1 would not settle.
_TOY_RECIPE = {
    "epochs": 2000,
    "batch_size": 10_000,
    "optimizer": "nesterov",
    "momentum": 0.95,
    "lr": 0.5,
    "normalize": "none",
}

_DATA = {"CIFAR-100": "cifar100", "CIFAR-10": "cifar10"}
_NETWORKS = {"ResNet-32": "resnet32", "ResNet-56": "resnet56"}
# Beaver, dolphin and otter; airplane, automobile and bird.
_CLASSES = {"CIFAR-100": (4, 30, 55), "CIFAR-10": (0, 1, 2)}

#: The sweep of figures 2 and 6.
ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
#: Figure 5.
TOY_ALPHAS = (0.0, 0.1, 0.4, 0.8)
TOY_STRENGTHS = (0.001, 0.01, 0.1, 1.0)

_DISTILLED: Mapping[str, Mapping[str, str]] = {
    "Vanilla distillation": {"teacher": "ce", "student": "ce"},
    "LS on teacher": {"teacher": "ls", "student": "ce"},
    "LS on student": {"teacher": "ce", "student": "ls"},
    "FC on teacher": {"teacher": "fc", "student": "ce"},
    "FC on student": {"teacher": "ce", "student": "fc"},
}

_SMEARED: Mapping[str, tuple[str, float]] = {
    "Baseline": ("ce", 0.0),
    "LS": ("ls", 0.1),
    "FC smoothing": ("fc", 0.1),
    "BC smoothing": ("bc", 0.1),
}

_ON_CIFAR = (
    'The 20 % wrong labels are drawn from the other classes: section 4.1 says only "uniformly chosen", the '
    "definition in section 2.2, the shares of table 3 and the caption of table 7 say other classes.",
    "Training on all 50,000 rows, and the accuracy at the end of training: the paper mentions no validation rows.",
    "Random crops are out of images padded by 4 black pixels, as in the code that the paper names for them. Inputs "
    "are standardised per channel, shortcuts have no parameters, batch norm takes in all 128 images, and weight "
    "decay is 1e-4 times every parameter in the gradient: our choices where the paper says no more.",
    "Forward correction is -log (T' softmax f)_y: equation 5 as printed, T f, would only scale the logits.",
    "Training in bf16 on a GPU (our choice; the paper's was on TPUs, which multiply so).",
)
_ALPHA_ZERO = "α = 0 is plain cross-entropy for every method, and one and the same run."
_ONE_SEED = "One seed: the paper shows one network; its runs are the first of the tables' ones."
_NO_BOLD = "No number is bold: the text of the paper that this was written from marks none."

# -- cells -----------------------------------------------------------------------------------------


def _smear(method: str, alpha: float) -> dict[str, Any]:
    """Method and parameters of ls, fc or bc; at alpha = 0 all of them are cross-entropy."""
    return {"method": method, "params": {"alpha": alpha}} if alpha else {"method": "ce", "params": {}}


def _cifar(dataset: str, network: str, **settings: Any) -> RunSettings:
    return RunSettings(
        data={"name": _DATA[dataset]},
        network=_NETWORKS[network],
        noise=_NOISE,
        recipe=_CIFAR_RECIPE,
        validation=None,
        **settings,
    )


def _smeared(dataset: str, network: str, method: str, alpha: float) -> RunSettings:
    """A run of ce, ls, fc or bc; what any study of it measures is measured in all of them."""
    probes = (
        {"name": "calibration", "bins": 100},
        {"name": "logit_gaps"},
        {"name": "prelogits", "classes": _CLASSES[dataset]},
    )
    return _cifar(dataset, network, probes=probes, **_smear(method, alpha))


def _alpha(alpha: float) -> str:
    return f"α = {alpha:.1f}"


def _figure2_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row=method.upper(),
            column=_alpha(alpha),
            group=dataset,
            settings=_smeared(dataset, "ResNet-32", method, alpha),
        )
        for dataset in _DATA
        for method in ("ls", "fc", "bc")
        for alpha in ALPHAS
    )


def _gap_cells() -> tuple[Cell, ...]:
    methods = {"CE": ("ce", 0.0), "LS": ("ls", 0.2), "FC": ("fc", 0.2), "BC": ("bc", 0.2)}
    return tuple(
        Cell(
            row=row,
            column="CIFAR-100 ResNet-32",
            settings=_smeared("CIFAR-100", "ResNet-32", method, alpha),
        )
        for row, (method, alpha) in methods.items()
    )


def _prelogit_cells(dataset: str, network: str, alphas: tuple[float, ...]) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row=_alpha(alpha),
            column=f"{dataset} {network}",
            settings=_smeared(dataset, network, "ls", alpha),
        )
        for alpha in alphas
    )


def _figure9_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row=method.upper(),
            column="CIFAR-100 ResNet-32",
            settings=_smeared("CIFAR-100", "ResNet-32", method, 0.2),
        )
        for method in ("bc", "fc")
    )


def _toy_cell(
    row: str, column: str, *, noisy: bool = True, alpha: float = 0.0, strength: float = 0.0
) -> Cell:
    settings = RunSettings(
        data={"name": "gaussians", "n": 10_000},
        network="linear",
        noise={"name": "transition", "matrix": [[0.95, 0.05], [0.0, 1.0]]} if noisy else None,
        recipe={**_TOY_RECIPE, "weight_decay": strength},
        validation=None,
        evaluate_every=0,
        probes=({"name": "separator"},),
        **_smear("ls", alpha),
    )
    return Cell(row=row, column=column, settings=settings)


def _figure5_cells() -> tuple[Cell, ...]:
    column = "separator"
    return (
        _toy_cell("clean labels", column, noisy=False),
        *(_toy_cell(f"LS, {_alpha(alpha)}", column, alpha=alpha) for alpha in TOY_ALPHAS),
        *(_toy_cell(f"L2, λ = {strength:g}", column, strength=strength) for strength in TOY_STRENGTHS),
    )


def _figure6_cells() -> tuple[Cell, ...]:
    return tuple(
        Cell(
            row="LS on teacher",
            column=_alpha(alpha),
            settings=_cifar(
                "CIFAR-100",
                "ResNet-32",
                method="distillation",
                params={"teacher": "ls", "student": "ce", "alpha": alpha, "temperature": 1.0},
            ),
        )
        for alpha in ALPHAS
    )


def _table2_cells() -> tuple[Cell, ...]:
    cells = []
    for row, numbers in TABLE2.items():
        for column, number in numbers.items():
            settings = RunSettings(
                data={"name": "imagenet", "size": 256},
                network="resnet-v2-50",
                noise=_NOISE,
                recipe=_IMAGENET_RECIPE,
                validation=None,
                **_smear(row.lower(), float(column[-3:])),
            )
            cells.append(_cell(row, column, settings, test_accuracy=number))
    return tuple(cells)


def _table3_cells() -> tuple[Cell, ...]:
    return tuple(
        _cell(
            row, "CIFAR-100 ResNet-32", _smeared("CIFAR-100", "ResNet-32", "ls", float(row[-3:])), **numbers
        )
        for row, numbers in TABLE3.items()
    )


def _table4_cells() -> tuple[Cell, ...]:
    return tuple(
        _cell(
            row,
            column,
            _smeared("CIFAR-100", "ResNet-32", column.lower(), float(row[-3:])),
            test_ece100=number,
        )
        for row, numbers in TABLE4.items()
        for column, number in numbers.items()
    )


def _table5_cells() -> tuple[Cell, ...]:
    cells = []
    for row, numbers in TABLE5.items():
        for column, number in numbers.items():
            params = {**_DISTILLED[column], "alpha": 0.1, "temperature": 2.0}
            settings = _cifar(*row.split(), method="distillation", params=params)
            cells.append(_cell(row, column, settings, test_accuracy=number))
    return tuple(cells)


def _table7_cells() -> tuple[Cell, ...]:
    cells = []
    for row, numbers in TABLE7.items():
        for column, number in numbers.items():
            dataset, network = row.split()
            if column in _SMEARED:
                settings = _smeared(dataset, network, *_SMEARED[column])
            else:
                method = "forward" if column.startswith("FC") else "backward"
                settings = _cifar(dataset, network, method=method, params={"percentile": 99.9})
            cells.append(_cell(row, column, settings, test_accuracy=number))
    return tuple(cells)


def _cell(row: str, column: str, settings: RunSettings, **paper: Number) -> Cell:
    return Cell(row=row, column=column, settings=settings, paper=paper)


# -- sizes and pictures ----------------------------------------------------------------------------


def _three_digits(settings: RunSettings) -> RunSettings:
    """Digits have no class 30: the pre-logits of the first three."""
    probes = tuple(
        {**probe, "classes": (0, 1, 2)} if probe["name"] == "prelogits" else probe
        for probe in settings.probes
    )
    return settings.replace(probes=probes)


# Long enough for the network to learn some wrong labels by heart.
_SMOKE = Smoke(epochs=20, change=_three_digits)


def _picture(name: str) -> Callable[[Results], Picture]:
    """The function of that name in `figures.smoothing`, imported when it is called.

    It needs matplotlib.
    """

    def draw(results: Results) -> Picture:
        import noisegate.studies.papers.smoothing.figures as figures

        picture: Picture = getattr(figures, name)(results)
        return picture

    return draw


_MISLABELLED = (
    "On the wrongly labelled rows label smoothing lowers the logit of the noisy label, while forward and backward "
    "correction raise that of the true label, forward correction most."
)
_THREE_CLASSES = (
    "Three clusters, and among them black points, whose labels are wrong. As alpha grows the clusters become tight "
    "and the black points are drawn away from them towards the middle."
)
_PRELOGIT_NOTES = (
    "The paper does not name its three classes; ours are beaver, dolphin, otter of CIFAR-100 and airplane, "
    "automobile, bird of CIFAR-10.",
    "Drawn are training rows whose given label is one of the three; the paper leaves open whether it takes the "
    "given or the true one.",
)
_GAP_NOTES = (
    "Densities are histograms of 200 bins, smoothed by a Gaussian of Silverman's width, of the training rows "
    "without augmentation.",
    "The paper speaks of logits, but its formula has probabilities and its text a peak near 1: both are drawn.",
)

# -- studies ---------------------------------------------------------------------------------------

STUDIES: tuple[Study, ...] = (
    Study(
        name="smoothing-figure1",
        title="Losses of two classes against the margin",
        reference=f"{_PAPER}, Figure 1",
        table=False,
        bold="none",
        notes=("Computed from the objectives, without training; alpha = 0.2 is our choice.",),
        figures=(
            Figure(
                name="smoothing-figure1",
                draw=_picture("figure1"),
                caption="Cost of the positive label against the margin, for two classes and α = 0.2.",
                paper="The logistic loss falls to zero. Smoothing has a finite positive minimum, backward "
                "correction turns negative for large margins, forward correction saturates for large negative "
                "ones.",
            ),
        ),
    ),
    Study(
        name="smoothing-figure2",
        title="Test accuracy against alpha: smoothing, forward and backward correction",
        reference=f"{_PAPER}, Figure 2",
        cells=_figure2_cells(),
        bold="none",
        notes=(
            *_ON_CIFAR,
            _ALPHA_ZERO,
            "The values of alpha are ours; the figure's axis is not given in words.",
        ),
        figures=(
            Figure(
                name="smoothing-figure2",
                draw=_picture("figure2"),
                caption="Clean test accuracy against α, ResNet-32, 20 % symmetric noise; bands are one standard "
                "deviation.",
                paper="Smoothing is well above the baseline, more so for alpha well over the noise rate; forward "
                "correction is better still and gains from large alpha too; backward correction is below the "
                "baseline for small alpha and above it for large alpha.",
            ),
        ),
        smoke=_SMOKE,
        laptop=laptop.SWEEP,
    ),
    Study(
        name="smoothing-table2",
        title="Smoothing and forward correction on ImageNet",
        reference=f"{_PAPER}, Table 2",
        cells=_table2_cells(),
        seeds=1,
        bold="none",
        notes=(
            "The 20 % wrong labels are drawn from the other classes, as on CIFAR.",
            "One seed: the paper gives no deviations.",
            "Rate 8.5 after 5 epochs of warm-up, cosine decay and weight decay 2e-4 without biases and batch norm, "
            "LARS's trust of 0.001: the paper names only LARS, batch 3500 and 32,768 steps.",
            "Images of 256 pixels, random crops of 224 and flips, the centre at test time; bfloat16.",
            _ALPHA_ZERO,
            _NO_BOLD,
        ),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
    Study(
        name="smoothing-figure3",
        title="Logits of true and noisy labels on the mislabelled rows",
        reference=f"{_PAPER}, Figure 3",
        cells=_gap_cells(),
        seeds=1,
        bold="none",
        table=False,
        notes=(*_ON_CIFAR, _ONE_SEED, *_GAP_NOTES),
        figures=(
            Figure(
                name="smoothing-figure3",
                draw=_picture("figure3"),
                caption="Density of the logit of the true (left) and the noisy label (right) minus the mean logit, "
                "on the wrongly labelled training rows; α = 0.2, CIFAR-100, ResNet-32.",
                paper=_MISLABELLED,
            ),
            Figure(
                name="smoothing-figure3-probabilities",
                draw=_picture("figure3_probabilities"),
                caption="The same of probabilities.",
                paper=_MISLABELLED,
            ),
        ),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
    Study(
        name="smoothing-table3",
        title="Label smoothing: accuracy on parts of the training set",
        reference=f"{_PAPER}, Table 3",
        cells=_table3_cells(),
        values=(
            Value(name="train_clean_accuracy", title="full train, true labels"),
            Value(name="train_right_accuracy", title="clean part, true labels"),
            Value(name="train_recovered", title="noisy part, true labels"),
            Value(name="train_memorised", title="noisy part, noisy labels", higher_is_better=False),
        ),
        bold="none",
        notes=(*_ON_CIFAR, _ALPHA_ZERO, "Training rows are looked at without augmentation.", _NO_BOLD),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
    Study(
        name="smoothing-table4",
        title="Expected calibration error of label smearing",
        reference=f"{_PAPER}, Table 4",
        cells=_table4_cells(),
        values=(
            Value(name="test_ece100", title="ECE, 100 bins", percent=False, digits=3, higher_is_better=False),
        ),
        compete="columns",
        bold="none",
        notes=(*_ON_CIFAR, _ALPHA_ZERO, "Bins of equal width.", _NO_BOLD),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
    Study(
        name="smoothing-figure4",
        title="Label smoothing and the pre-logits of three classes",
        reference=f"{_PAPER}, Figure 4",
        cells=_prelogit_cells("CIFAR-100", "ResNet-32", (0.0, 0.1, 0.2)),
        seeds=1,
        bold="none",
        table=False,
        notes=(
            *_ON_CIFAR,
            _ONE_SEED,
            *_PRELOGIT_NOTES,
            "The values of alpha are those of table 3; the caption names none.",
        ),
        figures=(
            Figure(
                name="smoothing-figure4",
                draw=_picture("prelogits"),
                caption="Pre-logits of three classes in the plane of their templates, ResNet-32 on CIFAR-100; "
                "black: wrongly labelled.",
                paper=_THREE_CLASSES,
            ),
        ),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
    Study(
        name="smoothing-figure5",
        title="Smoothing and shrinkage move the separator back",
        reference=f"{_PAPER}, Figure 5",
        cells=_figure5_cells(),
        values=(
            Value(name="separator_offset", title="offset along (1, 1)", percent=False, digits=3),
            Value(),
        ),
        bold="none",
        notes=(
            "10,000 points; the paper does not say how many. At α = 0 the offset varies from sample to sample by "
            "0.045 with 1,000.",
            "Logistic regression by full-batch gradient descent to convergence; on clean labels, which a line "
            "separates, there is no optimum and it stops after as many steps.",
            "λ multiplies half the squared norm of all weights, biases too; the strengths are our choice.",
            "The black line is the exact optimum x₁ + x₂ = 0; a fit to clean labels is the table's first row.",
            "The offset is the t at which the separator meets the diagonal (t, t).",
        ),
        figures=(
            Figure(
                name="smoothing-figure5",
                draw=_picture("figure5"),
                caption="Separators of logistic regression on two Gaussians with 5 % of the negatives flipped: "
                "(a) label smoothing, (b) L2 regularisation.",
                paper="Noise draws the separator towards the negatives, to about -0.46 on the diagonal; smoothing "
                "brings it back to the optimum: about -0.13 at alpha = 0.1, -0.07 at 0.4, -0.05 at 0.8. L2 "
                "regularisation does so too.",
            ),
        ),
        smoke=Smoke(data=None, epochs=700),
    ),
    Study(
        name="smoothing-table5",
        title="Distillation under label noise",
        reference=f"{_PAPER}, Table 5",
        cells=_table5_cells(),
        compete="columns",
        bold="none",
        notes=(
            *_ON_CIFAR,
            "The paper's vanilla numbers on CIFAR-10 repeat table 7's undistilled baseline (80.44, 77.98).",
            "Teacher and student at temperature 2, no given labels for the student and no factor of the squared "
            "temperature (our choice); the teacher sees the student's crops.",
            _NO_BOLD,
        ),
        smoke=_SMOKE,
        laptop=laptop.COMPARISON,
    ),
    Study(
        name="smoothing-figure6",
        title="Students of smoothed teachers",
        reference=f"{_PAPER}, Figure 6",
        cells=_figure6_cells(),
        bold="none",
        notes=(*_ON_CIFAR, "The values of alpha are ours; the figure's axis is not given in words."),
        figures=(
            Figure(
                name="smoothing-figure6",
                draw=_picture("figure6"),
                caption="Clean test accuracy of the student against the teacher's α, temperature 1, CIFAR-100, "
                "ResNet-32 for both.",
                paper="Every alpha above zero gives a better student than the plain teacher, high ones too.",
            ),
        ),
        smoke=_SMOKE,
        laptop=laptop.SWEEP,
    ),
    Study(
        name="smoothing-table7",
        title="Label smearing against corrections by an estimated matrix",
        reference=f"{_PAPER}, Table 7",
        cells=_table7_cells(),
        compete="columns",
        bold="none",
        notes=(
            *_ON_CIFAR,
            "FC and BC Patrini: a network trained in full by cross-entropy gives the matrix, from the row at the "
            "99.9th percentile of each class; the corrected training starts from a fresh network (the paper does "
            "not say).",
            "An estimated matrix that cannot be inverted is mended by a small ridge before backward correction.",
            _NO_BOLD,
        ),
        smoke=_SMOKE,
        laptop=laptop.COMPARISON,
    ),
    Study(
        name="smoothing-figure7",
        title="Logits of true and noisy labels on all parts of the training set",
        reference=f"{_PAPER}, Figure 7",
        cells=_gap_cells(),
        seeds=1,
        bold="none",
        table=False,
        notes=(*_ON_CIFAR, _ONE_SEED, *_GAP_NOTES),
        figures=(
            Figure(
                name="smoothing-figure7",
                draw=_picture("figure7"),
                caption="Density of the largest logit and of the logits of the true and the noisy label, minus the "
                "mean logit, on all, the rightly and the wrongly labelled training rows; α = 0.2, CIFAR-100, "
                "ResNet-32.",
                paper="Smoothing lowers the peak of confident predictions; backward and forward correction make "
                "it higher, most of all for the correct label.",
            ),
            Figure(
                name="smoothing-figure7-probabilities",
                draw=_picture("figure7_probabilities"),
                caption="The same of probabilities.",
                paper="Smoothing lowers the peak near 1; backward and forward correction make it higher.",
            ),
        ),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
    Study(
        name="smoothing-figure8",
        title="Label smoothing and pre-logits: ResNet-56 on CIFAR-100, ResNet-32 on CIFAR-10",
        reference=f"{_PAPER}, Figure 8",
        cells=(
            *_prelogit_cells("CIFAR-100", "ResNet-56", (0.0, 0.1, 0.2, 0.4)),
            *_prelogit_cells("CIFAR-10", "ResNet-32", (0.0, 0.1, 0.2)),
        ),
        seeds=1,
        bold="none",
        table=False,
        notes=(
            *_ON_CIFAR,
            _ONE_SEED,
            *_PRELOGIT_NOTES,
            "The paper has four panels above and three below; the values of alpha are our choice, its caption "
            "names none.",
        ),
        figures=(
            Figure(
                name="smoothing-figure8",
                draw=_picture("prelogits"),
                caption="Pre-logits of three classes in the plane of their templates; black: wrongly labelled.",
                paper=_THREE_CLASSES,
            ),
        ),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
    Study(
        name="smoothing-figure9",
        title="Backward and forward correction and the pre-logits of three classes",
        reference=f"{_PAPER}, Figure 9",
        cells=_figure9_cells(),
        seeds=1,
        bold="none",
        table=False,
        notes=(
            *_ON_CIFAR,
            _ONE_SEED,
            *_PRELOGIT_NOTES,
            "α = 0.2 is our choice, as in figures 3 and 7; the caption names none.",
        ),
        figures=(
            Figure(
                name="smoothing-figure9",
                draw=_picture("prelogits"),
                caption="Pre-logits of three classes in the plane of their templates, ResNet-32 on CIFAR-100; "
                "black: wrongly labelled.",
                paper="Both corrections separate the black points from the clusters: they denoise as well.",
            ),
        ),
        smoke=_SMOKE,
        laptop=laptop.TABLE,
    ),
)
