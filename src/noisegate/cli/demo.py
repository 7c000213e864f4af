"""`noisegate demo`: what wrong labels do to a few methods, on data that needs no download."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from noisegate import data as datasets
from noisegate import noise as noises
from noisegate._io.files import write_bytes, write_json
from noisegate._version import __version__
from noisegate.cli import output
from noisegate.data.dataset import Dataset
from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.reporting import plots
from noisegate.reporting.page import Page
from noisegate.runs.train import train
from noisegate.training.precision import one_thread
from noisegate.training.recipe import Recipe

#: The methods of the demo, in the order of the table; each with the parameters it has by default.
DEMO_METHODS: tuple[str, ...] = ("ce", "ls", "gce", "mixup", "elr", "ln")
#: Those whose boundaries and calibration are drawn: the baseline and the one the story is about.
DRAWN_METHODS: tuple[str, ...] = ("ce", "ln")
TITLES: Mapping[str, str] = {
    "ce": "cross-entropy (ce)",
    "ls": "label smoothing (ls)",
    "gce": "generalised cross-entropy (gce)",
    "mixup": "mixup",
    "elr": "early-learning regularisation (elr)",
    "ln": "Logistic-Normal (ln)",
}

HEADER = ["method", "accuracy", "calibration error", "wrong labels memorised", "put right", "seconds"]
_ABOUT_COLUMNS = (
    "Accuracy and calibration error: on the clean labels of the test digits, after the last epoch. "
    "Memorised: wrong training labels that the network repeats. Put right: wrong training labels where it "
    "says the clean one. "
    "Seconds: training alone, without the look at the test digits after every epoch."
)


@dataclass(frozen=True)
class Scale:
    """How much the demo does; a test does less."""

    rate: float = 0.4
    epochs: int = 80
    network: str = "mlp"
    batch_size: int = 128
    lr: float = 1e-3
    moons_rate: float = 0.3
    moons_points: int = 600
    moons_spread: float = 0.12
    moons_epochs: int = 200
    moons_network: str = "mlp-128-128-128"
    moons_batch_size: int = 100
    moons_lr: float = 4e-3
    resolution: int = 220
    pictures: int = 12


@dataclass(frozen=True)
class Story:
    """One dataset with corrupted labels and what each method made of it."""

    data: Dataset
    fitted: dict[str, Fitted]

    @property
    def wrong(self) -> np.ndarray:
        return np.asarray(self.data.train.wrong)

    def curve(self, method: str, key: str) -> list[float]:
        """The numbers of the last phase, the one that made the classifier."""
        return [epoch[key] for epoch in self.fitted[method].history[-1] if key in epoch]


def run(out: Path, seed: int = 0, scale: Scale = Scale()) -> dict[str, Any]:  # noqa: B008
    """Train, print the table, write the report; return what `results.json` holds."""
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out names a folder, but {out} is a file")
    with one_thread():
        digits, moons = train_digits(seed, scale), train_moons(seed, scale)
        results = measure(digits, moons, seed, scale)
    rows = table_rows(results)
    output.say("\nOn the clean labels of the test digits, after the last epoch:")
    output.table(rows, HEADER, numbers=range(1, len(HEADER)))
    for sentence in findings(results):
        output.say(sentence)
    pictures = {name: plots.png(figure) for name, figure in draw(digits, moons, scale).items()}
    for name, content in pictures.items():
        write_bytes(out / f"{name}.png", content)
    write_json(out / "results.json", results)
    report = make_page(results, rows, pictures).write(out / "report.html")
    output.say(f"\nThe report with the plots is {report}")
    return results


# -- training --------------------------------------------------------------------------------------


def train_digits(seed: int, scale: Scale) -> Story:
    """Every method on the same digits with the same wrong labels."""
    noise = noises.Symmetric(scale.rate, include_self=False)
    data = datasets.load("digits").corrupt(noise, seed=seed)
    recipe = Recipe(epochs=scale.epochs, batch_size=scale.batch_size, lr=scale.lr)
    return _train_all(data, DEMO_METHODS, scale.network, recipe, seed, evaluate_every=1)


def train_moons(seed: int, scale: Scale) -> Story:
    """The drawn methods on two moons, with a network that is large enough to memorise."""
    noise = noises.Symmetric(scale.moons_rate, include_self=False)
    moons = datasets.load("moons", n=scale.moons_points, noise=scale.moons_spread, seed=seed)
    recipe = Recipe(epochs=scale.moons_epochs, batch_size=scale.moons_batch_size, lr=scale.moons_lr)
    data = moons.corrupt(noise, seed=seed)
    return _train_all(data, DRAWN_METHODS, scale.moons_network, recipe, seed, evaluate_every=0)


def _train_all(
    data: Dataset, methods: tuple[str, ...], network: str, recipe: Recipe, seed: int, *, evaluate_every: int
) -> Story:
    wrong = int(np.asarray(data.train.wrong).sum())
    output.say(
        f"{data.name}: training {', '.join(methods)} on {len(data.train):,} labels, {wrong:,} of them wrong"
    )
    # On the CPU wherever it runs: these networks are small, and the numbers should not depend on a GPU.
    return Story(
        data,
        {
            method: train(data, method, network, recipe, seed, "cpu", evaluate_every=evaluate_every)
            for method in methods
        },
    )


# -- numbers ---------------------------------------------------------------------------------------


def measure(digits: Story, moons: Story, seed: int, scale: Scale) -> dict[str, Any]:
    """Everything the report says, as plain data."""
    return {
        "noisegate": __version__,
        "command": f"noisegate demo --seed {seed}",
        "seed": seed,
        "settings": asdict(scale),
        "versions": next(iter(digits.fitted.values())).record["versions"],
        "hardware": hardware(),
        "digits": _measure(digits) | {"curves": _curves(digits)},
        "moons": _measure(moons),
    }


def _measure(story: Story) -> dict[str, Any]:
    data, n_wrong = story.data, int(story.wrong.sum())
    methods = {}
    for name, fitted in story.fitted.items():
        metrics = fitted.metrics
        methods[name] = {
            "accuracy": metrics["test_accuracy"],
            "ece": metrics["test_ece"],
            "log_likelihood": metrics["test_log_likelihood"],
            "memorised": round(metrics.get("train_memorised", 0.0) * n_wrong),
            "recovered": round(metrics.get("train_recovered", 0.0) * n_wrong),
            "seconds": sum(epoch["train_seconds"] for phase in fitted.history for epoch in phase),
            "settings": fitted.record["identity"]["method"],
        }
    return {
        "n_train": len(data.train),
        "n_test": 0 if data.test is None else len(data.test),
        "n_wrong": n_wrong,
        "noise": data.info["noise"],
        "label_sha256": noises.label_hash(data.train.y),
        "methods": methods,
    }


def _curves(story: Story) -> dict[str, dict[str, list[float]]]:
    keys = {"accuracy": "test_accuracy", "memorised": "train_memorised", "recovered": "train_recovered"}
    return {name: {short: story.curve(name, key) for short, key in keys.items()} for name in story.fitted}


def hardware() -> str:
    """The processor and how much of it is used."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        name = models[0] if models else name
    threads = torch.get_num_threads()
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def table_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """The table of the digits, a row a method, as text."""
    digits = results["digits"]
    return [
        [
            TITLES.get(name, name),
            f"{m['accuracy']:.1%}",
            f"{m['ece']:.1%}",
            f"{m['memorised']:,} of {digits['n_wrong']:,}",
            f"{m['recovered']:,} of {digits['n_wrong']:,}",
            f"{m['seconds']:.1f}",
        ]
        for name, m in digits["methods"].items()
    ]


# -- sentences: each is computed from the numbers ----------------------------------------------------


def _wrong_words(part: Mapping[str, Any]) -> str:
    share = part["n_wrong"] / part["n_train"]
    return f"{part['n_wrong']:,} of {part['n_train']:,} training labels are wrong ({share:.1%})"


def findings(results: Mapping[str, Any]) -> list[str]:
    """What happened on the digits: the course of every method, and how the first and the best compare."""
    digits = results["digits"]
    lines = [_course(name, digits) for name in digits["methods"]]
    accuracy = {name: m["accuracy"] for name, m in digits["methods"].items()}
    best, worst = max(accuracy, key=accuracy.__getitem__), min(accuracy, key=accuracy.__getitem__)
    gap = 100 * (accuracy[best] - accuracy[worst])
    if gap >= 0.05:
        lines.append(
            f"At the end {TITLES.get(best, best)} is {gap:.1f} percentage points more accurate than "
            f"{TITLES.get(worst, worst)}."
        )
    else:
        lines.append("At the end the methods are equally accurate.")
    return lines


def _course(name: str, digits: Mapping[str, Any]) -> str:
    curve, end = digits["curves"][name]["accuracy"], digits["methods"][name]
    top = int(np.argmax(curve))
    title = TITLES.get(name, name)
    start = f"{title[0].upper()}{title[1:]}"
    memorised = f"repeats {end['memorised']:,} of the {digits['n_wrong']:,} wrong labels"
    if curve[top] - end["accuracy"] >= 0.01:
        lost = 100 * (curve[top] - end["accuracy"])
        return (
            f"{start} reaches {curve[top]:.1%} in epoch {top + 1}, loses {lost:.1f} points by the last epoch "
            f"({end['accuracy']:.1%}), and then {memorised}."
        )
    return f"{start} ends at {end['accuracy']:.1%}, within a point of its best epoch, and {memorised}."


def moons_sentence(moons: Mapping[str, Any]) -> str:
    """How accurate the methods are on fresh points of the two moons."""
    parts = [f"{TITLES.get(name, name)} {m['accuracy']:.1%}" for name, m in moons["methods"].items()]
    return f"Accuracy on {moons['n_test']:,} fresh points with clean labels: {', '.join(parts)}."


def calibration_sentence(digits: Mapping[str, Any]) -> str:
    """Which method is best calibrated; not always the most accurate one."""
    errors = {name: m["ece"] for name, m in digits["methods"].items()}
    accuracy = {name: m["accuracy"] for name, m in digits["methods"].items()}
    best, top = min(errors, key=errors.__getitem__), max(accuracy, key=accuracy.__getitem__)
    text = f"The smallest calibration error is that of {TITLES.get(best, best)}, {errors[best]:.1%}"
    if best == top:
        return f"{text}; it is the most accurate one too."
    return f"{text}; the most accurate, {TITLES.get(top, top)}, has {errors[top]:.1%}."


# -- pictures --------------------------------------------------------------------------------------


def draw(digits: Story, moons: Story, scale: Scale) -> dict[str, Any]:
    """The figures by file name."""
    accuracy = {name: digits.curve(name, "test_accuracy") for name in digits.fitted}
    memorised = {name: digits.curve(name, "train_memorised") for name in digits.fitted}
    return {
        "accuracy": plots.learning_curves(accuracy, ylabel="accuracy on clean test labels", title="Accuracy"),
        "memorised": plots.learning_curves(
            memorised, ylabel="share of wrong labels repeated", title="Memorised labels"
        ),
        "moons": _draw_moons(moons, scale),
        "reliability": _draw_reliability(digits),
        "digits": _draw_digits(digits, scale),
    }


def _draw_moons(moons: Story, scale: Scale) -> Any:
    figure, axes = plots.panels(len(moons.fitted), columns=2, size=(4.7, 4.0))
    train_rows = moons.data.train
    for ax, (name, fitted) in zip(axes, moons.fitted.items(), strict=True):
        title = f"{TITLES.get(name, name)}: {fitted.metrics['test_accuracy']:.1%}"
        plots.decision_boundary(
            fitted.predict_proba,
            np.asarray(train_rows.x),
            train_rows.y,
            wrong=moons.wrong,
            title=title,
            resolution=scale.resolution,
            ax=ax,
        )
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5)
    return figure


def _draw_reliability(digits: Story) -> Any:
    figure, axes = plots.panels(len(DRAWN_METHODS), columns=2, size=(4.4, 3.9))
    test = digits.data.test
    for ax, name in zip(axes, DRAWN_METHODS, strict=True):
        color = plots.method_style(name)["color"]
        probs = digits.fitted[name].predict_proba(test.x)  # type: ignore[union-attr]
        plots.reliability(probs, test.y, title=TITLES.get(name, name), color=color, ax=ax)  # type: ignore[union-attr]
    return figure


def _draw_digits(digits: Story, scale: Scale) -> Any:
    """The first digits with a wrong label, not a choice of fine ones."""
    rows = np.flatnonzero(digits.wrong)[: scale.pictures]
    train_rows, last = digits.data.train, DEMO_METHODS[-1]
    x = np.asarray(train_rows.x)[rows]
    probs = digits.fitted[last].predict_proba(x)
    said, clean = probs.argmax(axis=1), np.asarray(train_rows.clean)[rows]
    captions = [
        f"given {given}, clean {true}\n{last} says {guess} ({p:.0%}) {'✓' if guess == true else '✗'}"
        for given, true, guess, p in zip(train_rows.y[rows], clean, said, probs.max(axis=1), strict=True)
    ]
    return plots.image_grid(x.reshape(-1, 8, 8), captions, right=list(said == clean), columns=6, invert=True)


# -- the report ------------------------------------------------------------------------------------


def make_page(results: Mapping[str, Any], rows: list[list[str]], pictures: Mapping[str, bytes]) -> Page:
    """The report: every sentence is about the numbers of this run."""
    digits, moons = results["digits"], results["moons"]
    page = Page(
        "What wrong labels do to a classifier",
        f"{_wrong_words(digits)}. The methods see only those labels; the clean ones serve to measure.",
    )
    page.section("Result").table(rows, HEADER, caption=_ABOUT_COLUMNS, numbers=range(1, len(HEADER)))
    page.bullets(findings(results))
    page.section("Epoch by epoch").figures(
        [
            (pictures["accuracy"], "Accuracy on the clean labels of the test digits, after every epoch."),
            (pictures["memorised"], "Share of the wrong training labels that the network repeats."),
        ]
    )
    page.section("Two moons").text(
        f"{_wrong_words(moons)}. The line is where the predicted class changes. {moons_sentence(moons)}"
    ).figure(
        pictures["moons"],
        "Training points in the colour of their given label, crosses where it is wrong; the background is "
        "the predicted probability.",
    )
    page.section("Calibration").text(calibration_sentence(digits)).figure(
        pictures["reliability"],
        "Accuracy of the test digits by the confidence of the prediction; darker bars hold more of them. On "
        "the dashed line a confidence of 80% is right in 80% of the cases. ECE is the calibration error.",
    )
    n_shown = min(results["settings"]["pictures"], digits["n_wrong"])
    last = DEMO_METHODS[-1]
    page.section("Labels to look at").figure(
        pictures["digits"],
        f"The first {n_shown} training digits with a wrong label, in the order of the data: what was given, "
        f"what is true, and what {TITLES.get(last, last)} says, which was trained on the given labels.",
    )
    return _about(page, results)


def _about(page: Page, results: Mapping[str, Any]) -> Page:
    settings, versions = results["settings"], results["versions"]
    digits, moons = results["digits"], results["moons"]
    page.section("How it was done").code(results["command"])
    page.facts(
        [
            (
                "digits",
                f"{digits['n_train']:,} for training, {digits['n_test']:,} for testing; from scikit-learn",
            ),
            (
                "noise",
                f"symmetric: {settings['rate']:.0%} of the labels, in expectation, become another class",
            ),
            (
                "network",
                f"{settings['network']}, {settings['epochs']} epochs of Adam, rate {settings['lr']:g}, "
                f"batches of {settings['batch_size']}; no tuning, no early stopping",
            ),
            (
                "moons",
                f"{moons['n_train']:,} points, {settings['moons_rate']:.0%} of the labels flipped in "
                f"expectation; {settings['moons_network']}, {settings['moons_epochs']} epochs of Adam, rate "
                f"{settings['moons_lr']:g}, batches of {settings['moons_batch_size']}; chosen to show the effect",
            ),
            (
                "runs",
                f"one for each method and data set, seed {results['seed']}: an illustration, no benchmark",
            ),
            ("labels", f"SHA-256 of the corrupted digit labels {digits['label_sha256']}"),
            ("hardware", results["hardware"]),
            (
                "versions",
                ", ".join([f"noisegate {results['noisegate']}", *(f"{k} {v}" for k, v in versions.items())]),
            ),
        ]
    )
    return page
