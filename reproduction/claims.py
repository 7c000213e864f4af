"""The papers' claims, tested on the runs at the size of a laptop: paired t-tests over common seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sizes

from noisegate.evaluation.significance import paired
from noisegate.studies import papers
from noisegate.studies.store import Result, Store
from noisegate.studies.study import Study

LEVEL = 0.05
Place = tuple[str, str, str]


@dataclass(frozen=True)
class Claim:
    """That a number is larger in one place of a study than in another.

    Attributes
    ----------
    words : str
    more, less : (row, column, group)
    value : str
        The name of a metric; by default the study's first. "NAME@20" is that of epoch 20.
    """

    words: str
    more: Place
    less: Place
    value: str | None = None


def _temperature(groups: Mapping[str, str]) -> Iterator[Claim]:
    names = {
        "noisy_test_log_likelihood": "log-likelihood",
        "noisy_test_accuracy": "accuracy",
        "test_accuracy": "clean accuracy",
    }
    for group, column in groups.items():
        for value, name in names.items():
            for row, words in (("Homoscedastic", "homoscedastic"), ("τ = 1.0", "τ = 1")):
                place = (column, group)
                yield Claim(
                    f"{group}: {name}, τ* over {words}", ("Ours τ = τ*", *place), (row, *place), value
                )


def _table3() -> Iterator[Claim]:
    shown = {
        "train_clean_accuracy": ("all rows against their true labels", True),
        "train_right_accuracy": ("rightly labelled rows", True),
        "train_recovered": ("wrongly labelled rows against their true labels", True),
        "train_memorised": ("wrongly labelled rows: fewer wrong labels repeated", False),
    }
    for value, (words, up) in shown.items():
        for alpha in ("0.1", "0.2"):
            smoothed, plain = (
                (f"α = {alpha}", "CIFAR-100 ResNet-32", ""),
                ("α = 0.0", "CIFAR-100 ResNet-32", ""),
            )
            yield Claim(f"{words}, α = {alpha}", *((smoothed, plain) if up else (plain, smoothed)), value)


def _figure2() -> Iterator[Claim]:
    def at(method: str, alpha: str) -> Place:
        return method, f"α = {alpha}", "CIFAR-10"

    early = "test_accuracy@20"
    for alpha in ("0.1", "0.2", "0.4", "0.6", "0.8"):
        yield Claim(f"epoch 20: LS, α = {alpha}, over α = 0", at("LS", alpha), at("LS", "0.0"), early)
    yield Claim("epoch 20: LS, α = 0.4 over 0.2, the noise rate", at("LS", "0.4"), at("LS", "0.2"), early)
    yield Claim("epoch 20: FC over LS, α = 0.4", at("FC", "0.4"), at("LS", "0.4"), early)
    for alpha in ("0.1", "0.4", "0.8"):
        yield Claim(f"LS, α = {alpha}, over α = 0", at("LS", alpha), at("LS", "0.0"))
    yield Claim("LS gains from α well over the noise rate: 0.4 over 0.2", at("LS", "0.4"), at("LS", "0.2"))
    yield Claim("FC gains from α well over the noise rate: 0.4 over 0.2", at("FC", "0.4"), at("FC", "0.2"))
    yield Claim("FC over LS, α = 0.4", at("FC", "0.4"), at("LS", "0.4"))
    yield Claim("BC, α = 0.1, below α = 0", at("BC", "0.0"), at("BC", "0.1"))
    yield Claim("BC, α = 0.8, over α = 0", at("BC", "0.8"), at("BC", "0.0"))


def _columns(row: str, *pairs: tuple[str, str, str]) -> Iterator[Claim]:
    for words, more, less in pairs:
        yield Claim(words, (row, more, ""), (row, less, ""))


def _figure6() -> Iterator[Claim]:
    for alpha in ("0.1", "0.2", "0.4", "0.6", "0.8"):
        more, less = (("LS on teacher", f"α = {value}", "") for value in (alpha, "0.0"))
        yield Claim(f"a teacher smoothed by {alpha} over a plain one", more, less)


def _calibration() -> Iterator[Claim]:
    for column in ("LS", "FC", "BC"):
        more, less = ((f"α = {alpha}", column, "") for alpha in ("0.2", "0.0"))
        yield Claim(f"{column}: calibration error grows, α = 0.2 over α = 0", more, less)
    yield Claim("BC's is larger than LS's, α = 0.2", ("α = 0.2", "BC", ""), ("α = 0.2", "LS", ""))
    yield Claim("FC's is larger than LS's, α = 0.1", ("α = 0.1", "FC", ""), ("α = 0.1", "LS", ""))


def _readings() -> Iterator[Claim]:
    for rate in ("IDN-45%", "IDN-50%"):
        yield Claim(f"{rate}: co-teaching over CE", ("Co-teaching", rate, ""), ("CE", rate, ""))
        yield Claim(
            f"{rate}: two updates over one", ("CausalNL, two updates", rate, ""), ("CausalNL", rate, "")
        )
        for words in ("", ", two updates", ", elbo", ", code"):
            yield Claim(
                f"{rate}: CausalNL{words} over co-teaching",
                (f"CausalNL{words}", rate, ""),
                ("Co-teaching", rate, ""),
            )


def _moons() -> Iterator[Claim]:
    for moons in ("Our moons", "Authors' moons"):
        for words in ("paper", "paper, two updates", "elbo", "code"):
            rows = (f"CausalNL ({words})", "Co-teaching")
            more, less = ((row, "IDN-45%", moons) for row in rows)
            yield Claim(f"{moons}: CausalNL ({words}) over co-teaching", more, less)


def _covariances() -> Iterator[Claim]:
    for row in ("Identity", "Isotropic", "Diagonal", "Full, without dummy"):
        yield Claim(
            f"100 classes: full over {row.lower()}", ("Full", "CIFAR-100N", ""), (row, "CIFAR-100N", "")
        )


CLAIMS: Mapping[str, tuple[Claim, ...]] = {
    "ln-table3": tuple(_covariances()),
    "temperature-table6": tuple(_temperature({"MNIST": "paper's τ* = 5", "CIFAR-10": "paper's τ* = 10"})),
    "temperature-table1": tuple(_temperature({"MNIST": "paper's τ* = 10"})),
    "smoothing-table3": tuple(_table3()),
    "smoothing-table4": tuple(_calibration()),
    "smoothing-figure2": tuple(_figure2()),
    "smoothing-table7": tuple(
        _columns(
            "CIFAR-10 ResNet-32",
            ("LS over the baseline", "LS", "Baseline"),
            ("LS over FC smoothing", "LS", "FC smoothing"),
            ("BC smoothing below the baseline", "Baseline", "BC smoothing"),
            ("LS over FC Patrini", "LS", "FC Patrini"),
            ("LS over BC Patrini", "LS", "BC Patrini"),
        )
    ),
    "smoothing-table5": tuple(
        _columns(
            "CIFAR-10 ResNet-32",
            ("LS on the teacher over vanilla distillation", "LS on teacher", "Vanilla distillation"),
            ("FC on the teacher over vanilla distillation", "FC on teacher", "Vanilla distillation"),
            ("LS on the student over vanilla distillation", "LS on student", "Vanilla distillation"),
            ("FC on the student over vanilla distillation", "FC on student", "Vanilla distillation"),
        )
    ),
    "smoothing-figure6": tuple(_figure6()),
    "causalnl-table1-variants": tuple(_readings()),
    "causalnl-figure2": tuple(_moons()),
}


def table(store: Store, name: str, changed: str = "") -> list[str]:
    """What became of the claims of a study, as Markdown."""
    return tested(sizes.sized(papers.get(name), changed), CLAIMS[name], store)


def tested(study: Study, claims: Sequence[Claim], store: Store) -> list[str]:
    """What became of claims, as Markdown; those that were not run are named."""
    lines = [_line(study, claim, store) for claim in claims]
    if not any(lines):
        return ["Not run yet.", ""]
    return [
        *["| claim | difference | pairs | p | |", "|---|---|---|---|---|"],
        *(line or f"| {claim.words} | not run | | | |" for claim, line in zip(claims, lines, strict=True)),
        "",
    ]


def _line(study: Study, claim: Claim, store: Store) -> str:
    name = claim.value or study.values[0].name
    value = next(v for v in study.values if v.name == name.partition("@")[0])
    unit = 100.0 if value.percent or value.name.endswith("accuracy") else 1.0
    more, less = (_numbers(study, place, name, store) for place in (claim.more, claim.less))
    common = sorted(more.keys() & less.keys())
    if not common:
        return ""
    gains = [unit * (more[seed] - less[seed]) for seed in common]
    mean, p = float(np.mean(gains)), paired(gains, [0.0] * len(gains))
    spread = f" ± {np.std(gains, ddof=1):.2g}" if len(gains) > 1 else ""
    words = "-" if p is None else f"{p:.2g}"
    return f"| {claim.words} | {mean:+.3g}{spread} | {len(common)} | {words} | {verdict(mean, p)} |"


def verdict(mean: float, p: float | None) -> str:
    """What a test says of a claim."""
    if mean == 0:
        return "no difference"
    if p is not None and p < LEVEL:
        return "**shows**" if mean > 0 else "**the opposite shows**"
    return "right sign" if mean > 0 else "wrong sign"


def _numbers(study: Study, place: Place, value: str, store: Store) -> dict[int, float]:
    cell = study.cell(*place)
    if cell is None:
        return {}
    results: Mapping[int, Result] = sizes.chosen(study, cell, store)[0]
    name, _, epoch = value.partition("@")
    if epoch:
        return {seed: result.history[-1][int(epoch) - 1][name] for seed, result in results.items()}
    return {seed: result.metrics[name] for seed, result in results.items() if name in result.metrics}
