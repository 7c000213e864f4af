"""Encoders and decoders of CausalNL: q(z|y, x), p(x|y, z) and p(y~|y, x).

`CausalModel` puts them together; the classifier q(y|x) is any network.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisegate.errors import InputError

Shape = tuple[int, ...]
IMAGE_WIDTHS = (32, 64, 128, 256)
VECTOR_WIDTHS = (64, 64)
# Standard deviations of z between exp(-6) and exp(6): far beyond use, and their squares cannot
# overflow.
LOG_VARIANCE = 12.0
SMALLEST_SCALE = 1e-3
# Where the Laplace scale of p(x|y, z) is learnt it starts here: coarse, so that q(y|x) is not torn
# to the nearest split of the inputs, but not so coarse that z has nothing to say.
FIRST_SCALE_PIXELS, FIRST_SCALE_STANDARDISED = 0.1, 0.5


def default_widths(input_shape: Sequence[int]) -> tuple[int, ...]:
    """Default widths: the paper's feature maps for images, two hidden layers for vectors.

    >>> default_widths((3, 32, 32)), default_widths((2,))
    ((32, 64, 128, 256), (64, 64))
    """
    return IMAGE_WIDTHS if len(input_shape) == 3 else VECTOR_WIDTHS


def default_z_dim(input_shape: Sequence[int]) -> int:
    """25 for images, as in the paper; for vectors half their length, at least 1 and at most 25.

    >>> default_z_dim((3, 32, 32)), default_z_dim((2,)), default_z_dim((64,))
    (25, 1, 25)
    """
    return 25 if len(input_shape) == 3 else max(1, min(25, math.prod(input_shape) // 2))


def _check(input_shape: Sequence[int], widths: Sequence[int], **counts: int) -> Shape:
    shape = tuple(int(side) for side in input_shape)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise InputError(f"expected the shape of vectors (d,) or of images (C, H, W), got {shape}")
    if not len(widths) or min(widths) < 1:
        raise InputError(f"widths must be at least one positive whole number, got {list(widths)}")
    for name, value in counts.items():
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    return shape


def padded_size(size: Sequence[int], depth: int) -> tuple[int, int]:
    """Round height and width up to multiples of 2^depth, so that `depth` halvings are exact.

    >>> padded_size((28, 28), 4), padded_size((32, 48), 4)
    ((32, 32), (32, 48))
    """
    unit = 2**depth
    height, width = (-(-side // unit) * unit for side in size)
    return height, width


def _margins(size: Sequence[int], depth: int) -> tuple[int, int, int, int]:
    """Left, right, top, bottom: what centred padding adds, in the order of `F.pad`."""
    height, width = (after - before for before, after in zip(size, padded_size(size, depth), strict=True))
    return width // 2, width - width // 2, height // 2, height - height // 2


def _normalised(channels: int) -> nn.Module:
    # Not batch norm: the density of an example must not depend on the others in the batch.
    return nn.GroupNorm(math.gcd(8, channels), channels)


def _activation() -> nn.Module:
    return nn.LeakyReLU(0.01, inplace=True)


def _perceptron(widths: Sequence[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_in, n_out in itertools.pairwise(widths):
        layers += [nn.Linear(n_in, n_out), _activation()]
    return nn.Sequential(*layers)


def _wide(x: Tensor) -> Tensor:
    """Convert to float32 or wider: half precision is too coarse for densities."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


class _Body(nn.Module):
    """Features of an input and a label `(B, n_features)`.

    Images get the label as one more plane, a learnt linear picture of it, and are padded with zeros
    to a size that the strides divide; vectors get it as K more numbers.
    """

    def __init__(self, shape: Shape, n_classes: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.plane: nn.Linear | None = None
        if len(shape) == 1:
            self.layers = _perceptron([shape[0] + n_classes, *widths])
            self.n_features = widths[-1]
            return
        depth = len(widths)
        self.margins, self.size = _margins(shape[1:], depth), padded_size(shape[1:], depth)
        self.plane = nn.Linear(n_classes, math.prod(self.size))
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise([shape[0] + 1, *widths]):
            layers += [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1), _normalised(n_out), _activation()]
        self.layers = nn.Sequential(*layers)
        self.n_features = widths[-1] * math.prod(self.size) // 4**depth

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.plane is None:
            return self.layers(torch.cat([x, y.to(x.dtype)], 1))
        plane = self.plane(y).view(-1, 1, *self.size)
        return self.layers(torch.cat([F.pad(x, self.margins), plane.to(x.dtype)], 1)).flatten(1)


class LatentEncoder(nn.Module):
    """q(z|y, x) = Normal(mean, diag(exp(log_variance))).

    Parameters
    ----------
    input_shape : (d,) or (C, H, W)
        Images of any size: they are padded inside to a multiple of 2^len(widths), 16 for four
        layers.
    n_classes, z_dim : int
    widths : sequence of int, optional
        Feature maps of the convolutions of stride 2, or hidden units; see `default_widths`.

    References
    ----------
    Yao et al., Instance-dependent label-noise learning under a structural causal model, NeurIPS
    2021.

    >>> mean, log_variance = LatentEncoder((1, 28, 28), 10, 25)(torch.zeros(3, 1, 28, 28), torch.eye(10)[:3])
    >>> mean.shape, log_variance.shape
    (torch.Size([3, 25]), torch.Size([3, 25]))
    """

    def __init__(
        self, input_shape: Sequence[int], n_classes: int, z_dim: int, widths: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        widths = default_widths(input_shape) if widths is None else widths
        shape = _check(input_shape, widths, n_classes=n_classes, z_dim=z_dim)
        self.z_dim = z_dim
        self.body = _Body(shape, n_classes, widths)
        self.head = nn.Linear(self.body.n_features, 2 * z_dim)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance `(B, z_dim)` for inputs and labels as vectors `(B, K)`."""
        mean, log_variance = _wide(self.head(self.body(x, y))).chunk(2, dim=1)
        return mean, log_variance.clamp(-LOG_VARIANCE, LOG_VARIANCE)


class InputDecoder(nn.Module):
    """The centre of p(x|y, z): an input `(B, *input_shape)` made of a label and z.

    Parameters
    ----------
    input_shape, n_classes, z_dim, widths
        As for `LatentEncoder`; the transposed convolutions go through `widths` backwards, and what
        was padded is cut off again.
    bounded : bool
        A sigmoid at the end, for pixels in [0, 1].

    >>> InputDecoder((3, 32, 48), 10, 25)(torch.eye(10)[:3], torch.zeros(3, 25)).shape
    torch.Size([3, 3, 32, 48])
    """

    def __init__(
        self,
        input_shape: Sequence[int],
        n_classes: int,
        z_dim: int,
        widths: Sequence[int] | None = None,
        *,
        bounded: bool = False,
    ) -> None:
        super().__init__()
        widths = default_widths(input_shape) if widths is None else widths
        shape = _check(input_shape, widths, n_classes=n_classes, z_dim=z_dim)
        self.shape, self.bounded = shape, bounded
        back = list(widths)[::-1]
        if len(shape) == 1:
            self.layers = nn.Sequential(
                _perceptron([n_classes + z_dim, *back]), nn.Linear(back[-1], shape[0])
            )
            return
        depth = len(back)
        size, self.margins = padded_size(shape[1:], depth), _margins(shape[1:], depth)
        self.start = (back[0], size[0] // 2**depth, size[1] // 2**depth)
        layers: list[nn.Module] = [nn.Linear(n_classes + z_dim, math.prod(self.start))]
        layers += [nn.Unflatten(1, self.start)]
        for n_in, n_out in itertools.pairwise([*back, shape[0]]):
            layers += [_normalised(n_in), _activation(), _doubling(n_in, n_out)]
        self.layers = nn.Sequential(*layers)

    def forward(self, y: Tensor, z: Tensor) -> Tensor:
        x = _wide(self.layers(torch.cat([y.to(z.dtype), z], 1)))
        if len(self.shape) == 3:
            left, _, top, _ = self.margins
            x = x[:, :, top : top + self.shape[1], left : left + self.shape[2]]
        return x.sigmoid() if self.bounded else x


def _doubling(n_in: int, n_out: int) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(n_in, n_out, 3, stride=2, padding=1, output_padding=1)


class LabelDecoder(nn.Module):
    """p(y~|y, x): the distribution of the observed label of x if its clean label is y.

    Parameters
    ----------
    input_shape, n_classes, widths
        As for `LatentEncoder`.

    >>> LabelDecoder((2,), 3).matrix(torch.zeros(5, 2)).shape
    torch.Size([5, 3, 3])
    """

    def __init__(
        self, input_shape: Sequence[int], n_classes: int, widths: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        widths = default_widths(input_shape) if widths is None else widths
        shape = _check(input_shape, widths, n_classes=n_classes)
        self.n_classes = n_classes
        self.body = _Body(shape, n_classes, widths)
        self.head = nn.Linear(self.body.n_features, n_classes)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """log p(y~|y, x), `(B, K)`, for clean labels as vectors `(B, K)`."""
        return _wide(self.head(self.body(x, y))).log_softmax(1)

    def matrix(self, x: Tensor) -> Tensor:
        """T(x)[i, j] = p(y~ = j|y = i, x) for every input: `(B, K, K)`, whose rows sum to one."""
        rows, labels = every_label(x, self.n_classes)
        return self(rows, labels).exp().view(-1, self.n_classes, self.n_classes)


def every_label(x: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Pair each input with each label: `(B K, *input_shape)` and one-hot labels `(B K, K)`.

    >>> rows, labels = every_label(torch.tensor([[1.0], [2.0]]), 2)
    >>> rows.flatten().tolist(), labels.argmax(1).tolist()
    ([1.0, 1.0, 2.0, 2.0], [0, 1, 0, 1])
    """
    rows = x.unsqueeze(1).expand(-1, n_classes, *x.shape[1:]).flatten(0, 1)
    eye = torch.eye(n_classes, device=x.device, dtype=x.dtype)
    return rows, eye.expand(len(x), -1, -1).flatten(0, 1)


class Terms(NamedTuple):
    """The four terms of the negative evidence lower bound, each `(B,)`, to be minimised."""

    reconstruction: Tensor
    label: Tensor
    prior: Tensor
    kl: Tensor


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL(Normal(mean, variance) || Normal(0, I)) = -1/2 sum_j (1 + log s_j^2 - m_j^2 - s_j^2), `(B,)`.

    >>> gaussian_kl(torch.tensor([[2.0, 0.0]]), torch.zeros(1, 2))
    tensor([2.])
    """
    return -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)


def gumbel_softmax(log_q: Tensor, temperature: float = 1.0) -> Tensor:
    """A relaxed draw from q, `(B, K)`: softmax((log q + Gumbel noise) / temperature)."""
    waits = torch.empty_like(log_q).exponential_().clamp_min(torch.finfo(log_q.dtype).tiny)
    return ((log_q - waits.log()) / temperature).softmax(1)


def straight_through(log_q: Tensor) -> Tensor:
    """A one-hot draw from q, `(B, K)`, whose gradient is that of q."""
    drawn = gumbel_softmax(log_q).argmax(1, keepdim=True)
    q = log_q.exp()
    return torch.zeros_like(q).scatter_(1, drawn, 1.0) + q - q.detach()


class CausalModel(nn.Module):
    """p(y) p(z) p(x|y, z) p(y~|y, x) with its encoder q(z|y, x).

    p(y) is uniform and p(z) standard normal.

    q(y|x) is not part of it: it comes in as log-probabilities.

    Parameters
    ----------
    encoder : LatentEncoder
    decoder : InputDecoder
    annotator : LabelDecoder
    variant : {"paper", "elbo", "code"}
        Which terms train it; see `noisegate.methods.causalnl.CausalNL`.
    scale : float, optional
        Of the Laplace density p(x|y, z), for "elbo"; None learns it, starting at 0.5, or at 0.1 for
        pixels.
    temperature : float
        Of the Gumbel-softmax, for "code".
    """

    log_scale: Tensor

    def __init__(
        self,
        encoder: LatentEncoder,
        decoder: InputDecoder,
        annotator: LabelDecoder,
        *,
        variant: str = "paper",
        scale: float | None = None,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder, self.decoder, self.annotator = encoder, decoder, annotator
        self.variant, self.temperature = variant, temperature
        first = FIRST_SCALE_PIXELS if decoder.bounded else FIRST_SCALE_STANDARDISED
        log_scale = torch.tensor(math.log(first if scale is None else scale))
        if variant == "elbo" and scale is None:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    @property
    def n_classes(self) -> int:
        """K."""
        return self.annotator.n_classes

    def terms(self, x: Tensor, labels: Tensor, log_q: Tensor) -> Terms:
        """The four terms of the variant, with fresh draws.

        Parameters
        ----------
        x : tensor (B, *input_shape)
        labels : int64 tensor (B,)
            Observed.
        log_q : tensor (B, K)
            log q(y|x).
        """
        z_shape = (len(x), self.encoder.z_dim)
        if self.variant == "elbo":
            noise = torch.randn(len(x) * self.n_classes, z_shape[1], dtype=x.dtype, device=x.device)
            return self.exact_terms(x, labels, log_q, noise)
        if self.variant == "paper":
            noise = torch.randn(z_shape, dtype=x.dtype, device=x.device)
            return self.sampled_terms(x, labels, log_q, straight_through(log_q), noise)
        noise = torch.rand(z_shape, dtype=x.dtype, device=x.device)
        terms = self.sampled_terms(
            x, labels, log_q, gumbel_softmax(log_q, self.temperature), noise, error=torch.square
        )
        return terms._replace(prior=terms.prior.detach())

    def sampled_terms(
        self,
        x: Tensor,
        labels: Tensor,
        log_q: Tensor,
        y: Tensor,
        noise: Tensor,
        error: Callable[[Tensor], Tensor] = torch.abs,
    ) -> Terms:
        """The terms of appendix B at one y and one z; the annotator sees the reconstruction.

        Parameters
        ----------
        x, labels, log_q
            As for `terms`.
        y : tensor (B, K)
            A draw from q, as a vector through which gradients flow.
        noise : tensor (B, z_dim)
            z is the mean plus this times the standard deviation.
        error : callable
            What the reconstruction's distance costs, a number of the input.
        """
        mean, log_variance = self.encoder(x, y)
        rebuilt = self.decoder(y, mean + noise * (0.5 * log_variance).exp())
        observed = self.annotator(rebuilt, y)
        return Terms(
            error(x - rebuilt).flatten(1).mean(1),
            -observed.gather(1, labels.unsqueeze(1)).squeeze(1),
            (log_q.exp() * log_q).sum(1),
            gaussian_kl(mean, log_variance),
        )

    def exact_terms(self, x: Tensor, labels: Tensor, log_q: Tensor, noise: Tensor) -> Terms:
        """The four terms of equation 6 in nats, summed over y; z is one draw for each y.

        p(x|y, z) is a product of Laplace densities of one scale, so the sum of the terms is, in
        expectation over z, minus a lower bound of log p(x, y~).

        Parameters
        ----------
        x, labels, log_q
            As for `terms`.
        noise : tensor (B K, z_dim)
            Standard normal.
        """
        k = self.n_classes
        rows, y = every_label(x, k)
        mean, log_variance = self.encoder(rows, y)
        rebuilt = self.decoder(y, mean + noise * (0.5 * log_variance).exp())
        log_scale = self.log_scale.clamp_min(math.log(SMALLEST_SCALE))
        errors = (rows - rebuilt).abs().flatten(1) / log_scale.exp() + log_scale + math.log(2)
        observed = self.annotator(rows, y).view(-1, k, k)
        wanted = labels.view(-1, 1, 1).expand(-1, k, 1)
        q = log_q.exp()
        return Terms(
            (q * errors.sum(1).view(-1, k)).sum(1),
            -(q * observed.gather(2, wanted).squeeze(2)).sum(1),
            (q * log_q).sum(1) + math.log(k),
            (q * gaussian_kl(mean, log_variance).view(-1, k)).sum(1),
        )

    def transition(self, x: Tensor) -> Tensor:
        """T(x)[i, j] = p(y~ = j|y = i, x), `(B, K, K)`, whose rows sum to one.

        Except in "elbo" the annotator has only ever seen reconstructions: it is shown those, at the
        mean of z.
        """
        if self.variant == "elbo":
            return self.annotator.matrix(x)
        rows, y = every_label(x, self.n_classes)
        rebuilt = self.decoder(y, self.encoder(rows, y)[0])
        return self.annotator(rebuilt, y).exp().view(-1, self.n_classes, self.n_classes)
