"""The heteroscedastic objective against quadrature, closed forms, brute force and a naive implementation."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives import heteroscedastic
from noisegate.objectives.points import (
    HashedNormals,
    Points,
    Strata,
    TiledPoints,
    chunk_size,
    shuffled,
    sobol_directions,
)

VARIANTS = {
    "diagonal": {},
    "low-rank": {"covariance": "low-rank", "rank": 2},
}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return VARIANTS[request.param]


def raw_scale(d):
    """What softplus(.) + 0.001 turns into d."""
    return torch.log(torch.expm1(torch.as_tensor(d, dtype=torch.float64) - 1e-3))


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels_for(k, *shape, seed=1):
    return torch.randint(0, k, shape, generator=torch.Generator().manual_seed(seed))


def draws_of(objective, n):
    """The normals of the next training call on n rows, per row (n, R + K, S), and the rotation of the classes."""
    state = torch.get_rng_state()
    k, rank = objective.n_classes, objective._rank
    roll = torch.randint(0, k, (n, 1))
    signs = 2.0 * torch.randint(0, 2, (n, k + rank)).double() - 1
    shift = torch.randint(0, 2**30, (k + rank,))
    torch.set_rng_state(state)
    points = Points(objective.directions, shift, objective.n_samples)
    normals = torch.cat(list(points.chunks(16, torch.float64)), 1) * signs.unsqueeze(2)
    return normals, (torch.arange(k) + roll) % k


def naive_loss(objective, outputs, y, normals, index):
    """-log mean softmax, all samples at once and by autograd alone."""
    k, rank = objective.n_classes, objective._rank
    mu, raw, *rest = outputs.split(objective.slices, 1)
    rows = torch.arange(len(outputs))[:, None]
    logits = mu.unsqueeze(2) + 0 * normals[:, rank:]
    noise = torch.zeros_like(logits)
    noise[rows, index] = normals[:, rank:]
    logits = logits + (F.softplus(raw) + 1e-3).unsqueeze(2) * noise
    if rest:
        logits = logits + rest[0].view(-1, k, rank) @ normals[:, :rank]
    p = torch.softmax(logits / objective.temperature, 1).mean(2)
    return -p[torch.arange(len(y)), y].log()


# The estimate and its gradient.


def test_training_loss_and_gradient_are_those_of_a_naive_implementation_with_the_same_draws(variant):
    objective, y = ng.Heteroscedastic(4, temperature=0.6, n_samples=150, **variant), labels_for(4, 9)
    outputs = random(9, objective.n_outputs).requires_grad_()
    torch.manual_seed(5)
    expected = naive_loss(objective, outputs, y, *draws_of(objective, 9))
    found = objective(outputs, y, reduction="none")
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    coefficients = random(9, seed=8)
    (gradient,) = torch.autograd.grad(found, outputs, coefficients)
    (wanted,) = torch.autograd.grad(expected, outputs, coefficients)
    torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10)


def test_the_gradient_in_the_mean_is_equation_14(variant):
    # -(onehot - E[S S_c] / E[S_c]), with 1 / temperature from the tempered softmax.
    objective = ng.Heteroscedastic(5, temperature=2.0, n_samples_eval=300, **variant).eval()
    outputs, y = random(6, objective.n_outputs).requires_grad_(), labels_for(5, 6)
    normals = torch.cat(
        list(Points(objective.directions, objective.fixed_shift, 300).chunks(64, torch.float64)), 1
    )
    mean, scale, factors = objective.parameters_of(outputs.detach())
    noise = scale.unsqueeze(2) * normals[objective._rank :] + factors @ normals[: objective._rank]
    shares = torch.softmax(mean.unsqueeze(2) + noise, 1)
    own = shares[torch.arange(6), y].unsqueeze(1)
    expected = -(torch.eye(5)[y] - (shares * own).mean(2) / own.mean(2)) / 2.0
    (gradient,) = torch.autograd.grad(objective(outputs, y, reduction="sum"), outputs)
    torch.testing.assert_close(gradient[:, :5], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_two_classes_are_gauss_hermite_quadrature_of_a_sigmoid(temperature):
    mu, d = (
        torch.tensor([-2.0, 0.0, 0.3, 1.5, 4.0]).double(),
        torch.tensor([0.5, 1.0, 0.2, 2.0, 1.5]).double(),
    )
    outputs = torch.stack([mu, raw_scale(d)], 1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    y = (mu.numpy()[:, None] + d.numpy()[:, None] * nodes) / temperature
    expected = (weights / (1 + np.exp(-y))).sum(1) / weights.sum()
    objective = ng.Heteroscedastic(2, temperature, n_samples_eval=2**16).eval()
    assert objective.n_outputs == 2
    np.testing.assert_allclose(objective.probs(outputs)[:, 1], expected, atol=2e-6)
    np.testing.assert_allclose(objective.probs(outputs).sum(1), 1, atol=1e-12)
    # A second factor would only be more normal noise on the same difference.
    assert ng.Heteroscedastic(2, covariance="low-rank", rank=3).n_outputs == 2


def test_five_classes_are_a_million_independent_samples(variant):
    objective = ng.Heteroscedastic(5, temperature=0.7, n_samples_eval=2**14, **variant).eval()
    outputs, rng = random(2, objective.n_outputs), np.random.default_rng(0)
    mu, raw, *rest = (part.numpy() for part in outputs.split(objective.slices, 1))
    d = np.log1p(np.exp(raw)) + 1e-3
    for row, found in enumerate(objective.probs(outputs).numpy()):
        logits = mu[row] + d[row] * rng.standard_normal((10**6, 5))
        if rest:
            logits += rng.standard_normal((10**6, 2)) @ rest[0][row].reshape(5, 2).T
        shares = np.exp((logits - logits.max(1, keepdims=True)) / 0.7)
        shares /= shares.sum(1, keepdims=True)
        np.testing.assert_allclose(found, shares.mean(0), atol=5 * 0.5 / 1000)


def test_the_estimate_of_a_training_step_is_unbiased_for_p(variant):
    objective = ng.Heteroscedastic(3, temperature=0.5, n_samples=8, n_samples_eval=2**14, **variant)
    outputs = random(2, objective.n_outputs)
    exact = objective.eval().probs(outputs)
    torch.manual_seed(0)
    # Rows of one call share their points, hence the mean of every call is one observation.
    calls = torch.stack(
        [objective.train().probs(outputs.repeat(50, 1)).view(50, 2, 3).mean(0) for _ in range(300)]
    )
    error = (calls.mean(0) - exact).abs() / (calls.std(0) / math.sqrt(300))
    assert error.max() < 4.5
    assert calls.std(0).max() < 0.05


# Limits and facts.


def test_a_vanishing_scale_is_cross_entropy_at_the_temperature():
    objective, y = ng.Heteroscedastic(5, temperature=2.0), labels_for(5, 7)
    mu = random(7, 5)
    outputs = torch.cat([mu, torch.full((7, 5), -60.0)], 1)
    # d does not fall below 0.001, so the difference is of the order of its square.
    for mode in (True, False):
        found = objective.train(mode)(outputs, y, reduction="none")
        expected = F.cross_entropy(mu / 2.0, y, reduction="none")
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_gumbel_noise_and_argmax_is_softmax():
    # The fact on which the method rests: with normal noise instead, p is no longer softmax.
    f, rng = np.array([0.5, -1.0, 1.2, 0.0]), np.random.default_rng(0)
    chosen = np.bincount((f + rng.gumbel(size=(10**6, 4))).argmax(1), minlength=4) / 10**6
    softmax = np.exp(f) / np.exp(f).sum()
    np.testing.assert_allclose(chosen, softmax, atol=5 * 0.5 / 1000)
    normal = ng.Heteroscedastic(4, temperature=1e-3, n_samples_eval=2**14).eval()
    outputs = torch.cat([torch.from_numpy(f), raw_scale([math.pi / math.sqrt(6)] * 4)]).unsqueeze(0)
    assert np.abs(normal.probs(outputs)[0].numpy() - softmax).max() > 0.005


def test_a_vanishing_temperature_is_probit():
    f0, f1, s0, s1 = (random(8, seed=seed) for seed in range(4))
    s0, s1 = F.softplus(s0) + 0.1, F.softplus(s1) + 0.1
    expected = torch.special.ndtr((f1 - f0) / (s0.square() + s1.square()).sqrt())
    outputs = torch.stack([f1 - f0, raw_scale((s0.square() + s1.square()).sqrt())], 1)
    objective = ng.Heteroscedastic(2, temperature=1e-4, n_samples_eval=2**14).eval()
    torch.testing.assert_close(objective.probs(outputs)[:, 1], expected, rtol=0, atol=2e-4)
    # Two of three classes, the third far below: the covariance of the difference comes from two draws.
    low = torch.full_like(f0, -50.0)
    outputs = torch.stack([f0, f1, low, raw_scale(s0), raw_scale(s1), low], 1)
    objective = ng.Heteroscedastic(3, temperature=1e-4, n_samples_eval=2**14).eval()
    torch.testing.assert_close(objective.probs(outputs)[:, 1], expected, rtol=0, atol=3e-3)


def test_as_the_temperature_falls_bias_falls_and_the_gradient_varies_more():
    mu, d = torch.tensor([1.0, 0.2, -0.5]).double(), torch.tensor([1.0, 1.5, 0.7]).double()
    outputs = torch.cat([mu, raw_scale(d)]).unsqueeze(0)
    rng = np.random.default_rng(0)
    winners = (mu.numpy() + d.numpy() * rng.standard_normal((10**6, 3))).argmax(1)
    truth = torch.from_numpy(np.bincount(winners, minlength=3) / 10**6)
    bias, spread = [], []
    for temperature in (0.05, 0.2, 1.0, 5.0):
        objective = ng.Heteroscedastic(3, temperature, n_samples=20, n_samples_eval=2**13)
        bias.append((objective.eval().probs(outputs)[0] - truth).abs().max().item())
        torch.manual_seed(0)
        many = outputs.repeat(2000, 1).requires_grad_()
        loss = objective.train()(many, torch.zeros(2000, dtype=torch.long), reduction="sum")
        spread.append(torch.autograd.grad(loss, many)[0].var(0).sum().item())
    assert bias == sorted(bias)
    assert bias[0] < 0.01 < 0.1 < bias[-1]
    assert spread == sorted(spread, reverse=True)
    assert spread[0] > 10 * spread[2]


# Randomness.


def test_evaluation_depends_on_no_batch_and_touches_no_random_state(variant):
    objective = ng.Heteroscedastic(6, **variant).eval()
    outputs, y = random(11, objective.n_outputs).float(), labels_for(6, 11)
    before = torch.get_rng_state()
    whole, losses = objective.probs(outputs), objective(outputs, y, reduction="none")
    ng.Heteroscedastic(6, **variant)
    assert torch.equal(torch.get_rng_state(), before)
    # Rows are worked on alike, but BLAS and chunks may add up in another order.
    near = {"rtol": 1e-5, "atol": 1e-7}
    torch.testing.assert_close(torch.cat([objective.probs(row) for row in outputs.split(1)]), whole, **near)
    torch.testing.assert_close(torch.cat([objective.probs(rows) for rows in outputs.split(4)]), whole, **near)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(objective.probs(outputs[order]), whole[order], **near)
    torch.testing.assert_close(objective(outputs[order], y[order], reduction="none"), losses[order], **near)
    assert torch.equal(objective.probs(outputs), whole)


def test_training_draws_anew_and_follows_the_seed(variant):
    objective, y = ng.Heteroscedastic(6, n_samples=20, **variant), labels_for(6, 11)
    outputs = random(11, objective.n_outputs)
    torch.manual_seed(3)
    first, second = objective(outputs, y), objective(outputs, y)
    assert first != second
    torch.manual_seed(3)
    assert objective(outputs, y) == first
    assert objective(outputs, y) == second
    # Equal rows have draws of their own.
    equal = objective(outputs[:1].repeat(11, 1), y[:1].repeat(11), reduction="none")
    assert len(equal.unique()) > 5


def test_errors_of_the_rows_do_not_add_up_over_a_batch():
    # Points are shared by the rows; only because of signs and rotations does the mean over a batch profit.
    objective = ng.Heteroscedastic(10, n_samples=64, n_samples_eval=2**13)
    outputs, y = random(256, 20), labels_for(10, 256)
    exact = objective.eval()(outputs, y, reduction="none")
    torch.manual_seed(0)
    errors = torch.stack([objective.train()(outputs, y, reduction="none") - exact for _ in range(60)])
    one = errors.square().mean().sqrt()
    batch = errors.mean(1).square().mean().sqrt()
    assert batch < 3 * one / math.sqrt(256)


def test_sobol_points_need_fewer_samples_than_independent_ones():
    # benchmarks/heteroscedastic.py has the whole curve.
    objective = ng.Heteroscedastic(10, n_samples=128, n_samples_eval=2**15)
    outputs, y = random(32, 20), labels_for(10, 32)
    leaf = outputs.clone().requires_grad_()

    def gradient(loss):
        return torch.autograd.grad(loss.sum(), leaf)[0]

    exact = gradient(objective.eval()(leaf, y, reduction="none"))
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    index = torch.arange(10).expand(32, 10)
    sobol = [gradient(objective.train()(leaf, y, reduction="none")) - exact for _ in range(20)]
    normals = [torch.randn(32, 10, 512, dtype=torch.float64, generator=generator) for _ in range(20)]
    independent = [gradient(naive_loss(objective, leaf, y, each, index)) - exact for each in normals]
    row_errors = [torch.stack(each).square().sum(2).mean(0).median() for each in (sobol, independent)]
    assert row_errors[0] < row_errors[1]  # with a quarter of the samples


def test_sobol_points_are_torchs():
    engine = torch.quasirandom.SobolEngine(7, scramble=True, seed=0)
    points = Points(sobol_directions(7, 10), engine.shift, 1000)
    uniform = torch.special.ndtr(torch.cat(list(points.chunks(64, torch.float64)), 1))
    assert uniform.shape == (7, 1000)
    # The same points in another order: torch goes through them by Gray code.
    expected = engine.draw(1024, dtype=torch.float64).T
    distance = (uniform.unsqueeze(2) - expected.unsqueeze(1)).abs().amax(0)
    assert (distance.amin(1) < 1e-7).all()
    torch.testing.assert_close(
        torch.cat(list(points.chunks(1, torch.float64)), 1),
        torch.cat(list(points.chunks(1024, torch.float64)), 1),
    )


def test_strata_are_even_in_each_dimension_and_independent_between_them():
    keys = torch.randint(0, 2**62, (300, 3), generator=torch.Generator().manual_seed(0))
    points = Strata(keys, 1024)
    normals = torch.cat(list(points.chunks(64, torch.float64)), 1)
    torch.testing.assert_close(
        normals, torch.cat(list(points.chunks(1024, torch.float64)), 1), rtol=0, atol=0
    )
    uniform = torch.special.ndtr(normals)
    assert torch.equal((uniform * 1024).long().sort(1).values, torch.arange(1024).expand(300, -1))
    inside = (uniform * 1024).frac().flatten().sort().values
    even = (torch.arange(len(inside), dtype=torch.float64) + 0.5) / len(inside)
    assert (inside - even).abs().max() < 1.95 / math.sqrt(len(inside))  # Kolmogorov, 0.1 %
    for numbers in (normals, normals.square(), normals.abs()):
        correlation = torch.corrcoef(numbers) - torch.eye(300)
        assert correlation.abs().max() < 5.5 / math.sqrt(1024)
        assert correlation.std() == pytest.approx(1 / math.sqrt(1024), rel=0.05)


@pytest.mark.parametrize("bits", [1, 2, 5, 10])
def test_a_shuffle_is_a_permutation_of_its_own_for_each_key(bits):
    keys = torch.randint(0, 2**62, (200, 3), generator=torch.Generator().manual_seed(0))
    every = shuffled(torch.arange(2**bits), keys, bits)
    assert torch.equal(every.sort(1).values, torch.arange(2**bits).expand(200, -1))
    assert len(every.unique(dim=0)) >= min(200, 2**bits)
    # Each place is taken by each number about as often.
    assert (every.double().mean(0) - (2**bits - 1) / 2).abs().max() < 5 * 2**bits / math.sqrt(12 * 200)


def test_many_classes_no_pair_is_favoured_in_evaluation(monkeypatch):
    # Contests of two classes, the others far behind; of those pairs whose Sobol points hang together most.
    k, rows = 600, 50
    objective = ng.Heteroscedastic(k, 0.3).eval()
    sobol = Points(objective.directions, objective.fixed_shift, 1000)
    together = torch.corrcoef(torch.cat(list(sobol.chunks(1024, torch.float64)), 1)).abs().triu(1)
    worst = together.flatten().topk(rows).indices
    pairs = torch.stack([worst // k, worst % k], 1)
    outputs = torch.full((rows, 2 * k), -40.0, dtype=torch.float64)
    outputs[:, k:] = 1.0
    outputs.scatter_(1, pairs, torch.tensor([[0.5, 0.0]], dtype=torch.float64).expand(rows, -1))
    scale = F.softplus(torch.ones((), dtype=torch.float64)) + 1e-3
    z = torch.special.ndtri((torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000)
    truth = torch.sigmoid((0.5 + math.sqrt(2) * scale * z) / 0.3)

    def worst_error():
        """In standard deviations of 1000 independent draws."""
        found = objective.probs(outputs).gather(1, pairs)[:, 0]
        return ((found - truth.mean()).abs().max() / (truth.std() / math.sqrt(1000))).item()

    assert worst_error() < 4
    monkeypatch.setattr(heteroscedastic, "FIXED_SOBOL", k)
    assert worst_error() > 5


def test_more_classes_than_sobol_has_dimensions(monkeypatch):
    exact = ng.Heteroscedastic(7, n_samples_eval=2**13).eval()
    monkeypatch.setattr(heteroscedastic, "_MAX_DIMENSIONS", 5)
    monkeypatch.setattr(heteroscedastic, "FIXED_SOBOL", 5)
    objective = ng.Heteroscedastic(7, n_samples=256, n_samples_eval=2**13)
    outputs, y = random(8, 14), labels_for(7, 8)
    truth = exact(outputs, y, reduction="none")
    torch.testing.assert_close(objective.eval()(outputs, y, reduction="none"), truth, rtol=0, atol=0.05)
    torch.manual_seed(0)
    costs = torch.stack([objective.train()(outputs, y, reduction="none") for _ in range(100)])
    assert len(costs.unique(dim=0)) == 100
    torch.testing.assert_close((-costs).exp().mean(0), (-truth).exp(), rtol=0.02, atol=0.002)


def test_hashed_normals_are_independent_normals_whatever_the_block():
    noise = HashedNormals(torch.tensor(12345), (3, 5, 4), 200, shared=False)
    whole = noise.block(range(10), range(200), range(5), torch.float64)
    part = noise.block(range(2, 5), range(7, 30), range(1, 3), torch.float64)
    assert torch.equal(part, whole[2:5, 7:30, :, 1:3])
    assert uniformity(whole) < 1.95 / math.sqrt(whole.numel())  # Kolmogorov, 0.1 %
    correlation = torch.corrcoef(whole.flatten(0, 1).flatten(1).T) - torch.eye(60)
    assert correlation.abs().max() < 5 / math.sqrt(2000)
    other = HashedNormals(torch.tensor(12346), (3, 5, 4), 200, shared=False).block(
        range(10), range(200), range(5), torch.float64
    )
    assert abs((other * whole).mean()) < 5 / math.sqrt(whole.numel())


def uniformity(normals):
    """Kolmogorov's distance between normal numbers and the normal law."""
    flat = normals.flatten().sort().values
    uniform = (torch.arange(len(flat), dtype=torch.float64) + 0.5) / len(flat)
    return (torch.special.ndtr(flat) - uniform).abs().max()


def tiled_points(key, shape, n_samples, shared=False):
    directions = sobol_directions(4 * shape[0], max((n_samples - 1).bit_length(), 1))
    return TiledPoints(directions, torch.tensor(key), shape, n_samples, shared)


def test_tiled_points_are_normal_and_independent_between_draws_whatever_the_block():
    shape = (3, 5, 4)
    noise = tiled_points(12345, shape, 70)
    whole = noise.block(range(10), range(70), range(5), torch.float64)
    part = noise.block(range(2, 5), range(7, 30), range(1, 3), torch.float64)
    assert torch.equal(part, whole[2:5, 7:30, :, 1:3])
    # One point of many draws: shifts are independent between places, dimensions, images and keys.
    draws = torch.stack(
        [
            tiled_points(key, shape, 4).block(range(2), range(2, 3), range(5), torch.float64)
            for key in range(500)
        ]
    ).flatten(1)
    assert uniformity(draws) < 1.95 / math.sqrt(draws.numel())
    correlation = torch.corrcoef(draws.T) - torch.eye(draws.shape[1])
    assert correlation.abs().max() < 5.5 / math.sqrt(500)
    alike = tiled_points(1, shape, 8, shared=True).block(range(3), range(8), range(5), torch.float64)
    assert alike.shape == (1, 8, *shape)


def test_every_place_and_its_neighbours_see_each_stratum_once():
    # 64 points of a Sobol sequence in one dimension: one in each 64th of the unit interval; in the dimensions of a
    # tile, also of one that straddles two tiles, pairs are spread far more evenly than independent points are.
    normals = tiled_points(3, (2, 4, 4), 64).block(range(1), range(64), range(4), torch.float64)[0]
    strata = (torch.special.ndtr(normals) * 64).long()
    assert torch.equal(strata.sort(0).values, torch.arange(64).view(-1, 1, 1, 1).expand_as(strata))
    window = torch.special.ndtr(normals[:, :, 1:3, 1:3].flatten(1))
    cells = (window[:, :, None] * 4).long() * 4 + (window[:, None] * 4).long()
    counts = torch.stack([(cells == cell).sum(0) for cell in range(16)]).double()
    off = ~torch.eye(8, dtype=torch.bool)
    independent = 64 / 16 * 15 / 16
    assert counts.var(0, unbiased=False)[off].mean() < 0.5 * independent


def test_tiled_points_make_gradients_of_maps_exacter_than_independent_ones():
    torch.manual_seed(0)
    objective = ng.Heteroscedastic(5, n_samples=32)
    outputs = random(1, 10, 3, 3).requires_grad_()
    y = labels_for(5, 1, 9, 9)
    exact = ng.Heteroscedastic(5, n_samples_eval=2**13).eval()
    (truth,) = torch.autograd.grad(exact(outputs, y), outputs)

    def error(points):
        objective._place_points = points
        found = [torch.autograd.grad(objective(outputs, y), outputs)[0] - truth for _ in range(40)]
        return torch.stack(found).square().sum((1, 2, 3, 4)).mean().sqrt()

    def independent(outputs):
        return HashedNormals(torch.randint(0, 2**62, ()), (5, 3, 3), 32, shared=False)

    tiled = objective._place_points
    assert error(tiled) < 0.6 * error(independent)


def test_many_classes_take_hashed_noise_for_maps():
    few, many = ng.Heteroscedastic(32, n_samples=4), ng.Heteroscedastic(33, n_samples=4)
    huge = ng.Heteroscedastic(300, n_samples=2, n_samples_eval=2)
    kinds = [
        type(each.train(mode)._place_points(torch.zeros(1, 2 * each.n_classes, 2, 2)))
        for each in (few, many, huge)
        for mode in (True, False)
    ]
    assert kinds == [TiledPoints, TiledPoints, TiledPoints, HashedNormals, HashedNormals, HashedNormals]


# Variance.


def test_the_variance_is_that_of_the_samples():
    objective = ng.Heteroscedastic(3, temperature=0.4, n_samples=200, n_samples_eval=200)
    outputs = random(2, 6, 2, 3)
    for mode in (False, True):
        objective.train(mode)
        torch.manual_seed(1)
        noise = objective._place_points(outputs).block(range(2), range(200), range(2), torch.float64)
        mean, scale, _ = objective.parameters_of(outputs)
        logits = mean.unsqueeze(1) + scale.unsqueeze(1) * noise
        large = F.interpolate(logits.flatten(0, 1), (5, 7), mode="bilinear").unflatten(0, logits.shape[:2])
        expected = torch.softmax(large, 2).var(1, unbiased=False)
        torch.manual_seed(1)
        torch.testing.assert_close(objective.variance(outputs, (5, 7)), expected, rtol=1e-9, atol=1e-12)


def test_the_variance_of_two_classes_by_quadrature():
    objective = ng.Heteroscedastic(2, temperature=0.5, n_samples_eval=2**14).eval()
    mu, d = torch.tensor([0.3, -2.0, 0.0]), torch.tensor([1.0, 0.5, 3.0])
    outputs = torch.stack([mu, raw_scale(d)], 1).double()
    z = torch.special.ndtri((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)
    p = torch.sigmoid((mu.unsqueeze(1) + d.unsqueeze(1) * z) / 0.5)
    found = objective.variance(outputs)
    torch.testing.assert_close(found[:, 1], p.var(1, unbiased=False), rtol=2e-3, atol=1e-5)
    torch.testing.assert_close(found[:, 0], found[:, 1])
    torch.manual_seed(0)
    again = objective.train().variance(outputs.expand(3, 2))
    torch.testing.assert_close(again[:, 1], p.var(1, unbiased=False), rtol=0.2, atol=1e-2)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("size", [None, (5, 7)])
def test_probabilities_and_variance_together_are_those_apart(wrapped, size):
    inner = ng.Heteroscedastic(3, temperature=0.4, covariance="low-rank", rank=1, n_samples_eval=50)
    objective = (ng.ForwardCorrection(3, torch.eye(3), base=inner) if wrapped else inner).eval()
    outputs = random(2, 9, 2, 3)
    probs, variance = objective.probs_and_variance(outputs, size)
    torch.testing.assert_close(probs, objective.probs(outputs, size))
    torch.testing.assert_close(variance, inner.variance(outputs, size))


# Memory.


def peak_bytes(step):
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    events = (e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]")
    held = np.cumsum([size for _, size in sorted((e.start_ns(), e.nbytes()) for e in events)])
    return held.max()


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")  # torch 2.11
@pytest.mark.parametrize("targets", ["labels", "soft", "larger", "predicted"])
def test_peak_memory_does_not_grow_with_the_number_of_samples(targets):
    peaks = []
    for n_samples in (1_024, 10_240):
        objective = ng.Heteroscedastic(10, n_samples=n_samples, n_samples_eval=n_samples)
        if targets == "predicted":
            outputs = torch.randn(1, 20, 4, 4)
            objective.eval()
            peaks.append(peak_bytes(lambda o=objective, x=outputs: o.probs_and_variance(x, (16, 16))))
            continue
        if targets == "larger":
            outputs, y = torch.randn(1, 20, 2, 2, requires_grad=True), labels_for(10, 1, 8, 8)
        else:
            outputs, y = torch.randn(64, 20, requires_grad=True), labels_for(10, 64)
        y = torch.eye(10)[y] if targets == "soft" else y
        peaks.append(peak_bytes(lambda o=objective, x=outputs, t=y: o(x, t).backward()))
    assert peaks[1] < 1.2 * peaks[0]


def test_a_chunk_is_bounded_by_elements_and_at_least_one_sample():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert chunk_size(128 * 10, 1000, cpu) == 64
    assert chunk_size(128 * 1000, 1000, cpu) == 4
    assert chunk_size(10**9, 1000, cpu) == 1
    assert chunk_size(128 * 10, 1000, gpu) == 1024  # all at once, although not a power of two
    assert chunk_size(2**24 // 1000, 1000, gpu) == 1024
    assert chunk_size(2**24 // 999, 1000, gpu) == 512
    assert chunk_size(128 * 10, 1, gpu) == 1
    assert chunk_size(128 * 100, 10**6, gpu) * 128 * 100 <= 2**24


# Dense maps that are smaller than their targets.


def resized_by_hand(objective, outputs, size, normals):
    """mean softmax of upsampled logits, with all samples at once; normals (B or 1, S, R + K, h, w)."""
    mean, scale, factors = objective.parameters_of(outputs)
    rank = objective._rank
    logits = mean.unsqueeze(1) + scale.unsqueeze(1) * normals[:, :, rank:]
    logits = logits + torch.einsum(
        "bkrhw,bsrhw->bskhw", factors, normals[:, :, :rank].expand(len(mean), -1, -1, -1, -1)
    )
    large = F.interpolate(logits.flatten(0, 1), size, mode="bilinear", align_corners=False)
    return torch.softmax(large, 1).unflatten(0, logits.shape[:2]).mean(1)


@pytest.mark.parametrize("training", [True, False])
def test_larger_targets_upsample_the_sampled_logits(variant, training):
    objective = ng.Heteroscedastic(3, temperature=0.8, n_samples=70, n_samples_eval=70, **variant).train(
        training
    )
    outputs, y = random(2, objective.n_outputs, 2, 3).requires_grad_(), labels_for(3, 2, 5, 7)
    torch.manual_seed(4)
    noise = objective._place_points(outputs)
    assert isinstance(noise, TiledPoints)
    normals = noise.block(range(2), range(70), range(2), torch.float64)
    p = resized_by_hand(objective, outputs, (5, 7), normals)
    torch.manual_seed(4)
    loss = objective(outputs, y)
    expected = -p.gather(1, y.unsqueeze(1)).log().mean()
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    wanted, found = (torch.autograd.grad(each, outputs)[0] for each in (expected, loss))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)
    torch.manual_seed(4)
    torch.testing.assert_close(objective.probs(outputs, size=(5, 7)), p, rtol=1e-10, atol=1e-10)
    torch.manual_seed(4)
    onehot = torch.eye(3, dtype=torch.float64)[y].movedim(-1, 1)
    torch.testing.assert_close(objective(outputs, onehot), expected, rtol=1e-10, atol=1e-10)


def test_upsampled_probabilities_do_not_depend_on_the_batch_and_sum_to_one():
    objective = ng.Heteroscedastic(3, n_samples_eval=50).eval()
    outputs = random(3, 6, 2, 2)
    whole = objective.probs(outputs, size=(4, 6))
    assert whole.shape == (3, 3, 4, 6)
    torch.testing.assert_close(whole.sum(1), torch.ones(3, 4, 6, dtype=torch.float64))
    torch.testing.assert_close(
        torch.cat([objective.probs(one, size=(4, 6)) for one in outputs.split(1)]), whole
    )
    observed = objective.observed_log_probs(objective.at_size(outputs, (4, 6)))
    torch.testing.assert_close(observed.exp(), whole)
    assert torch.equal(objective.probs(outputs, size=(2, 2)), objective.probs(outputs))


def test_interpolated_noise_is_independent_between_places():
    # Half way between two places the noise of both is averaged: half the variance, not all of it.
    objective = ng.Heteroscedastic(2, temperature=1e-3, n_samples_eval=20_000).eval()
    outputs = torch.stack([torch.ones(1, 2), raw_scale(torch.ones(1, 2))]).unsqueeze(0)
    found = objective.probs(outputs, size=(1, 3))[0, 1, 0]
    expected = torch.special.ndtr(torch.tensor([1.0, math.sqrt(2), 1.0]).double())
    torch.testing.assert_close(found, expected, rtol=0, atol=5 * 0.5 / math.sqrt(20_000))


def test_targets_that_are_smaller_or_of_another_kind_are_refused():
    objective = ng.Heteroscedastic(3)
    outputs = random(2, 6, 4, 4)
    for shape in [(2, 3, 4), (1, 8, 8), (2, 16)]:
        with pytest.raises(InputError, match="do not fit"):
            objective(outputs, labels_for(3, *shape))
    with pytest.raises(InputError, match="do not fit"):
        objective(outputs, torch.rand(2, 3, 3, 3))
    with pytest.raises(InputError, match="size must be"):
        objective.probs(outputs, size=(2, 2))
    with pytest.raises(InputError, match="size must be"):
        objective.probs(random(2, 6), size=(2, 2))


# Stability and arguments.


@pytest.mark.parametrize("temperature", [0.025, 1.0, 100.0])
def test_loss_and_gradient_are_finite_at_extreme_outputs_and_temperatures(variant, temperature):
    objective, y = ng.Heteroscedastic(5, temperature, n_samples=30, **variant), labels_for(5, 40)
    signs = (
        2 * torch.randint(0, 2, (40, objective.n_outputs), generator=torch.Generator().manual_seed(0)) - 1
    ).float()
    for size in (1e4, 1e-30):
        outputs = (size * signs).requires_grad_()
        for targets in (y, torch.full((40, 5), 0.2)):
            loss = objective(outputs, targets)
            (gradient,) = torch.autograd.grad(loss, outputs)
            assert torch.isfinite(loss)
            assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": math.inf}, "temperature must be positive"),
        ({"covariance": "full"}, "diagonal, low-rank"),
        ({"covariance": "low-rank"}, "rank is given if and only if"),
        ({"rank": 2}, "rank is given if and only if"),
        ({"covariance": "low-rank", "rank": 0}, "rank must be a whole number"),
        ({"n_samples": 0}, "n_samples must be a whole number"),
        ({"n_samples": 2.5}, "n_samples must be a whole number"),
        ({"n_samples_eval": True}, "n_samples_eval must be a whole number"),
    ],
)
def test_parameters_out_of_range_are_refused_with_the_range(arguments, message):
    with pytest.raises(InputError, match=message):
        ng.Heteroscedastic(5, **arguments)


def test_outputs_are_mean_scale_and_factors_of_one_class_after_the_other():
    objective = ng.Heteroscedastic(3, temperature=2.0, covariance="low-rank", rank=2)
    assert objective.n_outputs == 12
    outputs = torch.arange(12.0).unsqueeze(0)
    mean, scale, factors = objective.parameters_of(outputs)
    torch.testing.assert_close(mean * 2, outputs[:, :3])
    torch.testing.assert_close(scale * 2, F.softplus(outputs[:, 3:6]) + 1e-3)
    torch.testing.assert_close(factors[0] * 2, torch.tensor([[6.0, 7.0], [8.0, 9.0], [10.0, 11.0]]))


@pytest.mark.parametrize("rank", [None, 2])
def test_outputs_in_any_memory_order_and_maps_without_places(rank):
    objective = ng.Heteroscedastic(
        5, covariance="low-rank" if rank else "diagonal", rank=rank, n_samples_eval=50
    )
    outputs, y = random(6, objective.n_outputs), labels_for(5, 6)
    columns = outputs.T.contiguous().T
    for each in (objective.eval(), objective.train()):
        costs = []
        for x in (outputs, columns):
            torch.manual_seed(0)
            costs.append(each(x, y))
        torch.testing.assert_close(*costs)
    for shape, size in (((2, 0, 3), None), ((0, 2, 3), None), ((0, 2, 3), (4, 6)), ((0,), None)):
        empty = torch.zeros(shape[0], objective.n_outputs, *shape[1:], requires_grad=True)
        targets = torch.zeros(shape[0], *(size or shape[1:]), dtype=torch.int64)
        assert objective.probs(empty, size).shape == (shape[0], 5, *(size or shape[1:]))
        objective(empty, targets).backward()
        assert empty.grad.shape == empty.shape
