"""One run of a study: load, corrupt, train, measure, store."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noisegate._io.files import write_json
from noisegate._io.lock import locked
from noisegate.data.dataset import Dataset, Split
from noisegate.data.registry import lookup, root_folder
from noisegate.errors import BusyError, DivergedError, InputError, OtherRunError, UnknownNameError
from noisegate.studies.settings import FORMAT, RunSettings
from noisegate.studies.store import Store
from noisegate.studies.study import signature_accepts

if TYPE_CHECKING:
    from noisegate.fitted import Fitted
    from noisegate.runs.run import Run
    from noisegate.training.trainer import Epoch

PROGRESS_SECONDS = 1.0
# Full or read-only disk, or quota exceeded: the next run would fail the same way.
_DISK = {errno.ENOSPC, errno.EROFS, errno.EDQUOT}


# -- data ------------------------------------------------------------------------------------------


def load_data(settings: RunSettings, root: str | Path | None = None) -> Dataset:
    """Load the dataset of a run, cut it to size, corrupt it and hold out noisy validation rows."""
    options = dict(settings.data)
    name = options.pop("name")
    seed = settings.seed if signature_accepts(lookup(name).loader, "seed") else 0
    data = _loaded(name, json.dumps(options, sort_keys=True), str(root_folder(root)), seed)
    if settings.rows is not None and settings.rows < len(data.train):
        order = np.random.default_rng([settings.seed, 0x0F]).permutation(len(data.train))
        data = replace(data, train=data.train.take(np.sort(order[: settings.rows])))
    if settings.noise is not None:
        data = _corrupted(replace(data, validation=None), settings)
    data = _validated(data, settings)
    return replace(data, train=_balanced(data.train, settings.seed)) if settings.balanced else data


def _balanced(train: Split, seed: int) -> Split:
    """Keep as many rows of each label as the rarest one has, ignoring labels without rows."""
    order = np.random.default_rng([seed, 0xBA]).permutation(len(train))
    by_label = [order[train.y[order] == label] for label in np.unique(train.y)]
    size = min(len(rows) for rows in by_label)
    return train.take(np.sort(np.concatenate([rows[:size] for rows in by_label])))


def _validated(data: Dataset, settings: RunSettings) -> Dataset:
    """Hold out noisy rows, keep the data's own validation rows ("own"), or go without."""
    if settings.validation == "own":
        if data.validation is None:
            raise InputError(
                f"{data.name} has no validation rows of its own: give a share, e.g. validation=0.1"
            )
        return data
    # The dataset's own validation rows may have clean labels: they are used only on request ("own").
    data = replace(data, validation=None)
    return data if settings.validation is None else data.hold_out(settings.validation, settings.seed)  # type: ignore[arg-type]


# Studies do their runs dataset by dataset, so a cache of two is enough.
@functools.lru_cache(maxsize=2)
def _loaded(name: str, options: str, root: str, seed: int) -> Dataset:
    return lookup(name).load(root=root, seed=seed, **json.loads(options))


def _corrupted(data: Dataset, settings: RunSettings) -> Dataset:
    from noisegate import noise as noises

    noise = noises.build(settings.noise or {})
    data = data.corrupt(noise, settings.seed)
    if settings.noisy_test and data.test is not None:
        # Another seed than for the training labels, whose draws the test rows must not repeat.
        x = data.test.x if isinstance(data.test.x, np.ndarray) else None
        y = noise.corrupt(data.test.y, x, n_classes=data.n_classes, seed=settings.seed + 1_000_003)
        data = replace(data, test=Split(data.test.x, y, data.test.y))
    return data


def known_rate(data: Dataset) -> float:
    """The realised rate of wrong training labels, for protocols that give it to a method."""
    if data.train.clean is None:
        raise InputError(
            f"{data.name}: the clean training labels are not known, so the noise rate is not either; "
            "give it as a number, or noise_rate=estimate"
        )
    return float(np.mean(data.train.y != data.train.clean))


# -- one run ---------------------------------------------------------------------------------------


def make_run(
    settings: RunSettings,
    device: str = "auto",
    root: str | Path | None = None,
    checkpoint: Path | None = None,
    data: Dataset | None = None,
) -> Run:
    """Build the run of some settings, ready to train. Loads the data unless `data` is given."""
    from noisegate import methods
    from noisegate._device import resolve_device
    from noisegate.runs.run import Run
    from noisegate.training.compiling import compiling_pays
    from noisegate.training.recipe import Recipe

    data = load_data(settings, root) if data is None else data
    params = dict(settings.params)
    if params.get("noise_rate") == "known":
        params["noise_rate"] = known_rate(data)
    method, on = methods.get(settings.method, **params), resolve_device(device)
    if settings.detector is not None:
        from noisegate.auditing.detectors import detector
        from noisegate.runs.run import resolve_recipe

        method = detector(settings.detector, method)
        recipe = resolve_recipe(settings.recipe, len(data.train), data.input_shape, n_classes=data.n_classes)
    else:
        recipe = Recipe.from_dict(settings.recipe)
    images = recipe.total_steps(len(data.train) // recipe.batch_size) * recipe.batch_size
    compiled = on.type == "cuda" and compiling_pays(images, recipe.precision)
    return Run(
        data,
        method,
        _network(settings, root),
        recipe,
        settings.seed,
        on,
        folder=checkpoint,
        evaluate_every=settings.evaluate_every,
        evidence=settings.evidence,
        execution="compiled" if compiled else "auto",
    )


def _network(settings: RunSettings, root: str | Path | None) -> Any:
    if settings.weights is None:
        return settings.network
    from noisegate.networks.pretrained import pretrained

    return pretrained(settings.network, root_folder(root) / settings.weights)


class Execution:
    """A run of a study while it is being done: `with Execution(...) as e: for epoch in e: ...; e.conclude()`.

    Entering takes the lock of the run's folder (BusyError if another process has it), loads the data and
    resumes from a checkpoint if there is one.

    Parameters
    ----------
    settings : RunSettings
    store : Store
    device : str
    root : path, optional
        Where data sets lie.
    beside : int
        How many runs share this process, for the record.
    """

    def __init__(
        self,
        settings: RunSettings,
        store: Store,
        device: str = "auto",
        root: str | Path | None = None,
        beside: int = 1,
    ) -> None:
        self.settings, self.store, self.device, self.root = settings, store, device, root
        self.beside = beside
        self._stack = contextlib.ExitStack()
        self._told = 0.0

    def __enter__(self) -> Execution:
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(self.store.path(self.settings), "running this run"))
            self.done = self.store.result(self.settings) is not None
            if not self.done:
                self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def _begin(self, stack: contextlib.ExitStack) -> None:
        from noisegate.studies.memory import reset_peak

        reset_peak(self.device)
        self.started = time.perf_counter()
        self.data = load_data(self.settings, self.root)
        self.run: Run = stack.enter_context(self._make_run())

    def _make_run(self) -> Run:
        checkpoint = self.store.path(self.settings) / "checkpoint"
        try:
            return make_run(self.settings, self.device, self.root, checkpoint, self.data)
        except OtherRunError:
            # The checkpoint is of another version: discard it and start the run over.
            self.store.forget_progress(self.settings)
            return make_run(self.settings, self.device, self.root, checkpoint, self.data)

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def __iter__(self) -> Iterator[Epoch]:
        if self.done:
            return
        for epoch in self.run:
            self.tell(epoch)
            yield epoch

    def tell(self, epoch: Epoch) -> None:
        """Write the progress to the run's folder, at most once a second."""
        if time.monotonic() - self._told < PROGRESS_SECONDS:
            return
        self._told = time.monotonic()
        write_json(self.store.path(self.settings) / "progress.json", describe_epoch(epoch))

    def conclude(self) -> None:
        """Run the probes and store the result. Does nothing if the run was finished before."""
        if self.done:
            return
        fitted = self.run.fitted
        arrays, numbers = measure(self.settings, fitted, self.run.data)
        self.store.save(self.settings, self._content(fitted, numbers), arrays)

    def _content(self, fitted: Fitted, numbers: dict[str, float]) -> dict[str, Any]:
        from noisegate.noise import label_hash
        from noisegate.studies.memory import peak

        train = self.run.data.train
        history = [[finite(epoch) for epoch in phase] for phase in fitted.history]
        metrics = finite({**fitted.metrics, **numbers})
        metrics |= accuracies(history[-1], self.settings.recipe) if history and history[-1] else {}
        wrong = train.wrong
        # After a resume, the epochs' own seconds include the time before the checkpoint.
        trained = sum(epoch["seconds"] for phase in fitted.history for epoch in phase)
        return {
            "format": FORMAT,
            "noisegate": fitted.record["identity"]["noisegate"],
            "key": self.settings.key,
            "settings": self.settings.full(),
            "seed": self.settings.seed,
            "metrics": metrics,
            "history": history,
            "noise": {
                "train_rate": None if wrong is None else float(wrong.mean()),
                "labels_sha256": label_hash(train.y),
            },
            "rows": {"train": len(train), "validation": _count(self.run.data.validation)},
            "versions": fitted.record["versions"],
            "hardware": fitted.record["hardware"],
            "device": str(self.run.device),
            # Wall-clock time; and the run's share of it if others shared the process.
            "seconds": max(time.perf_counter() - self.started, trained),
            "own_seconds": max(self.run.seconds, trained / self.beside),
            "beside": self.beside,
            "train_seconds": sum(e.get("train_seconds", 0.0) for phase in history for e in phase),
            # Peak memory is the process's, so it is unknown if runs shared the process.
            "peak_memory": peak(self.device) if self.beside == 1 else None,
        }


def _count(split: Split | None) -> int:
    return 0 if split is None else len(split)


def finite(values: dict[str, float]) -> dict[str, float]:
    """Drop NaN and infinity, which JSON cannot hold."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


#: What is reported of the validation rows, of the epoch that was kept.
JUDGED = ("validation_accuracy", "validation_log_likelihood", "validation_mean_iou")


def accuracies(epochs: list[dict[str, float]], recipe: Any) -> dict[str, float]:
    """The accuracies of the last phase under the names that `Value` documents."""
    found: dict[str, float] = {}
    tested = [e for e in epochs if "test_accuracy" in e]
    if tested:
        accuracy = [e["test_accuracy"] for e in tested]
        found["test_accuracy_last"] = accuracy[-1]
        late = [e["test_accuracy"] for e in epochs[-10:] if "test_accuracy" in e]
        found["test_accuracy_last10"] = float(np.mean(late or accuracy[-1:]))
        found["test_accuracy_oracle"] = max(accuracy)
        scores = [e.get("validation_accuracy", -math.inf) for e in tested]
        if max(scores) > -math.inf:
            found["test_accuracy_best_validation"] = accuracy[int(np.argmax(scores))]
    judged = [e for e in epochs if "validation_accuracy" in e]
    if judged:
        kept = judged[-1]
        if recipe.get("keep") == "best":
            name = f"validation_{recipe.get('monitor', 'accuracy')}"
            kept = judged[int(np.argmax([e[name] for e in judged]))]
        found |= {n: kept[n] for n in JUDGED if n in kept}
    return found


def describe_epoch(epoch: Epoch) -> dict[str, Any]:
    """The progress of a run as plain data."""
    seen = epoch.metrics.get("test_accuracy", epoch.metrics.get("validation_accuracy"))
    return {
        "phase": epoch.phase_name,
        "epoch": epoch.epoch,
        "n_epochs": epoch.n_epochs,
        "accuracy": seen,
        "loss": epoch.metrics.get("loss") if math.isfinite(epoch.metrics.get("loss", 0.0)) else None,
    }


def measure(settings: RunSettings, fitted: Fitted, data: Dataset) -> tuple[dict[str, Any], dict[str, float]]:
    """Run the probes: arrays for figures, and plain numbers."""
    from noisegate.studies import probes

    arrays: dict[str, Any] = {}
    numbers: dict[str, float] = {}
    for described in settings.probes:
        options = dict(described)
        found = probes.get(options.pop("name"))(fitted, data, **options)
        for name, value in found.items():
            if isinstance(value, int | float):
                numbers[name] = float(value)
            else:
                arrays[name] = np.asarray(value)
    return arrays, numbers


@dataclass(frozen=True)
class Event:
    """Something that happened to a run.

    `kind` is "started", "epoch" (then `progress` says where it is), and in the end one of "finished", "busy"
    (another process has it), "diverged" or "crashed" (then `message` says why).
    """

    kind: str
    run: RunSettings
    message: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """Whether it is the last event of its run."""
        return self.kind not in ("started", "epoch")


def events(
    settings: RunSettings, store: Store, device: str = "auto", root: str | Path | None = None
) -> Iterator[Event]:
    """Execute one run and yield its events.

    Errors of the run are stored with it. Only errors that would stop every run are raised: Ctrl-C, a full disk,
    a name that this process does not know.
    """
    yield Event("started", settings)
    try:
        with Execution(settings, store, device, root) as execution:
            for epoch in execution:
                yield Event("epoch", settings, progress=describe_epoch(epoch))
            execution.conclude()
    except Exception as error:
        yield failed(settings, store, error)
    else:
        yield Event("finished", settings)


def execute(
    settings: RunSettings, store: Store, device: str = "auto", root: str | Path | None = None
) -> Event:
    """Execute one run and return its last event."""
    *_, last = events(settings, store, device, root)
    return last


def failed(settings: RunSettings, store: Store, error: Exception) -> Event:
    """Store why a run failed, with the traceback of a crash. Raise errors that are not the run's fault."""
    if isinstance(error, BusyError):
        return Event("busy", settings, str(error))
    if isinstance(error, UnknownNameError) or (isinstance(error, OSError) and error.errno in _DISK):
        raise error
    status = "diverged" if isinstance(error, DivergedError) else "crashed"
    message = str(error) if status == "diverged" else f"{type(error).__name__}: {error}"
    where = {"phase": error.phase, "epoch": error.epoch} if isinstance(error, DivergedError) else {}
    lines = [] if where else traceback.format_exception(error)
    store.fail(settings, status, message, traceback="".join(lines), **where)
    return Event(status, settings, message)
