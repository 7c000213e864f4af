import math

import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives.distribution import LogisticNormalDistribution
from noisegate.objectives.logistic_normal import target_logit


def simplex_integral(distribution, n=400):
    """Integrate the density over the triangle of three parts.

    In the coordinates log(s_k / s_3) the simplex is the plane and ds = s1 s2 s3 dv: a plain sum over a grid of
    points of the simplex, with no use of the density's own formula.
    """
    ticks = torch.linspace(-60, 60, 3 * n, dtype=torch.float64) / distribution.temperature
    v1, v2 = torch.meshgrid(ticks, ticks, indexing="ij")
    points = torch.softmax(torch.stack([v1, v2, torch.zeros_like(v1)], -1), -1)
    area = points.prod(-1) * (ticks[1] - ticks[0]) ** 2
    inside = points.min(-1).values > 0
    density = distribution.log_prob(points.clamp_min(1e-300)).exp()
    return (density * area)[inside].sum().item()


CASES = {
    "full": {"c": torch.tensor([1.2, -0.4], dtype=torch.float64), "scale": 0.5},
    "diagonal": {"scale": torch.tensor([0.7, 2.0], dtype=torch.float64)},
    "isotropic": {"scale": 1.5},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_the_density_integrates_to_one_over_the_simplex(case, temperature):
    mu = torch.tensor([1.0, -2.0], dtype=torch.float64)
    distribution = LogisticNormalDistribution(mu, temperature=temperature, **CASES[case])
    assert simplex_integral(distribution) == pytest.approx(1.0, abs=1e-6)


def test_the_density_on_the_segment_by_quadrature_in_its_own_coordinate():
    # Two parts: integrate over s in (0, 1) itself.
    distribution = LogisticNormalDistribution(
        torch.tensor([0.3], dtype=torch.float64), scale=0.8, temperature=2.0
    )
    nodes, weights = np.polynomial.legendre.leggauss(400)
    s = torch.from_numpy((nodes + 1) / 2)
    density = distribution.log_prob(torch.stack([s, 1 - s], -1)).exp()
    assert (density * torch.from_numpy(weights) / 2).sum().item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_samples_have_the_moments_of_the_normal_behind_them(case):
    mu = torch.tensor([1.0, -2.0], dtype=torch.float64)
    distribution = LogisticNormalDistribution(mu, temperature=2.0, **CASES[case])
    points = distribution.sample((200_000,), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(points.sum(-1), torch.ones(200_000, dtype=torch.float64))
    z = distribution.logits(points)
    if distribution.c is not None:
        root = torch.outer(distribution.c, distribution.c) + 0.5 * torch.eye(2)
    else:
        root = torch.diag(torch.as_tensor(distribution.scale, dtype=torch.float64).expand(2))
    torch.testing.assert_close(z.mean(0), mu, atol=0.02, rtol=0)
    torch.testing.assert_close(torch.cov(z.T), root @ root, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("dummy_class", [True, False])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic", "identity"])
def test_the_loss_is_its_log_density_at_the_smoothed_label_up_to_the_jacobian(covariance, dummy_class):
    objective = ng.LogisticNormal(4, temperature=0.5, covariance=covariance, dummy_class=dummy_class)
    outputs = torch.randn(
        3, objective.n_outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    y = torch.tensor([0, 2, 3])
    distribution = objective.distribution(outputs)
    parts, t = distribution.n_parts, objective.smoothing
    assert parts == (5 if dummy_class else 4)
    smoothed = torch.full((3, parts), t / parts, dtype=torch.float64)
    smoothed[torch.arange(3), y] += 1 - t
    jacobian = -smoothed.log().sum(-1) + (parts - 1) * math.log(0.5)
    expected = -(distribution.log_prob(smoothed) - jacobian)
    torch.testing.assert_close(objective(outputs, y, reduction="none"), expected)
    assert target_logit(4, t, dummy_class) == pytest.approx((smoothed[0, 0] / smoothed[0, 1]).log().item())


def test_bad_parameters_are_refused():
    mu = torch.zeros(3)
    with pytest.raises(InputError, match="c must have the shape of mu"):
        LogisticNormalDistribution(mu, torch.zeros(2))
    with pytest.raises(InputError, match="temperature must be positive"):
        LogisticNormalDistribution(mu, temperature=0.0)
    with pytest.raises(InputError, match="scale must be positive"):
        LogisticNormalDistribution(mu, scale=-1.0)
    with pytest.raises(InputError, match="points with 4 parts"):
        LogisticNormalDistribution(mu).log_prob(torch.ones(3) / 3)


def test_a_scale_that_is_a_number_goes_where_the_points_are():
    # torch's device without memory: a number left on the CPU would not fit.
    distribution = LogisticNormalDistribution(torch.zeros(2, device="meta"), scale=1.0)
    assert distribution.log_prob(torch.rand(3, device="meta")).shape == ()
