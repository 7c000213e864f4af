"""Audits of made-up data, written as `noisegate audit` writes them, without training anything."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from noisegate.auditing import stored
from noisegate.auditing.records import Choice
from noisegate.auditing.state import open_log

CLASSES = ("bird", "cat", "dog")
#: Text that breaks pages which forget to escape: markup, quotes, newlines, right-to-left and combining signs.
NASTY = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">\'',
    "</script></style><b>",
    "two\nlines\r\nand\ttabs",
    "\u202eright to left\u202c \u05d0\u05d1\u05d2",
    "e\u0301\u0323 combining z\u0351\u0343",
    "{{ 7 * 7 }} {% raw %} ${x} `x`",
)


def probabilities(true, k, rng, sharpness=3.0):
    """Calibrated-looking probabilities (N, K) that lean to the true class."""
    logits = rng.normal(size=(len(true), k))
    logits[np.arange(len(true)), true] += sharpness
    p = np.exp(logits)
    return (p / p.sum(axis=1, keepdims=True)).astype(np.float32)


def make_audit(
    given, true, probs, *, classes, source, ids=None, label_values=None, audit_id="0123456789ab", **info
):
    """A `StoredAudit` from labels and probabilities: what an audit computes, in its simplest form."""
    n, k = probs.shape
    p_given = probs[np.arange(n), given]
    suggested = probs.argmax(axis=1)
    rows = pd.DataFrame(
        {
            "row": np.arange(n),
            "id": [str(i) for i in range(n)] if ids is None else list(ids),
            "given_label": given,
            "suggested_label": suggested,
            "suggested_probability": probs.max(axis=1),
            "quality": p_given,
            "p_wrong": 1 - p_given,
            "is_label_issue": p_given < 0.5,
            "is_sure": p_given < 0.1,
        }
    ).sort_values(["quality", "row"], kind="stable")
    flagged = np.sort(rows["row"].to_numpy()[rows["is_label_issue"].to_numpy()])
    near = np.stack([(flagged + step) % n for step in (1, 2, 3)], axis=1)
    similarity = np.tile(np.float32([0.9, 0.8, 0.7]), (len(flagged), 1))
    counts = np.zeros((k, k))
    np.add.at(counts, (true, given), 1)
    transition = (counts + 1) / (counts + 1).sum(axis=1, keepdims=True)
    wrong = np.cumsum(rows["p_wrong"].to_numpy(np.float64))
    looked = np.unique(np.linspace(1, n, min(n, 60)).astype(int))
    content = {
        "audit_id": audit_id,
        "task": "classification",
        "source": source,
        "classes": list(classes),
        "label_values": list(classes) if label_values is None else list(label_values),
        "settings": {"method": "auto", "folds": 5, "seed": 0},
        "noise_rate": {"value": 0.2, "low": 0.15, "high": 0.25, "level": 0.95},
        "transition": {"value": transition, "low": transition * 0.8, "high": np.minimum(transition * 1.2, 1)},
        "confused": [{"true": 1, "given": 0, "count": 12.0, "share": 0.1}],
        "precision": {
            "look": {"n": int((p_given < 0.5).sum()), "value": 0.7, "low": 0.6, "high": 0.8},
            "sure": {"n": int((p_given < 0.1).sum()), "value": 0.95, "low": 0.9, "high": 0.99},
        },
        "errors": {"value": float(wrong[-1]), "low": float(wrong[-1] * 0.8), "high": float(wrong[-1] * 1.2)},
        "curve": {
            "looked": looked.tolist(),
            "found": wrong[looked - 1].tolist(),
            "low": (wrong[looked - 1] * 0.9).tolist(),
            "high": (wrong[looked - 1] * 1.1).tolist(),
        },
        "instance_dependence": {
            "p_value": 0.004,
            "statistic": 31.2,
            "method": "likelihood ratio",
            "conclusion": "The noise depends on the input, not on the class alone.",
        },
        "duplicates": [{"rows": [0, 1], "labels": [int(given[0]), int(given[1])]}],
        "duplicates_total": 1,
        "notes": ["This audit was made up for a test."],
    } | info
    return stored.StoredAudit(content, rows, probs, stored.Neighbours(flagged, near, similarity))


def noisy(n, k, seed=0, rate=0.25):
    """(given, true, probs) of n rows of which about a quarter carry a wrong label."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, k, n)
    true[:k] = np.arange(k)
    given = np.where(rng.random(n) < rate, (true + rng.integers(1, k, n)) % k, true)
    given[:k] = np.arange(k)
    return given, true, probabilities(true, k, rng)


@pytest.fixture(scope="session")
def nasty():
    """Texts that break pages which forget to escape."""
    return NASTY


@pytest.fixture
def table_audit(tmp_path):
    """An audit folder of a CSV table; `make(n=..., cells=...)` returns (audit folder, table's path)."""

    def make(n=60, classes=CLASSES, *, cells=None, seed=0, audit_id="0123456789ab"):
        given, true, probs = noisy(n, len(classes), seed)
        frame = pd.DataFrame(
            {
                "length": np.round(np.linspace(0, 9, n), 2),
                "remark": [f"row {i}" for i in range(n)]
                if cells is None
                else [cells[i % len(cells)] for i in range(n)],
                "kind": [classes[i] for i in given],
            }
        )
        path = tmp_path / "data.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            frame.to_csv(file, index=False)
        source = stored.source_of("table", path, n, label="kind")
        audit = make_audit(given, true, probs, classes=classes, source=source, audit_id=audit_id)
        return stored.write(tmp_path / "audit", audit), path

    return make


@pytest.fixture
def folder_audit(tmp_path):
    """An audit folder of a folder of images; returns (audit folder, the images' folder)."""

    def make(n=30, classes=CLASSES, *, stem="{i:03d}", seed=0):
        given, true, probs = noisy(n, len(classes), seed)
        rng = np.random.default_rng(seed)
        top = tmp_path / "pictures"
        paths = []
        for i in range(n):
            path = top / classes[given[i]] / (stem.format(i=i) + ".png")
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(rng.normal(60 + 60 * true[i], 20, (16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(path)
            paths.append(str(path.relative_to(top)))
        order = np.argsort(paths)
        given, true, probs = given[order], true[order], probs[order]
        source = stored.source_of("folder", top, n)
        audit = make_audit(given, true, probs, classes=classes, source=source, ids=[paths[i] for i in order])
        return stored.write(tmp_path / "audit", audit), top

    return make


@pytest.fixture
def npz_audit(tmp_path):
    """An audit folder of an .npz file; returns (audit folder, the file)."""

    def make(n=40, k=3, *, image=False, seed=0):
        given, true, probs = noisy(n, k, seed)
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, 5)).astype(np.float32)
        if image:
            x = rng.integers(0, 256, (n, 1, 8, 8), dtype=np.uint8)
        path = tmp_path / "data.npz"
        np.savez_compressed(path, x=x, y=given.astype(np.int16), extra=np.arange(4))
        source = stored.source_of("npz", path, n)
        names = [str(i) for i in range(k)]
        audit = make_audit(given, true, probs, classes=names, label_values=list(range(k)), source=source)
        return stored.write(tmp_path / "audit", audit), path

    return make


@pytest.fixture
def decide():
    """Store decisions in an audit folder: {row: (decision, code of the label)}."""

    def store(folder, decided, reviewer="ana"):
        log = open_log(stored.read(folder))
        last = {d.row: d.id for d in log.since(0)}
        choices = [Choice(row, kind, label, last.get(row, 0)) for row, (kind, label) in decided.items()]
        log.decide(choices, reviewer=reviewer, key=repr((last, decided, reviewer)))
        log.close()

    return store
