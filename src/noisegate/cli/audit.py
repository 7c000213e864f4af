"""`noisegate audit`: which labels of DATA are wrong, written to an audit folder."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import check_writable
from noisegate.auditing import stored
from noisegate.cli import output
from noisegate.cli.fit import Fit, load_data
from noisegate.cli.values import check_kinds
from noisegate.data.dataset import Dataset
from noisegate.data.registry import DATASETS
from noisegate.errors import InputError

#: Folder of finished folds and checkpoints, until the audit is written.
RUNS = "runs"
_KINDS = {"table": "table", "images": "folder", "arrays": "npz"}


@dataclass(frozen=True)
class Audit:
    """The options of `noisegate audit`."""

    data: str
    out: Path
    label: str | None = None
    method: str = "auto"
    params: dict[str, Any] = field(default_factory=dict)
    network: str = "auto"
    recipe: dict[str, Any] = field(default_factory=dict)
    folds: int = 5
    clean: str | None = None
    detector: str = "cross-fitted"
    probs: Path | None = None
    seed: int = 0
    device: str = "auto"
    test: str | None = None
    labels: Path | None = None
    engine: str = "local"
    workers: int = 1
    address: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    root: Path | None = None


def run(asked: Audit) -> None:
    """Audit and save. All options are checked before anything is trained."""
    check_out(asked.out)
    fit = Fit(
        asked.data, asked.out, asked.label, test=asked.test, labels=asked.labels, options=asked.options,
        root=asked.root,
    )  # fmt: skip
    data = load_data(fit)
    if data.train.maps:
        return run_masks(asked, data)
    source, ids = describe(asked, data)
    from noisegate import methods
    from noisegate.auditing.audit import audit
    from noisegate.auditing.report import write_report
    from noisegate.training.recipe import Recipe

    if asked.params:
        check_kinds(asked.params, methods.METHODS[asked.method].defaults, "--param")
    check_kinds(
        {k: v for k, v in asked.recipe.items() if v is not None}, dataclasses.asdict(Recipe()), "--recipe"
    )
    report = audit(
        data,
        method=methods.get(asked.method, **asked.params) if asked.params else asked.method,
        folds=asked.folds,
        network=asked.network,
        recipe=asked.recipe,
        seed=asked.seed,
        device=asked.device,
        detector=asked.detector,
        probs=None if asked.probs is None else read_probabilities(asked.probs, data),
        clean=asked.clean,
        folder=asked.out / RUNS,
        engine=asked.engine,
        workers=asked.workers,
        address=asked.address,
        source=source,
        ids=ids,
    )
    report.save(asked.out)
    write_report(asked.out, root=asked.root)
    shutil.rmtree(asked.out / RUNS, ignore_errors=True)
    tell(report, asked.out)


def run_masks(asked: Audit, data: Dataset) -> None:
    """Audit images with masks: lists of images and regions, and overlays of the worst."""
    from noisegate import methods
    from noisegate.auditing.masks import audit_masks, refuse_for_masks
    from noisegate.auditing.report import write_report
    from noisegate.auditing.words import repeated

    refuse_for_masks(detector=asked.detector, clean=asked.clean, engine=asked.engine, workers=asked.workers)
    found = audit_masks(
        data,
        method=methods.get(asked.method, **asked.params) if asked.params else asked.method,
        network=asked.network,
        recipe=asked.recipe,
        folds=asked.folds,
        seed=asked.seed,
        device=asked.device,
        folder=asked.out / RUNS,
        probs=None if asked.probs is None else read_map_probabilities(asked.probs),
    )
    found.save(asked.out, data, options=asked.options)
    write_report(asked.out, root=asked.root)
    shutil.rmtree(asked.out / RUNS, ignore_errors=True)
    frame = found.issues
    lines = [
        ("masks", f"{int(frame.is_label_issue.sum()):,} of {len(frame):,} have a region to check"),
        ("regions", f"{int(frame.regions.sum()):,}, about {int(frame.wrong_pixels.sum()):,} pixels"),
        ("networks", repeated(found.agreement, found.majority)),
        ("lists", f"{asked.out / 'issues.csv'}, {asked.out / 'regions.csv'}"),
        ("pictures", str(asked.out / "overlays")),
        ("report", str(asked.out / "report.html")),
        ("decide with", f"noisegate review {asked.out}"),
    ]
    without = () if frame.regions.any() else ("pictures", "decide with")
    output.facts((name, value) for name, value in lines if name not in without)


def read_map_probabilities(path: Path) -> npt.NDArray[Any]:
    """Probabilities (N, K, H, W) of an .npy file."""
    from noisegate.data.arrays import read_npy

    if path.suffix.lower() != ".npy":
        raise InputError(
            f"--probs of masks is an .npy file with an array (images, classes, height, width), got {path}"
        )
    return read_npy(path)


def read_probabilities(path: Path, data: Dataset) -> npt.NDArray[Any]:
    """Probabilities (N, K): an array in an .npy file, or the columns p_<label> of a .csv or .parquet file.

    Files of `noisegate predict` have such columns.
    """
    from noisegate.data import read_table
    from noisegate.data.arrays import read_npy

    if path.suffix.lower() == ".npy":
        return read_npy(path)
    frame = read_table(path)
    names = [f"p_{value}" for value in data.label_values]
    if lacking := [name for name in names if name not in frame.columns]:
        raise InputError(f"{path} lacks the columns {', '.join(lacking[:5])}: one p_<label> for each class")
    return frame[names].to_numpy(dtype=np.float64)


def check_out(out: Path) -> None:
    """Raise InputError if the folder is not empty."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out names a folder, but {out} is a file")
    if (out / "audit.json").exists():
        raise InputError(
            f"{out} holds an audit already; choose another folder with --out, or go on from what was decided "
            f"with `noisegate audit --continue {out}`"
        )
    if out.is_dir() and (others := sorted(p.name for p in out.iterdir() if p.name not in (RUNS, ".lock"))):
        raise InputError(f"{out} is not empty (there is {others[0]}); choose another folder with --out")
    check_writable(out)


def describe(asked: Audit, data: Dataset) -> tuple[dict[str, Any], list[str] | None]:
    """Return where the data are, so that they can be shown and corrected, and the names of their rows."""
    kind = "named"
    if asked.data not in DATASETS and data.reader is not None:
        kind = _KINDS[data.reader.to_dict()["kind"]]
    ids = None
    if kind == "folder":
        ids = file_names(asked.data, data)
    source = stored.source_of(
        kind,
        asked.data,
        len(data.train),
        label=asked.label,
        options=asked.options,
        image_shape=(8, 8) if kind == "named" and asked.data == "digits" else None,
    )
    return source, ids


def file_names(folder: str, data: Dataset) -> list[str] | None:
    """Names of the images of the training rows, relative to the folder.

    None if their order is not certain.
    """
    if data.reader is None:
        return None
    names = getattr(data.train.x, "names", None) or data.reader.names(folder)
    given = data.train.y if data.train.clean is None else data.train.clean
    if len(names) != len(given):
        return None
    fits = all(data.classes[code] in Path(name).parts for name, code in zip(names, given, strict=True))
    return [str(name) for name in names] if fits else None


def go_on(folder: Path) -> None:
    """Take the decided rows as known, and rank the others again."""
    from noisegate.auditing.audit_report import AuditReport
    from noisegate.auditing.learning import continue_audit
    from noisegate.auditing.report import write_report

    audit, learnt = continue_audit(folder)
    write_report(folder)
    output.say(f"{learnt.answered:,} rows are decided; {learnt.wrong:,} of their labels were wrong")
    tell(AuditReport(audit), folder)


def tell(report: Any, folder: Path) -> None:
    """Print the findings in words, the worst rows, and what to do next."""
    output.say(report.summary())
    output.say()
    worst = report.issues[report.issues.is_label_issue].head(10)
    if len(worst):
        output.say("the ten worst:" if len(worst) == 10 else "the worst:")
        output.say(
            worst[["id", "given_label", "suggested_label", "quality"]]
            .rename(columns={"id": stored.called(report.audit.source)})
            .to_string(index=False, float_format="%.3f")
        )
        output.say()
    output.say(f"report: {folder / 'report.html'}")
    output.say(f"decide with: noisegate review {folder}")
