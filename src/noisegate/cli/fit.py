"""`noisegate fit`: from data to a model folder."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate import data as datasets
from noisegate._io.files import check_writable
from noisegate.cli import output
from noisegate.cli.values import check_kinds
from noisegate.data.dataset import Dataset
from noisegate.data.joining import listed, with_label_file, with_test_file
from noisegate.data.tables import TableReader
from noisegate.errors import InputError
from noisegate.noise.base import VOID
from noisegate.runs.memory import memory_kept

if TYPE_CHECKING:
    from noisegate.fitted import Fitted


#: Exit code of a fit that failed to learn; its model is saved all the same.
FAILED = 3


@dataclass(frozen=True)
class Fit:
    """The options of `noisegate fit`."""

    data: str
    out: Path
    label: str | None = None
    method: str = "auto"
    params: dict[str, Any] = field(default_factory=dict)
    network: str = "auto"
    recipe: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    test: str | None = None
    labels: Path | None = None
    checkpoint: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)
    root: Path | None = None
    devices: int = 1


def run(asked: Fit) -> int:
    """Train and save, in this process or in one process per device; return the exit code."""
    check_out(asked.out, asked.checkpoint)
    code = run_here(asked) if asked.devices == 1 else 0
    from noisegate.training import distributed

    if asked.devices == 1:
        distributed.leave_together()
    elif distributed.started_by_torchrun():
        raise InputError("torchrun has started the processes already: leave --devices out")
    else:
        distributed.launch(run_process, asked.devices, asked, device=asked.device)
    return code


def run_process(asked: Fit) -> None:
    """`run_here` in a process of its own, one of several."""
    with memory_kept():
        run_here(asked)


def run_here(asked: Fit) -> int:
    """Train and save; return the exit code. All options are checked first; only the first process saves."""
    check_settings(asked)
    data = load_data(asked)
    show_columns(data)
    from noisegate import methods
    from noisegate.runs.failure import failure
    from noisegate.runs.train import train
    from noisegate.training.distributed import world

    fitted = train(
        data,
        # Pass the name if there are no parameters: the progress bar shows it.
        methods.get(asked.method, **asked.params) if asked.params else asked.method,
        asked.network,
        asked.recipe,
        asked.seed,
        asked.device,
        folder=asked.checkpoint,
        # Evaluate clean labels only once, at the end, so that nobody stops training by them.
        evaluate_every=0,
    )
    if not world().first:
        return 0
    replaced = (asked.out / "model.json").exists()
    fitted.save(asked.out, method=asked.method)
    report(asked, data, fitted, replaced)
    return FAILED if failure(fitted, data) is not None else 0


# -- where it goes ---------------------------------------------------------------------------------


def check_out(out: Path, checkpoint: Path | None = None) -> None:
    """Raise InputError if `out` exists and is not a model folder."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out names a folder, but {out} is a file")
    if checkpoint is not None and checkpoint.resolve() == out.resolve():
        raise InputError("--checkpoint and --out must be two folders")
    if out.is_dir() and not (out / "model.json").is_file():
        # Files left by an interrupted save do not count: the next save replaces them.
        own = (".lock", ".weights.safetensors", "weights-*.safetensors", ".*.part")
        names = [entry.name for entry in os.scandir(out)]
        strangers = [name for name in names if not any(fnmatch(name, pattern) for pattern in own)]
        if strangers:
            raise InputError(
                f"{out} is not empty and holds no model (there is {sorted(strangers)[0]}); "
                "choose another folder with --out"
            )
    check_writable(out)


# -- data ------------------------------------------------------------------------------------------


def check_settings(asked: Fit) -> None:
    """Check method, network, recipe and device before any data are read."""
    from noisegate import methods, networks
    from noisegate._device import resolve_device
    from noisegate.training.recipe import Recipe

    check_kinds(asked.params, methods.METHODS[asked.method].defaults, "--param")
    methods.get(asked.method, **asked.params)
    networks.check_name(asked.network)
    check_kinds(
        {k: v for k, v in asked.recipe.items() if v is not None}, dataclasses.asdict(Recipe()), "--recipe"
    )
    Recipe().replace(**asked.recipe)
    resolve_device(asked.device)


def load_data(asked: Fit) -> Dataset:
    """Load the data, with the requested test rows and label file."""
    data = read_data(asked.data, asked.label, asked.options, root=asked.root)
    if asked.test is not None:
        data = with_test_file(data, asked.test, label=asked.label, root=asked.root, **asked.options)
    if asked.labels is not None:
        data = with_label_file(data, asked.labels)
    return data


def read_data(name: str, label: str | None, options: dict[str, Any], *, root: Path | None = None) -> Dataset:
    """Call `noisegate.data.load`, with errors that name the options of the command line.

    Generated data (moons) do not depend on --seed, so that a label file fits them;
    `--option seed=1` draws others.
    """
    from noisegate.data.tables import TABLE_SUFFIXES, read_table

    if name not in datasets.DATASETS and name.lower().endswith(TABLE_SUFFIXES) and label is None:
        columns = ", ".join(map(str, read_table(name).columns))
        raise InputError(f"{name}: say which column holds the labels with --label COL; there are: {columns}")
    given = {"label": label} if label is not None else {}
    return datasets.load(name, **{"root": root, **options, **given})


# -- what was done ---------------------------------------------------------------------------------

_SHOWN = {
    "test_accuracy": "accuracy on the test rows",
    "test_mean_iou": "mean intersection over union on the test rows",
    "test_ece": "calibration error on the test rows",
    "test_log_likelihood": "log-likelihood on the test rows",
    "train_memorised": "wrong labels memorised",
    "train_recovered": "wrong labels put right",
}


def report(asked: Fit, data: Dataset, fitted: Fitted, replaced: bool = False) -> None:
    """Print what was trained, the metrics, and where the model is."""
    from noisegate.networks import ensemble

    identity = fitted.record["identity"]
    recipe = identity["recipe"]
    length = f"{recipe['steps']} steps" if recipe["epochs"] is None else f"{recipe['epochs']} epochs"
    params = ", ".join(f"{name}={value}" for name, value in asked.params.items())
    lines: list[tuple[str, Any]] = [
        ("data", f"{asked.data}: {_rows(fitted.record['rows'])}"),
        ("inputs", _shape(data.input_shape) + _dropped(data)),
        ("classes", f"{data.n_classes}: {listed(data.classes)}"),
        ("method", asked.method + (f" ({params})" if params else "")),
        ("network", ensemble.title(fitted.network.spec["network"])),  # type: ignore[index,arg-type]
        ("training", f"{length}, seed {asked.seed}, {fitted.metrics['seconds']:.1f} s"),
    ]
    if data.train.wrong is not None:
        lines.append(("wrong labels", f"{int(data.train.wrong.sum()):,} of {len(data.train):,}"))
    lines += _on_unseen_rows(asked, data, fitted)
    lines.append(("given training labels", agreement(fitted, data)))
    for key, name in _SHOWN.items():
        if key in fitted.metrics:
            value = fitted.metrics[key]
            lines.append((name, f"{value:.4f}" if key == "test_log_likelihood" else f"{value:.2%}"))
    lines.append(("model", f"{asked.out}{', in place of the one that was there' if replaced else ''}"))
    output.facts(lines)


def _shape(shape: tuple[int, ...]) -> str:
    return f"{shape[0]:,} numbers" if len(shape) == 1 else f"{' x '.join(map(str, shape))} pixels"


def _on_unseen_rows(asked: Fit, data: Dataset, fitted: Fitted) -> list[tuple[str, str]]:
    """Facts from the method's held-out predictions, if it made any."""
    from noisegate.evaluation.held_out import held_out

    found = held_out(fitted.extras)
    if found is None:
        if asked.test is not None or data.test is not None:
            return []
        how = "this method holds no rows out; --test PATH measures it, and so does --method auto"
        if data.train.maps:
            how = "no images are held out; --test PATH, or folders train/ and val/ in the data, measure it"
        return [("accuracy on given labels", f"not known for unseen rows: {how}")]
    lines = [
        (
            "accuracy on given labels",
            f"{found.accuracy:.2%} of {found.n:,} rows, each predicted without having seen its label "
            f"(log-likelihood {found.log_likelihood:.4f})",
        )
    ]
    if found.noise_rate is not None:
        lines.append(("wrong labels, estimated", f"about {found.noise_rate:.0%} of the given labels"))
    if found.clean_accuracy is not None:
        lines.append(
            (
                "accuracy on true labels",
                f"about {found.clean_accuracy:.0%}, estimated: the given labels are partly wrong, and a prediction "
                "that differs from a wrong label is usually right; mostly within 5 points of the truth, and "
                "--test with labels that you have checked measures it",
            )
        )
    if found.issues is not None:
        label = f" --label {asked.label}" if asked.label else ""
        lines.append(
            (
                "labels to check",
                f"{found.issues:,} look wrong; `noisegate audit {asked.data}{label}` shows them, and in Python "
                f"noisegate.Fitted.load({str(asked.out)!r}).label_issues()",
            )
        )
    return lines


def agreement(fitted: Fitted, data: Dataset) -> str:
    """Describe how many given labels of a sample of training rows the classifier repeats."""
    most = 10_000 if len(data.input_shape) == 1 else 500
    some = data.train.take(np.unique(np.linspace(0, len(data.train) - 1, most).astype(np.int64)))
    if some.maps:  # One image at a time, since probabilities of maps take much memory.
        some = some.take(np.arange(0, len(some), max(1, len(some) // 16)))
        said = [fitted.predict_proba(some.take([row]).x).argmax(1) for row in range(len(some))]
        same = (np.concatenate(said) == some.y)[some.y != VOID]
        what = f" pixels of {len(some):,} images"
    else:
        same, what = fitted.predict_proba(some.x).argmax(1) == some.y, ""
    return (
        f"the classifier repeats {same.mean():.2%} of {same.size:,}{what} (near chance: it has learnt nothing; "
        "all: the wrong ones too)"
    )


def _rows(rows: dict[str, int]) -> str:
    """Describe the number of rows of each part: "432 training rows, 48 validation"."""
    (first, n), *others = rows.items()
    return f"{n:,} {first} rows" + "".join(f", {count:,} {name}" for name, count in others)


def _dropped(data: Dataset) -> str:
    empty = data.info.get("empty_folders")
    return f"; empty folders: {listed(empty)}" if empty else ""


def show_columns(data: Dataset) -> None:
    """Print what each column of a table was read as, how many inputs it became, and why others were left out."""
    if isinstance(data.reader, TableReader):
        output.table(data.reader.summary(), ["column", "read as", "inputs", "note"], numbers=[2])
