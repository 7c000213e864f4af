"""The study of how well audits find wrong labels: every detector, kind of noise and data set.

    NOISEGATE_DATA=... python benchmarks/audit_quality.py detect CELLS [--workers N] [--only TEXT]
    python benchmarks/audit_quality.py report CELLS [--detection FOLDER]

`detect` stores what each detector says of each data set, one file a cell; finished cells are skipped, so
that it goes on after a stop. `report` judges all that is stored (which needs cleanlab) and writes
results/audit_quality.md and .json. Clean labels are used by `report` alone.

Flags: "look" of `noisegate.quality`; cleanlab's default with the same probabilities; where the most
probable class is not the given one; nothing. Rankings: our probability that the label is wrong, and
cleanlab's default, self-confidence. A signal of training ranks alone: as many rows are flagged by it as the
same run's probabilities flag by "look".
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

RESULTS = Path(__file__).parent / "results"
#: Rows of MNIST, drawn at random: nine detectors on four kinds of noise would take hours on all.
MNIST_ROWS = 10_000


def _root() -> Path:
    return Path(os.environ.get("NOISEGATE_DATA", "data"))


# -- data sets -------------------------------------------------------------------------------------


def noises(k: int) -> dict[str, Any]:
    """Kinds of synthetic noise, by name."""
    import noisegate as ng

    return {
        "symmetric 30 %": ng.noise.Symmetric(0.3, include_self=False),
        "pairs 30 %": ng.noise.Asymmetric(0.3, {i: (i + 1) % k for i in range(k)}),
        "by class 0 to 60 %": ng.noise.ClassDependent(np.linspace(0, 0.6, k).tolist()),
        "instance 30 %": ng.noise.InstanceDependent(0.3),
    }


def digits(noise: str, seed: int) -> Any:
    import noisegate as ng

    return ng.data.load("digits").corrupt(noises(10)[noise], seed=seed)


def mnist(noise: str, seed: int) -> Any:
    import noisegate as ng

    data = ng.data.load("mnist", root=_root())
    rows = np.random.default_rng(seed).permutation(len(data.train))[:MNIST_ROWS]
    part = ng.data.load((data.train.x[np.sort(rows)], data.train.y[np.sort(rows)]))
    return part.corrupt(noises(10)[noise], seed=seed)


def features(noise: str, seed: int) -> Any:
    """CIFAR-10N: people's labels of all 50,000 pictures, as features of a network from ImageNet."""
    import noisegate as ng

    with np.load(_root() / "features" / "cifar10_efficientnet_lite0_pca192.npz") as content:
        x = content["train"].astype(np.float32)
    with np.load(_root() / "cifar-n" / "cifar10n.npz") as content:
        y, clean = (content[name].astype(np.int64) for name in (noise, "clean_label"))
    return ng.data.load((x, clean)).with_labels(y)


def texts(noise: str, seed: int) -> Any:
    """Sentences and titles as the vectors that `noisegate audit` makes of a column of texts."""
    import pandas as pd

    import noisegate as ng

    name = {"one worker each": "sentiment", "rules": "yoruba"}[noise]
    frame = pd.read_csv(_root() / "crowd" / f"{name}_train.csv")
    data = ng.data.load(frame[["text", "clean"]], label="clean")
    return data.with_labels(np.searchsorted(np.asarray(data.label_values), frame["label"]))


SOURCES: dict[str, Callable[[str, int], Any]] = {
    "digits": digits, "MNIST": mnist, "CIFAR-10N": features, "texts": texts,
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One detector on one data set with one kind of noise."""

    source: str
    noise: str
    seed: int
    detector: str

    @property
    def name(self) -> str:
        """Of its file."""
        text = f"{self.source} {self.noise} {self.seed} {self.detector}"
        plain = "".join(c if c.isalnum() else "-" for c in text.lower())
        return f"{plain}-{zlib.crc32(text.encode()):08x}.npz"


def cells() -> Iterator[Cell]:
    """The grid, those that take longest first."""
    kinds = {
        "CIFAR-10N": (("worse_label", "aggre_label", "random_label1"), (0,)),
        "MNIST": (tuple(noises(10)), (0,)),
        "texts": (("one worker each", "rules"), (0,)),
        "digits": (tuple(noises(10)), (0, 1, 2)),
    }
    for source, (names, seeds) in kinds.items():
        for detector in DETECTORS:
            for noise in names:
                for seed in seeds:
                    yield Cell(source, noise, seed, detector)


# -- detectors -------------------------------------------------------------------------------------


def by_audit(method: str, detector: str = "cross-fitted") -> Callable[[Any, str, int], dict[str, Any]]:
    """What an audit works with: probabilities, and signals of training."""

    def detect(data: Any, device: str, seed: int) -> dict[str, Any]:
        from noisegate.auditing.audit import probabilities
        from noisegate.auditing.crossfit import Fitting, Where

        # One small network for pictures: what "auto" takes depends on the machine.
        network = "lenet5" if data.train.x.ndim == 4 else "auto"
        recipe = {"epochs": 20} if data.train.x.ndim == 4 else None
        found = probabilities(data, Fitting(method, network, recipe, seed, device), 5, Where(), detector)
        return {"probs": found.probs} | dict(found.signals)

    return detect


def logistic(data: Any, device: str, seed: int) -> dict[str, Any]:
    """What cleanlab's CleanLearning() works with: scikit-learn's LogisticRegression(), five folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    x = data.train.x.reshape(len(data.train), -1).astype(np.float32)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 100 steps, its default, are not always enough
        model = LogisticRegression()
        x = x / 255 if data.train.x.dtype == np.uint8 else x
        probs = cross_val_predict(model, x, data.train.y, cv=folds, method="predict_proba")
    return {"probs": probs}


DETECTORS: dict[str, Callable[[Any, str, int], dict[str, Any]]] = {
    "auto, cross-fitted": by_audit("auto"),
    "logistic regression, 5 folds": logistic,
    "ce, cross-fitted": by_audit("ce"),
    "ce, in training": by_audit("ce", "in-training"),
    "ln, in training": by_audit("ln", "in-training"),
    "co-teaching, in training": by_audit("co-teaching", "in-training"),
    "elr, in training": by_audit("elr", "in-training"),
    "causalnl, in training": by_audit("causalnl", "in-training"),
    "neighbours' vote": by_audit("auto", "neighbours"),
}


def run_cell(cell: Cell, folder: Path, device: str) -> str:
    """Do one cell and store it."""
    import torch

    from noisegate._io.files import atomic

    torch.set_num_threads(1)
    data = SOURCES[cell.source](cell.noise, cell.seed)
    start = time.perf_counter()
    found = DETECTORS[cell.detector](data, device, cell.seed)
    seconds = time.perf_counter() - start
    arrays = {name: np.asarray(value, np.float16) for name, value in found.items()}
    about = {"source": cell.source, "noise": cell.noise, "seed": cell.seed, "detector": cell.detector}
    about |= {"seconds": seconds, "torch": torch.__version__, "python": platform.python_version()}
    about["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu"
    with atomic(folder / cell.name) as file:
        np.savez_compressed(
            file, **arrays, given=data.train.y.astype(np.int16), true=data.train.clean.astype(np.int16),
            about=np.array(json.dumps(about)),
        )  # fmt: skip
    return f"{cell.source}, {cell.noise}, {cell.seed}, {cell.detector}: {seconds:.0f} s"


def detect(folder: Path, workers: int, only: str, device: str) -> None:
    """Do the cells that are not stored yet."""
    folder.mkdir(parents=True, exist_ok=True)
    left = [cell for cell in cells() if not (folder / cell.name).exists()]
    left = [cell for cell in left if all(word in str(cell) for word in only.split(","))]
    print(f"{len(left)} cells are left", flush=True)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_cell, cell, folder, device): cell for cell in left}
        for done in as_completed(waiting):
            failed = done.exception()
            print(f"{waiting[done]} FAILED: {failed}" if failed else done.result(), flush=True)


# -- judging ---------------------------------------------------------------------------------------


def scores(flags: Any, suspicion: Any, wrong: Any) -> list[float]:
    """Precision, recall, F1 of flags; AUROC, average precision of a ranking; in per cent."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    hit = float((flags & wrong).sum())
    numbers = [
        hit / max(1.0, float(flags.sum())), hit / float(wrong.sum()),
        2 * hit / max(1.0, float(flags.sum() + wrong.sum())),
        float(roc_auc_score(wrong, suspicion)), float(average_precision_score(wrong, suspicion)),
    ]  # fmt: skip
    return [100 * number for number in numbers]


def judged(probs: Any, given: Any, true: Any) -> dict[str, list[float]]:
    """Every rule on one set of probabilities."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    from noisegate.quality import judge

    wrong, p = given != true, probs.astype(np.float64)
    p /= p.sum(axis=1, keepdims=True)
    found = judge(p, given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = find_label_issues(given, p, n_jobs=1)
        quality = get_label_quality_scores(given, p)
    return {
        "noisegate": scores(found.is_label_issue, found.wrong, wrong),
        "cleanlab": scores(theirs, 1 - quality, wrong),
        "argmax differs": scores(p.argmax(axis=1) != given, 1 - quality, wrong),
    }


def by_signal(signal: Any, n: int, wrong: Any) -> list[float]:
    """A ranking alone, its first n rows flagged."""
    flags = np.zeros(len(wrong), bool)
    flags[np.argsort(-signal.astype(np.float64), kind="stable")[:n]] = True
    return scores(flags, signal.astype(np.float64), wrong)


def stored(folder: Path, detection: Path | None) -> Iterator[dict[str, Any]]:
    """One line for every rule on every cell that is there."""
    from noisegate.quality import judge

    for path in sorted(detection.glob("*.npz")) if detection else ():
        with np.load(path) as content:
            probs, given, true = content["probs"], content["given"].astype(int), content["true"].astype(int)
        about = {"source": "detection", "noise": path.stem, "seed": 0, "detector": "as published"}
        for rule, numbers in judged(probs, given, true).items():
            yield about | {"rule": rule, "rate": 100 * float((given != true).mean()), "scores": numbers}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as content:
            arrays = {name: content[name] for name in content.files}
        about = json.loads(str(arrays.pop("about")))
        given, true = arrays.pop("given").astype(int), arrays.pop("true").astype(int)
        probs, wrong = arrays.pop("probs"), given != true
        about |= {"rate": 100 * float(wrong.mean())}
        for rule, numbers in judged(probs, given, true).items():
            yield about | {"rule": rule, "scores": numbers}
        p = probs.astype(np.float64)
        n = int(judge(p / p.sum(axis=1, keepdims=True), given).is_label_issue.sum())
        for name, signal in arrays.items():
            yield about | {"rule": name.removeprefix("signal_"), "scores": by_signal(signal, n, wrong)}


NAMES = ("precision", "recall", "F1", "AUROC", "average precision")


def _mean(lines: list[dict[str, Any]]) -> list[str]:
    return [f"{v:.1f}" for v in np.mean([line["scores"] for line in lines], axis=0)]


def summary(lines: list[dict[str, Any]]) -> list[str]:
    """Means over the data sets that every detector has been run on, one line a detector and rule."""
    own = [line for line in lines if line["source"] != "detection"]
    grid: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in own:
        grid.setdefault((line["detector"], line["rule"]), []).append(line)
    full = max((len(part) for part in grid.values()), default=0)
    rows = [
        [detector, rule, f"{len(part)}{'' if len(part) == full else ' of ' + str(full)}", *_mean(part)]
        for (detector, rule), part in grid.items()
    ]
    rows.sort(key=lambda row: -float(row[5]))
    head = f"| detector | flags and ranking | cells | {' | '.join(NAMES)} |"
    return [head, "|---|---|---|" + "---|" * len(NAMES), *("| " + " | ".join(row) + " |" for row in rows)]


def tables(lines: list[dict[str, Any]]) -> Iterator[str]:
    """One table a data set and noise; seeds are averaged and counted."""
    places = dict.fromkeys((line["source"], line["noise"]) for line in lines)
    for source, noise in places:
        part = [line for line in lines if (line["source"], line["noise"]) == (source, noise)]
        seeds = len({line["seed"] for line in part})
        rate = np.mean([line["rate"] for line in part])
        yield f"### {source}, {noise}: {rate:.1f} % wrong" + (f", mean of {seeds} seeds" if seeds > 1 else "")
        yield ""
        yield f"| detector | flags and ranking | {' | '.join(NAMES)} | seconds |"
        yield "|---|---|" + "---|" * (len(NAMES) + 1)
        yield f"| - | nothing is wrong | - | 0.0 | 0.0 | 50.0 | {rate:.1f} | 0 |"
        for detector, rule in dict.fromkeys((line["detector"], line["rule"]) for line in part):
            mine = [line for line in part if (line["detector"], line["rule"]) == (detector, rule)]
            took = [line["seconds"] for line in mine if "seconds" in line]
            seconds = f"{np.mean(took):.0f}" if took else "-"
            yield f"| {detector} | {rule} | {' | '.join(_mean(mine))} | {seconds} |"
        yield ""


def report(folder: Path, detection: Path | None) -> None:
    """Judge what is stored, and write the tables."""
    import cleanlab

    lines = list(stored(folder, detection))
    expected = sum(1 for _ in cells())
    done = len(list(folder.glob("*.npz")))
    devices = sorted({f"{line['device']}, torch {line['torch']}" for line in lines if "device" in line})
    text = [
        "# How well audits find wrong labels", "",
        "`python benchmarks/audit_quality.py detect CELLS`, then `report CELLS --detection DETECTION`; "
        f"{done} of {expected} cells, detected on {'; '.join(devices)}; judged with Python "
        f"{platform.python_version()}, cleanlab {cleanlab.__version__}. In per cent; seconds are those of a "
        "process among others on the machine.", "",
        "noisegate: flags \"look\", ranking by the probability that the label is wrong. cleanlab: its default "
        "flags and self-confidence, with the same probabilities; with those of \"logistic regression, 5 folds\" "
        "it is CleanLearning() as it comes. argmax differs: the most probable class is not the given one. Other "
        "names are signals of training, which rank alone.", "",
        "## Means over data sets, kinds of noise and seeds", "", *summary(lines), "", "## Every cell", "",
        *tables(lines),
    ]  # fmt: skip
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audit_quality.md").write_text("\n".join(text).rstrip() + "\n")
    (RESULTS / "audit_quality.json").write_text(json.dumps(lines, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=("detect", "report"))
    parser.add_argument("cells", type=Path, help="folder of the stored cells")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="words that a cell must have, with commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--detection", type=Path, help="folder of probabilities with known truth")
    arguments = parser.parse_args()
    if arguments.what == "detect":
        detect(arguments.cells, arguments.workers, arguments.only, arguments.device)
    else:
        report(arguments.cells, arguments.detection)


if __name__ == "__main__":
    main()
