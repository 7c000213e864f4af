"""DivideMix: rows with suspicious labels are trained on as unlabelled rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from noisegate.errors import InputError
from noisegate.fitted import Fitted
from noisegate.methods.base import Method
from noisegate.methods.mixup import symmetric_beta
from noisegate.methods.registry import register
from noisegate.networks.prepare import Prepared
from noisegate.objectives import CrossEntropy, Objective, weighted_mean
from noisegate.training.job import Job
from noisegate.training.phase import Batch, Phase, PhaseModule, Phases
from noisegate.training.recipe import Recipe

#: The paper's warm-up for CIFAR-10; a short recipe gives a third of itself.
WARMUP_EPOCHS = 10
#: Added to the variances of the mixture, as in the authors' code: a component cannot collapse onto
#: one row.
VARIANCE_FLOOR = 5e-4
EM_STEPS = 100


@torch.no_grad()
def clean_probability(losses: Tensor, weights: Tensor) -> Tensor:
    """P(clean) of each row `(N,)`.

    The share of the lower of two Gaussians fitted to losses scaled to [0, 1].

    Expectation maximisation with a fixed number of steps, from the split of the losses at their
    mean: the result depends on nothing but the numbers. Rows count by their weights.

    >>> losses = torch.tensor([0.0, 0.1, 0.2, 2.0, 2.1, 2.2])
    >>> clean_probability(losses, torch.ones(6)).round()
    tensor([1., 1., 1., 0., 0., 0.])
    """
    low, high = losses.min(), losses.max()
    values = ((losses.double() - low) / (high - low).clamp_min(1e-12)).unsqueeze(1)
    rows = weights.double().unsqueeze(1) / weights.sum()
    above = values > (rows * values).sum()
    shares = torch.cat([~above, above], 1).double()
    for _ in range(EM_STEPS):
        counted = shares * rows
        mass = counted.sum(0).clamp_min(1e-12)
        means = (counted * values).sum(0) / mass
        variances = (counted * (values - means) ** 2).sum(0) / mass + VARIANCE_FLOOR
        shares = torch.softmax(mass.log() - variances.log() / 2 - (values - means) ** 2 / (2 * variances), 1)
    return shares[:, int(means.argmin())].to(losses.dtype)


def sharpen(probs: Tensor, temperature: float) -> Tensor:
    """p^(1/t), normalised: `(B, K)` -> `(B, K)`.

    >>> sharpen(torch.tensor([[0.75, 0.25]]), 0.5)
    tensor([[0.9000, 0.1000]])
    """
    # Divide by the largest first, so that not all underflow at a low temperature.
    powers = (probs / probs.amax(1, keepdim=True)) ** (1 / temperature)
    return powers / powers.sum(1, keepdim=True)


def one_hot(labels: Tensor, like: Tensor) -> Tensor:
    """Labels `(B,)` as rows of the shape and type of `like`.

    Torch's own reads the labels on the host.
    """
    return torch.zeros_like(like).scatter_(1, labels.unsqueeze(1), 1.0)


class Warmup(PhaseModule):
    """Both networks on cross-entropy, optionally with a reward for entropy."""

    def __init__(self, networks: Sequence[Prepared], objective: Objective, confidence_penalty: bool) -> None:
        super().__init__()
        self.networks, self.objective = nn.ModuleList(networks), objective
        self.confidence_penalty = confidence_penalty

    def forward(self, batch: Batch) -> Tensor:
        return torch.stack([self._loss(network(batch.x), batch) for network in self.networks]).sum()

    def _loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        losses = self.objective(outputs, batch.y, reduction="none")
        if self.confidence_penalty:
            log_p = self.objective.log_probs(outputs)
            losses = losses + (log_p.exp() * log_p).sum(1)
        return weighted_mean(losses, batch.weight.to(losses.dtype))

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.networks[0], self.objective


class Dividing(PhaseModule):
    """Both networks on mixed rows with refined and guessed labels; each uses the other's division.

    Parameters
    ----------
    networks : two networks
    objective : Objective
    clean : tensor (N, 2)
        Column k is filled with the probabilities of being clean by the losses of network k.
    augment : function, optional
        Makes one random view of raw inputs; None where inputs are not augmented, and one view is
        enough.
    method : DivideMix
        The parameters.
    """

    clean: Tensor

    def __init__(
        self,
        networks: Sequence[Prepared],
        objective: Objective,
        clean: Tensor,
        augment: Callable[[Tensor], Tensor] | None,
        method: DivideMix,
    ) -> None:
        super().__init__()
        self.networks, self.objective = nn.ModuleList(networks), objective
        self.register_buffer("clean", clean)
        self.augment, self.method = augment, method
        self.n_views = method.n_views if augment else 1

    def begin_epoch(self, epoch: int, job: Job) -> None:
        """Divide the rows again by a mixture of two Gaussians over the losses of each network."""
        for k, network in enumerate(self.networks):
            given = job.predict(network, self.objective).gather(1, job.train.y.unsqueeze(1)).squeeze(1)
            losses = -given.clamp_min(torch.finfo(given.dtype).tiny).log()
            self.clean[:, k] = clean_probability(losses, job.train.weight)

    def forward(self, batch: Batch) -> Tensor:
        views = [self.augment(batch.x) if self.augment else batch.x for _ in range(self.n_views)]
        inputs = self._first.prepare(torch.cat(views))
        with torch.no_grad():
            guesses = [self._guess(network, inputs) for network in self._inner]
            clean = self.clean.index_select(0, batch.index)
        losses = []
        for k, network in enumerate(self._inner):
            trust = clean[:, 1 - k].unsqueeze(1)
            targets = self.targets(batch.y, trust, guesses[k], (guesses[0] + guesses[1]) / 2)
            labelled = (trust.squeeze(1) >= self.method.threshold).to(targets.dtype)
            losses.append(self._loss(network, inputs, targets, labelled, batch))
        return losses[0] + losses[1]

    def label_signals(self, x: Tensor, y: Tensor, index: Tensor) -> dict[str, Tensor]:
        """`unlikely`: 1 minus the probability of being clean by the losses of both networks."""
        return {"unlikely": 1 - self.clean[index].mean(1)}

    @property
    def _first(self) -> Prepared:
        return self.networks[0]  # type: ignore[return-value]

    @property
    def _inner(self) -> list[nn.Module]:
        """The networks behind their common input preparation."""
        return [network.network for network in self.networks]  # type: ignore[misc]

    def _guess(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """Predict probabilities (B, K), the mean over the views."""
        probs = self.objective.probs(network(inputs))
        return probs.unflatten(0, (self.n_views, -1)).mean(0)

    @torch.no_grad()
    def targets(self, y: Tensor, trust: Tensor, own: Tensor, both: Tensor) -> Tensor:
        """Sharpened targets: the given label refined by the own guess, or the guess of both, `(B, K)`."""
        refined = trust * one_hot(y, own) + (1 - trust) * own
        return sharpen(torch.where(trust >= self.method.threshold, refined, both), self.method.temperature)

    def _loss(
        self, network: nn.Module, inputs: Tensor, targets: Tensor, labelled: Tensor, batch: Batch
    ) -> Tensor:
        targets, labelled = targets.repeat(self.n_views, 1), labelled.repeat(self.n_views)
        weights = batch.weight.to(targets.dtype).repeat(self.n_views)
        share = symmetric_beta(self.method.alpha, targets)
        share = torch.maximum(share, 1 - share)
        order = torch.rand_like(weights).argsort()
        outputs = network(share * inputs + (1 - share) * inputs[order])
        # Mix the targets in proportion to the sample weights.
        own, other = share * weights, (1 - share) * weights[order]
        weights = own + other
        mixed = own.unsqueeze(1) * targets + other.unsqueeze(1) * targets[order]
        mixed = mixed / torch.where(weights > 0, weights, torch.ones_like(weights)).unsqueeze(1)
        return self.mixed_loss(self.objective.log_probs(outputs), mixed, labelled, weights, batch.epoch)

    def mixed_loss(
        self, log_p: Tensor, targets: Tensor, labelled: Tensor, weights: Tensor, epoch: Tensor
    ) -> Tensor:
        """L_x + lambda_u(epoch) L_u + balance L_reg of one network, a 0-d tensor."""
        method, probs = self.method, log_p.exp()
        supervised = weighted_mean(-(targets * log_p).sum(1), weights * labelled)
        unsupervised = weighted_mean(((probs - targets) ** 2).sum(1), weights * (1 - labelled))
        mean = (weights.unsqueeze(1) * probs).sum(0) / weights.sum().clamp_min(1e-12)
        imbalance = -(mean.clamp_min(1e-12) * mean.numel()).log().mean()
        ramp = (epoch.to(probs.dtype) / max(1, method.rampup_epochs)).clamp(max=1.0)
        strength = method.lambda_u * (ramp if method.rampup_epochs else 1.0)
        return supervised + strength * unsupervised + method.balance * imbalance

    def predictor(self) -> tuple[nn.Module, Objective]:
        return self.networks[0], self.objective


@register(
    "dividemix",
    "two networks divide the rows for each other; rows that look wrong train as unlabelled ones",
    "Li et al. 2020, DivideMix",
)
@dataclass
class DivideMix(Method):
    """A semi-supervised method of the DivideMix kind.

    After a warm-up on cross-entropy, at the start of each epoch a mixture of two Gaussians over a
    network's losses gives each row a probability w of a right label. Each network trains with the w
    of the other one:

        w >= threshold:  target = sharpen(w onehot(y) + (1 - w) p)         p the network's own probabilities
        otherwise:       target = sharpen((p_1 + p_2) / 2)                 both networks' probabilities

    p is the mean over `n_views` augmented views. Inputs and targets are mixed, s' = max(s, 1 - s),
    s ~ Beta(a, a), x' = s' x_i + (1 - s') x_j, and by the side of row i

        loss = L_x + lambda_u L_u + balance L_reg,
        L_x = mean -sum_k t_k log p_k (labelled),      L_u = mean |t - p|^2 (unlabelled),
        L_reg = sum_k 1/K log((1/K) / mean p_k)        over all rows.

    Parameters
    ----------
    warmup_epochs : int, optional
        Epochs of the warm-up, at least 1. They are part of the recipe's length and have a constant
        learning rate. None: 10, as for CIFAR-10 in the paper (30 for CIFAR-100), but at most a third of
        the recipe. If it is too short, a class that is not learnt yet may be lost, because all its rows
        look wrong; if it is too long, wrong labels are memorised.
    threshold : float
        Probability of a right label from which a row counts as labelled, in [0, 1]; 0.5 in the paper (0.6
        at 90 % noise).
    temperature : float
        Temperature t of the sharpening, positive; 0.5 in the paper.
    alpha : float
        a, the parameter of the Beta distribution of the mixing shares, positive; 4 in the paper.
    lambda_u : float
        Weight of L_u, not negative. L_u is a sum over the classes, as the paper writes it; the
        authors' code takes the mean, and the paper's values belong to that: its 25 for CIFAR-10 is
        2.5 here, its 150 for CIFAR-100 1.5.
    rampup_epochs : int
        Epochs after the warm-up over which lambda_u grows linearly from 0; 0: it is constant. 16 in the
        paper.
    balance : float
        Weight of L_reg, not negative; 1 in the paper.
    n_views : int
        Number of augmented views of each row, 2 in the paper; 1 if the recipe does not augment.
    confidence_penalty : bool
        Whether to add sum_k p_k log p_k to the loss of the warm-up, for asymmetric noise.

    Notes
    -----
    What differs from the paper: one stream of full batches serves both networks, which take their steps together,
    instead of one epoch of one network and then one of the other; "labelled" and "unlabelled" are weights on the
    rows of a batch, in their natural proportion, instead of two loaders with batches of equal size; guesses are
    made in training mode by both networks (in the authors' code by the one that is trained); lambda_u grows by
    epochs, not by steps; and the first network predicts, where the paper averages both. Where `crop_to` cuts a
    window out of larger images, all views of a row share the window.

    The fitted classifier has `extras["clean_probability"]`, the mean of both networks' w of the
    last division.

    References
    ----------
    Li, Socher, Hoi. DivideMix: Learning with Noisy Labels as Semi-supervised Learning. ICLR 2020.
    """

    warmup_epochs: int | None = None
    threshold: float = 0.5
    temperature: float = 0.5
    alpha: float = 4.0
    lambda_u: float = 2.5
    rampup_epochs: int = 16
    balance: float = 1.0
    n_views: int = 2
    confidence_penalty: bool = False

    def why_one_process(self) -> str | None:
        return "dividemix: its penalty is a function of the mean prediction over the batch"

    def phases(self, job: Job) -> Phases:
        self._check()
        first, second = self._recipes(job)
        objective = CrossEntropy(job.n_classes)
        networks = [job.network(objective), job.network(objective)]
        yield Phase(Warmup(networks, objective, self.confidence_penalty), first, keep="last", name="warm-up")
        augmented = len(job.input_shape) == 3 and bool(job.recipe.crop or job.recipe.flip)
        augment = job.augment if augmented else None
        module = Dividing(networks, objective, job.per_example(2), augment, self)
        yield Phase(module, second)
        return Fitted(networks[0], objective, clean_probability=module.clean.mean(1))

    def _recipes(self, job: Job) -> tuple[Recipe, Recipe]:
        """The recipe cut in two: the warm-up, and the rest, whose module augments by itself."""
        recipe, rows = job.recipe, len(job.train)
        unit = 1 if recipe.steps is None else rows // min(recipe.batch_size, rows)
        total = recipe.epochs or recipe.steps or 1
        usual = max(1, min(WARMUP_EPOCHS * unit, total // 3))
        length = usual if self.warmup_epochs is None else self.warmup_epochs * unit
        if self.warmup_epochs is not None and length >= total:
            raise InputError(
                f"warmup_epochs must be shorter than the recipe, got {self.warmup_epochs} epochs of "
                f"{total / unit:g}; give the recipe more"
            )
        name = "epochs" if recipe.steps is None else "steps"
        first = recipe.replace(**{name: length}, schedule="constant", milestones=(), patience=None)
        rest = recipe.replace(
            **{name: max(1, total - length)},
            milestones=tuple(max(0, milestone - length) for milestone in recipe.milestones),
            warmup=0.0,
            crop=0,
            flip=False,
        )
        return first, rest

    def _check(self) -> None:
        if self.warmup_epochs is not None and not self.warmup_epochs >= 1:
            raise InputError(f"warmup_epochs must be at least 1, or None, got {self.warmup_epochs!r}")
        if not 0 <= self.threshold <= 1:
            raise InputError(f"threshold must lie in [0, 1], got {self.threshold!r}")
        for name in ("temperature", "alpha"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be positive, got {value!r}")
        for name in ("lambda_u", "balance", "rampup_epochs"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a finite number that is not negative, got {value!r}")
        if not self.n_views >= 1:
            raise InputError(f"n_views must be at least 1, got {self.n_views!r}")
