import pytest
import scipy.stats
import torch

import noisegate as ng
from noisegate.errors import InputError, UnknownNameError
from noisegate.methods.direct import Direct
from noisegate.methods.mixup import Mixing, Mixup, symmetric_beta


def draws(alpha, n):
    torch.manual_seed(1)
    like = torch.zeros(1)
    return torch.stack([symmetric_beta(alpha, like) for _ in range(n)])


@pytest.mark.parametrize("alpha", [0.4, 1.0, 8.0])
def test_shares_follow_the_beta_distribution(alpha):
    found = scipy.stats.kstest(draws(alpha, 20_000).numpy(), scipy.stats.beta(alpha, alpha).cdf)
    assert found.pvalue > 0.01


@pytest.mark.parametrize("alpha", [1e-6, 0.05])
def test_small_shapes_draw_no_nan_and_keep_their_variance(alpha):
    shares = draws(alpha, 2000)
    assert shares.isfinite().all()
    assert ((shares >= 0) & (shares <= 1)).all()
    assert abs(shares.mean() - 0.5) < 0.04
    assert abs(shares.var() - 1 / (4 * (2 * alpha + 1))) < 0.005


@pytest.fixture
def parts():
    torch.manual_seed(0)
    data = ng.data.load("digits")
    job_x, job_y = torch.from_numpy(data.train.x[:6].copy()), torch.from_numpy(data.train.y[:6].copy())
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 3.0])
    return data, job_x, job_y, weight


def test_the_loss_is_the_mixture_of_both_costs_row_by_row(parts, job_for, make_batch):
    data, x, y, weight = parts
    objective = ng.CrossEntropy(10)
    network = job_for(data).network(objective)
    batch = make_batch(x, y, weight=weight)
    torch.manual_seed(5)
    loss = Mixing(network, objective, 0.7)(batch)
    torch.manual_seed(5)
    s = symmetric_beta(0.7, weight)
    total, mass, ready = 0.0, 0.0, network.prepare(x)
    for i in range(6):
        j = i - 1
        log_p = network.network((s * ready[i] + (1 - s) * ready[j]).unsqueeze(0)).log_softmax(1)[0]
        total -= s * weight[i] * log_p[y[i]] + (1 - s) * weight[j] * log_p[y[j]]
        mass += s * weight[i] + (1 - s) * weight[j]
    assert 0.02 < s < 0.98
    torch.testing.assert_close(loss, total / mass)


def test_pixels_are_mixed_after_standardisation(job_for, make_batch):
    data = ng.data.load("digits", as_images=True)
    x, y = torch.from_numpy(data.train.x[:4].copy()), torch.from_numpy(data.train.y[:4].copy())
    objective = ng.CrossEntropy(10)
    network = job_for(data, network="lenet5").network(objective)
    seen = []
    network.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    torch.manual_seed(2)
    Mixing(network, objective, 1.0)(make_batch(x, y))
    torch.manual_seed(2)
    s = symmetric_beta(1.0, torch.ones(4))
    pixels = (x.double() / 255 - network.mean) / network.std
    expected = float(s) * pixels + (1 - float(s)) * pixels[[3, 0, 1, 2]]
    torch.testing.assert_close(seen[0].double(), expected, rtol=1e-5, atol=1e-5)


def test_without_mixing_it_is_plain_training_bit_for_bit(noisy_digits):
    recipe = ng.Recipe(epochs=2, batch_size=64)
    plain, mixed = (
        ng.train(noisy_digits, method, "mlp-16", recipe, seed=3, device="cpu", evaluate_every=0)
        for method in ("ce", Mixup(alpha=0.0))
    )
    for a, b in zip(plain.network.parameters(), mixed.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_as_alpha_falls_each_step_is_a_plain_step(parts, job_for, make_batch):
    data, x, y, weight = parts
    objective = ng.LogisticNormal(10)
    network = job_for(data).network(objective)
    batch = make_batch(x, y, weight=weight)
    plain = Direct(network, objective)(batch)
    torch.manual_seed(0)
    # The share is 0 or 1: all rows are themselves, or all are their neighbours.
    for _ in range(10):
        torch.testing.assert_close(Mixing(network, objective, 1e-6)(batch), plain)
    assert abs(Mixing(network, objective, 1.0)(batch) - plain) > 1e-3


def test_it_memorises_less_than_cross_entropy(fit_digits, cross_entropy):
    metrics = fit_digits(Mixup(alpha=8.0)).metrics
    assert metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"] + 0.03
    assert metrics["train_memorised"] < cross_entropy.metrics["train_memorised"] - 0.2


def test_objectives_by_name_and_those_that_need_more(noisy_digits, job_for):
    job = job_for(noisy_digits)
    phase = next(Mixup(objective="GCE").phases(job))
    assert isinstance(phase.module.objective, ng.GCE)
    forward = ng.ForwardCorrection(10, 0.9 * torch.eye(10) + 0.01)
    assert isinstance(next(Mixup(objective=forward).phases(job)).module.objective, ng.ForwardCorrection)
    with pytest.raises(InputError, match="LabelSmearing needs its matrix: hand mixup an instance of it"):
        next(Mixup(objective="LabelSmearing").phases(job))
    with pytest.raises(InputError, match="for 3 classes, the data has 10"):
        next(Mixup(objective=ng.GCE(3)).phases(job))
    with pytest.raises(UnknownNameError, match="did you mean 'CrossEntropy'"):
        next(Mixup(objective="CrossEntrpy").phases(job))
    for alpha in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="alpha must be a finite number"):
            next(Mixup(alpha=alpha).phases(job))
