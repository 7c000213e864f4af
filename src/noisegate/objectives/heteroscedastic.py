"""Heteroscedastic classification: normal noise on the logits, averaged out by sampling (Collier et al.)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from noisegate._fusing import fused
from noisegate.errors import InputError, is_real
from noisegate.objectives.base import Objective

COVARIANCES = ("diagonal", "low-rank")
MIN_SCALE = 1e-3
#: Elements and samples of a chunk. On a CPU it should stay in the cache; a GPU wants few, large kernels.
CHUNK_LIMITS = {"cpu": (2**19, 2**6), "cuda": (2**24, 2**14)}
#: Up to this rank a compiler writes out products with the factors.
FUSED_RANK = 8
#: Up to so many dimensions fixed points are Sobol's. Of more some pairs are strongly correlated: of 1000 points in
#: 1000 dimensions by up to 0.76. Signs and rotations average that out in training, not where points are fixed.
FIXED_SOBOL = 128
_BITS = 30
_MAX_DIMENSIONS = torch.quasirandom.SobolEngine.MAXDIM


def chunk_size(elements: int, n_samples: int, device: torch.device) -> int:
    """How many samples of this many elements to hold at once, a power of two: at least 1, and all if they fit.

    >>> cpu = torch.device("cpu")
    >>> chunk_size(1280, 1000, cpu), chunk_size(1280, 50, cpu), chunk_size(2**20, 1000, cpu)
    (64, 64, 1)
    """
    most_elements, most_samples = CHUNK_LIMITS.get(device.type, CHUNK_LIMITS["cuda"])
    room = min(most_elements // max(elements, 1), most_samples)
    if n_samples <= room:
        return 1 << (n_samples - 1).bit_length()
    return 1 << max(room.bit_length() - 1, 0)


def sobol_directions(dimensions: int, n_bits: int, seed: int = 0) -> Tensor:
    """Direction numbers of a scrambled Sobol sequence, `(dimensions, n_bits)`, integers below 2^30."""
    return torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=seed).sobolstate[:, :n_bits]


class Points:
    """Normal points of low discrepancy, made a chunk at a time from direction numbers and a digital shift.

    The shift randomises them: a point with a uniform shift is exactly N(0, I). The same shift gives the same
    points again, so that a backward pass needs no random numbers.

    Parameters
    ----------
    directions : int64 tensor (D, m)
    shift : int64 tensor (D,) of numbers below 2^30
    n_samples : int
        At most 2^m.
    """

    def __init__(self, directions: Tensor, shift: Tensor, n_samples: int) -> None:
        self.directions, self.shift, self.n_samples = directions, shift, n_samples

    def chunks(self, size: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """Tensors (D, s), s at most `size`, a power of two; together (D, n_samples)."""
        low = size.bit_length() - 1
        table = sobol_table(self.directions, low)
        for start in range(0, self.n_samples, size):
            first = self.shift
            for bit in range(low, start.bit_length()):
                if start >> bit & 1:
                    first = first ^ self.directions[:, bit]
            yield sobol_normals(table, first, min(size, self.n_samples - start), dtype)


@fused
def sobol_table(directions: Tensor, low: int) -> Tensor:
    """`(D, 2^low)` bits of the first points, without a shift."""
    table = torch.zeros_like(directions[:, :1])
    for bit in range(low):
        table = torch.cat([table, table ^ directions[:, bit : bit + 1]], 1)
    return table


@fused
def sobol_normals(table: Tensor, first: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """`(D, count)` points of a chunk whose first one has these bits `(D,)`."""
    bits = first.unsqueeze(1) ^ table[:, :count]
    # float64: a float32 would round the largest numbers up to one, which is infinity in normal units.
    return torch.special.ndtri((bits.double() + 0.5) * 2.0**-_BITS).to(dtype)


class Strata:
    """Normal points for many dimensions: each one's fall into 2^m equal strata, in an order of its own.

    Every dimension is covered evenly, any two are as good as independent. As `Points` they are made a chunk at a
    time, and the same keys give the same points again.

    Parameters
    ----------
    keys : int64 tensor (D, 3) of numbers below 2^62
        Uniform ones make each point exactly N(0, I).
    n_samples : int
        At most 2^m.
    """

    def __init__(self, keys: Tensor, n_samples: int) -> None:
        self.keys, self.n_samples = keys, n_samples

    def chunks(self, size: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """Tensors (D, s), s at most `size`; together (D, n_samples)."""
        bits = max((self.n_samples - 1).bit_length(), 1)
        for start in range(0, self.n_samples, size):
            samples = torch.arange(start, min(start + size, self.n_samples), device=self.keys.device)
            inside = hashed_uniform(self.keys[:, :1], samples)
            places = (shuffled(samples, self.keys, bits) + inside) * 2.0**-bits
            # Rounding could make one of the last stratum, which is infinity in normal units.
            yield torch.special.ndtri(places.clamp(max=1 - 2.0**-53)).to(dtype)


def shuffled(index: Tensor, keys: Tensor, bits: int) -> Tensor:
    """A permutation of 0..2^bits - 1 for each row of `keys` (D, rounds), at `index` (s,): `(D, s)`."""
    mask, half = (1 << bits) - 1, (bits + 1) // 2
    places = index.expand(len(keys), -1)
    for key in keys.unsqueeze(2).unbind(1):
        # Each step can be undone: another bit pattern, an odd multiple, the upper half onto the lower one.
        places = ((places ^ (key >> 32)) * (key & mask | 1)) & mask
        places = places ^ (places >> half)
    return places


def sampled_logits(mean: Tensor, scale: Tensor, factors: Tensor, normals: Tensor) -> Tensor:
    """mean + scale * eps + factors eta for every sample, `(N, K, s)`.

    mean and scale are `(N, K)`, factors `(N, K, R)`; normals `(R + K, s)` hold eta before eps.
    """
    n, k, rank = factors.shape
    logits = torch.addcmul(mean.unsqueeze(2), scale.unsqueeze(2), normals[rank:])
    if rank and _fuses(rank):
        return logits + (factors.unsqueeze(3) * normals[:rank]).sum(2)
    if rank:
        logits.view(n * k, logits.shape[2]).addmm_(factors.reshape(n * k, rank), normals[:rank])
    return logits


def _fuses(rank: int) -> bool:
    """Whether products with the factors are left to a compiler, which makes no pass of their own of few of them."""
    return torch.compiler.is_compiling() and rank <= FUSED_RANK


def sampled_logits_adjoint(gradient: Tensor, normals: Tensor, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient in mean, scale and factors; `gradient`, that in the logits `(N, K, s)`, is overwritten."""
    n, k, _ = gradient.shape
    factors = gradient.new_zeros(n, k, 0)
    if rank and _fuses(rank):
        factors = (gradient.unsqueeze(2) * normals[:rank]).sum(3)
    elif rank:
        factors = (gradient.view(n * k, gradient.shape[2]) @ normals[:rank].T).view(n, k, rank)
    mean = gradient.sum(2)
    # In place: einsum would do it in K small products, several times as slow on a CPU.
    return mean, gradient.mul_(normals[rank:]).sum(2), factors


@fused
def label_chunk(
    mean: Tensor, scale: Tensor, factors: Tensor, index: Tensor, normals: Tensor, top: Tensor, gradient: bool
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
    """What a chunk adds to `LabelCost`, in a function of its own so that no chunk outlives it.

    Returns the factor for the sums so far, the new maximum of log p_sy, the sum of p_sy relative to it, and
    the sums of the gradient weighted by p_sy (without `gradient`, none).
    """
    logits = sampled_logits(mean, scale, factors, normals)
    here = index.expand(-1, 1, logits.shape[2])
    largest = logits.amax(1, keepdim=True)
    own = logits.gather(1, here) - largest
    shares = logits.sub_(largest).exp_()
    total = shares.sum(1, keepdim=True)
    own = own - total.log()
    higher = torch.maximum(top, own.amax(2, keepdim=True))
    weights = (own - higher).exp()
    news: tuple[Tensor, ...] = ()
    if gradient:
        # expm1 because p_y - 1 cancels where the label is nearly certain.
        shares, mine = shares.mul_(weights / total), weights * own.expm1()
        if torch.compiler.is_compiling():  # a compiler fuses this; a scatter would be a pass of its own
            classes = torch.arange(mean.shape[1], device=mean.device).unsqueeze(1)
            shares = torch.where(classes == index, mine, shares)
        else:
            shares.scatter_(1, here, mine)
        news = sampled_logits_adjoint(shares, normals, factors.shape[2])
    return (top - higher).exp(), higher, weights.sum(2, keepdim=True), news


class LabelCost(torch.autograd.Function):
    """-log mean_s softmax(logits_s)_y with its gradient made in the forward, chunk by chunk.

    With w_s the softmax over samples of log p_sy, the gradient in the logits of sample s is
    w_s (p_s - onehot(y)) (equation 14 of Englesson et al.). Sums are kept relative to a running maximum of
    log p_sy, as a streaming softmax does. Each chunk is written five times and read eight times.
    """

    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        scale: Tensor,
        factors: Tensor,
        labels: Tensor,
        points: Points | Strata,
        gradient: bool,
    ) -> Tensor:
        # A compiler that gets tensors with a history warns that it looks at their .grad.
        mean, scale, factors = mean.detach(), scale.detach(), factors.detach()
        index = labels.view(-1, 1, 1)
        top, mass = mean.new_full((len(mean), 1, 1), -math.inf), mean.new_zeros(len(mean), 1, 1)
        sums = [torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros_like(factors)]
        size = chunk_size(mean.numel(), points.n_samples, mean.device)
        for normals in points.chunks(size, mean.dtype):
            keep, top, weight, news = label_chunk(mean, scale, factors, index, normals, top, gradient)
            mass = mass * keep + weight
            keeps = (keep.squeeze(2), keep.squeeze(2), keep)
            sums = (
                [old * k + new for old, k, new in zip(sums, keeps, news, strict=True)] if gradient else sums
            )
        if gradient:
            ctx.save_for_backward(sums[0] / mass.squeeze(2), sums[1] / mass.squeeze(2), sums[2] / mass)
        return math.log(points.n_samples) - (top + mass.log()).flatten()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors = ctx.saved_tensors
        out = grads[0].unsqueeze(1)
        return out * mean, out * scale, out.unsqueeze(2) * factors, None, None, None


class LogMeanSoftmax(torch.autograd.Function):
    """log mean_s softmax(logits_s) of all classes, `(N, K)`; the backward makes the same points again.

    K gradients cannot be accumulated in the forward without K^2 memory, hence the second pass.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, scale: Tensor, factors: Tensor, points: Points | Strata) -> Tensor:
        top, mass = torch.full_like(mean, -math.inf), torch.zeros_like(mean)
        size = chunk_size(mean.numel(), points.n_samples, mean.device)
        for normals in points.chunks(size, mean.dtype):
            logits = sampled_logits(mean, scale, factors, normals)
            top, mass = streamed(top, mass, F.log_softmax(logits, 1), 2)
            del logits  # so that no chunk outlives the next
        result = top + mass.log() - math.log(points.n_samples)
        ctx.save_for_backward(mean, scale, factors, result)
        ctx.points = points
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, result = ctx.saved_tensors
        sums = [torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros_like(factors)]
        size = chunk_size(mean.numel(), ctx.points.n_samples, mean.device)
        for normals in ctx.points.chunks(size, mean.dtype):
            shares = F.log_softmax(sampled_logits(mean, scale, factors, normals), 1)
            pulled = pulled_back(shares, result.unsqueeze(2), grads[0].unsqueeze(2), 1)
            news = sampled_logits_adjoint(pulled, normals, factors.shape[2])
            sums = [old + new for old, new in zip(sums, news, strict=True)]
            del shares, pulled
        return *(each / ctx.points.n_samples for each in sums), None


def streamed(top: Tensor, mass: Tensor, values: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """One step of a streaming log-sum-exp over `dim`: running maximum `top`, and `mass` relative to it."""
    higher = torch.maximum(top, values.amax(dim))
    return higher, mass * (top - higher).exp() + (values - higher.unsqueeze(dim)).exp_().sum(dim)


def pulled_back(log_shares: Tensor, result: Tensor, gradient: Tensor, dim: int) -> Tensor:
    """S times the gradient in the logits of a sample: g_j w_j - p_j sum_k g_k w_k, with w = p_s / p.

    `gradient` is g, that in `result`, log p.
    """
    weighted = gradient * (log_shares - result).exp_()
    return weighted - log_shares.exp() * weighted.sum(dim, keepdim=True)


class HashedNormals:
    """Independent N(0, 1) numbers, each a function of a key and its own index: any part can be made again.

    Upsampling mixes neighbouring places, so each needs noise of its own: too many dimensions for Sobol.

    Parameters
    ----------
    key : int64 tensor ()
    shape : tuple of int
        Shape of one sample of one image.
    n_samples : int
    shared : bool
        All images have the same noise (evaluation: independent of the batch).
    """

    def __init__(self, key: Tensor, shape: tuple[int, ...], n_samples: int, shared: bool) -> None:
        self.key, self.shape, self.n_samples, self.shared = key, shape, n_samples, shared

    def block(self, images: range, samples: range, dtype: torch.dtype) -> Tensor:
        """`(len(images) or 1, len(samples), *shape)`."""
        device = self.key.device
        image = torch.arange(1 if self.shared else len(images), device=device)
        image = image if self.shared else image + images.start
        sample = torch.arange(samples.start, samples.stop, device=device)
        inner = torch.arange(math.prod(self.shape), device=device)
        index = ((image[:, None] * self.n_samples + sample)[:, :, None] * len(inner) + inner).unflatten(
            2, self.shape
        )
        return torch.special.ndtri(hashed_uniform(self.key, index)).to(dtype)


def hashed_uniform(key: Tensor, index: Tensor) -> Tensor:
    """Uniform numbers in (0, 1) from integers (the finaliser of splitmix64), in float64."""
    bits = key + index * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        bits = (bits ^ _shifted(bits, shift)) * factor
    return (_shifted(bits ^ _shifted(bits, 31), 12).double() + 0.5) * 2.0**-52


def _shifted(bits: Tensor, by: int) -> Tensor:
    """A logical shift to the right: torch's own repeats the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


class ResizedLogMeanSoftmax(torch.autograd.Function):
    """log mean_s softmax(upsample(logits_s)), `(B, K, H, W)` from maps `(B, K, h, w)`.

    The backward makes the same noise again.
    """

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, scale: Tensor, factors: Tensor, noise: HashedNormals, size: tuple[int, int]
    ) -> Tensor:
        result = mean.new_empty(*mean.shape[:2], *size)
        for images, samples in _blocks(result, noise.n_samples):
            where = slice(images.start, images.stop)
            if samples.start == 0:
                top, mass = torch.full_like(result[where], -math.inf), torch.zeros_like(result[where])
            logits, _ = _resized(mean[where], scale[where], factors[where], noise, images, samples, size)
            top, mass = streamed(top, mass, F.log_softmax(logits, 2), 1)
            del logits
            if samples.stop == noise.n_samples:
                result[where] = top + mass.log() - math.log(noise.n_samples)
        ctx.save_for_backward(mean, scale, factors, result)
        ctx.noise, ctx.size = noise, size
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, result = ctx.saved_tensors
        sums = [torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros_like(factors)]
        rank = factors.shape[2]
        for images, samples in _blocks(result, ctx.noise.n_samples):
            where = slice(images.start, images.stop)
            logits, normals = _resized(
                mean[where], scale[where], factors[where], ctx.noise, images, samples, ctx.size
            )
            shares = F.log_softmax(logits, 2)
            pulled = pulled_back(shares, result[where].unsqueeze(1), grads[0][where].unsqueeze(1), 2)
            small = torch.ops.aten.upsample_bilinear2d_backward(
                pulled.flatten(0, 1), ctx.size, [logits.shape[0] * logits.shape[1], *mean.shape[1:]], False
            ).unflatten(0, logits.shape[:2])
            sums[0][where] += small.sum(1)
            sums[1][where] += (small * normals[:, :, rank:]).sum(1)
            if rank:
                sums[2][where] += (small.unsqueeze(3) * normals[:, :, None, :rank]).sum(1)
            del logits, normals, shares, pulled, small
        return *(each / ctx.noise.n_samples for each in sums), None, None


def _blocks(result: Tensor, n_samples: int) -> Iterator[tuple[range, range]]:
    """Images and samples to work on at once: one sample of one image at least."""
    batch, each = len(result), result[0].numel()
    size = chunk_size(each, n_samples, result.device)
    images = chunk_size(each * size, batch, result.device)
    for first in range(0, batch, images):
        for start in range(0, n_samples, size):
            yield range(first, min(first + images, batch)), range(start, min(start + size, n_samples))


def _resized(
    mean: Tensor,
    scale: Tensor,
    factors: Tensor,
    noise: HashedNormals,
    images: range,
    samples: range,
    size: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    """Upsampled logits (b, s, K, H, W) and the noise (b or 1, s, R + K, h, w) they came from."""
    normals = noise.block(images, samples, mean.dtype)
    rank = factors.shape[2]
    logits = torch.addcmul(mean.unsqueeze(1), scale.unsqueeze(1), normals[:, :, rank:])
    if rank:
        logits = logits + (factors.unsqueeze(1) * normals[:, :, None, :rank]).sum(3)
    large = F.interpolate(logits.flatten(0, 1), size, mode="bilinear", align_corners=False)
    return large.unflatten(0, logits.shape[:2]), normals


class Heteroscedastic(Objective):
    r"""Cross-entropy of a softmax whose logits carry normal noise that the network predicts (Het, Het-tau).

        u = mu + d * eps + V eta,    eps ~ N(0, I_K), eta ~ N(0, I_R),    d = softplus(.) + 0.001,
        p = mean over S samples of softmax(u / tau),    loss = -log p_y.

    Where a label is likely to be wrong the network can predict a large d and so attenuate the loss. tau
    trades bias for variance: as it falls, p comes nearer to P(argmax u = y) and its gradient varies more.

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
        S in evaluation mode: fixed points, the same for all rows, so that `probs` is deterministic and the
        result of a row does not depend on its batch.

    Notes
    -----
    Outputs, in this order: mu (K), scale before softplus (K), factors (K R, class after class).
    Two classes have the sigmoid form of appendix A, p_1 = mean sigmoid((mu + d eps) / tau), with 2 outputs,
    mu and scale. There the difference of the two logits is one normal number whatever their covariance is, so
    "low-rank" adds nothing to the model and no outputs.

    Samples are scrambled Sobol points under a random digital shift per call. In training every row sees them with
    its own random signs and rotation of the classes, which leaves p unbiased and the errors of the rows nearly
    uncorrelated. Where K + R is above 128 in evaluation, or above 21,201 in training, points are stratified in
    each dimension alone: of Sobol's some pairs would hang together. `benchmarks/results/heteroscedastic.md` has
    the curve: several times fewer samples than independent ones for the same error of the gradient, but no gain at
    temperature 0.1 with 100 classes.

    Cost: O(B S K) time; memory does not grow with S (chunks of at most 64 samples and 2 MiB on a CPU, of
    64 MiB on a GPU, or one sample of all rows if that is larger). The defaults at batch 128 take at best 10 ms
    for 10 classes and 51 ms for 100, forward and backward on one core: some 40 and 200 times cross-entropy's
    loss. Integer targets accumulate the gradient in the forward; soft targets, `costs` and `log_probs` make
    the samples again in the backward: two to six times as long. There is no double backward. In a run whose
    networks are compiled (`execution="compiled"`) so are these costs: on one H200 and with S = 1000 two thirds
    to a quarter of the time (`benchmarks/results/gpu.md`).

    Maps `(B, n_outputs, h, w)` with targets `(B, H, W)` that are larger, or with `size=(H, W)`: sampled logits
    are upsampled bilinearly before the softmax. Noise is then independent between the places of the small
    map (in evaluation the same for all images), and the time is O(B S K H W).

    References
    ----------
    Collier, Mustafa, Kokiopoulou, Berent. Analysis of Softmax Approximation for Deep Classifiers under
    Input-Dependent Label Noise. 2020. Kendall, Gal. What Uncertainties Do We Need in Bayesian Deep Learning
    for Computer Vision? NeurIPS 2017. Low-rank: Collier et al. Correlated Input-Dependent Label Noise in
    Large-Scale Image Classification. CVPR 2021.

    Examples
    --------
    >>> import torch, noisegate as ng
    >>> objective = ng.Heteroscedastic(n_classes=10, temperature=5.0, covariance="low-rank", rank=2)
    >>> objective.n_outputs
    40
    >>> objective.eval().probs(torch.zeros(3, 40)).sum(1)
    tensor([1.0000, 1.0000, 1.0000])
    """

    summary: ClassVar[str] = "Heteroscedastic: the softmax of logits with predicted normal noise, by sampling"
    directions: Tensor
    fixed_shift: Tensor
    fixed_key: Tensor
    fixed_keys: Tensor

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
        shift = torch.randint(0, 2**_BITS, (dimensions,), generator=fixed)
        self.register_buffer("fixed_shift", shift, persistent=False)
        self.register_buffer("fixed_key", torch.randint(0, 2**62, (), generator=fixed), persistent=False)
        keys = torch.randint(0, 2**62, (dimensions, 3), generator=fixed)
        self.register_buffer("fixed_keys", keys, persistent=False)

    def parameters_of(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, scale `(B, K, ...)` and factors `(B, K, R, ...)` of the logits over the temperature."""
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

    def costs(self, outputs: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        return -self.log_probs(outputs, size)

    def log_probs(self, outputs: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """Log-probabilities, `(B, K, ...)`; with `size=(H, W)` those of logits upsampled sample by sample."""
        outputs = self.widened(outputs)
        if not outputs.numel():
            shape = (len(outputs), self.n_classes, *(size or outputs.shape[2:]))
            return outputs.new_zeros(shape) + outputs.sum()
        with torch.autocast(outputs.device.type, enabled=False):
            if size is not None and tuple(size) != tuple(outputs.shape[2:]):
                return self._resized_log_probs(outputs, size)
            mean, scale, factors, roll = self._rows(outputs)
            result = LogMeanSoftmax.apply(mean, scale, factors, self._points(outputs.device))
            if roll is not None:
                result = result.gather(1, _rotation(-roll, self.n_classes))
            return result.view(len(outputs), *outputs.shape[2:], self.n_classes).movedim(-1, 1)

    def probs(self, outputs: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        """Probabilities, `(B, K, ...)`; with `size=(H, W)` those of logits upsampled sample by sample."""
        return self.log_probs(outputs, size).exp()

    def observed_log_probs(self, outputs: Tensor, size: tuple[int, int] | None = None) -> Tensor:
        return self.log_probs(outputs, size)

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not outputs.numel():
            return outputs.new_zeros(targets.shape) + outputs.sum()
        if targets.shape[1:] != outputs.shape[2:]:
            costs = self.costs(outputs, (targets.shape[1], targets.shape[2]))
            return costs.gather(1, targets.unsqueeze(1)).squeeze(1)
        mean, scale, factors, roll = self._rows(outputs)
        labels = targets.reshape(-1)
        if roll is not None:
            labels = (labels - roll.squeeze(1)) % self.n_classes
        gradient = torch.is_grad_enabled() and outputs.requires_grad
        points = self._points(outputs.device)
        return LabelCost.apply(mean, scale, factors, labels, points, gradient).view(targets.shape)

    def _fits(self, outputs: Tensor, shape: torch.Size) -> bool:
        return super()._fits(outputs, shape) or (
            outputs.dim() == 4
            and len(shape) == 3
            and shape[0] == outputs.shape[0]
            and all(large >= small for large, small in zip(shape[1:], outputs.shape[2:], strict=True))
        )

    def _costs_for(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self._fits(outputs, targets.shape[:1] + targets.shape[2:]) and targets.dim() == 4:
            return self.costs(outputs, (targets.shape[2], targets.shape[3]))
        return self.costs(outputs)

    def _rows(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """The parameters, one row per label; in training with random signs and rotated by `roll` (N, 1)."""
        mean, scale, factors = self.parameters_of(outputs)
        n, device = mean.numel() // self.n_classes, mean.device
        mean = mean.movedim(1, -1).reshape(n, self.n_classes).contiguous()
        scale = scale.movedim(1, -1).reshape(n, self.n_classes).contiguous()
        factors = factors.movedim((1, 2), (-2, -1)).reshape(n, self.n_classes, self._rank)
        if not self.training:
            return mean, scale, factors, None
        roll = torch.randint(0, self.n_classes, (n, 1), device=device)
        signs = (2 * torch.randint(0, 2, (n, self.n_classes + self._rank), device=device) - 1).to(mean.dtype)
        index = _rotation(roll, self.n_classes)
        mean, scale = mean.gather(1, index), scale.gather(1, index) * signs[:, self._rank :]
        if self._rank:
            factors = factors.gather(1, index.unsqueeze(2).expand_as(factors)) * signs[:, None, : self._rank]
        return mean, scale, factors, roll

    def _points(self, device: torch.device) -> Points | Strata:
        dimensions = self.n_classes + self._rank
        if not self.training:
            if dimensions > FIXED_SOBOL:
                return Strata(self.fixed_keys.to(device), self.n_samples_eval)
            return Points(self.directions.to(device), self.fixed_shift.to(device), self.n_samples_eval)
        if dimensions > _MAX_DIMENSIONS:
            return Strata(torch.randint(0, 2**62, (dimensions, 3), device=device), self.n_samples)
        shift = torch.randint(0, 2**_BITS, (dimensions,), device=device)
        return Points(self.directions.to(device), shift, self.n_samples)

    def _resized_log_probs(self, outputs: Tensor, size: tuple[int, int]) -> Tensor:
        if (
            outputs.dim() != 4
            or len(size) != 2
            or any(a < b for a, b in zip(size, outputs.shape[2:], strict=True))
        ):
            raise InputError(
                f"size must be (H, W), at least that of the outputs {tuple(outputs.shape)}, got {tuple(size)}"
            )
        shape = (self.n_classes + self._rank, *outputs.shape[2:])
        if self.training:
            key = torch.randint(0, 2**62, (), device=outputs.device)
            noise = HashedNormals(key, shape, self.n_samples, shared=False)
        else:
            noise = HashedNormals(self.fixed_key.to(outputs.device), shape, self.n_samples_eval, shared=True)
        return ResizedLogMeanSoftmax.apply(*self.parameters_of(outputs), noise, (int(size[0]), int(size[1])))


def _rotation(roll: Tensor, n_classes: int) -> Tensor:
    """Indices (N, K) that rotate each row by its own number of places."""
    return (torch.arange(n_classes, device=roll.device) + roll) % n_classes


def _check_count(name: str, value: int) -> None:
    if not is_real(value) or int(value) != value or not 1 <= value <= 2**_BITS:
        raise InputError(f"{name} must be a whole number from 1 to 2**{_BITS}, got {value!r}")
