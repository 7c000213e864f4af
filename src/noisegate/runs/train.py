"""`train`: from a dataset and a method's name to a fitted classifier."""

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
        With `metrics`, `history` and `record`. A fit that has come to nothing (`noisegate.runs.failure`) is
        announced as a warning of the logger "noisegate".

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
    why = failure(run.fitted, run.data) if here.first else None
    if why is not None:
        log.warning("the fit has come to nothing: %s", why)
    return run.fitted
