import json

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.data import Dataset, Split
from noisegate.errors import InputError
from noisegate.methods import Method
from noisegate.methods.transition import (
    Revised,
    RevisedAsCode,
    Reweighted,
    importance,
    project_rows,
)
from noisegate.training.phase_run import PhaseRun

#: Wide enough for probabilities that are flat within a class.
WIDE = "mlp-64-64"
NAMES = ["forward", "backward", "reweight", "t-revision"]
PAIRS = ng.noise.Asymmetric(0.3, {0: 1, 1: 2, 2: 3, 3: 0})
T = torch.tensor([[0.7, 0.3, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], dtype=torch.float64)


@pytest.fixture
def rows(make_batch):
    """A linear network, and a batch with sample weights."""
    generator = torch.Generator().manual_seed(0)
    network = nn.Linear(4, 3)
    with torch.no_grad():
        network.weight.copy_(torch.randn(3, 4, generator=generator))
    x = torch.randn(6, 4, generator=generator)
    y = torch.tensor([0, 1, 2, 2, 0, 1])
    return network, make_batch(x, y, weight=torch.tensor([1.0, 2.0, 0.0, 1.0, 0.5, 1.0]))


def blobs(n, noise, seed=0):
    """Four Gaussians that hardly touch: the transition matrix is the noise's own."""
    rng = np.random.default_rng([seed, n])
    centres = np.array([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [0.0, -2.0]])
    clean = rng.integers(0, 4, n)
    x = (centres[clean] + 0.5 * rng.standard_normal((n, 2))).astype(np.float32)
    y = noise.corrupt(clean, n_classes=4, seed=seed)
    return Dataset("blobs", Split(x, y, clean), Split(x, clean), classes=tuple("abcd"))


def row_error(transition, noise):
    """Mean over rows of the sum of absolute differences."""
    return float(np.abs(np.asarray(transition) - noise.transition(4)).sum(1).mean())


# The weights.


def test_importance_is_the_ratio_of_clean_to_observed_probability():
    p = torch.softmax(torch.randn(50, 3, dtype=torch.float64), 1)
    y = torch.arange(50) % 3
    expected = torch.stack([p[n, y[n]] / (T.T @ p[n])[y[n]] for n in range(50)])
    torch.testing.assert_close(importance(p, T, y), expected)
    assert (importance(p, T, y) <= 1 / T.diagonal()[y] + 1e-9).all()
    torch.testing.assert_close(importance(p, torch.eye(3), y), torch.ones(50, dtype=torch.float64))
    # A label that is out of the question on both counts has no weight, not NaN.
    assert importance(torch.tensor([[1.0, 0.0, 0.0]]), T, torch.tensor([2])).tolist() == [0.0]


def test_projected_rows_are_stochastic_and_have_a_gradient():
    matrix = T + 0.3 * torch.randn(3, 3, dtype=torch.float64)
    rows = project_rows(matrix)
    assert (rows >= 0).all()
    torch.testing.assert_close(rows.sum(1), torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(project_rows(T), T)
    inside = (T + 0.05).requires_grad_()
    assert torch.autograd.gradcheck(project_rows, (inside,))


# The losses.


def test_the_reweighted_gradient_takes_the_weights_as_constants(rows):
    network, batch = rows
    loss = Reweighted(network, ng.ForwardCorrection(3, T))(batch)
    (gradient,) = torch.autograd.grad(loss, network.weight)
    p = network(batch.x).softmax(1).detach()
    w = importance(p, T, batch.y)
    each = nn.functional.cross_entropy(network(batch.x), batch.y, reduction="none")
    expected = (batch.weight * w * each).sum() / batch.weight.sum()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, network.weight)[0])
    plain = nn.functional.cross_entropy(network(batch.x), batch.y, reduction="none")
    unweighted = Reweighted(network, ng.ForwardCorrection(3, torch.eye(3)))(batch)
    torch.testing.assert_close(unweighted, (batch.weight * plain).sum() / batch.weight.sum())


def test_delta_has_the_gradient_of_the_weights_and_the_network_that_of_reweighting(rows):
    network, batch = rows
    network = network.double()
    batch.x, batch.weight = batch.x.double(), batch.weight.double()
    # Without a zero entry in T, for which the projection has a kink at delta = 0.
    transition = project_rows(T + 0.1)
    module = Revised(network, transition)
    module.delta = nn.Parameter(module.delta.double())
    loss = module(batch)
    loss.backward()
    reweighted = Reweighted(network, ng.ForwardCorrection(3, transition))(batch)
    torch.testing.assert_close(loss, reweighted)
    torch.testing.assert_close(network.weight.grad, torch.autograd.grad(reweighted, network.weight)[0])
    assert module.delta.grad.abs().min() > 0
    step = 1e-6
    for i in range(3):
        for j in range(3):
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    module.delta[i, j] = sign * step
                    ends.append(float(module(batch)))
                    module.delta[i, j] = 0.0
            slope = (ends[0] - ends[1]) / (2 * step)
            assert float(module.delta.grad[i, j]) == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_delta_is_added_once(rows):
    network, batch = rows
    module = Revised(network, T)
    with torch.no_grad():
        module.delta.copy_(torch.tensor([[0.1, -0.2, 0.1], [-0.3, 0.2, 0.0], [0.0, 0.5, 0.0]]))
    expected = torch.tensor([[0.8, 0.1, 0.1], [0.0, 1.0 / 1.1, 0.1 / 1.1], [0.2 / 1.5, 0.7 / 1.5, 0.6 / 1.5]])
    torch.testing.assert_close(module.revised(), expected.double(), atol=1e-7, rtol=0)
    fixed = Reweighted(network, ng.ForwardCorrection(3, module.revised().detach()))
    torch.testing.assert_close(module(batch), fixed(batch))
    network, objective = module.predictor()
    torch.testing.assert_close(objective.transition, module.revised())


def test_the_variant_of_the_public_code_adds_delta_again_for_every_row(rows):
    network, batch = rows
    module = RevisedAsCode(network, T)
    delta = torch.tensor([[0.01, -0.02, 0.01], [0.02, 0.0, -0.02], [0.0, 0.01, -0.01]])
    with torch.no_grad():
        module.delta.copy_(delta)
    total, revised = 0.0, T.float()
    for x, y, weight in zip(batch.x, batch.y, batch.weight, strict=True):
        revised = revised + module.delta
        p = network(x).softmax(0)
        total = total + weight * p[y] / (revised.T @ p)[y] * -p[y].log()
    expected = total / batch.weight.sum()
    loss = module(batch)
    torch.testing.assert_close(loss, expected)
    for one, other in zip(
        torch.autograd.grad(loss, list(module.parameters())),
        torch.autograd.grad(expected, list(module.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


# What training finds.


@pytest.mark.parametrize("name", ["forward", "backward", "reweight"])
def test_with_the_true_matrix_the_clean_classifier_is_recovered(name):
    """Four inputs, known clean probabilities, and every (input, observed label) with its exact weight."""
    clean = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6], [0.34, 0.33, 0.33]])
    observed = clean @ T.numpy()
    x = np.repeat(np.eye(4, dtype=np.float32), 3, axis=0)
    data = Dataset("finite", Split(x, np.tile(np.arange(3), 4)), classes=tuple("abc"))
    method = ng.methods.get(name, transition=T.tolist())
    recipe = ng.Recipe(epochs=300, batch_size=12, lr=0.1, schedule="cosine", normalize="none")
    fitted = ng.train(
        data,
        method,
        lambda shape, n: nn.Linear(*shape, n),
        recipe,
        device="cpu",
        sample_weight=observed.ravel(),
        evaluate_every=0,
    )
    np.testing.assert_allclose(fitted.predict_proba(np.eye(4, dtype=np.float32)), clean, atol=5e-3)
    assert np.abs(observed - clean).max() > 0.1
    torch.testing.assert_close(fitted.extras["transition"], T)


@pytest.mark.parametrize("noise", [ng.noise.Symmetric(0.4), PAIRS], ids=["symmetric", "pairs"])
def test_the_estimate_approaches_the_truth_as_rows_are_added(noise, job_for):
    def error(n, batch_size, seeds):
        recipe = ng.Recipe(epochs=20, batch_size=batch_size, lr=5e-3, schedule="cosine")
        found = []
        for seed in range(seeds):
            torch.manual_seed(seed)
            job = job_for(blobs(n, noise, seed), recipe, WIDE, seed)
            phases = ng.methods.get("forward").phases(job)
            first = PhaseRun(next(phases), job, 0, None, 0)
            while not first.done:
                first.run_epoch()
            # The second phase begins with the matrix; it need not be trained.
            found.append(row_error(phases.send(first.finish()).module.objective.transition, noise))
        return np.mean(found)

    few, some, many = error(150, 16, 3), error(1000, 64, 2), error(6000, 128, 1)
    assert many < some < few
    assert many < 0.1


@pytest.mark.parametrize("name", NAMES)
def test_the_matrix_that_comes_back_is_stochastic_and_near(name):
    noise = ng.noise.Symmetric(0.4)
    data = blobs(1500, noise).hold_out(0.1)
    params = {"revision_lr": 1e-4} if name == "t-revision" else {}
    recipe = {"epochs": 8, "batch_size": 64}
    fitted = ng.train(data, ng.methods.get(name, **params), WIDE, recipe, device="cpu", evaluate_every=0)
    found = fitted.extras["transition"]
    assert found.dtype == torch.float64
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(1), torch.ones(4, dtype=torch.float64))
    assert row_error(found, noise) < 0.3
    assert fitted.metrics["test_accuracy"] > 0.97


def test_corrected_losses_beat_cross_entropy_where_the_noise_is_known(fit_digits, cross_entropy):
    matrix = ng.noise.Symmetric(0.4, include_self=False).transition(10).tolist()
    for name in ("forward", "reweight"):
        fitted = fit_digits(ng.methods.get(name, transition=matrix))
        assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"] + 0.02
        assert len(fitted.history) == 1


# The stages.


def test_revision_moves_the_matrix_as_fast_as_its_rate_says():
    data = blobs(600, ng.noise.Symmetric(0.4)).hold_out(0.1)

    def distance(rate, **params):
        method = ng.methods.get("t-revision", warmup=4, revision_epochs=2, revision_lr=rate, **params)
        fitted = ng.train(data, method, "mlp-16", {"epochs": 6, "batch_size": 54}, device="cpu")
        assert [len(stage) for stage in fitted.history] == [4, 6, 2]
        assert [epoch["lr"] for epoch in fitted.history[2]] == pytest.approx([rate, rate])
        extras = fitted.extras
        torch.testing.assert_close(fitted.objective.transition, extras["transition"])
        return float((extras["transition"] - extras["estimated_transition"]).abs().max())

    # 20 steps of Adam, each at most about the rate.
    assert 1e-6 < distance(5e-7) < 3e-5
    assert 1e-3 < distance(5e-4) < 3e-2
    assert distance(5e-4, variant="code") > 1e-3


def test_the_first_stage_of_t_revision_keeps_the_best_epoch_and_the_second_goes_on_from_it(
    job_for, run_phases, noisy_digits
):
    job = job_for(noisy_digits.hold_out(0.1), ng.Recipe(epochs=30, batch_size=200), "mlp-16")
    generator = ng.methods.get("t-revision").phases(job)
    first = next(generator)
    assert (first.keep, first.recipe.epochs) == ("best", 20)
    second = generator.send([])
    assert (second.keep, second.recipe) == (None, job.recipe)
    assert second.module.network is first.module.network
    third = generator.send([])
    assert third.module.network is second.module.network
    assert third.recipe == job.recipe.replace(optimizer="adam", lr=5e-7)
    code = ng.methods.get("t-revision", variant="code", fresh=True).phases(job)
    first, second, third = next(code), code.send([]), code.send([])
    assert second.keep == "best"
    assert second.module.network is not first.module.network
    assert type(third.module) is RevisedAsCode


@pytest.mark.parametrize("name", ["forward", "backward", "reweight"])
def test_the_second_phase_starts_anew_unless_told_otherwise(name, job_for, noisy_digits):
    for fresh in (True, False):
        phases = (
            ng.methods.get(name, fresh=fresh, warmup=1, ridge=0.1)
            if name == "backward"
            else (ng.methods.get(name, fresh=fresh, warmup=1))
        )
        phases = phases.phases(job_for(noisy_digits))
        first, second = next(phases), phases.send([])
        assert (second.module.network is first.module.network) is not fresh
        assert first.recipe.epochs == 1


def test_t_revision_holds_out_validation_rows_of_its_own():
    method = ng.methods.get("t-revision", transition=ng.noise.Symmetric(0.4).transition(4))
    fitted = ng.train(blobs(300, ng.noise.Symmetric(0.4)), method, "mlp-8", {"epochs": 2}, device="cpu")
    assert len(fitted.history) == 2
    assert "validation_accuracy" in fitted.history[0][0]


def test_a_ridge_makes_a_singular_matrix_usable(job_for, noisy_digits):
    singular = np.full((10, 10), 0.1)
    job = job_for(noisy_digits)
    with pytest.raises(InputError, match="condition number"):
        next(ng.methods.get("backward", transition=singular).phases(job))
    phase = next(ng.methods.get("backward", transition=singular, ridge=0.5).phases(job))
    expected = np.linalg.inv((singular + 0.5 * np.eye(10)) / 1.5)
    np.testing.assert_allclose(phase.module.objective.matrix.numpy(), expected, atol=1e-9)


def test_an_estimate_that_cannot_be_inverted_gets_the_ridge_it_needs(job_for, noisy_digits):
    class Constant(nn.Module):
        """The same probabilities for every row, so that all rows of the estimate are alike."""

        def __init__(self, shape, n_outputs):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(n_outputs))

        def forward(self, x):
            return self.bias.expand(len(x), -1)

    phases = ng.methods.get("backward").phases(job_for(noisy_digits, network=Constant))
    next(phases)
    objective = phases.send([]).module.objective
    assert objective.ridge == 0.1
    assert np.linalg.cond(objective.transition.numpy()) > 1e12
    phases = ng.methods.get("backward", ridge=0.0).phases(job_for(noisy_digits, network=Constant))
    next(phases)
    with pytest.raises(InputError, match="condition number"):
        phases.send([])


@pytest.mark.parametrize("name", NAMES)
def test_settings_survive_json(name):
    matrix = ng.noise.Symmetric(0.2).transition(3)
    for value in (matrix, torch.tensor(matrix), matrix.tolist(), "estimate"):
        method = ng.methods.get(name, transition=value)
        back = Method.from_settings(json.loads(json.dumps(method.settings())))
        assert type(back) is type(method)
        assert back.transition == (value if isinstance(value, str) else matrix.tolist())


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("forward", {"percentile": 101}, "percentile must be a number of at least 0 and at most 100"),
        ("forward", {"warmup": 0}, "warmup must be a whole number of at least 1 or None"),
        ("reweight", {"folds": 1}, "folds must be a whole number of at least 2"),
        ("reweight", {"fresh": "no"}, "fresh must be one of True, False"),
        ("backward", {"ridge": -1}, "ridge must be a number of at least 0"),
        ("t-revision", {"revision_lr": 0}, "revision_lr must be a number"),
        ("t-revision", {"revision_epochs": 0}, "revision_epochs must be"),
        ("t-revision", {"variant": "mine"}, "variant must be one of 'paper', 'code'"),
        ("forward", {"transition": "guess"}, "transition must be one of 'estimate'"),
        ("forward", {"transition": [[1.0, 0.0], [0.0, 1.0]]}, "transition must have shape"),
    ],
)
def test_parameters_out_of_range_are_refused(name, params, message, job_for, noisy_digits):
    with pytest.raises(InputError, match=message):
        next(ng.methods.get(name, **params).phases(job_for(noisy_digits)))
