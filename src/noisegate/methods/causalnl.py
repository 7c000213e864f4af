"""CausalNL: two classifiers that teach each other, each inside a generative model of inputs and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method, later
from noisegate.methods.co_teaching import kept_share, smallest
from noisegate.methods.estimation import ESTIMATE, check_choice, check_count, check_number, noise_rate
from noisegate.methods.registry import register
from noisegate.networks.causal import (
    SMALLEST_SCALE,
    CausalModel,
    InputDecoder,
    LabelDecoder,
    LatentEncoder,
    default_z_dim,
    every_label,
    gaussian_kl,
)
from noisegate.networks.prepare import Prepared, centre_crop
from noisegate.objectives import CrossEntropy, Objective, total_weight, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases, Update

#: The weights of reconstruction, label, prior and KL: of appendix B; equation 6 has none; the
#: code's KL has no 1/2.
WEIGHTS = {"paper": (0.1, 0.1, 1e-5, 0.01), "elbo": (1.0, 1.0, 1.0, 1.0), "code": (0.1, 0.1, 1e-5, 0.02)}
# The transition matrix that is reported is a mean over at most this many training rows.
SUMMARY_ROWS = 10_000


class LabelledPosterior(Objective):
    """q(y|y~, x) for every observed label and q(y~|x), from one output vector of K^2 + K numbers.

    Footnote 2 of the CausalNL paper: the classifier is their product summed over the observed
    label,

        q(y|x) = sum_i q(y|y~ = i, x) q(y~ = i|x).

    Parameters
    ----------
    n_classes : int

    >>> LabelledPosterior(3).probs(torch.zeros(2, 12)).sum(1)
    tensor([1.0000, 1.0000])
    """

    summary = "q(y|y~, x) and q(y~|x) side by side (CausalNL, footnote 2)"

    def __init__(self, n_classes: int, **shared: Any) -> None:
        super().__init__(n_classes, **shared)
        self.slices = (self.n_classes**2, self.n_classes)

    def conditional_log_probs(self, outputs: Tensor) -> Tensor:
        """log q(y = j|y~ = i, x) at [:, i, j]: `(B, K, K, ...)`, whose dimension 2 sums to one."""
        return self.split(outputs)[0].unflatten(1, (self.n_classes, self.n_classes)).log_softmax(2)

    def observed_log_probs(self, outputs: Tensor) -> Tensor:
        return self.split(outputs)[1].log_softmax(1)

    def log_probs(self, outputs: Tensor) -> Tensor:
        joint = self.conditional_log_probs(outputs) + self.observed_log_probs(outputs).unsqueeze(2)
        return joint.logsumexp(1)

    def costs(self, outputs: Tensor) -> Tensor:
        return -self.log_probs(outputs)


class Branch(CausalModel):
    """A classifier q(y|x) inside a model of the inputs and labels it sees.

    Parameters
    ----------
    classifier : Prepared
        Maps raw inputs to the outputs that `objective` interprets as q(y|x).
    objective : Objective
        `CrossEntropy`, or `LabelledPosterior` for a q that sees the observed label.
    *parts, **options
        Of `CausalModel`.
    """

    def __init__(
        self,
        classifier: Prepared,
        objective: Objective,
        *parts: Any,
        **options: Any,
    ) -> None:
        super().__init__(*parts, **options)
        self.classifier, self.objective = classifier, objective

    def target(self, x: Tensor) -> Tensor:
        """The input that p(x|y, z) models: pixels in [0, 1] for uint8 images, standardised numbers otherwise."""
        shape = self.decoder.shape
        x = centre_crop(x, shape[1:]) if len(shape) == 3 and tuple(x.shape[1:]) != shape else x
        if self.decoder.bounded:
            return x.to(next(self.decoder.parameters()).dtype) / 255
        return self.classifier.prepare(x)

    def posterior(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """log q(y|x), or log q(y|y~, x) of the given labels if the objective has it: `(B, K)`."""
        if not isinstance(self.objective, LabelledPosterior):
            return self.objective.log_probs(outputs)
        rows = labels.view(-1, 1, 1).expand(-1, 1, self.n_classes)
        return self.objective.conditional_log_probs(outputs).gather(1, rows).squeeze(1)


class Branches(PhaseModule):
    """Two branches whose classifiers teach each other; the loss is the sum of both.

    Parameters
    ----------
    first, second : Branch
        The classifier of the first one predicts.
    rate, gradual
        Parameters of co-teaching.
    weights : four floats
        Weights of the terms, in their order.
    warmup : int
        Epochs in which the terms have no gradient in the classifiers.
    together : bool
        One update on the sum of all losses; otherwise two, the first on co-teaching alone.
    """

    def __init__(
        self,
        first: Branch,
        second: Branch,
        *,
        rate: float,
        gradual: int,
        weights: Sequence[float],
        warmup: int,
        together: bool = True,
    ) -> None:
        super().__init__()
        self.first, self.second, self.together = first, second, together
        self.rate, self.gradual, self.weights, self.warmup = rate, gradual, tuple(weights), warmup

    def updates(self) -> Sequence[Update]:
        if self.together:
            return super().updates()
        classifiers = nn.ModuleList([self.first.classifier, self.second.classifier])
        return (
            Update(classifiers, lambda batch: self.co_teaching(batch, self.outputs(batch))),
            Update(self, lambda batch: self.negative_bounds(batch, self.outputs(batch))),
        )

    def forward(self, batch: Batch) -> Tensor:
        outputs = self.outputs(batch)
        return self.co_teaching(batch, outputs) + self.negative_bounds(batch, outputs)

    def outputs(self, batch: Batch) -> list[Tensor]:
        """The outputs of each branch's classifier for a batch."""
        return [branch.classifier(batch.x) for branch in (self.first, self.second)]

    def co_teaching(self, batch: Batch, outputs: Sequence[Tensor]) -> Tensor:
        """The cross-entropy of each classifier on the labels that the other one finds easy, added up."""
        branches = (self.first, self.second)
        losses = [
            b.objective(out, batch.y, reduction="none") for b, out in zip(branches, outputs, strict=True)
        ]
        code = self.first.variant == "code"
        share = kept_share(batch.epoch, self.rate, max(1, self.gradual - 1) if code else self.gradual)
        masks = [smallest(loss.detach(), share, batch.weight) for loss in losses]
        total = losses[0].new_zeros(())
        for loss, mask in zip(losses, reversed(masks), strict=True):
            weight = mask * batch.weight.to(loss.dtype)
            taught = weighted_mean(loss, weight)
            # In the code a mean that is divided by the number of labels once more.
            total = total + (taught / total_weight(weight).clamp_min(1) if code else taught)
        return total

    def negative_bounds(self, batch: Batch, outputs: Sequence[Tensor]) -> Tensor:
        """The mean over the batch of the terms of both branches."""
        total = outputs[0].new_zeros(())
        for branch, out in zip((self.first, self.second), outputs, strict=True):
            bound = self.negative_bound(branch, batch, out)
            total = total + weighted_mean(bound, batch.weight.to(bound.dtype))
        return total

    def negative_bound(self, branch: Branch, batch: Batch, outputs: Tensor) -> Tensor:
        """The weighted sum of a branch's terms for every row, `(B,)`.

        In "elbo" per number of the input.
        """
        open_ = (batch.epoch >= self.warmup).to(batch.weight.dtype)
        log_q = branch.posterior(outputs, batch.y)
        log_q = open_ * log_q + (1 - open_) * log_q.detach()
        x = branch.target(batch.x)
        terms = branch.terms(x, batch.y, log_q)
        if branch.variant == "code":
            # The code sums this term over the batch, and averages all others.
            terms = terms._replace(kl=terms.kl * total_weight(batch.weight))
        total = torch.stack([weight * term for weight, term in zip(self.weights, terms, strict=True)]).sum(0)
        if branch.variant == "elbo":
            total = total / math.prod(branch.decoder.shape)
        if isinstance(branch.objective, LabelledPosterior):
            observed = branch.objective.observed_log_probs(outputs)
            total = total - observed.gather(1, batch.y.unsqueeze(1)).squeeze(1)
        return total

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.first.classifier, self.first.objective

    def label_signals(self, x: Tensor, y: Tensor, index: Tensor) -> dict[str, Tensor]:
        """`posterior`: P(y != y~ | y~, x), by q(y|x) and p(y~|y, x) of the first branch."""
        branch = self.first
        q = branch.objective.probs(branch.classifier(x))
        labels = y.view(-1, 1, 1).expand(-1, branch.n_classes, 1)
        joint = q * branch.transition(branch.target(x)).gather(2, labels).squeeze(2)
        return {"posterior": 1 - joint.gather(1, y[:, None]).squeeze(1) / joint.sum(1).clamp_min(1e-12)}


@torch.no_grad()
def summarise(branch: Branch, job: Job) -> dict[str, Any]:
    """What a trained branch has learnt, over at most 10,000 training rows.

    Returns
    -------
    dict
        transition, tensor (K, K): sum_x q(y|x) p(y~|y, x), rows normalised; kl, the mean over x of
        E_q KL(q(z|y, x) || p(z)) in nats, 0 where z has collapsed; reconstruction_error, the mean
        of |x - x^| at the most probable y and the mean of z; and for "elbo" bound, the mean lower
        bound of log p(x, y~).
    """
    k = branch.n_classes
    places = np.unique(np.linspace(0, len(job.train) - 1, SUMMARY_ROWS).astype(np.int64))
    size = max(1, (4096 if len(job.input_shape) == 1 else 512) // k)
    joint = torch.zeros(k, k, dtype=torch.float64, device=job.device)
    sums = torch.zeros(3, dtype=torch.float64, device=job.device)
    branch.eval()
    for index, streamed in job.train.batches(torch.from_numpy(places), size):
        raw = job.train.gather(index) if streamed is None else streamed
        x, labels = branch.target(raw), job.train.y[index]
        log_q = branch.posterior(branch.classifier(raw), labels)
        # A class of probability 0 in every row gets the plain mean of the rows of its matrices.
        q = log_q.double().exp().clamp_min(1e-12)
        joint += (q.unsqueeze(2) * branch.transition(x)).sum(0)
        rows, y = every_label(x, k)
        mean, log_variance = branch.encoder(rows, y)
        errors = (rows - branch.decoder(y, mean)).abs().flatten(1).mean(1).view(-1, k)
        best = errors.gather(1, q.argmax(1, keepdim=True)).sum()
        bound = -torch.stack(branch.terms(x, labels, log_q)).sum()
        sums += torch.stack([(q * gaussian_kl(mean, log_variance).view(-1, k)).sum(), best, bound])
    found = dict(zip(("kl", "reconstruction_error", "bound"), (sums / len(places)).tolist(), strict=True))
    if branch.variant != "elbo":
        del found["bound"]
    return {"transition": joint / joint.sum(1, keepdim=True), **found}


@register(
    "causalnl",
    "two classifiers that teach each other inside generative models of inputs and labels",
    "Yao et al. 2021, CausalNL",
)
@dataclass
class CausalNL(Method):
    """CausalNL: the clean label and a latent z cause the input.

    Input and clean label cause the observed label.

    Two branches, each with four networks: q(y|x), the network of the run; q(z|y, x); p(x|y, z);
    p(y~|y, x); p(y) is uniform and p(z) standard normal. Per branch the loss is

        w_0 rec(x, x^) + w_1 CE(y~, p(y~|y, .)) + w_2 sum_y q log q + w_3 KL(q(z|y, x) || p(z)) +
        cross-entropy of q(y|x) on the labels that the other branch's q(y|x) finds easy
        (co-teaching).

    What x^, y and z are depends on the variant. "paper" is appendix B and Algorithm 1 with
    their errors corrected (the sign of the KL; co-teaching updates q(y|x), not q(z|y, x)): y a one-hot
    draw, straight-through; z by its mean and deviation; rec the mean of |x - x^|; the noisy-label
    decoder sees the RECONSTRUCTION x^. The KL is summed over z against a mean over pixels: z may
    collapse on images (`extras["kl"]` tells). "elbo" is equation 6 itself: an exact sum over y, the
    noisy-label decoder sees x, rec = -log p(x|y, z) with a Laplace density, all terms in nats.
    Their sum, divided by the number d of numbers in an input, enters the loss: a true lower bound
    of log p(x, y~). It costs K passes through the small networks. "code" has the losses of the code
    that the authors published: uniform [0, 1] noise in place of normal noise for z, a
    Gumbel-softmax y, squared errors, a prior term (w_2) without a gradient, a KL without its 1/2
    and summed over the batch, co-teaching whose mean is divided by the number of labels once more
    and which drops its full share an epoch sooner. With batches of 128 the KL weighs 256 times as
    much as in "paper", co-teaching a 64th where half of the labels are kept. The small networks are
    those of "paper" (group norm; batch norm in the code).

    x is the input that p(x|y, z) models: pixels in [0, 1] for uint8 images, standardised numbers
    otherwise. Images of any size work: they are padded to a multiple of the strides (16 for four layers),
    and reconstructions are cropped.

    Parameters
    ----------
    variant : {"paper", "elbo", "code"}
    z_dim : int, optional
        Length of z; by default 25 for images, and half the length of vectors, between 1 and 25. The
        paper has 100 for Clothing1M and 1 for moons.
    widths : sequence of int, optional
        Feature maps of the convolutions, (32, 64, 128, 256) by default; add 512 for Clothing1M.
        Hidden units for vectors, (64, 64).
    reconstruction_weight, label_weight, prior_weight, kl_weight : float, optional
        w_0 to w_3, not negative; by default 0.1, 0.1, 1e-5 and 0.01, but 1 each in "elbo", and 0.02
        for the last in "code".
    scale : float, optional
        "elbo" only: the scale of the Laplace density; None learns it, starting at 0.5 for
        standardised numbers and at 0.1 for pixels.
    temperature : float
        Temperature of the Gumbel-softmax; "code" only.
    noise_rate : float or "estimate"
        Share of wrong labels for co-teaching, in [0, 1).
    gradual : int
        Number of epochs until co-teaching drops the full share.
    folds : int
        Number of folds of the cross-validation for "estimate".
    warmup_epochs : int, optional
        Epochs in which the other networks are trained but q(y|x) gets no gradient from them. By default
        none, but `gradual` in "elbo": untrained decoders would lead q(y|x) to an arbitrary split of
        the inputs. On two kinds of moons three eighths of training held, while 3 epochs of 40 were
        too few on one of them (study causalnl-figure2).
    label_posterior : bool
        Footnote 2: the posterior is q(y|y~, x), and the classifier sum_i q(y|y~ = i, x) q(y~ =
        i|x), where q(y~|x) learns the observed labels. One network with K^2 + K outputs gives both.
    updates : {"one", "two"}
        "one" follows the sum of all losses. "two" is Algorithm 1 as printed: first an update of the
        two q(y|x) on co-teaching (line 5), then one of all networks on the terms (line 8), each
        with an optimiser of its own. A step takes about one pass through the classifiers longer.

    Notes
    -----
    The classifier of the first branch predicts. `extras` has the transition matrix averaged over the training
    rows, with the clean label by row (the paper's is the transpose); the noise rate; kl, the information of z
    about x, in nats; reconstruction_error; and in "elbo" the bound, in nats per row: among several seeds take
    the one with the highest bound.

    The weights of appendix B leave the terms about 0.2 % of the gradient that q(y|x) gets from
    their sum with co-teaching, so "paper" with one update is nearly co-teaching. Adam does not see
    the size of a loss: with two updates the terms move q(y|x) by steps as long as co-teaching's.

    With nearly half of the labels wrong "code", whose co-teaching weighs a 64th, can end with
    classes exchanged: on the authors' moons (10,000 points, 45 % wrong) four seeds of ten ended
    at 8 to 18 % accuracy. Look at `extras["transition"]`, whose diagonal is then small, or take
    another variant.

    References
    ----------
    Yao, Liu, Gong, Han, Niu, Zhang. Instance-dependent label-noise learning under structural causal models.
    NeurIPS 2021.
    """

    variant: str = "paper"
    z_dim: int | None = None
    widths: Sequence[int] | None = None
    reconstruction_weight: float | None = None
    label_weight: float | None = None
    prior_weight: float | None = None
    kl_weight: float | None = None
    scale: float | None = None
    temperature: float = 1.0
    noise_rate: float | str = ESTIMATE
    gradual: int = 10
    folds: int = 3
    warmup_epochs: int | None = None
    label_posterior: bool = False
    updates: str = later("one")

    def phases(self, job: Job) -> Phases:
        self._check(job)
        rate = yield from noise_rate(job, self.noise_rate, folds=self.folds)
        first, second = self._branch(job), self._branch(job)
        warmup = self.warmup_epochs
        if warmup is None:
            warmup = self.gradual if self.variant == "elbo" else 0
        module = Branches(
            first,
            second,
            rate=rate,
            gradual=self.gradual,
            weights=self._weights(),
            warmup=warmup,
            together=self.updates == "one",
        )
        yield Phase(module, job.recipe, name="causalnl")
        return Fitted(first.classifier, first.objective, noise_rate=rate, **summarise(first, job))

    def _weights(self) -> tuple[float, ...]:
        own = (self.reconstruction_weight, self.label_weight, self.prior_weight, self.kl_weight)
        usual = WEIGHTS[self.variant]
        return tuple(float(w) if given is None else given for given, w in zip(own, usual, strict=True))

    def _check(self, job: Job) -> None:
        check_choice("variant", self.variant, tuple(WEIGHTS))
        check_count("z_dim", self.z_dim, 1, optional=True)
        for width in () if self.widths is None else self.widths:
            check_count("widths", width, 1)
        for name in ("reconstruction_weight", "label_weight", "prior_weight", "kl_weight"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0)
        if self.scale is not None:
            check_number("scale", self.scale, SMALLEST_SCALE)
        check_number("temperature", self.temperature, 1e-3)
        check_count("gradual", self.gradual, 1)
        check_count("folds", self.folds, 2)
        check_count("warmup_epochs", self.warmup_epochs, 0, optional=True)
        check_choice("label_posterior", self.label_posterior, (False, True))
        check_choice("updates", self.updates, ("one", "two"))
        if job.train.y.dim() != 1:
            raise InputError(
                f"causalnl needs one label a row, got labels of shape {tuple(job.train.y.shape)}"
            )

    def _branch(self, job: Job) -> Branch:
        k, shape = job.n_classes, job.input_shape
        objective: Objective = LabelledPosterior(k) if self.label_posterior else CrossEntropy(k)
        z_dim = default_z_dim(shape) if self.z_dim is None else self.z_dim
        source = job.train.source
        one = source if isinstance(source, np.ndarray) else source.fetch(np.arange(1))
        bounded = len(shape) == 3 and one.dtype == np.uint8
        return Branch(
            job.network(objective),
            objective,
            LatentEncoder(shape, k, z_dim, self.widths),
            InputDecoder(shape, k, z_dim, self.widths, bounded=bounded),
            LabelDecoder(shape, k, self.widths),
            variant=self.variant,
            scale=self.scale,
            temperature=self.temperature,
        )
