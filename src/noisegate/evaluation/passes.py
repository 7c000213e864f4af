"""Passes of a network over all rows: `predict` once, or `Pass` in equal batches for CUDA graphs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from noisegate.data.loader import Rows
from noisegate.errors import InputError
from noisegate.evaluation.maps import map_scores, map_summary
from noisegate.objectives import Objective

#: (objective, outputs, row numbers) -> values `(B, columns)`.
Read = Callable[[Any, Tensor, Tensor], Tensor]
#: Most probabilities of vectors that one batch of a prediction makes; on a CPU they stay in a cache.
VECTOR_NUMBERS = {"cpu": 2**18, "cuda": 2**24}


def predict(
    network: nn.Module,
    objective: Objective,
    rows: Rows,
    *,
    read: Callable[[Tensor], Tensor] | None = None,
    batch_size: int | None = None,
) -> Tensor:
    """Predict probabilities of the clean class, `(N, K)`, in evaluation mode.

    If the outputs are maps, probabilities are `(N, K, H, W)`, of the size of the inputs.

    Parameters
    ----------
    network : nn.Module
    objective : Objective
        Turns outputs into probabilities.
    rows : Rows
    read : function (outputs) -> tensor, default=None
        What to return of the outputs instead of probabilities.
    batch_size : int, default=None
        None: 4096 vectors or 512 images; fewer of many classes, or if the outputs are maps.
    """
    found: Tensor | None = None
    start = 0
    for values in predictions(network, objective, rows, read=read, batch_size=batch_size):
        if len(values) == len(rows):
            return values
        if found is None:
            found = values.new_empty(len(rows), *values.shape[1:])
        found[start : start + len(values)] = values
        start += len(values)
    if found is None:
        raise InputError("there are no rows to predict")
    return found


def predictions(
    network: nn.Module,
    objective: Objective,
    rows: Rows,
    *,
    read: Callable[[Tensor], Tensor] | None = None,
    batch_size: int | None = None,
) -> Iterator[Tensor]:
    """What `predict` returns, batch after batch, so that a caller decides how much of it is in memory."""
    size = batch_size or _prediction_size(network, objective, rows)
    parts = [(module, module.training) for module in (network, objective) if _trains(module)]
    for module, _ in parts:
        module.eval()
    try:
        for x in rows.inputs(size):
            with torch.no_grad():
                outputs = network(x)
                large = (int(x.shape[2]), int(x.shape[3])) if outputs.dim() == 4 else None
                values = objective.probs(outputs, large) if read is None else read(outputs)
            yield values
    finally:
        for module, mode in parts:
            module.train(mode)


def _trains(module: nn.Module) -> bool:
    """Whether any part is in training mode; torch's iterator over the parts takes longer."""
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None:
            if part.training:
                return True
            waiting += part._modules.values()
    return False


def _prediction_size(network: nn.Module, objective: Objective, rows: Rows) -> int:
    if getattr(network, "spec", {}).get("maps"):
        return map_pass_size(rows)
    if len(rows.shape) > 1:
        return 512
    most = VECTOR_NUMBERS.get(rows.device.type, VECTOR_NUMBERS["cuda"])
    fitting = max(1, most // objective.n_classes)
    return max(128, min(4096, 1 << (fitting.bit_length() - 1)))


class Pass:
    """A pass of a network over all rows; `values` holds what `read` returns, `(N, columns)`.

    All batches have the same size: the last is padded by repeating its last row. For resident rows
    `batch` is capture-safe.

    Parameters
    ----------
    network : nn.Module
    objective : Objective
    rows : Rows
    read : function (objective, outputs, index) -> tensor (B, columns)
        Computes values from the outputs of the rows `index`.

    Attributes
    ----------
    replay : function () -> None, or None
        Replaces `batch` where a CUDA graph of it was captured.
    """

    def __init__(self, network: nn.Module, objective: Any, rows: Rows, read: Read) -> None:
        self.network, self.objective, self.rows, self.read = network, objective, rows, read
        self.count = max(1, math.ceil(len(rows) / pass_size(rows)))
        self.size = math.ceil(len(rows) / self.count)
        self.replay: Callable[[], None] | None = None
        self._offsets = torch.arange(self.size, device=rows.device)
        self._place = torch.zeros((), dtype=torch.int64, device=rows.device)
        self._out: Tensor | None = None

    @torch.no_grad()
    def batch(self) -> None:
        """Evaluate the next batch of resident rows; the device counts the batches."""
        index = (self._place * self.size + self._offsets).clamp_max(len(self.rows) - 1)
        values = self.read(self.objective, self.network(self.rows.gather(index)), index)
        if self._out is None:
            self._out = values.new_zeros(self.count, *values.shape)
        self._out.index_copy_(0, self._place.view(1), values.unsqueeze(0))
        self._place.add_(1)

    def rewind(self) -> None:
        """Go back to the first batch."""
        self._place.zero_()

    @torch.no_grad()
    def run(self) -> None:
        """Evaluate all rows."""
        if self.rows.resident:
            self.rewind()
            for _ in range(self.count):
                (self.replay or self.batch)()
            return
        order = torch.arange(len(self.rows))
        parts = self.rows.batches(order, self.size)
        self._out = torch.cat([self.read(self.objective, self.network(x), i) for i, x in parts])[None]

    @property
    def values(self) -> Tensor:
        """The values of the last run, `(N, columns)`."""
        if self._out is None:
            raise InputError("a pass has no values before it has run")
        return self._out.flatten(0, 1)[: len(self.rows)]


#: Pixels per batch when outputs are maps, since all class probabilities of a batch are in memory at
#: once.
MAP_PIXELS = {"cpu": 2**19, "cuda": 2**22}


def pass_size(rows: Rows) -> int:
    """Number of rows per batch of a pass, enough to keep a GPU busy."""
    if rows.maps:
        return map_pass_size(rows)
    if rows.device.type == "cuda":
        return max(128, min(4096, 2**22 // max(1, math.prod(rows.shape))))
    return 4096 if len(rows.shape) == 1 else 512


def map_pass_size(rows: Rows) -> int:
    """Number of images per batch of a pass whose outputs are maps."""
    room = MAP_PIXELS.get(rows.device.type, MAP_PIXELS["cuda"])
    return max(1, min(len(rows), room // math.prod(rows.shape[1:])))


class Passes:
    """Passes by name. A call makes the pass the first time and returns its values.

    Parameters
    ----------
    network : nn.Module
    objective : Objective
    mode : {"run", "once", "stored"}, default="run"
        What a call does. "run": run the pass. "once": run its first batch only, to try it out.
        "stored": run nothing, return the values of the last run.
    """

    def __init__(self, network: nn.Module, objective: Any, mode: str = "run") -> None:
        self.network, self.objective, self.mode = network, objective, mode
        self.named: dict[str, Pass] = {}

    def __call__(self, name: str, rows: Rows, read: Read) -> Tensor:
        if name not in self.named:
            self.named[name] = Pass(self.network, self.objective, rows, read)
        found = self.named[name]
        if self.mode == "run":
            found.run()
        elif self.mode == "once":
            found.rewind()
            found.batch()
        return found.values

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside, network and objective are in evaluation mode."""
        modes = [module.training for module in (self.network, self.objective)]
        self.network.eval()
        self.objective.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            for module, mode in zip((self.network, self.objective), modes, strict=True):
                module.train(mode)


def read_given(y: Tensor) -> Read:
    """Return a `Read` that compares predictions with the labels `y`.

    Columns: whether the predicted clean class equals the label; the log-likelihood of the label. If
    labels are maps, the columns are those of `map_scores`.
    """

    def read(objective: Any, outputs: Tensor, index: Tensor) -> Tensor:
        if y.dim() == 3:
            return read_maps(objective, outputs, y[index])
        labels, clean = y[index], objective.log_probs(outputs)
        observed = objective.observed_log_probs(outputs).gather(1, labels.unsqueeze(1)).squeeze(1)
        observed = observed.clamp_min(math.log(torch.finfo(observed.dtype).tiny))
        return torch.stack([(clean.argmax(1) == labels).double(), observed.double()], 1)

    return read


def read_maps(objective: Any, outputs: Tensor, labels: Tensor) -> Tensor:
    """Resize outputs to the size of their label maps, and compute `map_scores`."""
    ready = objective.at_size(outputs, labels.shape[1:])
    clean = objective.log_probs(ready)
    return map_scores(
        clean, labels, objective.observed_log_probs(ready) if objective.tells_labels_from_classes else None
    )


def summary_given(values: Tensor, rows: Rows, objective: Any) -> dict[str, Tensor]:
    """Reduce the values of `read_given` to accuracy, log_likelihood and, for maps, mean_iou."""
    if rows.maps:
        found = map_summary(values, objective.n_classes)
        return {name: found[name] for name in ("accuracy", "log_likelihood", "mean_iou")}
    return dict(zip(("accuracy", "log_likelihood"), values.mean(0), strict=True))


def given_labels(network: nn.Module, objective: Any, rows: Rows, y: Tensor) -> dict[str, float]:
    """Accuracy of the predicted clean class against labels `y`, and their mean log-likelihood."""
    passes = Passes(network, objective)
    with passes.evaluating():
        values = passes("given", rows, read_given(y))
        found = summary_given(values, rows, objective)
    return {name: float(value) for name, value in found.items()}
