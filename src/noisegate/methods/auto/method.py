"""The method `auto`, the default: one fit gives a classifier and the labels to check."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from noisegate.methods.auto import crossfit, single, vectors
from noisegate.methods.base import Method
from noisegate.methods.estimation import check_count, length_in_epochs
from noisegate.methods.registry import register
from noisegate.training.job import Job
from noisegate.training.phase import Phases

log = logging.getLogger("noisegate")

FOLDS = 5
#: Folds are trained where all of them together take at most this many operations: about a minute.
AFFORDABLE = {"cpu": 1e12, "cuda": 3e14}


@register(
    "auto",
    "cross-fits many small models, finds the wrong labels, cleans where that helps, averages",
    "this library's own; the default",
)
@dataclass
class Auto(Method):
    """Cross-fit candidates, judge every label, clean if that helps, and predict with an ensemble.

    For vectors with network="auto":

    1. Candidates: logistic regression at nine strengths of regularisation, each on two scales of
       the inputs; kernel logistic regression with two widths; random forests and extremely
       randomised trees; a bag of small networks. Each says something about every row without having
       seen the row's label (folds; trees grown without it).
    2. All are calibrated, and those that explain the given labels of such rows within one standard
       error of the best are averaged. Wrong labels are hard to repeat for a model that has not seen
       them, so given labels can choose.
    3. Each label is weighed by the probability that it is right (`noisegate.quality.judge`), and
       the chosen candidates are fitted again; they get half of the ensemble's weight. Where that
       seems to do harm the weight is p(given) / max p, which is gentler: where models of weighed
       labels explain labels of rows that neither the models nor the weights have seen much worse
       than models of the given ones do.
    4. Every label is judged by the ensemble's held-out probabilities (`noisegate.quality.judge`), and
       the ensemble's probabilities are sharpened half of the way from what fits the given labels to what
       fits those that are right.

    With a network by name or of the user's own, and for images, folds and averaging remain: one
    network a fold, each kept at the epoch in which it fitted the fold's labels best. Where that
    would cost too much there is one run, on cross-entropy or GCE as short trials on a tenth of the
    rows decide, and its own probabilities in training judge the labels.

    Parameters
    ----------
    folds : int or None, default=None
        At least 2. None: 5, or a single run where five would cost too much.
    effort : int, default=1
        How much is tried: 2 and more repeat the folds of the bag, use as many times the kernels'
        landmarks, and fit kernels and bags on both scales of the inputs.

    Notes
    -----
    The fitted classifier's `extras` have `probs`, `quality`, `suggested`, `is_label_issue`,
    `is_sure`, `noise_rate` and `transition`, of the training rows in their order.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("moons").corrupt(ng.noise.Symmetric(0.3), seed=0)
    >>> fitted = ng.train(data, "auto", seed=0, device="cpu")
    >>> bool(fitted.metrics["test_accuracy"] > 0.9)
    True
    """

    takes_maps: ClassVar[bool] = True

    folds: int | None = None
    effort: int = 1

    def phases(self, job: Job) -> Phases:
        check_count("folds", self.folds, 2, optional=True)
        check_count("effort", self.effort, 1)
        maps = job.train.y.dim() != 1
        if len(job.input_shape) == 1 and job.network_is_auto and not maps:
            return (yield from vectors.phases(job, self.folds or FOLDS, self.effort))
        if maps or (self.folds is None and not affordable(job)):
            log.info("auto trains one network: %d, one a fold, would take too long (folds= insists)", FOLDS)
            return (yield from single.phases(job))
        return (yield from crossfit.phases(job, self.folds or FOLDS))

    def why_one_process(self) -> str | None:
        return "auto, whose candidates are fitted to all rows at once (choose another method, e.g. ln)"


def affordable(job: Job) -> bool:
    """Whether a network for each fold can be trained in minutes, by the operations of one forward pass."""
    network = job.network(job.n_classes).eval()
    x = next(job.train.inputs(2))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(x)
    row = counter.get_total_flops() / len(x)
    total = 3 * row * len(job.train) * length_in_epochs(job.recipe, len(job.train)) * FOLDS
    return total <= AFFORDABLE.get(job.device.type, AFFORDABLE["cuda"])
