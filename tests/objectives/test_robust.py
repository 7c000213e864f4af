"""GCE, bi-tempered, noise against noise and bootstrap against their definitions and root finding."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives.tempered import tempered_log, tempered_log_softmax


def draw(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# GCE.


def test_gce_is_its_definition_between_cross_entropy_and_absolute_error():
    outputs, y = draw(9, 4), torch.arange(9) % 4
    p = torch.softmax(outputs, 1)[torch.arange(9), y]
    for q in (0.1, 0.7, 1.0):
        loss = ng.GCE(4, q=q)(outputs, y, reduction="none")
        torch.testing.assert_close(loss, (1 - p**q) / q)
    absolute = (torch.softmax(outputs, 1) - torch.eye(4)[y]).abs().sum(1) / 2
    torch.testing.assert_close(ng.GCE(4, q=1.0)(outputs, y, reduction="none"), absolute)


def test_gce_has_a_gradient_where_the_probability_underflows():
    # d/df_y = -p^q (1 - p): with q = 0.1 and log p = -150 it is far from zero in float32, though p is zero.
    outputs = torch.tensor([[0.0, 150.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(ng.GCE(2, q=0.1)(outputs, torch.tensor([0])), outputs)
    assert gradient[0, 0].item() == pytest.approx(-math.exp(-15), rel=1e-4)


@pytest.mark.parametrize("q", [0.0, -0.1, 1.01, math.nan])
def test_q_out_of_range_is_refused(q):
    with pytest.raises(InputError, match=r"q must lie in \(0, 1\]"):
        ng.GCE(3, q=q)


# Bi-tempered.


def log_t(x, t):
    return np.log(x) if t == 1 else (x ** (1 - t) - 1) / (1 - t)


def exp_t(x, t):
    return np.exp(x) if t == 1 else np.maximum(0.0, 1 + (1 - t) * x) ** (1 / (1 - t))


def tempered_softmax(logits, t):
    """One row, with the normaliser found by bracketing: p of the largest logit lies between 1/K and 1."""
    top, k = logits.max(), len(logits)
    root = brentq(
        lambda shift: exp_t(logits - shift, t).sum() - 1,
        top,
        top - log_t(1 / k, t) + 1e-9,
        xtol=1e-13,
        rtol=1e-14,
    )
    return exp_t(logits - root, t)


def bregman(y, p, t1):
    """The loss of Amid et al. for any target y."""
    with np.errstate(divide="ignore", invalid="ignore"):
        first = np.where(y > 0, y * (log_t(y, t1) - log_t(p, t1)), 0.0)
    return (first - (y ** (2 - t1) - p ** (2 - t1)) / (2 - t1)).sum()


TEMPERATURES = [0.0, 0.3, 0.5, 0.9, 1.0, 1.02, 1.1, 1.2, 1.3, 1.6, 2.0, 2.2, 4.0, 5.0]


@pytest.mark.parametrize("t2", TEMPERATURES)
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_the_tempered_softmax_against_root_finding(t2, scale):
    logits = draw(6, 20, scale=scale)
    expected = np.stack([tempered_softmax(row, t2) for row in logits.numpy()])
    p = tempered_log_softmax(logits, t2).exp()
    np.testing.assert_allclose(p.numpy(), expected, rtol=1e-8, atol=1e-11)


def test_closed_forms_for_two_classes():
    # t = 2: 1/u + 1/(u + d) = 1. t = 0 (sparsemax): p = (1 + d) / 2, clipped.
    d = torch.tensor([0.0, 0.5, 3.0, 40.0], dtype=torch.float64)
    logits = torch.stack([d, torch.zeros_like(d)], 1)
    u = (2 - d + (d.square() + 4).sqrt()) / 2
    torch.testing.assert_close(tempered_log_softmax(logits, 2.0)[:, 0].exp(), 1 / u)
    torch.testing.assert_close(tempered_log_softmax(logits, 0.0)[:, 0].exp(), ((1 + d) / 2).clamp(max=1))


@pytest.mark.parametrize("t2", TEMPERATURES)
@pytest.mark.parametrize("shape", ["normal", "equal", "staircase", "cauchy", "two levels", "three levels"])
def test_the_normaliser_at_a_thousand_classes_and_logits_times_30(t2, shape):
    k, generator = 1000, torch.Generator().manual_seed(0)
    places = [
        torch.repeat_interleave(torch.tensor([0.0, 1.0, far]), torch.tensor([n, 10 * n, k - 11 * n]))
        for n in (1, 10, 60)
        for far in (3.0, 10.0)
    ]
    logits = {
        "normal": torch.randn(20, k, generator=generator),
        "equal": torch.zeros(1, k),
        "staircase": -(2.0 ** (-torch.arange(k) / 20.0))[None],
        "cauchy": torch.empty(20, k).cauchy_(generator=generator),
        "two levels": torch.where(torch.arange(k) < 3, 1.0, -1.0)[None],
        "three levels": torch.stack([-gap * place for gap in (0.1, 0.5, 1.0, 2.0) for place in places]),
    }[shape]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5 if t2 >= 0.5 else 5e-5)):
        p = tempered_log_softmax(30 * logits.to(dtype), t2).exp()
        assert (p.double().sum(1) - 1).abs().max() < tolerance


@pytest.mark.parametrize("t2", [0.3, 0.8, 1.3, 2.0, 4.0])
def test_the_gradient_of_the_tempered_softmax_is_that_of_the_implicit_function(t2):
    # dp_i/df_j = p_i^t (delta_ij - p_j^t / sum p^t): the escort distribution.
    logits = draw(1, 6, scale=1.5).requires_grad_()
    p = tempered_log_softmax(logits, t2).exp()[0]
    power = torch.where(p > 0, p.detach() ** t2, 0.0)
    expected = torch.diag(power) - torch.outer(power, power) / power.sum()
    rows = [torch.autograd.grad(value, logits, retain_graph=True)[0][0] for value in p]
    torch.testing.assert_close(torch.stack(rows), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("t1", "t2"), [(0.7, 1.3), (0.5, 4.0), (0.0, 0.0), (0.3, 0.6), (1.0, 1.0), (0.9, 1.0), (1.0, 2.0)]
)
def test_the_loss_is_the_published_divergence(t1, t2):
    k = 5
    objective, outputs = ng.BiTempered(k, t1=t1, t2=t2), draw(8, k, scale=2.0)
    p = np.stack([tempered_softmax(row, t2) for row in outputs.numpy()])
    expected = [[bregman(np.eye(k)[y], row, t1) for y in range(k)] for row in p]
    np.testing.assert_allclose(objective.costs(outputs).numpy(), expected, rtol=1e-8, atol=1e-10)


def test_soft_targets_differ_from_the_divergence_by_a_constant():
    k, t1, t2 = 4, 0.6, 1.4
    objective, target = (
        ng.BiTempered(k, t1=t1, t2=t2),
        torch.tensor([[0.6, 0.3, 0.1, 0.0]], dtype=torch.float64),
    )
    gaps = []
    for seed in range(5):
        outputs = draw(1, k, seed=seed, scale=3.0)
        divergence = bregman(target[0].numpy(), tempered_softmax(outputs[0].numpy(), t2), t1)
        gaps.append(objective(outputs, target).item() - divergence)
    assert gaps == pytest.approx([gaps[0]] * 5)
    assert abs(gaps[0]) > 0.1


def test_the_loss_is_bounded_and_the_tail_is_heavy():
    far = torch.tensor([[0.0, 1e4, 0.0]], dtype=torch.float64)
    for t1 in (0.0, 0.5, 0.9):
        loss = ng.BiTempered(3, t1=t1, t2=1.0)(far, torch.tensor([0])).item()
        assert loss == pytest.approx(1 / (1 - t1))
    outputs = torch.tensor([[0.0, 10.0]], dtype=torch.float64)
    heavy = [ng.BiTempered(2, t2=t2).probs(outputs)[0, 0].item() for t2 in (1.0, 1.3, 2.0, 4.0)]
    assert heavy == sorted(heavy)
    assert heavy[-1] > 100 * heavy[0]


def test_a_class_of_probability_zero_has_finite_logs_costs_and_gradients():
    objective = ng.BiTempered(3, t1=0.4, t2=0.5)
    outputs = torch.tensor([[9.0, 0.0, 1.0]], requires_grad=True)
    assert objective.probs(outputs)[0].tolist() == pytest.approx([1.0, 0.0, 0.0])
    log_p = objective.log_probs(outputs)
    assert log_p[0, 1].item() == pytest.approx(math.log(torch.finfo(torch.float32).tiny))
    for value in (log_p.sum(), objective(outputs, torch.tensor([1]))):
        (gradient,) = torch.autograd.grad(value, outputs)
        assert torch.isfinite(gradient).all()
    assert objective(outputs, torch.tensor([1])).item() == pytest.approx(1 / 0.6)


def test_the_tempered_logarithm_inverts_the_tempered_exponential():
    p = torch.tensor([0.01, 0.3, 1.0], dtype=torch.float64)
    for t in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(exp_t(tempered_log(p.log(), t).numpy(), t), p.numpy())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"t1": -0.1}, r"t1 must lie in \[0, 1\]"),
        ({"t1": 1.1, "t2": 1.2}, r"t1 must lie in \[0, 1\]"),
        ({"t1": math.nan}, r"t1 must lie in \[0, 1\]"),
        ({"t1": 0.7, "t2": 0.6}, r"t2 must lie in \[t1, 5\] = \[0.7, 5\], got 0.6"),
        ({"t2": 5.1}, r"t2 must lie in"),
        ({"t2": math.nan}, r"t2 must lie in"),
    ],
)
def test_temperatures_out_of_range_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        ng.BiTempered(10, **parameters)


# Noise against noise.


def test_noise_against_noise_is_cross_entropy_against_noisy_targets():
    objective, outputs, y = ng.NoiseAgainstNoise(4, sigma=0.7), draw(6, 4), torch.arange(6) % 4
    for targets in (y, torch.eye(4, dtype=torch.float64)[y]):
        torch.manual_seed(3)
        loss = objective(outputs, targets, reduction="none")
        torch.manual_seed(3)
        noisy = torch.eye(4)[y] + 0.7 * torch.randn(6, 4, dtype=torch.float64)
        torch.testing.assert_close(loss, -(noisy * torch.log_softmax(outputs, 1)).sum(1))


def test_one_draw_serves_all_labels_of_an_example():
    # Differences between the costs of two labels do not see the noise.
    objective, outputs = ng.NoiseAgainstNoise(4), draw(6, 4)
    costs, plain = objective.costs(outputs), ng.CrossEntropy(4).costs(outputs)
    gap = costs - plain
    torch.testing.assert_close(gap, gap[:, :1].expand(6, 4))
    assert gap[:, 0].unique().numel() == 6


def test_noise_is_fresh_at_every_step_unbiased_and_absent_in_evaluation():
    objective, outputs = ng.NoiseAgainstNoise(3, sigma=0.5), draw(1, 3).expand(20_000, 3)
    y = torch.zeros(20_000, dtype=torch.int64)
    torch.manual_seed(0)
    first, second = (objective(outputs, y, reduction="none") for _ in range(2))
    assert not torch.equal(first, second)
    plain = ng.CrossEntropy(3)(outputs, y)
    spread = 0.5 * torch.log_softmax(outputs[0], 0).norm()
    assert abs(first.mean() - plain) < 4 * spread / math.sqrt(20_000)
    assert first.std().item() == pytest.approx(spread.item(), rel=0.03)
    torch.testing.assert_close(objective.eval()(outputs, y), plain)


@pytest.mark.parametrize("sigma", [-0.1, math.nan, math.inf])
def test_sigma_out_of_range_is_refused(sigma):
    with pytest.raises(InputError, match="sigma must be a finite number that is not negative"):
        ng.NoiseAgainstNoise(3, sigma=sigma)


# Bootstrap.


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_bootstrap_is_cross_entropy_against_the_mixed_target(kind):
    beta = 0.7
    outputs, y = draw(9, 4).requires_grad_(), torch.arange(9) % 4
    p = torch.softmax(outputs, 1).detach()
    own = p if kind == "soft" else torch.eye(4, dtype=torch.float64)[p.argmax(1)]
    target = beta * torch.eye(4)[y] + (1 - beta) * own
    expected = -(target * torch.log_softmax(outputs, 1)).sum(1).mean()
    loss = ng.Bootstrap(4, beta=beta, kind=kind)(outputs, y)
    torch.testing.assert_close(loss, expected)
    # d/df of cross-entropy against a fixed target is p - target.
    (gradient,) = torch.autograd.grad(loss, outputs)
    torch.testing.assert_close(gradient, (p - target) / 9)


def test_what_bootstrap_refuses():
    for beta in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match=r"beta must lie in \[0, 1\]"):
            ng.Bootstrap(3, beta=beta)
    with pytest.raises(InputError, match="kind must be one of hard, soft, got 'firm'"):
        ng.Bootstrap(3, kind="firm")
