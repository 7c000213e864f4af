"""The label smoothing paper's tables and figures as studies, with what is our choice in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from noisegate.studies.papers.smoothing import laptop
from noisegate.studies.papers.smoothing.cells import (
    figure2_cells,
    figure5_cells,
    figure6_cells,
    figure9_cells,
    gap_cells,
    prelogit_cells,
    table2_cells,
    table3_cells,
    table4_cells,
    table5_cells,
    table7_cells,
)
from noisegate.studies.settings import RunSettings
from noisegate.studies.study import Figure, Smoke, Study, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from noisegate.studies.results import Results

PAPER = "Lukasik, Bhojanapalli, Menon, Kumar. Does label smoothing mitigate label noise? ICML 2020"

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
        reference=f"{PAPER}, Figure 1",
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
        reference=f"{PAPER}, Figure 2",
        cells=figure2_cells(),
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
        reference=f"{PAPER}, Table 2",
        cells=table2_cells(),
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
        reference=f"{PAPER}, Figure 3",
        cells=gap_cells(),
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
        reference=f"{PAPER}, Table 3",
        cells=table3_cells(),
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
        reference=f"{PAPER}, Table 4",
        cells=table4_cells(),
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
        reference=f"{PAPER}, Figure 4",
        cells=prelogit_cells("CIFAR-100", "ResNet-32", (0.0, 0.1, 0.2)),
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
        reference=f"{PAPER}, Figure 5",
        cells=figure5_cells(),
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
        reference=f"{PAPER}, Table 5",
        cells=table5_cells(),
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
        reference=f"{PAPER}, Figure 6",
        cells=figure6_cells(),
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
        reference=f"{PAPER}, Table 7",
        cells=table7_cells(),
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
        reference=f"{PAPER}, Figure 7",
        cells=gap_cells(),
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
        reference=f"{PAPER}, Figure 8",
        cells=(
            *prelogit_cells("CIFAR-100", "ResNet-56", (0.0, 0.1, 0.2, 0.4)),
            *prelogit_cells("CIFAR-10", "ResNet-32", (0.0, 0.1, 0.2)),
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
        reference=f"{PAPER}, Figure 9",
        cells=figure9_cells(),
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
