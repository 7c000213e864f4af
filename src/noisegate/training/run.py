"""`train`: from a dataset and a method's name to a fitted classifier."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from noisegate import methods
from noisegate._version import __version__
from noisegate.data.arrays import from_arrays
from noisegate.data.dataset import Dataset, Inputs, Split, held_out_rows
from noisegate.data.loader import Rows
from noisegate.errors import InputError
from noisegate.evaluation.evidence import CleanEvidence
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.objectives import Objective
from noisegate.training import distributed
from noisegate.training.capture import Pending
from noisegate.training.checkpoint import RunFolder
from noisegate.training.job import Job, NetworkSpec
from noisegate.training.progress import progress_bar
from noisegate.training.recipe import Recipe, auto_recipe
from noisegate.training.trainer import Epoch, Training, precision

HELD_OUT = 0.1
#: How much of an array goes into the hash of a run's data, and how much of it at a time.
HASHED_BYTES, BLOCK_BYTES = 2**30, 2**26


def train(
    data: Dataset | tuple[npt.ArrayLike, npt.ArrayLike],
    method: str | Method | Objective | type[Objective] = "ln",
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
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Fitted:
    """Train a classifier on observed labels.

    Parameters
    ----------
    data : Dataset, or (x, y)
        Clean labels in it are used for the metrics in the history and for nothing else.
    method : str, Method, or objective
        A name (`noisegate list methods`), a method, or an objective for plain training on it.
    network : str or function (input_shape, n_outputs) -> nn.Module
        "auto" chooses by the shape of the inputs.
    recipe : Recipe, or mapping
        None is a recipe for the size of the data; a mapping changes some of that recipe's fields.
    seed : int
        Decides initial weights, batches, augmentation and the noisy validation rows.
    device : "auto", "cpu", "cuda", ...
    sample_weight : array (N,), optional
    folder : path, optional
        Checkpoints go there; the same call after a kill goes on where it stopped, with the same result.
    evaluate_every : int
        Epochs between looks at clean labels, 0 for only at the end. If it is more than 1, the validation rows are
        looked at then too, and after every epoch only where the recipe decides by them (patience, keep="best").
    evidence : sequence of {"test", "train", "validation"}
        Which clean labels those looks take in; at the end it is all that are known.
    execution : {"auto", "eager", "captured", "compiled"}
        How the steps are run; it makes no other run of it. "auto": on a GPU each step is one captured CUDA graph,
        in long bf16 or tf32 runs of deep networks compiled first; on a CPU, and where a step cannot be captured,
        eagerly.
        Eager and captured steps give the same weights bit for bit in fp32 with torch's deterministic algorithms.
    progress : bool, optional
        A progress bar; by default if standard error is a terminal.
    on_epoch : function, optional
        Called with every `Epoch`.

    Returns
    -------
    Fitted
        With `metrics`, `history` and `record`.

    Notes
    -----
    Started by torchrun, or where torch.distributed is initialised with several processes, the run is spread over
    all of them, which must all make this call: `noisegate.training.distributed`. Each returns the same classifier;
    only the first one writes to `folder` and shows progress, `on_epoch` is called in all.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("digits").corrupt(ng.noise.Symmetric(0.4), seed=0)
    >>> fitted = ng.train(data, method="ln", recipe={"epochs": 5}, seed=0, device="cpu")
    >>> fitted.predict_proba(data.test.x).shape
    (450, 10)
    """
    here = distributed.from_environment(device)
    run = Run(
        data,
        method,
        network,
        recipe,
        seed,
        device,
        sample_weight=sample_weight,
        folder=folder,
        evaluate_every=evaluate_every,
        evidence=evidence,
        execution=execution,
    )
    label = method if isinstance(method, str) else run.method.title
    with run, progress_bar(label, progress if here.first else False) as show:
        for epoch in run:
            show(epoch)
            if on_epoch is not None:
                on_epoch(epoch)
    return run.fitted


class Run:
    """One run of `train`, an epoch at a time: iterate over it inside `with`, then read `fitted`.

    The parameters are those of `train`. Everything is checked and loaded when it is made; nothing is trained
    before the first epoch is asked for, so that several runs can be made first and advanced in turns.

    Attributes
    ----------
    method : Method
    data : Dataset
        With the noisy validation rows that were held out, if they were.
    record : dict
        How the run came about: `identity`, `versions`, `hardware`.
    seconds : float
        What it has taken so far; of runs side by side each one's share of the time.
    """

    def __init__(
        self,
        data: Dataset | tuple[npt.ArrayLike, npt.ArrayLike],
        method: str | Method | Objective | type[Objective] = "ln",
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
        if not isinstance(data, Dataset):
            if not isinstance(data, tuple | list) or len(data) != 2:
                raise InputError(
                    f"data must be a Dataset or a pair (x, y), got {type(data).__name__}; "
                    "ng.data.load(...) makes one of a name, a file, a data frame or a torch dataset"
                )
            data = from_arrays(*data)
        self.method = methods.get(method)
        why = self.method.why_one_process() if distributed.world().several else None
        if why is not None:
            raise InputError(f"a run on several processes cannot do {why}; train it in one process")
        ready = resolve_recipe(recipe, len(data.train), data.input_shape)
        if data.validation is None and (ready.needs_validation or self.method.needs_validation):
            if sample_weight is not None:
                weights = np.asarray(sample_weight)
                if weights.shape != (len(data.train),):
                    raise InputError(
                        f"sample_weight must have one number a row, ({len(data.train)},), got {weights.shape}"
                    )
                _, kept = held_out_rows(len(data.train), HELD_OUT, seed)
                sample_weight = weights[kept]
            data = data.hold_out(HELD_OUT, seed)
        check_labels(data)
        self.data = data
        job = make_job(data, network, ready, seed, resolve_device(device), sample_weight)
        self._evidence = CleanEvidence(data, job.train, job.validation, parts=evidence)
        self.record = describe_run(self.method, job, data, sample_weight)
        self._training = Training(
            self.method,
            job,
            evidence=self._evidence,
            evaluate_every=evaluate_every,
            execution=execution,
        )
        # Last, so that whatever is wrong is said before the folder is locked.
        self._folder = self._training.folder = self._open(folder, job)
        self.seconds = 0.0
        self._fitted: Fitted | None = None

    def _open(self, folder: str | Path | None, job: Job) -> RunFolder | None:
        if folder is None:
            return None
        identity = self.record["identity"] | {"layers": job.layers()}
        # Of several processes one holds the lock and writes.
        return distributed.on_first(lambda: RunFolder(folder, identity))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._training.close()
        finally:
            if self._folder is not None:
                self._folder.close()

    def __iter__(self) -> Iterator[Epoch]:
        slices = self.slices()
        while True:
            started = time.perf_counter()
            try:
                item = next(slices)
                if isinstance(item, Pending):
                    item.wait()
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - started
            if isinstance(item, Epoch):
                yield item

    def slices(self) -> Iterator[Epoch | Pending | None]:
        """The run in pieces, for those who advance several (`noisegate.training.side_by_side`).

        After each piece it says what came of it: an epoch's numbers; None, if the GPU was given some work and there
        is more; or what it waits for, and should not be asked again before that is ready. Who advances it adds to
        `seconds`.
        """
        yield from self._training.slices()
        fitted, lane = self._training.fitted, self._training.lane
        if fitted is None:
            raise InputError(f"{type(self.method).__name__}.phases() must return a Fitted")
        fitted.network.eval()
        fitted.objective.eval()
        with lane.active(), precision(self._training.job.recipe.precision):
            reading = self._evidence.everything_on_device(fitted.network, fitted.objective)
        while not reading.ready:
            yield reading
        lane.close()
        fitted.history = self._training.histories
        fitted.metrics = distributed.from_first(reading.read()) | {"seconds": self.seconds}
        fitted.classes = self.data.label_values
        fitted.record = self.record
        self._fitted = fitted

    @property
    def device(self) -> torch.device:
        """Where it trains."""
        return self._training.job.device

    @property
    def fitted(self) -> Fitted:
        """The classifier, once the iteration is over."""
        if self._fitted is None:
            raise InputError("the run has not finished: iterate over it to the end first")
        return self._fitted


def resolve_recipe(
    recipe: Recipe | Mapping[str, Any] | None, n_rows: int, input_shape: tuple[int, ...]
) -> Recipe:
    """The recipe itself, or the one for data of this size with some fields changed."""
    if isinstance(recipe, Recipe):
        return recipe
    if recipe is not None and not isinstance(recipe, Mapping):
        raise InputError(f"recipe must be a Recipe, a mapping of some of its fields, or None, got {recipe!r}")
    automatic = auto_recipe(n_rows, input_shape)
    # Processes take equal parts of a batch.
    size = distributed.world().size
    even = max(size, automatic.batch_size // size * size)
    return automatic.replace(**({"batch_size": even} | dict(recipe or {})))


def resolve_device(device: str | torch.device) -> torch.device:
    """The device by name; "auto" is the GPU where there is one."""
    if not torch.cuda.is_initialized():
        # Read once, when a GPU is first used: streams of runs side by side that share a queue wait for each other.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        raise InputError(f"unknown device {device!r}; expected auto, cpu, cuda or cuda:N") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device 'cuda' was asked for, but torch sees no GPU; use device='cpu'")
    if found.type == "cuda" and found.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return found


def check_labels(data: Dataset) -> None:
    """Refuse what nothing can be learnt from: no rows, one class, labels outside the classes, two shapes."""
    for name, split in (("training", data.train), ("validation", data.validation), ("test", data.test)):
        if split is None:
            continue
        if not len(split):
            raise InputError(f"there are no {name} rows")
        for labels in (split.y, split.clean):
            if labels is not None and not (labels.min() >= 0 and labels.max() < data.n_classes):
                found = f"{labels.min()}..{labels.max()}"
                raise InputError(f"{name} labels must lie in 0..{data.n_classes - 1}, got {found}")
        if split.input_shape != data.input_shape:
            raise InputError(
                f"{name} rows have the shape {split.input_shape}, training rows {data.input_shape}"
            )
    if data.n_classes < 2 or len(np.unique(data.train.y)) < 2:
        raise InputError("the training labels have only one class; a classifier needs at least two")


def make_job(
    data: Dataset,
    network: NetworkSpec,
    recipe: Recipe,
    seed: int,
    device: torch.device,
    sample_weight: npt.ArrayLike | None = None,
) -> Job:
    """Rows on their device: inputs and observed labels only."""
    train = Rows(data.train.x, data.train.y, device, weight=sample_weight)
    held = data.validation
    validation = None if held is None else Rows(held.x, held.y, device)
    return Job(train, validation, data.n_classes, network, recipe, seed, device)


def describe_run(
    method: Method, job: Job, data: Dataset, sample_weight: npt.ArrayLike | None = None
) -> dict[str, Any]:
    """How a run came about; `identity` is what makes two runs the same one."""
    network = job.network_name
    name = network if isinstance(network, str) else getattr(network, "__qualname__", type(network).__name__)
    identity = {
        "noisegate": __version__,
        "method": method.settings(),
        "network": name,
        "recipe": job.recipe.to_dict(),
        "seed": job.seed,
        "data": {
            "name": data.name,
            "train": fingerprint(data.train),
            "validation": None if data.validation is None else fingerprint(data.validation),
            "weights": None if sample_weight is None else hashed(np.asarray(sample_weight, dtype=np.float64)),
            "noise": data.info.get("noise"),
        },
    }
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    described = {"identity": identity, "versions": versions, "hardware": hardware_name(job.device)}
    if distributed.world().several:
        described["processes"] = distributed.world().size
    return json.loads(
        json.dumps(described, default=lambda v: v.item() if isinstance(v, np.generic) else repr(v))
    )


def hardware_name(device: torch.device) -> str:
    """What a device is called: the GPU's name, or the kind of processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def fingerprint(split: Split) -> str:
    """A hash of the observed labels and of the inputs, as far as `input_hash` goes."""
    return hashed(split.y, repr((len(split), split.input_shape)), input_hash(split.x))


def input_hash(x: Inputs) -> str:
    """A hash of an array's type and numbers: all of them, or rows spread over it that make a gigabyte.

    Of inputs that are read when needed it is what they say of themselves; nothing, if they say nothing.
    """
    if not isinstance(x, np.ndarray):
        return x.fingerprint() if hasattr(x, "fingerprint") else ""
    step = max(1, -(-x.nbytes // HASHED_BYTES))
    rows = x[::step]
    size = max(1, BLOCK_BYTES // max(1, rows.nbytes // max(1, len(rows))))
    return hashed(str(x.dtype), *(rows[start : start + size] for start in range(0, len(rows), size)))


def hashed(*parts: np.ndarray | str) -> str:
    """A short hash of arrays and texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
