from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import distributions as D
from torch import nn
from torch.nn import functional as F

from noisegate.errors import InputError
from noisegate.networks.causal import (
    CausalModel,
    InputDecoder,
    LabelDecoder,
    LatentEncoder,
    Terms,
    every_label,
    gaussian_kl,
    gumbel_softmax,
    straight_through,
)

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 20, 37), (2,), (64,)]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)  # the state is put back after every test


def pair(shape, n=3, k=4):
    return torch.rand(n, *shape), torch.eye(k)[torch.arange(n) % k]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layers", [4, 5])
def test_every_shape_goes_in_and_comes_out(shape, layers):
    widths = (4, 8, 8, 16, 16)[:layers]
    x, y = pair(shape)
    mean, log_variance = LatentEncoder(shape, 4, 5, widths)(x, y)
    assert mean.shape == log_variance.shape == (3, 5)
    assert InputDecoder(shape, 4, 5, widths)(y, mean).shape == x.shape
    assert LabelDecoder(shape, 4, widths).matrix(x).shape == (3, 4, 4)


def test_the_feature_maps_are_the_papers():
    def maps(module, kind):
        return [(m.in_channels, m.out_channels) for m in module.modules() if isinstance(m, kind)]

    image = (3, 32, 32)
    down = [(4, 32), (32, 64), (64, 128), (128, 256)]
    assert maps(LatentEncoder(image, 10, 25), nn.Conv2d) == down
    assert maps(LabelDecoder(image, 10), nn.Conv2d) == down
    up = [(256, 128), (128, 64), (64, 32), (32, 3)]
    assert maps(InputDecoder(image, 10, 25), nn.ConvTranspose2d) == up
    five = (32, 64, 128, 256, 512)
    assert maps(InputDecoder((3, 64, 64), 14, 100, five), nn.ConvTranspose2d)[0] == (512, 256)


def test_small_images_are_the_middle_of_large_ones():
    """28 x 28 in the same weights is 32 x 32 with a margin of zeros in, and the middle of 32 x 32 out."""
    widths = (4, 8, 8, 16)
    small, large = (LatentEncoder((1, s, s), 3, 2, widths) for s in (28, 32))
    large.load_state_dict(small.state_dict())
    x, y = pair((1, 28, 28), k=3)
    torch.testing.assert_close(small(x, y), large(F.pad(x, (2, 2, 2, 2)), y))
    small, large = (InputDecoder((1, s, s), 3, 2, widths) for s in (28, 32))
    large.load_state_dict(small.state_dict())
    z = torch.randn(3, 2)
    torch.testing.assert_close(small(y, z), large(y, z)[:, :, 2:-2, 2:-2])


@pytest.mark.parametrize("shape", [(1, 16, 16), (2,)])
def test_rows_do_not_see_each_other(shape):
    x, y = pair(shape)
    encoder, annotator = LatentEncoder(shape, 4, 2), LabelDecoder(shape, 4)
    torch.testing.assert_close(encoder(x, y)[0][1:2], encoder(x[1:2], y[1:2])[0])
    torch.testing.assert_close(annotator(x, y)[1:2], annotator(x[1:2], y[1:2]))


@pytest.mark.parametrize("shape", [(1, 16, 16), (2,)])
def test_row_i_of_the_matrix_is_what_is_said_where_the_clean_label_is_i(shape):
    decoder = LabelDecoder(shape, 4)
    x, _ = pair(shape)
    matrix = decoder.matrix(x)
    torch.testing.assert_close(matrix.sum(2), torch.ones(3, 4))
    for i in range(4):
        torch.testing.assert_close(matrix[:, i], decoder(x, torch.eye(4)[i].expand(3, -1)).exp())
    assert (matrix[:, 0] - matrix[:, 1]).abs().max() > 1e-3


def test_each_input_meets_each_label():
    x = torch.rand(2, 1, 3, 3)
    rows, labels = every_label(x, 3)
    for place in range(6):
        assert (rows[place] == x[place // 3]).all()
        assert labels[place].tolist() == [float(j == place % 3) for j in range(3)]


@pytest.mark.parametrize("shape", [(1, 16, 16), (2,)])
def test_gradients_reach_the_label_and_every_weight(shape):
    x, y = pair(shape)
    y.requires_grad_()
    encoder, decoder, annotator = (
        LatentEncoder(shape, 4, 2),
        InputDecoder(shape, 4, 2),
        LabelDecoder(shape, 4),
    )
    mean, log_variance = encoder(x, y)
    rebuilt = decoder(y, mean + log_variance)
    (rebuilt.square().sum() + annotator(rebuilt, y)[:, 0].sum()).backward()
    assert (y.grad.abs().sum(1) > 0).all()
    for module in (encoder, decoder, annotator):
        for name, parameter in module.named_parameters():
            assert parameter.grad.abs().sum() > 0, name


def test_pixels_stay_in_range_and_doubles_stay_doubles():
    decoder = InputDecoder((1, 16, 16), 3, 2, bounded=True)
    with torch.no_grad():
        pixels = decoder(torch.eye(3), 1e3 * torch.randn(3, 2))
    assert pixels.min() >= 0
    assert pixels.max() <= 1
    x, y = (t.double() for t in pair((2,)))
    assert LatentEncoder((2,), 4, 2).double()(x, y)[0].dtype == torch.float64
    assert InputDecoder((2,), 4, 2).double()(y, x).dtype == torch.float64


def test_variances_are_bounded():
    encoder = LatentEncoder((2,), 2, 1)
    with torch.no_grad():
        _, log_variance = encoder(1e6 * torch.ones(1, 2), torch.eye(2)[:1])
    assert torch.isfinite(log_variance.exp()).all()
    assert log_variance.abs().max() <= 12


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"input_shape": (3, 32)}, "vectors .* or of images"),
        ({"widths": ()}, "widths must be"),
        ({"widths": (8, 0)}, "widths must be"),
        ({"z_dim": 0}, "z_dim must be at least 1"),
    ],
)
def test_what_cannot_be_built_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        LatentEncoder(**{"input_shape": (2,), "n_classes": 2, "z_dim": 1, **options})


# -- the model ------------------------------------------------------------------------------------


@pytest.fixture
def tiny():
    """A model in float64 with a one-dimensional z, three classes and a fixed scale."""
    torch.manual_seed(1)
    parts = LatentEncoder((2,), 3, 1, (6,)), InputDecoder((2,), 3, 1, (6,)), LabelDecoder((2,), 3, (6,))
    return CausalModel(*parts, variant="elbo", scale=0.7).double()


@pytest.fixture
def classifier():
    torch.manual_seed(2)
    return nn.Linear(2, 3).double()


# -- equation 6 ----------------------------------------------------------------------------------


def test_equation_6_term_by_term_against_a_sum_over_y(tiny, classifier):
    x, labels = torch.randn(4, 2).double(), torch.tensor([0, 2, 1, 1])
    log_q, noise = classifier(x).log_softmax(1), torch.randn(12, 1).double()
    terms = tiny.exact_terms(x, labels, log_q, noise)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for row in range(4):
        q = D.Categorical(logits=log_q[row])
        for y in range(3):
            one_hot = torch.eye(3, dtype=torch.float64)[y : y + 1]
            mean, log_variance = tiny.encoder(x[row : row + 1], one_hot)
            q_z = D.Normal(mean, (0.5 * log_variance).exp())
            z = q_z.mean + q_z.stddev * noise[3 * row + y]
            p_x = D.Laplace(tiny.decoder(one_hot, z), 0.7).log_prob(x[row]).sum()
            p_label = tiny.annotator(x[row : row + 1], one_hot)[0, labels[row]]
            kl = D.kl_divergence(q_z, D.Normal(torch.zeros_like(mean), 1.0)).sum()
            expected[0, row] -= q.probs[y] * p_x
            expected[1, row] -= q.probs[y] * p_label
            expected[3, row] += q.probs[y] * kl
        expected[2, row] = D.kl_divergence(q, D.Categorical(torch.ones(3, dtype=torch.float64) / 3))
    for name, found, wanted in zip(Terms._fields, terms, expected, strict=True):
        torch.testing.assert_close(found, wanted, msg=lambda m, name=name: f"{name}: {m}")


def log_joint(model, x, label, z):
    """log p(x, y~, y, z) on a grid of z, `(K, Z)`."""
    k = model.n_classes
    values = []
    for y in range(k):
        one_hot = torch.eye(k, dtype=z.dtype)[y].expand(len(z), -1)
        p_x = D.Laplace(model.decoder(one_hot, z.unsqueeze(1)), model.log_scale.exp()).log_prob(x).sum(1)
        p_label = model.annotator(x.expand(len(z), -1), one_hot)[:, label]
        values.append(p_x + p_label + D.Normal(0.0, 1.0).log_prob(z) - math.log(k))
    return torch.stack(values)


@torch.no_grad()
def test_the_bound_is_at_most_the_log_likelihood_and_misses_it_by_the_kl_of_the_posterior(tiny, classifier):
    z = torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    step = z[1] - z[0]
    nodes, shares = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(80))
    for x, label in ((torch.tensor([0.3, -1.2]), 0), (torch.tensor([2.0, 0.5]), 2)):
        x = x.double()
        log_q = classifier(x).log_softmax(0)
        # The expectation over z by quadrature: every node in place of a draw, for all y at once.
        noise = nodes.view(-1, 1, 1).expand(-1, 3, 1).reshape(-1, 1)
        many = x.expand(len(nodes), -1), torch.full((len(nodes),), label), log_q.expand(len(nodes), -1)
        terms = torch.stack(tiny.exact_terms(*many, noise)).sum(0)
        bound = -(terms * shares).sum() / shares.sum()
        joint = log_joint(tiny, x, label, z)
        evidence = torch.logsumexp(joint.flatten(), 0) + step.log()
        assert bound < evidence
        rows = x.expand(3, -1), torch.eye(3, dtype=torch.float64)
        mean, log_variance = tiny.encoder(*rows)
        log_q_z = D.Normal(mean, (0.5 * log_variance).exp()).log_prob(z) + log_q.unsqueeze(1)
        gap = (log_q_z.exp() * (log_q_z - (joint - evidence))).sum() * step
        # The kinks of ReLU and of the Laplace density limit Gauss-Hermite.
        torch.testing.assert_close(evidence - bound, gap, atol=2e-3, rtol=2e-3)


def test_the_bound_rises_towards_the_log_likelihood(tiny, classifier):
    """Training q alone closes the gap and never the other way round."""
    x, label = torch.tensor([[0.3, -1.2]]).double(), torch.tensor([1])
    z = torch.linspace(-12, 12, 8001, dtype=torch.float64)
    evidence = torch.logsumexp(log_joint(tiny, x[0], 1, z).flatten(), 0) + (z[1] - z[0]).log()
    optimizer = torch.optim.Adam([*classifier.parameters(), *tiny.encoder.parameters()], lr=0.02)
    rows, labels = x.expand(100, -1), label.expand(100)

    def bound():
        return -torch.stack(tiny.terms(rows, labels, classifier(rows).log_softmax(1))).sum(0).mean()

    start = bound().item()
    for _ in range(120):
        optimizer.zero_grad()
        (-bound()).backward()
        optimizer.step()
    end = np.mean([bound().item() for _ in range(20)])
    assert start < end < evidence.item() + 0.02
    assert evidence.item() - end < 0.3 * (evidence.item() - start)


def test_the_kl_of_normals():
    mean, log_variance = torch.randn(5, 4), torch.randn(5, 4)
    wanted = D.kl_divergence(D.Normal(mean, (0.5 * log_variance).exp()), D.Normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(gaussian_kl(mean, log_variance), wanted)


# -- draws ---------------------------------------------------------------------------------------


def test_a_straight_through_draw_is_one_hot_with_the_gradient_of_q():
    logits = torch.tensor([[1.0, 0.0, -1.0]]).expand(20_000, -1).clone().requires_grad_()
    y = straight_through(logits.log_softmax(1))
    assert set(y.detach().round(decimals=5).unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(y.mean(0), logits[0].softmax(0), atol=0.02, rtol=0)
    weights = torch.tensor([1.0, 2.0, 4.0])
    (found,) = torch.autograd.grad((y * weights).sum(), logits)
    (wanted,) = torch.autograd.grad((logits.softmax(1) * weights).sum(), logits)
    torch.testing.assert_close(found, wanted)


def test_a_gumbel_softmax_sharpens_as_its_temperature_falls():
    log_q = torch.zeros(1000, 3).log_softmax(1)
    sharp, soft = (gumbel_softmax(log_q, t).max(1).values.mean() for t in (0.05, 5.0))
    assert sharp > 0.95
    assert soft < 0.5
