import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import noisegate as ng
from noisegate.errors import InputError
from noisegate.methods.decoupling import Disagreeing
from noisegate.training.phase import Phase
from noisegate.training.phase_run import PhaseRun


@pytest.fixture
def module():
    torch.manual_seed(1)
    return Disagreeing(nn.Linear(4, 3), nn.Linear(4, 3), ng.CrossEntropy(3), torch.zeros(10, 1))


def test_both_learn_from_the_rows_they_disagree_on(module, make_batch):
    batch = make_batch(torch.randn(10, 4), torch.arange(10) % 3, weight=torch.rand(10))
    outputs = [module.first(batch.x), module.second(batch.x)]
    differ = outputs[0].argmax(1) != outputs[1].argmax(1)
    assert 0 < differ.sum() < 10
    loss, active = module(batch)
    weight = batch.weight[differ]
    expected = sum(
        (weight * F.cross_entropy(o[differ], batch.y[differ], reduction="none")).sum() / weight.sum()
        for o in outputs
    )
    torch.testing.assert_close(loss, expected)
    assert bool(active)
    assert (module.used.squeeze(1).bool() == differ).all()
    for one, other in zip(
        torch.autograd.grad(loss, list(module.parameters())),
        torch.autograd.grad(expected, list(module.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("optimizer", ["adam", "nesterov", "lars"])
def test_where_none_differ_nothing_is_updated(optimizer, noisy_digits, job_for):
    recipe = ng.Recipe(epochs=2, batch_size=100, optimizer=optimizer, weight_decay=0.1, lr=0.1)
    job = job_for(noisy_digits, recipe)
    objective = ng.CrossEntropy(10)
    network = job.network(objective)

    def after(warmup):
        twins = Disagreeing(network, copy.deepcopy(network), objective, job.per_example(1), warmup=warmup)
        twins = copy.deepcopy(twins)
        run = PhaseRun(Phase(twins, recipe), job, 0, None, 0)
        run.run_epoch()
        return nn.utils.parameters_to_vector(twins.first.parameters())

    before = nn.utils.parameters_to_vector(network.parameters())
    assert torch.equal(after(0), before)
    # Twins that train on all rows move, together.
    assert not torch.equal(after(1), before)


def test_all_rows_count_during_the_warm_up(module, make_batch):
    module.warmup = 2
    x, y = torch.randn(10, 4), torch.arange(10) % 3
    for epoch, everything in ((0, True), (1, True), (2, False)):
        module(make_batch(x, y, epoch=epoch))
        assert bool(module.used.all()) is everything


def test_it_resists_noise_better_than_cross_entropy(fit_digits, cross_entropy, noisy_digits):
    fitted = fit_digits("decoupling")
    assert fitted.metrics["test_accuracy"] > cross_entropy.metrics["test_accuracy"]
    used = fitted.extras["used"]
    assert used.shape == (len(noisy_digits.train),)
    assert 0 < used.mean() < 0.5


@pytest.mark.parametrize("objective", ["LogisticNormal", "GCE"])
def test_it_goes_with_any_objective(objective, noisy_digits):
    method = ng.methods.get("decoupling", objective=objective, warmup=1)
    fitted = ng.train(noisy_digits, method, "mlp-32", {"epochs": 4}, device="cpu", evaluate_every=0)
    assert type(fitted.objective).__name__ == objective
    assert fitted.metrics["test_accuracy"] > 0.3


def test_parameters_out_of_range_are_refused(job_for, noisy_digits):
    with pytest.raises(InputError, match="warmup must be a whole number of at least 0"):
        next(ng.methods.get("decoupling", warmup=-1).phases(job_for(noisy_digits)))


def test_fresh_networks_that_agree_still_learn():
    def alike(shape, n_outputs):
        layer = nn.Linear(*shape, n_outputs)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    data, recipe = ng.data.load("moons", seed=0), {"epochs": 3, "lr": 0.1, "batch_size": 16}
    never, learnt = (
        ng.train(data, ng.methods.get("decoupling", **p), alike, recipe, device="cpu", evaluate_every=0)
        for p in ({"warmup": 0}, {})
    )
    assert never.metrics["test_accuracy"] == 0.5
    assert learnt.metrics["test_accuracy"] > 0.8
