"""The Logistic-Normal paper's tables and figures as studies, with what is our choice in each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from noisegate.studies.papers.ln import laptop
from noisegate.studies.papers.ln.cells import (
    CIFAR10,
    CIFAR100,
    MNIST,
    NATURAL_COLUMNS,
    SEARCH,
    SEARCH_MNIST,
    SMOKE,
    SMOKE_CURVES,
    TOYS,
    ablation_cells,
    asymmetric,
    comparison,
    evolution_cells,
    noise_type_cells,
    sensitivity_cells,
    small_toy,
    synthetic_columns,
    term_cells,
    toy_cells,
)
from noisegate.studies.papers.ln.numbers import (
    CHOSEN_CIFAR10,
    CHOSEN_CIFAR100,
    CHOSEN_MNIST,
    CHOSEN_NATURAL,
    TABLE1_CIFAR10,
    TABLE1_CIFAR100,
    TABLE1_MNIST,
    TABLE2,
)
from noisegate.studies.study import Cell, Figure, Smoke, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

    from noisegate.studies.results import Results

PAPER = "Englesson et al. 2023, Logistic-Normal Likelihoods"


def picture(name: str, caption: str, paper: str, draw: str) -> Figure:
    """A figure whose drawing function is looked up when it is drawn: this file must be quick to import."""

    def draw_it(results: Results) -> Picture:
        from noisegate.studies.papers.ln import figures as ln

        return getattr(ln, draw)(results)

    return Figure(name=name, draw=draw_it, caption=caption, paper=paper)


_COMMON = (
    "Accuracy is that of the network at the end of training, on the clean test labels; five seeds, each of "
    "which decides noise, validation rows, initial weights and batches.",
    "τ, λ and the baselines' parameters are those of the paper's tables 4 to 6; a search takes the noisy "
    "validation accuracy of the first seed at the end of training, as the paper does.",
    "Bold: no significant difference to the best mean by Welch's t-test at 5 % (the paper does not name its "
    "test).",
    "The smoothing t of the one-hot targets is 0.01 (the paper: a small fixed value).",
    "The heteroscedastic methods draw 1000 samples in training and at prediction (the paper gives no number).",
    "Forward trains its first network for as long as the second one, which starts anew; a row of T comes from "
    "the example at the 97th percentile of that class's probability.",
)
_TF32 = (
    "Products of matrices are in TF32 on a GPU, sums and weights in float32: our choice, for its speed; the paper "
    "does not say."
)
_BF16 = (
    "CIFAR: products of matrices are in bfloat16 on a GPU (torch's autocast), weights and losses in float32: our "
    "choice, for its speed; the paper does not say."
)
_MNIST_NOTES = (
    "LeNet-5 with ReLU and 6, 16 and 120 filters of 5x5 and a dense layer of 84, Glorot weights; Adam with eps "
    "1e-7 (the authors' code); pixels in [0, 1].",
    _TF32,
)
_CIFAR_NOTES = (
    "The learning rate is constant, weight decay is on all parameters, images are padded by 2, cropped, flipped "
    "and standardised per channel (the authors' code; the paper does not say).",
    _BF16,
)
_FIFTH_NOTE = (
    "CIFAR: the test labels are looked at in every fifth epoch, and the best epoch by noisy validation is one of "
    "those.",
)
_RARE_NOTE = (
    "With 100 classes Forward reads T at the 99.9th percentile: a class has only one example in a hundred.",
)
_SYMMETRIC_NOTE = (
    "A rate of symmetric noise is the share of labels redrawn over all classes: of 40 % with ten classes 36 % "
    "are wrong.",
)
_CIFAR10_NOTE = (
    "Asymmetric noise on CIFAR-10 takes in truck > automobile, which the authors' code has and the paper does "
    "not print.",
)
_FIGURE_SEED = "One seed; the paper does not say how many its figure stands for."


def _table1(name: str, title: str, cells: tuple[Cell, ...], notes: Iterable[str]) -> Study:
    return Study(
        name=f"ln-table1-{name}",
        title=f"{title} with symmetric and asymmetric noise, nine methods",
        reference=f"{PAPER}, table 1",
        cells=cells,
        bold="welch",
        notes=(*_COMMON, *_SYMMETRIC_NOTE, *notes),
        smoke=SMOKE,
        laptop=laptop.MNIST if name == "mnist" else laptop.CIFAR,
    )


TABLES = (
    _table1(
        "mnist",
        "MNIST",
        comparison(synthetic_columns(MNIST, "mnist"), TABLE1_MNIST, CHOSEN_MNIST, SEARCH_MNIST),
        _MNIST_NOTES,
    ),
    _table1(
        "cifar10",
        "CIFAR-10",
        comparison(synthetic_columns(CIFAR10, "cifar10"), TABLE1_CIFAR10, CHOSEN_CIFAR10, SEARCH),
        (*_CIFAR10_NOTE, *_CIFAR_NOTES, *_FIFTH_NOTE),
    ),
    _table1(
        "cifar100",
        "CIFAR-100",
        comparison(synthetic_columns(CIFAR100, "cifar100"), TABLE1_CIFAR100, CHOSEN_CIFAR100, SEARCH),
        (*_CIFAR_NOTES, *_FIFTH_NOTE, *_RARE_NOTE),
    ),
    Study(
        name="ln-table2",
        title="Labels wrong by nature: CIFAR-10N, CIFAR-100N and Clothing1M, nine methods",
        reference=f"{PAPER}, table 2",
        cells=comparison(NATURAL_COLUMNS, TABLE2, CHOSEN_NATURAL, SEARCH),
        bold="welch",
        notes=(
            *_COMMON,
            *_CIFAR_NOTES,
            *_FIFTH_NOTE,
            "On CIFAR-N the seed decides validation rows, initial weights and batches; the labels are people's.",
            *_RARE_NOTE,
            "Clothing1M: the dataset's own validation set is used, whose labels are clean; so a search there "
            "chooses by clean labels (the paper uses that set too).",
            "Clothing1M: as many rows of every label as the rarest has, drawn once by the seed; DivideMix, which "
            "the paper follows, draws them anew in every epoch.",
            "Clothing1M: the shorter side is scaled to 256, random crops of 224 and flips, the learning rate "
            "falls to a tenth after 5 epochs, t is 0.1 and Forward's percentile 99.9 (the crops and the "
            "percentile are ours, the others the authors' code's).",
            "Clothing1M: products of matrices are in TF32.",
            "Clothing1M: ResNet-50 starts from torchvision's ImageNet weights (IMAGENET1K_V1), a file below the "
            "data root.",
        ),
        smoke=SMOKE,
        laptop=laptop.NATURAL,
    ),
    Study(
        name="ln-table3",
        title="LN with simpler covariances, and without the dummy class",
        reference=f"{PAPER}, table 3",
        cells=ablation_cells(),
        bold="welch",
        notes=(
            *_COMMON[:4],
            *_CIFAR_NOTES,
            *_FIFTH_NOTE,
            "CIFAR-10N is the set “worst”; for the second column the paper's table says CIFAR-100N and its text "
            "CIFAR-100, the number of the full covariance is that of CIFAR-100N in table 2.",
            "All rows have τ = 0.5 and λ = 0.5, which table 6 lists for the full covariance with the dummy; the "
            "paper gives none for the others, a search takes the grid of appendix B.2 for every row.",
            "Isotropic and diagonal standard deviations are softplus(.) + λ.",
        ),
        smoke=SMOKE,
        laptop=laptop.ABLATION,
    ),
)

_TOY_NOTES = (
    "The paper does not say how many points there are and how they are noisy: here 200, with Gaussian noise of "
    "standard deviation {noise} and 20 % of the labels flipped.",
    "The paper trains by gradient descent with learning rate 1e-4 for 2000 epochs. On full batches with the mean "
    "of the losses that leaves CE at 80 % and LN at 50 % test accuracy on the moons, and at higher rates CE "
    "repeats few of the wrong labels; so Adam takes the place of gradient descent, the rest is as printed.",
    "τ = 0.5 and λ = 0.5; the paper gives none. Inputs are not standardised.",
    _FIGURE_SEED,
)


def _toy_study(name: str) -> Study:
    title, data = TOYS[name]
    return Study(
        name=f"ln-figure3-{name}",
        title=f"{title}: boundaries of cross-entropy and LN",
        reference=f"{PAPER}, figure 3",
        cells=toy_cells(name),
        seeds=1,
        bold="none",
        notes=tuple(note.format(noise=data["noise"]) for note in _TOY_NOTES),
        figures=(
            picture(
                f"figure3-{name}",
                "Training points by given label (crosses: wrong ones), the colour mixed by the probabilities of "
                "the classes, the line where they are equal.",
                "Two panels, CE and LN. CE bends its boundary around nearly every point; LN's is smooth and "
                "leaves some points on the wrong side of their label.",
                "boundaries",
            ),
        ),
        smoke=Smoke(data=None, epochs=300, change=small_toy),
    )


FIGURES = (
    Study(
        name="ln-figure1",
        title="A normal in logit space and the same distribution on the simplex",
        reference=f"{PAPER}, figure 1",
        table=False,
        notes=("Closed form, nothing is trained; mean, λ and target are ours, the paper's are not printed.",),
        figures=(
            picture(
                "figure1",
                "Density of a normal in the plane of logits with the covariance that is optimal for the target "
                "of class 1, and its image on the simplex; the lines hold 50 and 90 % of the mass.",
                "Left a thin ellipse in the plane, longest towards the noisy target, with the targets of three "
                "classes, the last of which is farther out; right the density it gives on the triangle of "
                "probabilities.",
                "densities",
            ),
        ),
    ),
    Study(
        name="ln-figure2",
        title="The label term against the residual: where λ begins to attenuate",
        reference=f"{PAPER}, figure 2 and appendix A.4",
        table=False,
        notes=("Closed form, nothing is trained; the values of λ are ours, the paper's are not printed.",),
        figures=(
            picture(
                "figure2",
                "r²/σ² with the optimal σ² that the parametrisation can reach, for two classes.",
                "A parabola r²/λ² up to |r| = λ, flat at one from there, for several λ.",
                "attenuation",
            ),
        ),
    ),
    _toy_study("moons"),
    _toy_study("circles"),
    Study(
        name="ln-figure4",
        title="Accuracy during training: Het-τ-Σ_full and LN on CIFAR-10",
        reference=f"{PAPER}, figure 4",
        cells=evolution_cells(),
        seeds=1,
        bold="none",
        notes=(
            "τ, R and λ are those of table 4.",
            "Right and wrong labels are counted apart by whether the given label is the clean one: a label that "
            "was redrawn as itself is right.",
            *_SYMMETRIC_NOTE,
            *_CIFAR_NOTES,
            _FIGURE_SEED,
        ),
        figures=(
            picture(
                "figure4",
                "Above, accuracy on the validation rows with their clean labels; below, agreement with the given "
                "label on training rows labelled right (solid) and wrong (dashed).",
                "Het-τ-Σ_full rises early, then falls as it fits the wrong labels; LN falls less and fits far "
                "fewer of them.",
                "evolution",
            ),
        ),
        smoke=SMOKE_CURVES,
        laptop=laptop.ABLATION,
    ),
    Study(
        name="ln-figure5",
        title="How sensitive LN is to τ and λ: CIFAR-10, 40 % symmetric noise",
        reference=f"{PAPER}, figure 5",
        cells=sensitivity_cells(),
        bold="none",
        notes=(
            "The values of τ and λ are ours: those of the search, and beyond; the paper's are in the picture "
            "alone.",
            *_SYMMETRIC_NOTE,
            *_CIFAR_NOTES,
        ),
        figures=(
            picture(
                "figure5",
                "Test accuracy at the end of training against τ, mean and standard deviation over the seeds.",
                "Low accuracy at small τ (it overfits), best around τ = 1 and lower again where τ is large and "
                "training is slow.",
                "sensitivity",
            ),
        ),
        smoke=SMOKE,
        laptop=laptop.ABLATION,
    ),
    Study(
        name="ln-figure6",
        title="Histograms of the label term: CIFAR-10, 20 % asymmetric noise",
        reference=f"{PAPER}, figure 6",
        cells=term_cells("Asymmetric 20%", CIFAR10.replace(noise=asymmetric(0.2, "cifar10")), 0.5, 0.5),
        seeds=1,
        bold="none",
        notes=(
            "τ and λ are those of table 5; the terms are of the training rows without crops and flips, at the "
            "end of training.",
            "The axis is logarithmic, as the caption of figure 7 says of that figure; right and wrong labels "
            "are each scaled to an area of one.",
            *_CIFAR10_NOTE,
            *_CIFAR_NOTES,
            _FIGURE_SEED,
        ),
        figures=(
            picture(
                "figure6",
                "r' Σ⁻¹ r of rightly and wrongly labelled training rows. Dotted: where attenuation begins, λ² "
                "under I and 1 under Σ_θ.",
                "Left (trained and evaluated with I): many wrong labels have small terms. Middle (trained with "
                "Σ_θ, evaluated with I): fewer do, and the right ones have two humps. Right (evaluated with "
                "Σ_θ): small terms have grown, large ones shrunk.",
                "histograms",
            ),
        ),
        smoke=SMOKE_CURVES,
        laptop=laptop.TERMS,
    ),
    Study(
        name="ln-figure7",
        title="Histograms of the label term for other noise: CIFAR-10, CIFAR-10N and MNIST",
        reference=f"{PAPER}, figure 7 and appendix E.1",
        cells=noise_type_cells(),
        seeds=1,
        bold="none",
        notes=(
            "The paper gives no rate for the symmetric noise of appendix E.1: here 20 %.",
            "τ and λ are those of tables 4 and 6; with the identity there is no λ.",
            "The paper has two pictures under this number: MNIST with 40 % symmetric noise (the caption), and "
            "four kinds of noise (appendix E.1).",
            "The terms are of the training rows without crops and flips, at the end of training; right and "
            "wrong labels are each scaled to an area of one.",
            *_SYMMETRIC_NOTE,
            *_MNIST_NOTES[:-1],
            *_CIFAR_NOTES,
            _FIGURE_SEED,
        ),
        figures=(
            picture(
                "figure7-mnist",
                "MNIST with 40 % symmetric noise, a network with a learnt covariance: the label term with it "
                "(left) and without it (right).",
                "The covariance raises the term of clean examples and lowers that of noisy ones: with it the "
                "two parts lie nearer to each other.",
                "mnist_histograms",
            ),
            picture(
                "figure7-noise-types",
                "r' Σ⁻¹ r of rightly and wrongly labelled training rows. Above: trained and evaluated with I; "
                "middle: trained with Σ_θ, evaluated with I; below: trained and evaluated with Σ_θ. Dotted: "
                "where attenuation begins.",
                "As in figure 6 for each kind of noise: training with I brings down the terms of more of the "
                "wrong labels; Σ_θ raises some terms of right labels and lowers large ones of both parts.",
                "noise_type_histograms",
            ),
        ),
        smoke=SMOKE_CURVES,
        laptop=laptop.OTHER_TERMS,
    ),
)

STUDIES: tuple[Study, ...] = (*FIGURES[:4], *TABLES, *FIGURES[4:])
