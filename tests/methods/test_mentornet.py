import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import noisegate as ng
from noisegate.errors import InputError
from noisegate.methods.mentornet import SelfPaced, quantile, self_paced_weights
from noisegate.training.phase_run import PhaseRun


@pytest.fixture
def paced():
    def make(**params):
        torch.manual_seed(0)
        settings = {"rate": 0.3, "burn_in": 0} | params
        return SelfPaced(nn.Linear(4, 3), ng.CrossEntropy(3), torch.zeros(40, 1), **settings)

    return make


@pytest.mark.parametrize("q", [0.0, 0.25, 0.6, 1 - 0.4, 0.97, 1.0])
def test_the_quantile_is_numpys(q):
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 64):
        values = rng.standard_normal(n)
        weight = np.where(rng.random(n) < 0.3, 0.0, 1.0)
        weight[0] = 1.0
        expected = np.quantile(values[weight > 0], q)
        assert float(quantile(torch.tensor(values), q, torch.tensor(weight))) == pytest.approx(expected)


def test_weights_fall_from_one_to_zero_above_the_threshold():
    losses = torch.tensor([0.0, 0.99, 1.0, 1.5, 2.0, 3.0, 9.0])
    one = torch.tensor(1.0)
    assert self_paced_weights(losses, one, 0.0).tolist() == [1, 1, 0, 0, 0, 0, 0]
    assert self_paced_weights(losses, one, 2.0).tolist() == [1, 1, 1, 0.75, 0.5, 0, 0]


def test_the_threshold_follows_the_quantile_of_the_batches(paced, make_batch):
    module = paced(decay=0.9)
    expected = None
    for step in range(5):
        batch = make_batch(torch.randn(40, 4) * (step + 1), torch.arange(40) % 3)
        losses = F.cross_entropy(module.network(batch.x), batch.y, reduction="none").detach().numpy()
        now = np.quantile(losses, 0.7)
        expected = now if expected is None else 0.9 * expected + 0.1 * now
        loss, active = module(batch)
        assert float(module.threshold) == pytest.approx(expected, rel=1e-5)
        kept = losses < expected
        assert (module.kept.squeeze(1).numpy() == kept).all()
        assert float(loss.detach()) == pytest.approx(losses[kept].mean(), rel=1e-5)
        assert bool(active)


def test_the_first_batch_keeps_exactly_the_share(paced, make_batch):
    for rate in (0.1, 0.45, 0.8):
        module = paced(rate=rate)
        module(make_batch(torch.randn(40, 4), torch.arange(40) % 3))
        # The labels below the quantile: those at positions 0 .. (1 - rate) 39.
        assert int(module.kept.sum()) == int(np.ceil(round((1 - rate) * 39, 9)))


def test_every_weight_is_one_during_the_burn_in(paced, make_batch):
    module = paced(burn_in=2)
    x, y = torch.randn(40, 4), torch.arange(40) % 3
    for epoch, everything in ((0, True), (1, True), (2, False)):
        module(make_batch(x, y, epoch=epoch))
        assert bool(module.kept.all()) is everything
    assert bool(module.started)


def test_a_batch_in_which_nothing_is_kept_changes_nothing(paced, make_batch):
    module = paced(rate=0.9)
    x = torch.zeros(40, 4)
    batch = make_batch(x, torch.zeros(40, dtype=torch.int64))  # all losses alike: none below their quantile
    loss, active = module(batch)
    assert (float(loss.detach()), bool(active)) == (0.0, False)
    # Rows without weight move no threshold either.
    before = module.threshold.clone()
    loss, active = module(make_batch(torch.randn(40, 4), batch.y, weight=torch.zeros(40)))
    assert (float(loss.detach()), bool(active), float(module.threshold)) == (0.0, False, float(before))


@pytest.mark.parametrize("lambda_2", [0.0, 0.5])
def test_the_weights_multiply_the_sample_weights(lambda_2, paced, make_batch):
    module = paced(lambda_2=lambda_2)
    batch = make_batch(torch.randn(40, 4), torch.arange(40) % 3, weight=torch.rand(40))
    loss, _ = module(batch)
    each = F.cross_entropy(module.network(batch.x), batch.y, reduction="none")
    total = batch.weight * self_paced_weights(each.detach(), module.threshold, lambda_2)
    expected = (total * each).sum() / total.sum()
    torch.testing.assert_close(loss, expected)
    gradient, other = (torch.autograd.grad(v, module.network.weight)[0] for v in (loss, expected))
    torch.testing.assert_close(gradient, other)


def test_the_kept_share_stays_near_one_minus_the_rate(noisy_digits, job_for):
    job = job_for(noisy_digits, ng.Recipe(epochs=8, batch_size=100, lr=3e-3), "mlp-64")
    phase = next(ng.methods.get("mentornet", noise_rate=0.4, burn_in=3).phases(job))
    run = PhaseRun(phase, job, 0, None, 0)
    for epoch in range(8):
        phase.module.kept.fill_(torch.nan)
        run.run_epoch()
        share = float(phase.module.kept.nanmean())
        assert share == pytest.approx(1.0 if epoch < 3 else 0.6, abs=0.03)


def test_labels_that_are_kept_are_right_more_often(noisy_digits, fit_digits, cross_entropy):
    fitted = fit_digits(ng.methods.get("mentornet", noise_rate=0.4))
    right = noisy_digits.train.y == noisy_digits.train.clean
    kept = fitted.extras["kept"].numpy() == 1
    assert right.mean() == pytest.approx(0.6, abs=0.02)
    assert right[kept].mean() > 0.85
    assert right[~kept].mean() < 0.3
    assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"] + 0.02
    assert fitted.extras["threshold"] > 0


def test_an_unknown_rate_is_estimated_first(fit_digits, cross_entropy):
    fitted = fit_digits("mentornet")
    assert len(fitted.history) == 4
    assert fitted.extras["noise_rate"] == pytest.approx(0.4, abs=0.06)
    assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lambda_2": -1}, "lambda_2 must be a number of at least 0"),
        ({"burn_in": 1.5}, "burn_in must be a whole number of at least 0"),
        ({"decay": 1.0}, "decay must be a number of at least 0 and below 1"),
        ({"noise_rate": "guess"}, "noise_rate must be one of 'estimate'"),
        ({"objective": "LogisticNormal"}, "mentornet does not go with LogisticNormal"),
    ],
)
def test_parameters_out_of_range_are_refused(params, message, job_for, noisy_digits):
    with pytest.raises(InputError, match=message):
        next(ng.methods.get("mentornet", **params).phases(job_for(noisy_digits)))
