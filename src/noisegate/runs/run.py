"""`Run`: checks and loads everything that `train` was given, then trains an epoch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from noisegate import methods
from noisegate._device import Pending, drain, resolve_device
from noisegate._turns import TURN
from noisegate.data.arrays import from_arrays
from noisegate.data.dataset import Dataset, check_range, distinct, held_out_rows
from noisegate.errors import InputError
from noisegate.evaluation.evidence import CleanEvidence
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.objectives import Objective
from noisegate.runs.identity import describe_run
from noisegate.training import distributed
from noisegate.training.checkpoint import RunFolder
from noisegate.training.job import Job, NetworkSpec, make_job
from noisegate.training.precision import precision
from noisegate.training.recipe import Recipe, auto_recipe
from noisegate.training.trainer import Epoch, Trainer

#: Share of the training rows to hold out if validation rows are needed and the data has none.
HELD_OUT = 0.1
#: Settings of het-tau, which "auto" chooses for data with a label for every pixel: a temperature among
#: the best when training from scratch (0.2 to 1, study temperature-camvid; the paper's 0.05 needs a
#: warm start), and a number of samples that a CPU can afford.
MAP_METHOD: dict[str, Any] = {"temperature": 0.5, "n_samples": 32, "n_samples_eval": 128}


class Run:
    """One run of `train`, an epoch at a time: iterate over it inside `with`, then read `fitted`.

    The parameters are those of `train`. The constructor checks and loads everything; training
    starts when the first epoch is asked for. So several runs can be made first and then advanced in
    turns.

    Attributes
    ----------
    method : Method
        The resolved method.
    data : Dataset
        The data, split into training and validation rows if validation rows had to be held out.
    record : dict
        The identity, versions and hardware of the run: see `noisegate.runs.identity.describe_run`.
    seconds : float
        Time spent on this run so far; of runs side by side each has its share.
    """

    def __init__(
        self,
        data: Dataset | tuple[npt.ArrayLike, npt.ArrayLike],
        method: str | Method | Objective | type[Objective] = "auto",
        network: NetworkSpec = "auto",
        recipe: Recipe | Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str | torch.device = "auto",
        *,
        sample_weight: npt.ArrayLike | None = None,
        folder: str | Path | None = None,
        evaluate_every: int = 1,
        evidence: Sequence[str] = ("test", "train"),
        execution: str = "auto",
    ) -> None:
        data = _dataset(data)
        with TURN:
            # Torch fixes a thread's default number of threads when the thread first asks. Ask now,
            # in our turn, not while another run has set the number to 1.
            torch.get_num_threads()
        if data.train.maps and method == "auto":
            method = methods.get("het-tau", **MAP_METHOD)
        self.method = methods.get(method)
        why = self.method.why_one_process() if distributed.world().several else None
        if why is not None:
            raise InputError(f"a run on several processes cannot do {why}; train it in one process")
        shape, maps = data.input_shape, data.train.maps
        ready = resolve_recipe(recipe, len(data.train), shape, maps, data.n_classes)
        self._kept: npt.NDArray[np.int64] | None = None
        if data.validation is None and (ready.needs_validation or self.method.needs_validation):
            _, self._kept = held_out_rows(len(data.train), HELD_OUT, seed)
            if sample_weight is not None:
                weights = np.asarray(sample_weight)
                if weights.shape != (len(data.train),):
                    raise InputError(
                        f"sample_weight must have one number a row, ({len(data.train)},), got {weights.shape}"
                    )
                sample_weight = weights[self._kept]
            data = data.hold_out(HELD_OUT, seed)
        check_labels(data)
        if data.train.maps and not self.method.takes_maps:
            raise InputError(
                f"{self.method.title} takes one label for each row, not one for every pixel; for images with masks "
                "use plain training on an objective (ce, het-tau, gce, ...) or fc, bc"
            )
        self.data = data
        job = make_job(data, network, ready, seed, resolve_device(device), sample_weight)
        self._evidence = CleanEvidence(data, job.train, job.validation, parts=evidence)
        self.record = describe_run(self.method, job, data, sample_weight)
        self._trainer = Trainer(
            self.method.phases,
            job,
            evidence=self._evidence,
            evaluate_every=evaluate_every,
            execution=execution,
        )
        # Last, so that errors in the settings are raised before the folder is locked.
        self._folder = self._trainer.folder = self._open(folder, job)
        self.seconds = 0.0
        self._fitted: Fitted | None = None

    def _open(self, folder: str | Path | None, job: Job) -> RunFolder | None:
        if folder is None:
            return None
        identity = self.record["identity"] | {"layers": job.layers()}
        # Of several processes only the first holds the lock and writes.
        return distributed.on_first(lambda: RunFolder(folder, identity))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._trainer.close()
        finally:
            if self._folder is not None:
                self._folder.close()

    def __iter__(self) -> Iterator[Epoch]:
        return drain(self.run_chunks(), self._spend)

    def _spend(self, seconds: float) -> None:
        self.seconds += seconds

    def run_chunks(self) -> Iterator[Epoch | Pending | None]:
        """Train in chunks of work, for a caller that interleaves runs (`side_by_side`).

        The caller must add the time of each chunk to `seconds`.

        Yields
        ------
        An `Epoch`, after each epoch; None, after work was queued on a GPU and more is to come; or a
        `Pending`, which must be ready before the next chunk is asked for.
        """
        yield from self._trainer.run_chunks()
        fitted, stream = self._trainer.fitted, self._trainer.stream
        if fitted is None:
            raise InputError(f"{type(self.method).__name__}.phases() must return a Fitted")
        fitted.network.eval()
        fitted.objective.eval()
        with stream.active(), precision(self.precision):
            reading = self._evidence.everything_on_device(fitted.network, fitted.objective)
        while not reading.ready:
            yield reading
        stream.close()
        fitted.history = self._trainer.histories
        fitted.metrics = distributed.from_first(reading.read()) | {"seconds": self.seconds}
        fitted.classes = self.data.label_values
        fitted.record, fitted.reader = self.record, self.data.reader
        if self._kept is not None and "row" in fitted.extras:
            # The method counted the rows that were left for training: number them as the caller
            # does.
            fitted.extras["row"] = torch.from_numpy(self._kept)[fitted.extras["row"]]
        self._fitted = fitted

    @property
    def precision(self) -> str:
        """Precision of its computations: "fp32", "tf32" or "bf16"."""
        return self._trainer.job.recipe.precision

    @property
    def device(self) -> torch.device:
        """The device that the run trains on."""
        return self._trainer.job.device

    @property
    def fitted(self) -> Fitted:
        """The trained classifier. Raises InputError before the run is finished."""
        if self._fitted is None:
            raise InputError("the run has not finished: iterate over it to the end first")
        return self._fitted


def resolve_recipe(
    recipe: Recipe | Mapping[str, Any] | None,
    n_rows: int,
    input_shape: tuple[int, ...],
    maps: bool = False,
    n_classes: int = 2,
) -> Recipe:
    """Return `recipe` if it is a `Recipe`; else the automatic recipe with the given fields changed.

    Parameters
    ----------
    recipe : Recipe, mapping or None
    n_rows : int
        Number of training rows.
    input_shape : tuple of int
    maps : bool, default=False
        Whether there is a label for every pixel.
    n_classes : int, default=2
    """
    if isinstance(recipe, Recipe):
        return recipe
    if recipe is not None and not isinstance(recipe, Mapping):
        raise InputError(f"recipe must be a Recipe, a mapping of some of its fields, or None, got {recipe!r}")
    automatic = auto_recipe(n_rows, input_shape, maps, n_classes)
    # Processes take equal parts of a batch: round the automatic batch size down to a multiple.
    size = distributed.world().size
    even = max(size, automatic.batch_size // size * size)
    return automatic.replace(**({"batch_size": even} | dict(recipe or {})))


def _dataset(data: Dataset | tuple[npt.ArrayLike, npt.ArrayLike]) -> Dataset:
    """A data set, also of a pair of arrays."""
    if isinstance(data, Dataset):
        return data
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError(
            f"data must be a Dataset or a pair (x, y), got {type(data).__name__}; "
            "ng.data.load(...) makes one of a name, a file, a data frame or a torch dataset"
        )
    return from_arrays(*data)


def check_labels(data: Dataset) -> None:
    """Raise InputError for empty splits, a single class, labels out of range or unequal shapes."""
    for name, split in (("training", data.train), ("validation", data.validation), ("test", data.test)):
        if split is None:
            continue
        if not len(split):
            raise InputError(f"there are no {name} rows")
        for labels in (split.y, split.clean):
            if labels is not None:
                check_range(labels, data.n_classes, f"{name} labels")
        if split.input_shape != data.input_shape:
            raise InputError(
                f"{name} rows have the shape {split.input_shape}, training rows {data.input_shape}"
            )
    found = distinct(data.train.y) if data.train.maps else np.unique(data.train.y)
    if data.n_classes < 2 or len(found) < 2:
        raise InputError("the training labels have only one class; a classifier needs at least two")
