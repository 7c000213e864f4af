"""The nine methods of the Logistic-Normal paper's table 2 on features of a frozen network, with people's labels.

    python reproduction/features.py --features F.npz --clean C.npz --human H.npz --out DIR [--sets Worst ...]
    python reproduction/features.py --out DIR --table

F.npz has what a network that was trained on ImageNet says of CIFAR-10, `train` (50,000, d) and `test` (10,000, d);
C.npz the labels of CIFAR-10, `train` and `test`; H.npz those of CIFAR-10N under its authors' names; all in the
original order. On them trains a network of one hidden layer: minutes, where the paper's protocol takes GPUs. The
hyper-parameters are those of the paper's table 6, though chosen for another network. On the labels "worst" there
are also the simpler covariances of LN, as in the paper's table 3.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from batch import add_options, work
from claims import Claim, tested
from sizes import table

from noisegate.data.dataset import Dataset, Split
from noisegate.data.registry import DATASETS, register
from noisegate.studies import papers
from noisegate.studies.laptop import Laptop
from noisegate.studies.settings import RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import Cell, Study, slug

SETS = {
    "Random 1": "random_label1",
    "Random 2": "random_label2",
    "Random 3": "random_label3",
    "Aggregate": "aggre_label",
    "Worst": "worse_label",
}
#: How the coverage calls it.
WORDS = "tables 2 and 3 on frozen features, `features.py`"
NETWORK = "mlp-256"
RECIPE = {"epochs": 30, "batch_size": 256, "optimizer": "adam", "lr": 1e-3}
SAMPLES = 100
SEEDS = 5


def load(features: Path, clean: Path, human: Path, column: str) -> Dataset:
    """Features with one set of labels by people."""
    inputs, labels, given = (np.load(path) for path in (features, clean, human))
    train, test = (inputs[part].astype(np.float32) for part in ("train", "test"))
    right = labels["train"].astype(np.int64)
    if (given["clean_label"] != right).any():
        raise SystemExit(f"{human} and {clean} are not in the same order")
    return Dataset(
        name(column),
        Split(train, given[SETS[column]].astype(np.int64), right),
        Split(test, labels["test"].astype(np.int64)),
        classes=tuple(map(str, range(10))),
    )


def name(column: str) -> str:
    """Of the dataset."""
    return f"cifar10-features-{slug(column)}"


def study() -> Study:
    """Table 2's columns of CIFAR-10N and table 3's covariances, on features."""
    whole = papers.get("ln-table2").only(columns=[slug(column) for column in SETS])
    simpler = [
        dataclasses.replace(cell, row=f"LN, {cell.row.lower()}", column="Worst", group="CIFAR-10N")
        for cell in papers.get("ln-table3").only(columns=["cifar-10n"])
        if cell.row != "Full"  # the same run as table 2's
    ]
    cells = tuple(dataclasses.replace(cell, settings=_settings(cell)) for cell in (*whole, *simpler))
    return Study(name="features", title="", reference="", cells=cells, laptop=Laptop(seeds=SEEDS))


def _settings(cell: Cell) -> RunSettings:
    params = cell.settings.params
    fewer = {name: SAMPLES for name in ("n_samples", "n_samples_eval") if name in params}
    return RunSettings(
        data={"name": name(cell.column)},
        method=cell.settings.method,
        params={**params, **fewer},
        network=NETWORK,
        recipe=RECIPE,
    )


def claims() -> Iterator[Claim]:
    """LN on labels by people, and the order of its covariances."""
    for cell in study():
        if cell.row != "LN" and (cell.row == "CE" or cell.column == "Worst"):
            words = cell.row.replace("LN,", "a covariance that is") if "LN," in cell.row else cell.row
            here = cell.column, cell.group
            yield Claim(f"{cell.column}: LN over {words}", ("LN", *here), (cell.row, *here))


def lines(store: Store) -> list[str]:
    """The claims and every cell that was run, as Markdown."""
    return [*tested(study(), tuple(claims()), store), *table(study(), store)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    for option in ("features", "clean", "human"):
        parser.add_argument(f"--{option}", type=Path)
    add_options(parser)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="of labels")
    parser.add_argument("--table", action="store_true", help="only print what is stored")
    words = parser.parse_args()
    if words.table:
        print("\n".join(lines(Store(words.out))))
        return 0
    for column in words.sets:
        make = functools.partial(load, words.features, words.clean, words.human, column)
        DATASETS.pop(name(column), None)
        register(name(column), "features of CIFAR-10")(make)
    cells = [cell for cell in study() if cell.column in words.sets]
    runs = [cell.settings.replace(seed=seed) for seed in range(words.seeds) for cell in cells]
    return work(lambda _: runs, words)


if __name__ == "__main__":
    sys.exit(main())
