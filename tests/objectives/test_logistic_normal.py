"""Logistic-Normal against dense linear algebra and the facts of the paper."""

import itertools
import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives.logistic_normal import full_quadratic, target_logit


def target(objective, y):
    """The smoothed label's inverse softmax-centred image, scaled by the temperature (eqs. 11 and 24)."""
    k, t = objective.n_classes, objective.smoothing
    parts = k + 1 if objective.dummy_class else k
    p = torch.full((parts,), t / parts, dtype=torch.float64)
    p[y] += 1 - t
    return objective.temperature * (p[:-1] / p[-1]).log()


def scale_matrix(objective, parts):
    """The dense square root of Sigma."""
    d, lam = objective.slices[0], objective.min_scale
    eye = torch.eye(d, dtype=torch.float64)
    if objective.covariance == "full":
        return torch.outer(parts[1], parts[1]) + lam * eye
    if objective.covariance == "identity":
        return eye
    return torch.diag((torch.nn.functional.softplus(parts[1]) + lam).expand(d))


@pytest.mark.parametrize("dummy_class", [True, False])
@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic", "identity"])
@pytest.mark.parametrize(("temperature", "min_scale"), [(1.0, 0.5), (0.1, 0.1), (20.0, 1.0)])
def test_the_loss_is_the_dense_normal_log_density(covariance, dummy_class, temperature, min_scale):
    k = 6
    objective = ng.LogisticNormal(
        k, temperature=temperature, min_scale=min_scale, covariance=covariance, dummy_class=dummy_class
    )
    outputs = 3 * torch.randn(
        k, objective.n_outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    for y in range(k):
        parts = outputs[y].split(objective.slices)
        root = scale_matrix(objective, parts)
        dense = MultivariateNormal(parts[0], covariance_matrix=root @ root.T)
        expected = -dense.log_prob(target(objective, y))
        loss = objective(outputs[y : y + 1], torch.tensor([y]))
        torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
        quadratic = objective.label_term(outputs[y : y + 1], torch.tensor([y]))[0]
        residual = target(objective, y) - parts[0]
        expected = residual @ torch.linalg.solve(root @ root.T, residual)
        torch.testing.assert_close(quadratic, expected, rtol=1e-8, atol=1e-10)
        plain = objective.label_term(outputs[y : y + 1], torch.tensor([y]), covariance="identity")[0]
        torch.testing.assert_close(plain, residual @ residual)


def test_the_scale_is_not_that_of_a_low_rank_normal():
    # lambda^2 I + c c' is another model: about a nat apart where it matters.
    objective = ng.LogisticNormal(10)
    outputs = torch.randn(1, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mu, c = outputs[0].split(10)
    other = torch.distributions.LowRankMultivariateNormal(mu, c[:, None], torch.full((10,), 0.25).double())
    difference = objective(outputs, torch.tensor([3])) + other.log_prob(target(objective, 3))
    assert abs(difference) > 0.5


def test_the_optimal_c_is_parallel_to_the_residual_above_the_threshold():
    lam = 0.5
    r = torch.tensor([[1.2, -0.7, 2.0]], dtype=torch.float64)
    size = r.norm()
    c = (r / size * (size - lam).sqrt()).requires_grad_()
    quadratic, log_scale = full_quadratic(r, c, lam)
    (gradient,) = torch.autograd.grad(0.5 * quadratic.sum() + log_scale.sum(), c)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)
    torch.testing.assert_close(quadratic, torch.ones(1, dtype=torch.float64))
    # The gradient with respect to mu is -r / |r|^2 there (eq. 8): large residuals pull less.
    mu = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    (pull,) = torch.autograd.grad(0.5 * full_quadratic(r - mu, c.detach(), lam)[0].sum(), mu)
    torch.testing.assert_close(pull, -r / size**2)


@pytest.mark.parametrize("size", [0.2, 0.45, 0.6, 2.0, 5.0])
def test_minimising_over_c_attenuates_beyond_lambda_only(size):
    # Figure 2: the label term is (r / lambda)^2 up to lambda and 1 beyond it.
    lam = 0.5
    r = torch.tensor([[0.6, 0.8]], dtype=torch.float64) * size
    c = torch.tensor([[0.3, 0.1]], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([c], max_iter=500, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        quadratic, log_scale = full_quadratic(r, c, lam)
        loss = (0.5 * quadratic + log_scale).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    quadratic = full_quadratic(r, c.detach(), lam)[0].item()
    assert quadratic == pytest.approx(min(1.0, (size / lam) ** 2), rel=1e-4)


def test_temperature_scales_the_squared_error_of_the_identity_covariance():
    # Equation 12: a network that says another class than the label pays tau^2 times as much.
    terms = []
    for temperature in (1.0, 3.0):
        objective = ng.LogisticNormal(4, temperature=temperature, covariance="identity")
        outputs = target(objective, 2)[None]
        terms.append(objective.label_term(outputs, torch.tensor([0])).item())
    assert terms[1] == pytest.approx(9 * terms[0])


def test_target_logits_are_those_of_the_appendix():
    assert target_logit(10, 0.01, True) == pytest.approx(math.log((0.99 * 11 + 0.01) / 0.01))
    objective = ng.LogisticNormal(5, dummy_class=False, covariance="identity")
    c = target_logit(5, 0.01, False)
    zero = torch.zeros(1, 4, dtype=torch.float64)
    assert objective.label_term(zero, torch.tensor([0])).item() == pytest.approx(c**2)
    assert objective.label_term(zero, torch.tensor([4])).item() == pytest.approx(4 * c**2)


def test_probabilities_without_the_dummy_have_the_last_class_as_reference():
    objective = ng.LogisticNormal(3, temperature=2.0, covariance="identity", dummy_class=False)
    expected = torch.softmax(torch.tensor([[0.5, 1.0, 0.0]]), 1)
    torch.testing.assert_close(objective.probs(torch.tensor([[1.0, 2.0]])), expected)


def test_float32_keeps_its_digits_where_c_is_parallel_to_the_residual():
    # Where training goes: the quadratic term is a small difference of large numbers if it is expanded.
    lam, d = 0.1, 1000
    r = torch.randn(4, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    size = r.norm(dim=1, keepdim=True)
    c = r / size * (size - lam).sqrt()
    single = full_quadratic(r.float(), c.float(), lam)[0]
    torch.testing.assert_close(single.double(), torch.ones(4, dtype=torch.float64), rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": float("nan")}, "temperature must be positive"),
        ({"min_scale": -1.0}, "min_scale"),
        ({"smoothing": 1.0}, r"smoothing must lie in \(0, 1\)"),
        ({"covariance": "low-rank"}, "covariance must be one of full"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        ng.LogisticNormal(10, **parameters)


def test_an_unknown_covariance_for_the_label_term_is_refused():
    with pytest.raises(InputError, match="'learnt' or 'identity'"):
        ng.LogisticNormal(3).label_term(torch.zeros(1, 6), torch.tensor([0]), covariance="full")


def test_twenty_thousand_classes_train_on_a_cpu():
    k = 21_843
    objective = ng.LogisticNormal(k)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 16, generator=generator)
    y = torch.randint(0, k, (256,), generator=generator)
    head = torch.nn.Linear(16, objective.n_outputs)
    objective.init_head_(head)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = objective(head(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(later < earlier for earlier, later in itertools.pairwise(losses))


def test_label_terms_of_ignored_and_of_impossible_labels():
    objective, outputs = ng.LogisticNormal(3), torch.randn(4, 6)
    y = torch.tensor([0, -100, 2, 1])
    for covariance in ("learnt", "identity"):
        terms = objective.label_term(outputs, y, covariance)
        assert terms[1] == 0
        kept = torch.tensor([0, 2, 3])
        torch.testing.assert_close(terms[kept], objective.label_term(outputs[kept], y[kept], covariance))
    with pytest.raises(InputError, match="labels must lie"):
        objective.label_term(outputs, torch.tensor([0, 1, 2, 3]))


@pytest.mark.parametrize("covariance", ["full", "diagonal", "isotropic", "identity"])
def test_the_distribution_of_a_map_is_that_of_its_places(covariance):
    objective = ng.LogisticNormal(4, covariance=covariance)
    outputs = torch.randn(2, objective.n_outputs, 3, 5)
    whole = objective.distribution(outputs)
    assert whole.n_parts == 5
    points = torch.softmax(torch.randn(2, 3, 5, 5), -1)
    rows = outputs.movedim(1, -1).reshape(-1, objective.n_outputs)
    expected = objective.distribution(rows).log_prob(points.reshape(-1, 5)).view(2, 3, 5)
    torch.testing.assert_close(whole.log_prob(points), expected)
