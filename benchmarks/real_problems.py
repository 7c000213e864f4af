"""The problems of real_noise.py: vectors with wrong labels, of people or made here, and clean ones for the test.

CIFAR-10N (people's labels) on frozen features of an ImageNet network, CIFAR-10H (one person's vote a
row) on the same; sentences labelled by one worker each and Yoruba titles labelled by rules, as TF-IDF
with truncated SVD; scikit-learn's digits, breast cancer and wine, made classes, and fifty classes of
twenty rows, with labels moved at random, to the next class, or more often where classes meet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Problem(NamedTuple):
    """Training vectors with observed labels, test vectors with clean ones, and the training rows' clean labels."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    clean: np.ndarray


def _root() -> Path:
    return Path(os.environ.get("NOISEGATE_DATA", "data"))


def _cifar_test_labels() -> np.ndarray:
    packed = _root() / "cifar10" / "labels.npz"
    if packed.exists():
        with np.load(packed) as content:
            return content["test"].astype(np.int64)
    import noisegate as ng

    return ng.data.load("cifar10", root=_root()).test.y


@cache
def _features() -> tuple[np.ndarray, np.ndarray]:
    with np.load(_root() / "features" / "cifar10_efficientnet_lite0_pca192.npz") as content:
        return content["train"].astype(np.float32), content["test"].astype(np.float32)


def cifar(labels: str, n: int) -> Callable[[int], Problem]:
    """CIFAR-10N on frozen features: `n` random training rows with one set of people's labels."""

    def problem(seed: int) -> Problem:
        x, x_test = _features()
        with np.load(_root() / "cifar-n" / "cifar10n.npz") as content:
            y, clean = content[labels].astype(np.int64), content["clean_label"].astype(np.int64)
        rows = np.random.default_rng(seed).permutation(len(x))[:n]
        return Problem(x[rows], y[rows], x_test, _cifar_test_labels(), clean[rows])

    return problem


def votes(n: int) -> Callable[[int], Problem]:
    """CIFAR-10H: `n` rows of CIFAR-10's test set, each with one person's vote; the others are the test."""

    def problem(seed: int) -> Problem:
        rng = np.random.default_rng(seed)
        x, clean = _features()[1], _cifar_test_labels()
        with np.load(_root() / "cifar10h" / "cifar10h_counts_uint8.npz") as content:
            counts = content[content.files[0]].astype(float)
        order = rng.permutation(len(x))
        rows, test = order[:n], order[n:]
        y = np.array([rng.choice(10, p=each / each.sum()) for each in counts[rows]])
        return Problem(x[rows], y, x[test], clean[test], clean[rows])

    return problem


def texts(name: str) -> Callable[[int], Problem]:
    """A text problem as TF-IDF of words and pairs of words, reduced to 200 numbers."""

    def problem(seed: int) -> Problem:
        import pandas as pd
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        train, test = (pd.read_csv(_root() / "crowd" / f"{name}_{part}.csv") for part in ("train", "test"))
        # Another draw of rows for every seed: 80 % of them.
        rows = np.random.default_rng(seed).permutation(len(train))[: int(0.8 * len(train))]
        train = train.iloc[rows]
        words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
        svd = TruncatedSVD(200, random_state=seed)
        x = svd.fit_transform(words.fit_transform(train["text"])).astype(np.float32)
        x_test = svd.transform(words.transform(test["text"])).astype(np.float32)
        classes, y = np.unique(train["label"], return_inverse=True)
        y_test, clean = (np.searchsorted(classes, each) for each in (test["label"], train["clean"]))
        return Problem(x, y, x_test, y_test, clean)

    return problem


def synthetic(name: str, noise: str) -> Callable[[int], Problem]:
    """One of scikit-learn's tables, a third of it for the test, with noise of one kind."""

    def problem(seed: int) -> Problem:
        from sklearn import datasets
        from sklearn.model_selection import train_test_split

        if name == "made":
            x, y = datasets.make_classification(
                3000, 40, n_informative=12, n_redundant=8, n_classes=6, class_sep=1.2, random_state=seed
            )
        elif name == "fifty classes":
            x, y = datasets.make_classification(
                3000, 40, n_informative=30, n_redundant=0, n_classes=50, n_clusters_per_class=1,
                class_sep=3.0, flip_y=0, random_state=seed,
            )  # fmt: skip
        else:
            x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        share = 2 / 3 if name == "fifty classes" else 1 / 3
        split = train_test_split(x.astype(np.float32), y, test_size=share, random_state=seed, stratify=y)
        x_train, x_test, y_train, y_test = split
        noisy = _corrupted(noise, x_train, y_train, seed)
        return Problem(x_train, noisy, x_test, y_test, y_train)

    return problem


def _corrupted(noise: str, x: np.ndarray, y: np.ndarray, seed: int) -> np.ndarray:
    import noisegate as ng

    k = int(y.max()) + 1
    if noise == "clean":
        return y
    if noise == "boundary":
        return _near_the_boundary(x, y, seed)
    kinds = {
        "symmetric": lambda: ng.noise.Symmetric(0.3, include_self=False),
        "next class": lambda: ng.noise.Asymmetric(0.3, {i: (i + 1) % k for i in range(k)}),
    }
    return kinds[noise]().corrupt(y, n_classes=k, seed=seed)


def _near_the_boundary(x: np.ndarray, y: np.ndarray, seed: int, rate: float = 0.25) -> np.ndarray:
    """Labels become the class that a rough model finds second, more often the less sure it is."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler().fit_transform(x)
    probs = LogisticRegression(C=0.01, max_iter=500).fit(scaled, y).predict_proba(scaled)
    own = probs[np.arange(len(y)), y]
    others = probs.copy()
    others[np.arange(len(y)), y] = -1
    doubt = 1 - own
    chance = np.clip(doubt * rate / doubt.mean(), 0, 0.9)
    return np.where(np.random.default_rng(seed).random(len(y)) < chance, others.argmax(1), y)


NOISES = ("symmetric", "next class", "boundary", "clean")
PROBLEMS: dict[str, Callable[[int], Problem]] = {
    **{
        f"CIFAR-10N {kind}, {n:,}": cifar(key, n)
        for n in (1000, 5000)
        for kind, key in (
            ("worst", "worse_label"),
            ("random1", "random_label1"),
            ("aggregate", "aggre_label"),
        )
    },
    "CIFAR-10H, one vote, 1,000": votes(1000),
    "sentences, one worker": texts("sentiment"),
    "Yoruba titles, rules": texts("yoruba"),
    **{f"{name}, {noise}": synthetic(name, noise) for name in ("digits", "made") for noise in NOISES},
    # Of two classes the next one is the other one: that would be the symmetric noise again.
    **{
        f"breast_cancer, {noise}": synthetic("breast_cancer", noise)
        for noise in NOISES
        if noise != "next class"
    },
    **{f"wine, {noise}": synthetic("wine", noise) for noise in NOISES},
    **{f"fifty classes, {noise}": synthetic("fifty classes", noise) for noise in ("symmetric", "clean")},
}
REAL = tuple(name for name in PROBLEMS if name.startswith(("CIFAR", "sentences", "Yoruba")))
CLEAN = tuple(name for name in PROBLEMS if name.endswith("clean"))
