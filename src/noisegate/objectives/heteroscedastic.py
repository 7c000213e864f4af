"""Heteroscedastic classification: sampled normal noise on the logits (Collier et al.)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from noisegate.errors import InputError, is_real
from noisegate.objectives.base import Objective
from noisegate.objectives.points import (
    BITS,
    HashedNormals,
    PlacePoints,
    Points,
    Strata,
    TiledPoints,
    sobol_directions,
)
from noisegate.objectives.sampled import Blocks, LabelCost, LogMeanSoftmax, log_softmax_, sampled_logits
from noisegate.objectives.upsampled import (
    Size,
    Upsampled,
    UpsampledLabelCost,
    UpsampledLogMeanSoftmax,
    upsampled_moments,
)

COVARIANCES = ("diagonal", "low-rank")
MIN_SCALE = 1e-3
#: Up to so many dimensions fixed points are Sobol's. Of more some pairs are strongly correlated: of
#: 1000 points in 1000 dimensions by up to 0.76. Signs and rotations average that out in training,
#: not where points are fixed.
FIXED_SOBOL = 128
#: Up to so many numbers a place the points of maps are Sobol's in training: four times as many
#: dimensions.
MAP_SOBOL = 256
_MAX_DIMENSIONS = torch.quasirandom.SobolEngine.MAXDIM


class Heteroscedastic(Objective):
    r"""Cross-entropy with normal noise on the logits, predicted by the network (Het, Het-tau).

        u = mu + d * eps + V eta,    eps ~ N(0, I_K), eta ~ N(0, I_R),    d = softplus(.) + 0.001,
        p = mean over S samples of softmax(u / tau),    loss = -log p_y.

    Where a label is likely to be wrong the network can predict a large d and so attenuate the loss.
    tau trades bias for variance: as it falls, p comes nearer to P(argmax u = y) and its gradient
    varies more.

    Parameters
    ----------
    n_classes : int
        Number of classes K.
    temperature : float
        tau, positive; 1 is the model of Kendall and Gal. The paper tunes it between .025 and 100.
    covariance : {"diagonal", "low-rank"}
        "low-rank" adds the factors V, `(B, K, R)`: noise that is correlated between classes.
    rank : int, optional
        R, needed for "low-rank" (1, 2 or 4 in the literature).
    n_samples : int
        S in training: fresh points at every call, from torch's default generator of the device.
    n_samples_eval : int
        S in evaluation mode: fixed points, the same for all rows, so that `probs` is deterministic
        and the result of a row does not depend on its batch.

    Notes
    -----
    Outputs, in this order: mu (K), scale before softplus (K), factors (K R, class after class). Two
    classes have the sigmoid form of appendix A, p_1 = mean sigmoid((mu + d eps) / tau), with 2
    outputs, mu and scale. There the difference of the two logits is one normal number whatever
    their covariance is, so "low-rank" adds nothing to the model and no outputs.

    Samples are scrambled Sobol points under a random digital shift per call. In training every row
    sees them with its own random signs and rotation of the classes, which leaves p unbiased and the
    errors of the rows nearly uncorrelated. Where K + R is above 128 in evaluation, or above 21,201
    in training, points are stratified in each dimension alone: of Sobol's some pairs would hang
    together. `benchmarks/results/heteroscedastic.md` has the curve: several times fewer samples
    than independent ones for the same error of the gradient, but no gain at temperature 0.1 with
    100 classes.

    Cost: O(B S K) time; memory does not grow with S (chunks of 2 MiB on a CPU and of 64 MiB on a GPU,
    or one sample of some rows if that is larger). `benchmarks/results/objectives.md` has the time
    beside cross-entropy's, `benchmarks/results/sampling.md` that beside plain sampling and beside the
    exponentials alone. Integer targets accumulate the gradient in the forward; soft targets,
    `costs` and `log_probs` make the samples again in the backward: two to six times as long. On a CPU
    shares of a sample below 4e-18 of its largest (in float64 3e-40) count as that. There is no double
    backward. In a run whose networks are compiled (`execution="compiled"`) so are these costs: on one
    H200 and with S = 1000 two thirds to a quarter of the time (`benchmarks/results/gpu.md`).

    Maps `(B, n_outputs, h, w)` with targets `(B, H, W)` that are larger, or with `size=(H, W)`:
    sampled logits are upsampled bilinearly before the softmax. The four places that a pixel lies
    between are dimensions of one Sobol sequence, each place has random shifts of its own (in
    evaluation the same for all images; with more than 256 classes and factors together, in
    evaluation 32, noise is independent). The time is O(B S K H W), the memory that of the result
    and some samples of some rows. On a CPU fewer samples will do in training: with 32 a step on 129
    x 129 labels of 21 classes takes about 100 times cross-entropy's, and the gradient of a small
    problem is off by 4 % at temperature 1, by 18 % at 0.2 and by more than itself at 0.05
    (`benchmarks/results/maps.md`).

    References
    ----------
    Collier, Mustafa, Kokiopoulou, Berent. Analysis of Softmax Approximation for Deep Classifiers
    under Input-Dependent Label Noise. 2020. Kendall, Gal. What Uncertainties Do We Need in Bayesian
    Deep Learning for Computer Vision? NeurIPS 2017. Low-rank: Collier et al. Correlated
    Input-Dependent Label Noise in Large-Scale Image Classification. CVPR 2021.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.Heteroscedastic(n_classes=10, temperature=5.0, covariance="low-rank", rank=2)
    >>> objective.n_outputs
    40
    >>> objective.eval().probs(torch.zeros(3, 40)).sum(1).round(decimals=4)
    tensor([1., 1., 1.])
    """

    #: By their mean logits, without sampling: nearly always as the mean of the samples does.
    ranks_by_outputs: ClassVar[bool] = True
    summary: ClassVar[str] = "Heteroscedastic: the softmax of logits with predicted normal noise, by sampling"
    directions: Tensor
    fixed_shift: Tensor
    fixed_key: Tensor
    fixed_keys: Tensor
    tile_directions: Tensor | None

    def __init__(
        self,
        n_classes: int,
        temperature: float = 1.0,
        covariance: str = "diagonal",
        rank: int | None = None,
        n_samples: int = 1000,
        n_samples_eval: int = 1000,
        **shared: Any,
    ) -> None:
        super().__init__(n_classes, **shared)
        if not (is_real(temperature) and temperature > 0):
            raise InputError(f"temperature must be positive, got {temperature!r}")
        if covariance not in COVARIANCES:
            raise InputError(f"covariance must be one of {', '.join(COVARIANCES)}, got {covariance!r}")
        if (rank is None) is (covariance == "low-rank"):
            raise InputError(
                f"rank is given if and only if covariance is 'low-rank', got {covariance!r} and {rank!r}"
            )
        _check_count("rank", 1 if rank is None else rank)
        _check_count("n_samples", n_samples)
        _check_count("n_samples_eval", n_samples_eval)
        self.temperature, self.covariance, self.rank = temperature, covariance, rank
        self.n_samples, self.n_samples_eval = n_samples, n_samples_eval
        k, self._rank = self.n_classes, rank or 0
        if k == 2:
            self.slices, self._rank = (1, 1), 0
        else:
            self.slices = (k, k, k * self._rank) if self._rank else (k, k)
        n_bits = max((max(n_samples, n_samples_eval) - 1).bit_length(), 1)
        dimensions = k + self._rank
        known = min(dimensions, _MAX_DIMENSIONS)
        self.register_buffer("directions", sobol_directions(known, n_bits), persistent=False)
        fixed = torch.Generator().manual_seed(0)
        shift = torch.randint(0, 2**BITS, (dimensions,), generator=fixed)
        self.register_buffer("fixed_shift", shift, persistent=False)
        self.register_buffer("fixed_key", torch.randint(0, 2**62, (), generator=fixed), persistent=False)
        keys = torch.randint(0, 2**62, (dimensions, 3), generator=fixed)
        self.register_buffer("fixed_keys", keys, persistent=False)
        tiled = sobol_directions(4 * dimensions, n_bits) if dimensions <= MAP_SOBOL else None
        self.register_buffer("tile_directions", tiled, persistent=False)

    def parameters_of(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and scale `(B, K, ...)` and factors `(B, K, R, ...)` of logits / temperature."""
        mu, raw, *rest = self.split(outputs)
        scale = F.softplus(raw) + MIN_SCALE
        if self.n_classes == 2:
            # Appendix A: the logits are 0 and y*.
            zero = torch.zeros_like(mu)
            mu, scale = torch.cat([zero, mu], 1), torch.cat([zero, scale], 1)
        if rest:
            factors = rest[0].unflatten(1, (self.n_classes, self._rank))
        else:
            factors = mu.new_zeros(len(mu), self.n_classes, 0, *mu.shape[2:])
        return mu / self.temperature, scale / self.temperature, factors / self.temperature

    def costs(self, outputs: Tensor | Upsampled, size: Size | None = None) -> Tensor:
        return -self.log_probs(outputs, size)

    def log_probs(self, outputs: Tensor | Upsampled, size: Size | None = None) -> Tensor:
        """Log-probabilities, `(B, K, ...)`.

        With `size=(H, W)` those of logits upsampled sample by sample.
        """
        outputs, size = self._sized(outputs, size)
        if not outputs.numel():
            shape = (len(outputs), self.n_classes, *(size or outputs.shape[2:]))
            return outputs.new_zeros(shape) + outputs.sum()
        with torch.autocast(outputs.device.type, enabled=False):
            if size is not None:
                parameters = self.parameters_of(outputs)
                return UpsampledLogMeanSoftmax.apply(*parameters, self._place_points(outputs), size)
            mean, scale, factors, roll = self._rows(outputs)
            result = LogMeanSoftmax.apply(mean, scale, factors, self._points(outputs.device))
            return self._as_given(result, outputs, roll)

    def probs(self, outputs: Tensor | Upsampled, size: Size | None = None) -> Tensor:
        """Probabilities, `(B, K, ...)`.

        With `size=(H, W)` those of logits upsampled sample by sample.
        """
        return self.log_probs(outputs, size).exp()

    @torch.no_grad()
    def variance(self, outputs: Tensor | Upsampled, size: Size | None = None) -> Tensor:
        """Variance over the samples of the softmax of each class, `(B, K, ...)`.

        With `size=(H, W)` at that size.

        The per-class variance of the predictive distribution, in [0, 1/4]: where it is large, the
        network says that the label is uncertain by nature. Samples, memory and time are those of
        `probs`; `probs_and_variance` returns both in that time.

        >>> import torch, noisegate as ng
        >>> objective = ng.Heteroscedastic(2, temperature=0.01).eval()
        >>> objective.variance(torch.tensor([[0.0, 1.0], [9.0, 1.0]]))[:, 1].round(decimals=2)
        tensor([0.2500, 0.0000])
        """
        return self.probs_and_variance(outputs, size)[1]

    @torch.no_grad()
    def probs_and_variance(
        self, outputs: Tensor | Upsampled, size: Size | None = None
    ) -> tuple[Tensor, Tensor]:
        """`probs` and `variance` from the same samples, in the time of one of them; no gradient."""
        outputs, size = self._sized(outputs, size)
        if not outputs.numel():
            empty = outputs.new_zeros(len(outputs), self.n_classes, *(size or outputs.shape[2:]))
            return empty, empty
        with torch.autocast(outputs.device.type, enabled=False):
            if size is not None:
                return upsampled_moments(*self.parameters_of(outputs), self._place_points(outputs), size)
            mean, scale, factors, roll = self._rows(outputs)
            points, (k, rank, n) = self._points(outputs.device), factors.shape
            at_once, sums = Blocks.of(k, n, points.n_samples, mean.device), mean.new_zeros(2, k, n)
            blocks = list(at_once.split(sums, mean, scale, factors))
            for some in at_once.designs(points, rank, mean.dtype):
                for (first, second), *given in blocks:
                    for design in some:
                        shares = log_softmax_(sampled_logits(design, *given)).exp_()
                        first += shares.sum(1)
                        second += shares.square_().sum(1)
            sums /= points.n_samples
            variance = (sums[1] - sums[0].square()).clamp_min_(0)
            return self._as_given(sums[0], outputs, roll), self._as_given(variance, outputs, roll)

    def resized(self, outputs: Tensor, size: Size) -> Upsampled:
        """Outputs whose sampled logits, not they themselves, are to be upsampled."""
        return Upsampled(outputs, size)

    def label_costs(self, outputs: Tensor | Upsampled, targets: Tensor) -> Tensor:
        outputs, size = self._sized(outputs, None)
        if not outputs.numel():
            return outputs.new_zeros(targets.shape) + outputs.sum()
        if size is not None:
            parameters = self.parameters_of(outputs)
            return UpsampledLabelCost.apply(*parameters, targets, self._place_points(outputs), size)
        mean, scale, factors, roll = self._rows(outputs)
        labels = targets.reshape(-1)
        if roll is not None:
            labels = (labels - roll) % self.n_classes
        gradient = torch.is_grad_enabled() and outputs.requires_grad
        points = self._points(outputs.device)
        return LabelCost.apply(mean, scale, factors, labels, points, gradient).view(targets.shape)

    def _sized(self, outputs: Tensor | Upsampled, size: Size | None) -> tuple[Tensor, Size | None]:
        """Checked outputs, and the size of the labels where it is another one."""
        if isinstance(outputs, Upsampled):
            outputs, size = outputs
        outputs = self.check_outputs(outputs)
        if size is None or tuple(size) == tuple(outputs.shape[2:]):
            return outputs, None
        return outputs, self.check_size(outputs, size)

    def _as_given(self, rows: Tensor, outputs: Tensor, roll: Tensor | None) -> Tensor:
        """Numbers `(K, N)` of the rows of `_rows` as `(B, K, ...)`."""
        if roll is not None:
            rows = rows.gather(0, _rotation(-roll, self.n_classes))
        return rows.view(self.n_classes, len(outputs), *outputs.shape[2:]).movedim(0, 1)

    def _rows(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Mean and scale `(K, 1, N)` and factors `(K, R, N)`, a column for each label.

        In training with random signs and rotated by `roll` (N,).
        """
        mean, scale, factors = self.parameters_of(outputs)
        k, n = self.n_classes, mean.numel() // self.n_classes
        mean, scale = (each.movedim(1, 0).reshape(k, 1, n).contiguous() for each in (mean, scale))
        factors = factors.movedim((1, 2), (0, 1)).reshape(k, self._rank, n)
        if not self.training:
            return mean, scale, factors, None
        roll = torch.randint(0, k, (n, 1), device=mean.device).squeeze(1)
        signs = torch.randint(0, 2, (n, k + self._rank), device=mean.device)
        signs = (2 * signs - 1).T.to(mean.dtype)
        index = _rotation(roll, k).unsqueeze(1)
        mean, scale = mean.gather(0, index), scale.gather(0, index) * signs[self._rank :].unsqueeze(1)
        if self._rank:
            factors = factors.gather(0, index.expand_as(factors)) * signs[: self._rank]
        return mean, scale, factors, roll

    def _points(self, device: torch.device) -> Points | Strata:
        dimensions = self.n_classes + self._rank
        if not self.training:
            if dimensions > FIXED_SOBOL:
                return Strata(self.fixed_keys.to(device), self.n_samples_eval)
            return Points(self.directions.to(device), self.fixed_shift.to(device), self.n_samples_eval)
        if dimensions > _MAX_DIMENSIONS:
            return Strata(torch.randint(0, 2**62, (dimensions, 3), device=device), self.n_samples)
        shift = torch.randint(0, 2**BITS, (dimensions,), device=device)
        return Points(self.directions.to(device), shift, self.n_samples)

    def _place_points(self, outputs: Tensor) -> PlacePoints:
        """Points for maps, a place of which sees its four neighbours."""
        height, width = outputs.shape[2:]
        shape, device = (self.n_classes + self._rank, height, width), outputs.device
        if self.training:
            key, count = torch.randint(0, 2**62, (), device=device), self.n_samples
        else:
            key, count = self.fixed_key.to(device), self.n_samples_eval
        tiled = self.tile_directions
        if tiled is None or (not self.training and len(tiled) > FIXED_SOBOL):
            return HashedNormals(key, shape, count, shared=not self.training)
        return TiledPoints(tiled.to(device), key, shape, count, shared=not self.training)


def _rotation(roll: Tensor, n_classes: int) -> Tensor:
    """Indices (K, N) that rotate each column by its own number of places."""
    return (torch.arange(n_classes, device=roll.device).unsqueeze(1) + roll) % n_classes


def _check_count(name: str, value: int) -> None:
    if not is_real(value) or int(value) != value or not 1 <= value <= 2**BITS:
        raise InputError(f"{name} must be a whole number from 1 to 2**{BITS}, got {value!r}")
