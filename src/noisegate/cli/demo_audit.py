"""The last part of the demo: an audit of corrupted digits, beside the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noisegate import data as datasets
from noisegate._io.files import write_bytes
from noisegate.auditing import stored
from noisegate.auditing.audit import audit
from noisegate.auditing.report import write_report
from noisegate.auditing.stored import StoredAudit
from noisegate.cli import output
from noisegate.data.dataset import Dataset
from noisegate.noise import Symmetric
from noisegate.reporting import plots
from noisegate.training.precision import one_thread
from noisegate.training.recipe import Recipe

#: Number of suspicious digits to draw.
SHOWN = 20
FOLDER, PICTURE = "audit", "suspects.png"
#: Share of wrong labels, and how the digits are learnt: seconds on one core.
RATE = 0.4
RECIPE = Recipe(epochs=20, batch_size=128, lr=1e-3)


def audit_digits(
    data: Dataset, out: Path, recipe: Recipe, *, network: str, folds: int = 4, seed: int = 0
) -> StoredAudit:
    """Audit the training digits and write the audit folder, with the clean labels beside."""
    found = audit(
        replace(data, test=None),
        method="ce",
        network=network,
        recipe=recipe,
        folds=folds,
        seed=seed,
        device="cpu",
        source=stored.source_of("named", "digits", len(data.train), image_shape=(8, 8)),
    ).audit
    rows = found.rows.assign(true_label=np.asarray(data.train.clean)[found.rows["row"].to_numpy()])
    wrong = (rows["true_label"] != rows["given_label"]).to_numpy()
    flags = {"look": rows["is_label_issue"].to_numpy(), "sure": rows["is_sure"].to_numpy()}
    truth: dict[str, Any] = {"errors": int(wrong.sum())}
    for name, flag in flags.items():
        truth[f"flagged_{name}"], truth[f"found_by_{name}"] = int(flag.sum()), int((wrong & flag).sum())
    info = dict(found.info) | {"truth": truth}
    folder = stored.write(out / FOLDER, replace(found, info=info, rows=rows))
    write_report(folder)
    return stored.read(folder)


def facts(found: StoredAudit) -> dict[str, Any]:
    """Return the content of results.json."""
    keys = ("truth", "errors", "noise_rate", "precision")
    return {"rows": len(found)} | {key: found.info[key] for key in keys}


def sentences(told: Mapping[str, Any]) -> list[str]:
    """What the audit found, beside the truth."""
    truth, errors, n = told["truth"], told["errors"], told["rows"]
    look, hit = truth["flagged_look"], truth["found_by_look"]
    return [
        f"The audit estimates {errors['value']:.0f} wrong labels ({errors['low']:.0f} to {errors['high']:.0f}); "
        f"there are {truth['errors']:,} of {n:,}.",
        f"It flags {look:,} rows: {hit / max(look, 1):.0%} of them are wrong "
        f"({told['precision']['look']['value']:.0%} expected), and they hold "
        f"{hit / max(truth['errors'], 1):.0%} of all wrong labels.",
    ]


def draw(found: StoredAudit, data: Dataset) -> bytes:
    """The most suspicious digits with their given, suggested and true label."""
    worst, names = found.rows.head(SHOWN), found.classes
    captions = [
        f"given {names[given]}\nsuggested {names[suggested]}\ntrue {names[true]}"
        for given, suggested, true in zip(
            worst["given_label"], worst["suggested_label"], worst["true_label"], strict=True
        )
    ]
    x = np.asarray(data.train.x)[worst["row"].to_numpy()].reshape(-1, 8, 8)
    right = (worst["suggested_label"] == worst["true_label"]).tolist()
    return plots.png(plots.image_grid(x, captions, right=right, columns=5, invert=True))


def run(out: Path, recipe: Recipe = RECIPE, network: str = "mlp", seed: int = 0) -> dict[str, Any]:
    """Audit digits with wrong labels, unless `out` already holds that audit, and print the findings."""
    data = datasets.load("digits").corrupt(Symmetric(RATE, include_self=False), seed=seed)
    folder = out / FOLDER
    if (folder / "audit.json").exists():
        found = stored.read(folder)
    else:
        with one_thread():
            found = audit_digits(data, out, recipe, network=network, seed=seed)
        write_bytes(folder / PICTURE, draw(found, data))
    told = facts(found)
    output.say(f"\nAn audit of {told['rows']:,} digits, of whose labels {RATE:.0%} are wrong in expectation:")
    for sentence in sentences(told):
        output.say(sentence)
    output.say(f"The {SHOWN} most suspicious digits are drawn in {folder / PICTURE}; the full report is")
    output.say(f"{folder / 'report.html'}. Decide about them with: noisegate review {folder}")
    return told
