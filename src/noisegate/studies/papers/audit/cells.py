"""The study of audits: every detector, kind of noise and data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from noisegate.studies.laptop import Laptop, reduced
from noisegate.studies.papers.audit.findings import findings
from noisegate.studies.study import Cell, Number, RunSettings, Smoke, Study, Value

#: Detectors by row: the detector, the method within it.
TRAINED: Mapping[str, tuple[str, str]] = {
    "auto, cross-fitted": ("own", "auto"),
    "CE, cross-fitted": ("cross-fitted", "ce"),
    "CE, in training": ("in-training", "ce"),
    "LN, in training": ("in-training", "ln"),
    "Co-teaching, in training": ("in-training", "co-teaching"),
    "ELR, in training": ("in-training", "elr"),
    "CausalNL, in training": ("in-training", "causalnl"),
}
UNTRAINED: Mapping[str, tuple[str, str]] = {
    "neighbours' vote": ("neighbours", "ce"),
    "logistic regression, 5 folds": ("logistic-regression", "ce"),
}
PUBLISHED = "published probabilities"

#: Synthetic noise for ten classes, by column.
NOISES: Mapping[str, Mapping[str, Any]] = {
    "symmetric 30 %": {"name": "symmetric", "rate": 0.3, "include_self": False},
    "pairs 30 %": {
        "name": "asymmetric",
        "rate": 0.3,
        "mapping": {str(i): (i + 1) % 10 for i in range(10)},
    },
    "by class 0 to 60 %": {"name": "class-dependent", "rates": [round(i / 15, 4) for i in range(10)]},
    "by instance 30 %": {"name": "instance-dependent", "rate": 0.3},
}
_FEATURES = "features/cifar10_efficientnet_lite0_pca192.npz:train"
#: People's labels of CIFAR-10, by column: the array's name.
PEOPLE = {"worst": "worse_label", "aggregate": "aggre_label", "random 1": "random_label1"}
TEXTS = {"film sentences, one worker": "sentiment", "news titles, by rules": "yoruba"}
SETS = {
    f"{noise}, {network}": f"detection/{file}-{code}.npz"
    for noise, file in (
        ("CIFAR-10N aggregate", "cifar10n-aggregate"),
        ("CIFAR-10N worst", "cifar10n-worst"),
        ("CIFAR-10 sparse 20 %", "cifar10-sparse20"),
    )
    for network, code in (("ResNet-18", "resnet18"), ("EfficientNet-B1", "efficientnet_b1"))
}
#: Public marks, F1: cleanlab's default with the probabilities of the same ResNet-18.
MARKS = {"CIFAR-10N aggregate, ResNet-18": 67.4, "CIFAR-10N worst, ResNet-18": 84.9}

BASE = RunSettings(
    data={"name": "digits"},
    method="ce",
    network="auto",
    recipe={},
    validation=None,
    evidence=(),
    evaluate_every=0,
    probes=({"name": "detection"},),
    detector="neighbours",
)
#: Pictures of MNIST: one small network whatever the machine; so many random rows of the 60,000.
PICTURES = {"network": "lenet5", "recipe": {"epochs": 20}, "rows": 10_000}


def _columns() -> Iterator[tuple[str, str, RunSettings]]:
    """(group, column, settings without detector)."""
    for column, noise in NOISES.items():
        yield "Digits", column, BASE.replace(noise=noise)
    for column, noise in NOISES.items():
        yield "MNIST", column, BASE.replace(data={"name": "mnist"}, noise=noise, **PICTURES)
    for column, array in PEOPLE.items():
        labels = {"y": f"cifar-n/cifar10n.npz:{array}", "clean": "cifar-n/cifar10n.npz:clean_label"}
        yield "CIFAR-10N, features", column, BASE.replace(data={"name": "file", "x": _FEATURES, **labels})
    for column, name in TEXTS.items():
        table = {"table": f"crowd/{name}_train.csv", "label": "label", "clean": "clean"}
        yield "Texts", column, BASE.replace(data={"name": "file", **table})


def _cells() -> Iterator[Cell]:
    for row, (detector, method) in {**UNTRAINED, **TRAINED}.items():
        for group, column, settings in _columns():
            yield Cell(
                row=row,
                group=group,
                column=column,
                settings=settings.replace(detector=detector, method=method),
            )
    for column, path in SETS.items():
        arrays = {"x": f"{path}:probs", "y": f"{path}:given", "clean": f"{path}:true"}
        marks = {"cleanlab_f1": Number(MARKS[column])} if column in MARKS else {}
        settings = BASE.replace(data={"name": "file", **arrays}, detector="as-given")
        yield Cell(row=PUBLISHED, group="As published", column=column, settings=settings, paper=marks)


def _smoke(settings: RunSettings) -> RunSettings:
    """Digits are no probabilities: nothing can be taken from them as it is."""
    return settings.replace(detector="neighbours") if settings.detector == "as-given" else settings


def _laptop(settings: RunSettings) -> RunSettings:
    """Fewer rows of the large sets, and fewer epochs on pictures."""
    if settings.data["name"] == "mnist":
        return reduced(settings, rows=2000, recipe={"epochs": 10})
    large = settings.data.get("x") == _FEATURES and settings.detector in {d for d, _ in TRAINED.values()}
    return reduced(settings, rows=5000) if large else settings


STUDIES = (
    Study(
        name="audit-quality",
        title="How well wrong labels are found: every detector, kind of noise and data set",
        reference="no paper; public marks on CIFAR-10N from cleanlab, Docta and the 2022 challenge",
        cells=tuple(_cells()),
        values=(
            Value(name="look_f1", title="F1"),
            Value(name="look_precision", title="precision"),
            Value(name="look_recall", title="recall"),
            Value(name="look_auroc", title="AUROC"),
            Value(name="look_average_precision", title="average precision"),
            Value(name="cleanlab_f1", title="F1 of cleanlab's flags"),
            Value(name="cleanlab_average_precision", title="average precision of cleanlab's ranking"),
            Value(name="argmax_f1", title="F1 where argmax differs"),
        ),
        seeds=3,
        bold="best",
        notes=(
            "Detectors see the given labels only; the true ones measure.",
            'The flags of the first five values are those of "look", the ranking is by the probability that the '
            "label is wrong. cleanlab's flags are those of its default, prune_by_noise_rate, and its ranking is "
            "self-confidence, both from the same probabilities as ours; so cleanlab as it comes, "
            "CleanLearning(), is the row logistic regression, 5 folds. Argmax differs: the most probable class "
            "is not the given one.",
            "Who says that nothing is wrong has an F1 of 0, an AUROC of 50 % and an average precision equal to "
            "the share of wrong labels.",
            "Signals of training (contradictions, LN's residual, what co-teaching drops, CausalNL's posterior) "
            "rank alone; runs.csv has their numbers too.",
            "MNIST: 10,000 random rows, LeNet-5, 20 epochs. The other data have the automatic network and recipe.",
            "CIFAR-10N, features: people's labels of all 50,000 training pictures, seen as 192 principal "
            "components of an EfficientNet-lite0 from ImageNet. Features, texts and published probabilities "
            "are files below the data root.",
            "Public marks of F1 on CIFAR-10N aggregate and worst: cleanlab's default with a Swin-B 76.3 % and "
            "92.4 %; Docta with CLIP at most 78.4 % on worst; the winner of the 2022 challenge, 89.9 % and "
            "96.1 % after 420 epochs.",
        ),
        findings=findings,
        smoke=Smoke(seeds=1, noise=NOISES["symmetric 30 %"], change=_smoke),
        laptop=Laptop(change=_laptop, seeds=1),
    ),
)
