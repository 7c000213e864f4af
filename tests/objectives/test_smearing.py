"""Smoothing, smearing and corrections against the identities of the label-smoothing paper and closed forms."""

import copy
import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives import Objective
from noisegate.objectives import smearing as module


class SquaredError(Objective):
    """|f - onehot(y)|^2, the base loss of equation 7."""

    def costs(self, outputs):
        return outputs.square().sum(1, keepdim=True) - 2 * outputs + 1

    def log_probs(self, outputs):
        return torch.log_softmax(outputs, 1)


def draw(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def symmetric(k, alpha):
    """T of equation 3."""
    return (1 - alpha) * torch.eye(k, dtype=torch.float64) + alpha / k


def random_transition(k, seed=0, clean=0.4):
    rows = torch.softmax(2 * draw(k, k, seed=seed), 1)
    return clean * torch.eye(k, dtype=torch.float64) + (1 - clean) * rows


def pair_flips(k, rate):
    return (1 - rate) * torch.eye(k, dtype=torch.float64) + rate * torch.eye(k, dtype=torch.float64).roll(
        1, 1
    )


def fitted(loss, *shape):
    """The argument that minimises a smooth function, found from zero."""
    point = torch.zeros(*shape, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [point], max_iter=500, tolerance_grad=1e-11, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        value = loss(point)
        value.backward()
        return value

    optimizer.step(closure)
    return point.detach()


# The identities of the paper.


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_table_1(alpha):
    k = 6
    eye, ones = torch.eye(k, dtype=torch.float64), torch.ones(k, k, dtype=torch.float64)
    outputs = draw(9, k, scale=3.0)
    smoothed = ng.LabelSmearing(k, (1 - alpha) * eye + alpha / k * ones)
    torch.testing.assert_close(ng.LabelSmoothing(k, alpha).costs(outputs), smoothed.costs(outputs))
    backward = ng.BackwardCorrection(k, symmetric(k, alpha))
    torch.testing.assert_close(backward.matrix, eye / (1 - alpha) - alpha / ((1 - alpha) * k) * ones)
    torch.testing.assert_close(ng.LabelSmearing(k, eye).costs(outputs), ng.CrossEntropy(k).costs(outputs))


@pytest.mark.parametrize(
    "base", [ng.CrossEntropy(4), ng.GCE(4), SquaredError(4)], ids=lambda b: type(b).__name__
)
def test_equation_6_smoothing_adds_the_average_cost_and_backward_correction_subtracts_it(base):
    alpha, k = 0.3, 4
    outputs = draw(8, k)
    costs = base.costs(outputs)
    total = costs.sum(1, keepdim=True)
    smoothed = ng.LabelSmearing(k, symmetric(k, alpha), base=base).costs(outputs) / (1 - alpha)
    torch.testing.assert_close(smoothed, costs + alpha / ((1 - alpha) * k) * total)
    corrected = ng.BackwardCorrection(k, symmetric(k, alpha), base=base).costs(outputs) * (1 - alpha)
    torch.testing.assert_close(corrected, costs - alpha / k * total)


@pytest.mark.parametrize("centred", [True, False])
def test_equation_7_smoothing_shrinks_least_squares_weights(centred):
    n, d, k, alpha = 60, 3, 4, 0.35
    x = draw(n, d) + 0.7
    if centred:
        x = x - x.mean(0)
    y = torch.arange(n) % k
    plain = torch.linalg.lstsq(x, torch.eye(k, dtype=torch.float64)[y]).solution
    pull = torch.linalg.lstsq(x, torch.ones(n, k, dtype=torch.float64)).solution
    objective = ng.LabelSmearing(k, symmetric(k, alpha), base=SquaredError(k))

    def slope(weights):
        # The loss is quadratic and convex in the weights: they are the minimiser where this vanishes.
        leaf = weights.clone().requires_grad_()
        return torch.autograd.grad(objective(x @ leaf, y), leaf)[0].abs().max()

    assert slope((1 - alpha) * plain + alpha / k * pull) < 1e-14
    assert (slope((1 - alpha) * plain) < 1e-14) == centred
    assert slope(plain) > 1e-3


def test_theorem_1_the_smoothing_regulariser_is_least_at_zero_weights():
    # Omega, equation 8, is K times smoothing at alpha = 1; it does not look at the labels.
    n, d, k = 50, 3, 4
    x, y = draw(n, d) + 1.0, torch.arange(n) % k
    objective = ng.LabelSmoothing(k, alpha=1.0)
    outputs = draw(n, k, seed=1)
    omega = (k * outputs.logsumexp(1) - outputs.sum(1)).mean()
    torch.testing.assert_close(k * objective(outputs, y), omega)
    start = draw(d, k, seed=2, scale=3.0)
    weights = start + fitted(lambda w: objective(x @ (start + w), y), d, k)
    # Adding one vector to the weights of all classes changes nothing, so differences between classes vanish.
    torch.testing.assert_close(weights, weights.mean(1, keepdim=True).expand(d, k), rtol=0, atol=1e-7)
    zero = torch.zeros(d, k, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(objective(x @ zero, y), zero)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-15)


def margins(objective, values):
    """The loss of label 0 against the margin of class 0 over class 1, as in Figure 1."""
    margin = torch.tensor(values, dtype=torch.float64)
    outputs = torch.stack([margin, torch.zeros_like(margin)], 1)
    return objective(outputs, torch.zeros(len(values), dtype=torch.int64), reduction="none")


@pytest.mark.parametrize("alpha", [0.1, 0.4])
def test_figure_1_shapes_of_the_three_losses(alpha):
    transition = symmetric(2, alpha)
    # Smoothing: a finite minimum, the entropy of the smoothed label, at its log odds.
    best = math.log((1 - alpha / 2) / (alpha / 2))
    entropy = -(1 - alpha / 2) * math.log(1 - alpha / 2) - alpha / 2 * math.log(alpha / 2)
    grid = np.linspace(-40, 40, 4001)
    smoothed = margins(ng.LabelSmoothing(2, alpha), grid)
    assert margins(ng.LabelSmoothing(2, alpha), [best]).item() == pytest.approx(entropy)
    assert smoothed.min().item() == pytest.approx(entropy, abs=1e-3)
    assert grid[smoothed.argmin()] == pytest.approx(best, abs=0.02)
    # Backward correction: negative, and linear with slope -(a/2) / (1 - a), for large margins.
    backward = margins(ng.BackwardCorrection(2, transition), [20.0, 1020.0])
    assert backward[0] < 0
    assert (backward[1] - backward[0]).item() / 1000 == pytest.approx(-alpha / 2 / (1 - alpha))
    # Forward correction: saturates at -log(a/2) on one side and at -log(1 - a/2) on the other.
    forward = margins(ng.ForwardCorrection(2, transition), [-1e4, -50.0, 1e4])
    expected = [-math.log(alpha / 2)] * 2 + [-math.log(1 - alpha / 2)]
    assert forward.tolist() == pytest.approx(expected)


def population_offset(alpha, rate=0.05, variance=0.01):
    """Where the best separator crosses (s, s) for endless data, by quadrature along (1, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    spread = math.sqrt(variance / 2) * nodes

    def loss(parameters):
        total = 0.0
        for centre, positive in ((-1, rate), (1, 1.0)):
            f = parameters[0] * (centre + spread) + parameters[1]
            target = (1 - alpha) * positive + alpha / 2
            total += (weights * (np.logaddexp(0, f) - target * f)).sum() / 2
        return total

    w, b = minimize(loss, [1.0, 0.0], tol=1e-12).x
    return -b / w


# `drawn` is about what the figure shows; its sample is not known. At alpha = 0 the offset varies most: by a
# standard deviation of about .045 for 1000 points, around the limit of -.426.
@pytest.mark.parametrize(
    ("alpha", "drawn", "tolerance"),
    [(0.0, -0.46, 0.05), (0.1, -0.13, 0.02), (0.4, -0.07, 0.02), (0.8, -0.05, 0.02)],
)
def test_figure_5_smoothing_brings_the_separator_back(alpha, drawn, tolerance):
    data = ng.data.load("gaussians", n=10_000, n_test=2, seed=0)
    y = ng.noise.Asymmetric(0.05, {0: 1}).corrupt(data.train.y, n_classes=2, seed=0)
    x, y = torch.tensor(data.train.x).double(), torch.tensor(y)
    objective = ng.LabelSmoothing(2, alpha)
    weights = fitted(lambda w: objective(x @ w[:2] + w[2], y), 3, 2)
    slope, bias = (weights[:2, 1] - weights[:2, 0]).sum(), weights[2, 1] - weights[2, 0]
    offset = (-bias / slope).item()
    assert offset == pytest.approx(population_offset(alpha), abs=0.015)
    assert offset == pytest.approx(drawn, abs=tolerance)


# The corrections.


@pytest.mark.parametrize("base", [None, ng.GCE(5), ng.LogisticNormal(5)], ids=["ce", "gce", "ln"])
def test_backward_correction_is_unbiased(base):
    transition = random_transition(5)
    objective = ng.BackwardCorrection(5, transition, base=base)
    outputs = draw(8, objective.n_outputs, scale=2.0)
    noisy = objective.costs(outputs) @ transition.T
    torch.testing.assert_close(noisy, objective.base.costs(outputs), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [ng.ForwardCorrection, ng.BackwardCorrection])
def test_corrections_are_consistent_on_a_finite_problem(kind):
    # Four inputs with known clean probabilities: minimising the exact expected noisy loss finds them again,
    # where cross-entropy finds those of the noisy labels, whose most probable class is another.
    transition = torch.tensor([[0.4, 0.6, 0.0], [0.0, 1.0, 0.0], [0.1, 0.3, 0.6]], dtype=torch.float64)
    clean = torch.tensor(
        [[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6], [0.45, 0.15, 0.4]], dtype=torch.float64
    )
    noisy = clean @ transition
    assert noisy.argmax(1).tolist() != clean.argmax(1).tolist()
    for objective, expected in ((kind(3, transition), clean), (ng.CrossEntropy(3), noisy)):
        outputs = fitted(lambda f, o=objective: o(f, noisy, reduction="sum"), 4, 3)
        torch.testing.assert_close(objective.probs(outputs), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        kind(3, transition).observed_log_probs(clean.log()).exp(), noisy, rtol=1e-12, atol=1e-12
    )


def test_smoothing_keeps_the_most_probable_class():
    clean = torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.36, 0.34]], dtype=torch.float64)
    objective = ng.LabelSmoothing(3, alpha=0.8)
    outputs = fitted(lambda f: objective(f, clean, reduction="sum"), 2, 3)
    torch.testing.assert_close(objective.probs(outputs), 0.2 * clean + 0.8 / 3, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["identity", "pairs", "sparse", "dense", "tiny"])
def test_forward_correction_is_the_log_of_the_mixture(name, monkeypatch):
    k = 7
    eye = torch.eye(k, dtype=torch.float64)
    transition = {
        "identity": eye,
        "pairs": pair_flips(k, 0.3),
        "sparse": torch.where(draw(k, k, seed=4) > 0.5, 0.1, 0.0).double().fill_diagonal_(1.0),
        "dense": random_transition(k),
        "tiny": (1 - 6e-30) * eye + 1e-30 * (1 - eye),
    }[name]
    transition = transition / transition.sum(1, keepdim=True)
    objective = ng.ForwardCorrection(k, transition)
    assert objective.channel.bounded == (name == "dense")
    y = torch.arange(k)
    for scale in (1.0, 100.0):
        outputs = draw(k, k, seed=3, scale=scale)
        expected = -(torch.softmax(outputs, 1) @ transition).log()
        known = torch.isfinite(expected) & (expected < 600)
        assert known.float().mean() > 0.2
        torch.testing.assert_close(objective.costs(outputs)[known], expected[known], rtol=1e-10, atol=1e-12)
        whole = objective.costs(outputs)
        each = objective(outputs, y, reduction="none")
        torch.testing.assert_close(each, whole.diagonal(), rtol=1e-12, atol=1e-12)
        monkeypatch.setattr(module, "_CHUNK", 2 * k * k)
        torch.testing.assert_close(objective.costs(outputs), whole, rtol=1e-14, atol=0)
        monkeypatch.undo()


@pytest.mark.parametrize("chunk", [1, 30, 1000])
def test_the_mixture_in_log_space_has_the_gradient_of_plain_autograd(chunk, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    log_p = torch.log_softmax(draw(4, 5), 1).requires_grad_()
    transition = pair_flips(5, 0.4)
    transition[3] = torch.tensor([0.2, 0.0, 0.3, 0.5, 0.0])
    weights = draw(4, 5, seed=1)
    plain = torch.logsumexp(log_p.unsqueeze(1) + transition.T.log(), 2)
    mixed = module.Channel(transition)(log_p)
    torch.testing.assert_close(mixed, plain)
    (expected,) = torch.autograd.grad((plain * weights).sum(), log_p)
    (gradient,) = torch.autograd.grad((mixed * weights).sum(), log_p)
    torch.testing.assert_close(gradient, expected)


def test_forward_correction_has_a_gradient_at_extreme_logits_with_zeros_in_the_matrix():
    outputs = torch.tensor([[1e4, -1e4, -1e4], [-1e4, 1e4, 1e4]], requires_grad=True)
    y = torch.tensor([1, 0])
    for transition in (torch.eye(3), pair_flips(3, 0.2)):
        for targets in (y, torch.eye(3)[y]):
            loss = ng.ForwardCorrection(3, transition)(outputs, targets)
            (gradient,) = torch.autograd.grad(loss, outputs)
            assert torch.isfinite(loss)
            assert torch.isfinite(gradient).all()
    (gradient,) = torch.autograd.grad(ng.ForwardCorrection(3, torch.eye(3))(outputs, y), outputs)
    (expected,) = torch.autograd.grad(ng.CrossEntropy(3)(outputs, y), outputs)
    assert torch.equal(gradient, expected)


def test_a_label_that_cannot_be_observed_costs_a_finite_constant():
    # Class 2 is always called 0 or 1, class 1 always 0 or 1: label 2 never comes.
    objective = ng.ForwardCorrection(3, [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    outputs = draw(4, 3, scale=5.0).requires_grad_()
    for targets in (torch.full((4,), 2), torch.tensor([[0.0, 0.0, 1.0]] * 4)):
        loss = objective(outputs, targets, reduction="none")
        assert loss.tolist() == pytest.approx([-math.log(torch.finfo(torch.float32).tiny)] * 4)
        (gradient,) = torch.autograd.grad(loss.sum(), outputs)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)


def test_the_label_path_of_forward_correction_never_makes_k_by_k_by_batch(capture_guard):
    k, batch = 40, 6
    objective, outputs, y = ng.ForwardCorrection(k, pair_flips(k, 0.3)), draw(batch, k), torch.arange(batch)
    with capture_guard() as guard:
        objective(outputs.requires_grad_(), y).backward()
    largest = max(math.prod(shape) for _, shapes in guard.seen for shape in shapes)
    assert largest <= batch * k


# Singular and ill-conditioned matrices.


@pytest.mark.parametrize("k", [2, 10])
def test_the_condition_number_of_pair_flips_is_10_at_45_percent_and_infinite_at_50(k):
    assert np.linalg.cond(pair_flips(k, 0.45).numpy()) == pytest.approx(10)
    ng.BackwardCorrection(k, pair_flips(k, 0.45))
    with pytest.raises(
        InputError, match=r"condition number is (inf|\d.*e\+1\d), at most 10000 .* ridge="
    ) as caught:
        ng.BackwardCorrection(k, pair_flips(k, 0.5))
    assert "\n" not in str(caught.value)
    objective = ng.BackwardCorrection(k, pair_flips(k, 0.5), ridge=0.1)
    mixed = (pair_flips(k, 0.5) + 0.1 * torch.eye(k)) / 1.1
    torch.testing.assert_close(objective.matrix @ mixed, torch.eye(k, dtype=torch.float64))
    torch.testing.assert_close(objective.matrix.sum(1), torch.ones(k, dtype=torch.float64))
    ng.ForwardCorrection(k, pair_flips(k, 0.5))


def test_the_condition_number_is_that_of_the_matrix_that_is_inverted():
    # 60 % flips between two classes have the eigenvalue -.2, which a ridge of .2 moves to zero.
    transition = [[0.4, 0.6], [0.6, 0.4]]
    ng.BackwardCorrection(2, transition)
    with pytest.raises(InputError, match="condition number .* use a ridge other than 0.2"):
        ng.BackwardCorrection(2, transition, ridge=0.2)
    near = symmetric(3, 1 - 0.9e-4)
    with pytest.raises(InputError, match=r"condition number is 1.11e\+04"):
        ng.BackwardCorrection(3, near)
    for ridge in (-0.1, math.nan, math.inf):
        with pytest.raises(InputError, match="ridge must be a number that is not negative"):
            ng.BackwardCorrection(2, transition, ridge=ridge)


# What is refused, what is kept.


@pytest.mark.parametrize("kind", [ng.ForwardCorrection, ng.BackwardCorrection])
@pytest.mark.parametrize(
    ("transition", "message"),
    [
        (torch.eye(3), r"transition must have shape \(2, 2\), got \(3, 3\)"),
        ([[1.0, 0.0]], r"must have shape \(2, 2\), got \(1, 2\)"),
        ([[1.0, 0.0], [0.5]], "2 x 2 numbers"),
        ("noise", "2 x 2 numbers"),
        ([[1.0, 0.0], [math.nan, 1.0]], "must be finite, got nan at row 1, column 0"),
        ([[1.1, -0.1], [0.0, 1.0]], "got -0.1 at row 0, column 1"),
        ([[0.9, 0.1], [0.3, 0.6]], "row 1 sums to 0.9"),
        ([[0.9, 0.3], [0.1, 0.7]], "transpose it"),
    ],
)
def test_what_is_not_a_transition_matrix_is_refused(kind, transition, message):
    with pytest.raises(InputError, match=message):
        kind(2, transition)


def test_rows_that_nearly_sum_to_one_are_normalised_exactly():
    rough = random_transition(6).float() * torch.tensor([1 + 5e-5, 1 - 5e-5, 1, 1, 1, 1])[:, None]
    for given in (rough, rough.numpy(), rough.tolist()):
        transition = ng.ForwardCorrection(6, given).transition
        assert transition.dtype == torch.float64
        torch.testing.assert_close(transition.sum(1), torch.ones(6, dtype=torch.float64), rtol=0, atol=1e-15)
        torch.testing.assert_close(transition, rough.double(), rtol=1e-4, atol=0)
    with pytest.raises(InputError, match="must sum to one"):
        ng.ForwardCorrection(6, rough * (1 + 2e-4))


def test_the_given_matrix_is_copied():
    given = torch.eye(2, dtype=torch.float64)
    objectives = [ng.LabelSmearing(2, given), ng.ForwardCorrection(2, given)]
    given.zero_()
    assert torch.equal(objectives[0].matrix, torch.eye(2, dtype=torch.float64))
    assert torch.equal(objectives[1].transition, torch.eye(2, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [-0.01, 1.01, math.nan])
def test_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(InputError, match=r"alpha must lie in \[0, 1\]"):
        ng.LabelSmoothing(3, alpha=alpha)


@pytest.mark.parametrize("kind", [ng.LabelSmearing, ng.ForwardCorrection, ng.BackwardCorrection])
def test_the_base_is_an_objective_for_the_same_classes(kind):
    eye = torch.eye(3)
    with pytest.raises(InputError, match="base is for 4 classes, expected 3"):
        kind(3, eye, base=ng.GCE(4))
    with pytest.raises(InputError, match="an instance, not a class"):
        kind(3, eye, base=ng.GCE)
    objective = kind(3, eye, base=ng.LogisticNormal(3).to_dict())
    assert isinstance(objective.base, ng.LogisticNormal)
    assert objective.slices == (3, 3)
    layer = torch.nn.Linear(4, 6)
    torch.nn.init.zeros_(layer.weight)
    objective.init_head_(layer)
    assert all(bool(part.any()) for part in layer.weight.split(3))


@pytest.mark.parametrize("kind", [ng.LabelSmearing, ng.ForwardCorrection, ng.BackwardCorrection])
def test_settings_are_plain_data_down_to_a_nested_base(kind):
    inner = ng.ForwardCorrection(3, pair_flips(3, 0.1), base=ng.GCE(3, q=0.4))
    objective = kind(3, random_transition(3), base=inner)
    again = Objective.from_dict(json.loads(json.dumps(objective.to_dict())))
    assert again.to_dict() == objective.to_dict()
    outputs = draw(4, 3)
    assert torch.equal(again.costs(outputs), objective.costs(outputs))
    assert "tensor" not in repr(objective)
    assert "0.4" in repr(objective)


@pytest.mark.parametrize("kind", [ng.ForwardCorrection, ng.BackwardCorrection])
def test_a_loaded_state_brings_all_that_follows_from_the_matrix(kind):
    source, other = kind(4, random_transition(4)), kind(4, pair_flips(4, 0.2))
    outputs = draw(6, 4)
    expected = copy.deepcopy(source).costs(outputs)
    other.load_state_dict(source.state_dict())
    torch.testing.assert_close(other.costs(outputs), expected)
    torch.testing.assert_close(other.observed_log_probs(outputs), source.observed_log_probs(outputs))
    torch.testing.assert_close(other(outputs, torch.arange(6) % 4), source(outputs, torch.arange(6) % 4))
