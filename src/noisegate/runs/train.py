"""`train`: train a classifier on noisy labels."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from noisegate.data.dataset import Dataset
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.objectives import Objective
from noisegate.runs.failure import failure
from noisegate.runs.progress import progress_bar
from noisegate.runs.run import Run
from noisegate.training import distributed
from noisegate.training.job import NetworkSpec
from noisegate.training.precision import precision
from noisegate.training.recipe import Recipe
from noisegate.training.trainer import Epoch

log = logging.getLogger("noisegate")


def train(
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
    progress: bool | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Fitted:
    """Train a classifier on observed labels.

    Parameters
    ----------
    data : Dataset, or (x, y)
        Inputs and observed labels. Clean labels, if it has any, are used only for the metrics.
    method : str, Method, Objective or Objective class, default="auto"
        Name of a method (`noisegate list methods`), a method, or an objective to minimise by plain
        training.
    network : str or function (input_shape, n_outputs) -> nn.Module, default="auto"
        Name of a network (`noisegate list networks`) or a factory. "auto" chooses by the shape of
        the inputs.
    recipe : Recipe or mapping, default=None
        How to train. None: a recipe that suits the size of the data. A mapping changes fields of
        that recipe, e.g. {"epochs": 5}.
    seed : int, default=0
        Random seed of the initial weights, batches, augmentation and noisy validation rows.
    device : str or torch.device, default="auto"
        "cpu", "cuda", "cuda:1", ... "auto": a GPU if there is one.
    sample_weight : array (N,), default=None
        Non-negative weight of each training row; rows of weight 0 are ignored. None: all weights
        are 1.
    folder : path, default=None
        Folder for checkpoints. If the process is killed, the same call resumes the run, with the
        same result. None: no checkpoints.
    evaluate_every : int, default=1
        Epochs between two evaluations on clean labels; 0: only at the end. If it is more than 1,
        the validation rows are evaluated at the same epochs, unless the recipe needs them after
        every epoch (patience, keep="best").
    evidence : sequence of {"test", "train", "validation"}, default=("test", "train")
        Parts of the data whose clean labels are evaluated during training. At the end all parts
        with clean labels are.
    execution : {"auto", "eager", "captured", "compiled"}, default="auto"
        How steps are executed. Not part of the run's identity: a run may resume with another
        setting. "captured": each step is one CUDA graph. "compiled": networks go through
        `torch.compile` first. "auto": on a GPU captured, and compiled in long bf16 or tf32 runs of
        deep networks; on a CPU, and if a step cannot be captured, eager. Eager and captured steps
        give the same weights bit for bit in fp32 with torch's deterministic algorithms.
    progress : bool, default=None
        Whether to show a progress bar. None: a bar if standard error is a terminal, else a line
        every ten seconds.
    on_epoch : function (Epoch) -> None, default=None
        Called after every epoch.

    Returns
    -------
    Fitted
        The classifier, with its `metrics`, `history` and `record`. Its `extras` hold what the
        method learnt beside: `contradicted` (N,), where the method trains a network on the rows as
        they are, counts the epochs in which another class was more probable than the given label
        of row `row` (N,), and is high where the label is likely wrong. If the classifier seems useless
        (`noisegate.runs.failure`), the logger "noisegate" warns.

    Notes
    -----
    If torchrun started the process, or torch.distributed is initialised with several processes, the
    run is spread over all of them, and all must make this call: see
    `noisegate.training.distributed`. All return the same classifier and call `on_epoch`; only the
    first writes to `folder` and shows progress.

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
    with precision(run.precision):
        why = failure(run.fitted, run.data) if here.first else None
    if why is not None:
        log.warning("the fit failed to learn: %s", why)
    return run.fitted
