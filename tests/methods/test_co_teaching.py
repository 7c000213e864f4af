import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import noisegate as ng
from noisegate.errors import InputError, UnknownNameError
from noisegate.methods import Method
from noisegate.methods.co_teaching import Peers, kept_share, smallest
from noisegate.training.phase_run import PhaseRun


@pytest.fixture
def peers():
    torch.manual_seed(0)
    return Peers(
        nn.Linear(4, 3), nn.Linear(4, 3), ng.CrossEntropy(3), torch.zeros(20, 2), rate=0.4, gradual=10
    )


@pytest.fixture
def batch(make_batch):
    index = torch.tensor([3, 7, 1, 0, 19, 4, 5, 11, 12, 2])
    return make_batch(torch.randn(10, 4), torch.arange(10) % 3, index=index, epoch=20)


# Which labels are kept.


def test_the_share_falls_linearly_to_one_minus_the_rate():
    shares = [float(kept_share(torch.tensor(e), 0.45, 5)) for e in range(8)]
    assert shares == pytest.approx([1.0, 0.91, 0.82, 0.73, 0.64, 0.55, 0.55, 0.55])


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 1 - 0.4, 0.999, 1.0])
def test_the_smallest_losses_are_kept_and_exactly_so_many(share):
    rng = np.random.default_rng(0)
    for n in (1, 5, 10, 64):
        losses = rng.integers(0, 6, n).astype(np.float32)  # with ties
        kept = smallest(torch.tensor(losses), torch.tensor(share, dtype=torch.float64), torch.ones(n)).numpy()
        number = max(1, int(np.floor(round(share * n, 6))))
        assert kept.sum() == number
        assert (np.flatnonzero(kept) == np.sort(np.argsort(losses, kind="stable")[:number])).all()


def test_rows_without_weight_take_no_place():
    weight = torch.tensor([1.0, 0.0, 0.5, 0.0, 2.0])
    kept = smallest(torch.tensor([5.0, 0.0, 4.0, 1.0, 3.0]), torch.tensor(0.7), weight)
    assert kept.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]
    assert smallest(torch.rand(3), torch.tensor(0.5), torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_the_kept_share_follows_the_schedule_exactly(noisy_digits, job_for):
    job = job_for(noisy_digits, ng.Recipe(epochs=8, batch_size=100), "mlp-16")
    phase = next(ng.methods.get("co-teaching", noise_rate=0.37, gradual=5).phases(job))
    run = PhaseRun(phase, job, 0, None, 0)
    for epoch in range(8):
        phase.module.kept.fill_(torch.nan)
        run.run_epoch()
        seen = phase.module.kept[~phase.module.kept.isnan().any(1)]
        assert len(seen) == 1300
        share = 1 - min(epoch / 5 * 0.37, 0.37)
        assert seen.sum(0).tolist() == [13 * int(100 * share + 1e-9)] * 2


# What is learnt from them.


def test_each_network_learns_what_the_other_kept(peers, batch):
    losses = [F.cross_entropy(net(batch.x), batch.y, reduction="none") for net in (peers.first, peers.second)]
    small = [loss.argsort()[:6] for loss in losses]
    assert set(small[0].tolist()) != set(small[1].tolist())
    expected = losses[0][small[1]].mean() + losses[1][small[0]].mean()
    loss = peers(batch)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(loss, list(peers.parameters()))
    for one, other in zip(gradients, torch.autograd.grad(expected, list(peers.parameters())), strict=True):
        torch.testing.assert_close(one, other)
    kept = torch.zeros(20, 2)
    for column, rows in enumerate(small):
        kept[batch.index[rows], column] = 1.0
    torch.testing.assert_close(peers.kept, kept)


def test_sample_weights_weigh_the_mean(peers, batch):
    batch.weight = torch.rand(10) + 0.1
    batch.epoch = torch.tensor(0)
    losses = [F.cross_entropy(net(batch.x), batch.y, reduction="none") for net in (peers.first, peers.second)]
    expected = sum((batch.weight * loss).sum() / batch.weight.sum() for loss in losses)
    torch.testing.assert_close(peers(batch), expected)


def test_the_variant_of_the_public_code_divides_twice_and_drops_earlier(peers, batch):
    once = peers(batch)
    peers.variant = "code"
    torch.testing.assert_close(peers(batch), once / 6)
    ramp = np.linspace(0, 0.4, 10)
    shares = [float(peers.share(torch.tensor(e))) for e in range(12)]
    np.testing.assert_allclose(shares, 1 - np.append(ramp, [0.4, 0.4]))


def test_labels_that_are_kept_are_right_more_often(noisy_digits, fit_digits, cross_entropy):
    fitted = fit_digits(ng.methods.get("co-teaching", noise_rate=0.4, gradual=5))
    right = noisy_digits.train.y == noisy_digits.train.clean
    kept = fitted.extras["kept"].numpy()
    assert right.mean() == pytest.approx(0.6, abs=0.02)
    assert set(np.unique(kept)) == {0.0, 0.5, 1.0}
    assert right[kept == 1].mean() > 0.85
    assert right[kept == 0].mean() < 0.25
    assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"] + 0.02
    assert fitted.extras["noise_rate"] == 0.4


def test_an_unknown_rate_is_estimated_first(noisy_digits, fit_digits, cross_entropy):
    fitted = fit_digits("co-teaching")
    assert len(fitted.history) == 4
    assert fitted.extras["noise_rate"] == pytest.approx(0.4, abs=0.06)
    assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"]


# What it goes with.


def test_objectives_whose_costs_do_not_rank_labels_are_refused_by_name(job_for, noisy_digits):
    job = job_for(noisy_digits)
    backward = ng.BackwardCorrection(10, ng.noise.Symmetric(0.2).transition(10))
    for objective, name in (
        ("LogisticNormal", "LogisticNormal"),
        (backward, "BackwardCorrection"),
        (ng.NoiseAgainstNoise, "NoiseAgainstNoise"),
    ):
        with pytest.raises(
            InputError, match=f"co-teaching does not go with {name}: it keeps the labels of small"
        ):
            next(ng.methods.get("co-teaching", noise_rate=0.2, objective=objective).phases(job))
    with pytest.raises(UnknownNameError, match="did you mean 'CrossEntropy'"):
        next(ng.methods.get("co-teaching", objective="CrosEntropy").phases(job))
    with pytest.raises(
        InputError, match="ForwardCorrection needs its transition: hand co-teaching an instance"
    ):
        next(ng.methods.get("co-teaching", objective="ForwardCorrection").phases(job))
    with pytest.raises(InputError, match="for 3 classes, the data has 10"):
        next(ng.methods.get("co-teaching", objective=ng.GCE(3)).phases(job))


@pytest.mark.parametrize(
    "objective",
    [
        "GCE",
        "Heteroscedastic",
        ng.ForwardCorrection(10, ng.noise.Symmetric(0.2).transition(10)),
        ng.GCE(10, q=0.3),
    ],
)
def test_others_are_welcome_and_survive_the_settings(objective, noisy_digits):
    method = ng.methods.get("co-teaching", noise_rate=0.3, objective=objective)
    back = Method.from_settings(json.loads(json.dumps(method.settings())))
    assert back.settings() == method.settings()
    fitted = ng.train(noisy_digits, back, "mlp-16", {"epochs": 2}, device="cpu", evaluate_every=0)
    assert fitted.objective.to_dict()["name"] in (objective, type(objective).__name__)
    assert fitted.metrics["test_accuracy"] > 0.15


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"gradual": 0}, "gradual must be a whole number of at least 1"),
        ({"folds": 1}, "folds must be a whole number of at least 2"),
        ({"variant": "mine"}, "variant must be one of"),
        ({"noise_rate": 1.0}, "noise_rate must be a number of at least 0 and below 1"),
    ],
)
def test_parameters_out_of_range_are_refused(params, message, job_for, noisy_digits):
    with pytest.raises(InputError, match=message):
        next(ng.methods.get("co-teaching", **params).phases(job_for(noisy_digits)))
