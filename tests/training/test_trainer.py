"""The trainer against plain loops, and every promise of the recipe."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.data.dataset import Dataset, Split
from noisegate.errors import DivergedError, InputError
from noisegate.evaluation.passes import given_labels
from noisegate.methods.direct import Direct
from noisegate.training import phase_run
from noisegate.training.optimizers import Optimizer
from noisegate.training.phase import Phase
from noisegate.training.phase_run import PhaseRun
from noisegate.training.trainer import Trainer
from noisegate.training.update import Step


def run(method, job, **options):
    training = Trainer(method.phases, job, **options)
    epochs = list(training)
    return training, epochs


def validation_metrics(fitted, rows):
    return given_labels(fitted.network, fitted.objective, rows, rows.y)


def test_training_is_a_plain_loop(data, job_for, recorded, weights):
    recipe = ng.Recipe(
        epochs=4, batch_size=16, optimizer="nesterov", lr=0.05, weight_decay=0.01, schedule="cosine"
    )
    method = recorded()
    training, _ = run(method, job_for(data, recipe))
    plain = training.fitted.network
    trained = weights(training.fitted)
    plain.load_state_dict(method.start)
    optimizer = torch.optim.SGD(
        plain.parameters(), lr=1.0, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=False
    )
    x, y = torch.from_numpy(data.train.x), torch.from_numpy(data.train.y)
    assert len(method.module.batches) == 4 * (60 // 16)
    for batch, lr in zip(method.module.batches, recipe.learning_rates(60 // 16), strict=True):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(x[batch.index]), y[batch.index]).backward()
        optimizer.step()
    torch.testing.assert_close(weights(plain), trained, rtol=1e-4, atol=1e-6)


def test_an_epoch_is_a_reshuffled_pass_in_full_batches(data, job_for, recorded):
    method = recorded()
    run(method, job_for(data, ng.Recipe(epochs=2, batch_size=25)))
    first, second = (torch.cat([b.index for b in method.module.batches[k : k + 2]]) for k in (0, 2))
    assert all(len(b.index) == 25 for b in method.module.batches)
    assert len(set(first.tolist())) == 50
    assert first.tolist() != second.tolist()
    assert method.module.epochs_begun == [0, 1]


def test_fewer_rows_than_a_batch_are_one_batch(data, job_for, recorded):
    method = recorded()
    run(method, job_for(data, ng.Recipe(epochs=2, batch_size=1000)))
    assert [len(b.index) for b in method.module.batches] == [60, 60]


def test_a_phase_can_train_on_some_rows_only(data, job_for, recorded):
    method = recorded(rows=torch.arange(0, 60, 3))
    run(method, job_for(data, ng.Recipe(epochs=3, batch_size=10)))
    seen = set(torch.cat([b.index for b in method.module.batches]).tolist())
    assert seen == set(range(0, 60, 3))


def test_length_in_steps_ends_in_the_middle_of_an_epoch(data, job_for, recorded):
    method = recorded()
    _, epochs = run(method, job_for(data, ng.Recipe(epochs=None, steps=8, batch_size=10)))
    assert len(method.module.batches) == 8
    assert [e.epoch for e in epochs] == [1, 2]
    assert epochs[-1].n_epochs == 2


def test_skipped_updates_change_nothing(data, job_for, recorded, weights):
    recipe = ng.Recipe(epochs=1, batch_size=10, weight_decay=0.1)
    method = recorded(skip=tuple(range(6)))
    training, _ = run(method, job_for(data, recipe))
    start = torch.cat(
        [method.start[name].flatten() for name, _ in training.fitted.network.named_parameters()]
    )
    assert torch.equal(weights(training.fitted), start)


def test_the_moving_average_follows_the_weights(data, job_for, recorded, weights):
    method = recorded(keep="ema")
    recipe = ng.Recipe(epochs=2, batch_size=10, ema=0.8)
    network = {}
    original = Optimizer.step

    def step(self):
        original(self)
        network.setdefault("seen", []).append(weights(method.module.network))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimizer, "step", step)
        training, _ = run(method, job_for(data, recipe))
    parameters = dict(training.fitted.network.named_parameters())
    expected = torch.cat([method.start[name].flatten() for name in parameters])
    for seen in network["seen"]:
        expected = 0.8 * expected + 0.2 * seen
    torch.testing.assert_close(weights(training.fitted), expected)


def test_the_best_epoch_by_noisy_validation_is_kept(data, job_for):
    recipe = ng.Recipe(epochs=12, batch_size=10, lr=0.3, keep="best")
    job = job_for(data, recipe)
    training, epochs = run(ng.methods.get("ce"), job)
    scores = [e.metrics["validation_accuracy"] for e in epochs]
    kept = validation_metrics(training.fitted, job.validation)
    assert kept["accuracy"] == max(scores)
    assert scores[-1] < max(scores)


def test_training_stops_after_patience_epochs_without_gain(data, job_for):
    recipe = ng.Recipe(epochs=100, batch_size=10, lr=0.3, patience=3)
    _, epochs = run(ng.methods.get("ce"), job_for(data, recipe))
    scores = [e.metrics["validation_accuracy"] for e in epochs]
    assert len(scores) < 100
    assert int(np.argmax(scores)) == len(scores) - 4


def test_the_monitor_can_be_the_likelihood(data, job_for):
    recipe = ng.Recipe(epochs=12, batch_size=10, lr=0.1, keep="best", monitor="log_likelihood")
    job = job_for(data, recipe)
    training, epochs = run(ng.methods.get("ce"), job)
    kept = validation_metrics(training.fitted, job.validation)
    best = max(e.metrics["validation_log_likelihood"] for e in epochs)
    assert kept["log_likelihood"] == pytest.approx(best, rel=1e-6)


def test_noisy_validation_is_what_it_says(data, job_for):
    job = job_for(data)
    training, _ = run(ng.methods.get("ce"), job)
    probs = training.fitted.predict_proba(data.validation.x)
    y = data.validation.y
    metrics = validation_metrics(training.fitted, job.validation)
    assert metrics["accuracy"] == pytest.approx((probs.argmax(1) == y).mean())
    assert metrics["log_likelihood"] == pytest.approx(np.log(probs[np.arange(len(y)), y]).mean(), rel=1e-5)


def test_validation_is_demanded_where_it_is_needed(data, job_for):
    without = Dataset(data.name, data.train, data.test, classes=data.classes)
    with pytest.raises(InputError, match="need validation rows"):
        run(ng.methods.get("ce"), job_for(without, ng.Recipe(epochs=1, patience=2)))


def test_gradients_are_clipped(data, job_for, recorded, weights):
    recipe = ng.Recipe(epochs=1, batch_size=60, optimizer="sgd", momentum=0.0, lr=1.0, clip_norm=0.01)
    method = recorded()
    training, _ = run(method, job_for(data, recipe))
    start = torch.cat(
        [method.start[name].flatten() for name, _ in training.fitted.network.named_parameters()]
    )
    assert (weights(training.fitted) - start).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(data, job_for, weights):
    results = [weights(run(ng.methods.get("ln"), job_for(data, seed=s))[0].fitted) for s in (0, 0, 1)]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_the_callers_random_state_is_untouched(data, job_for):
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    run(ng.methods.get("ln"), job_for(data))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_runs_can_be_interleaved_in_one_thread(data, job_for, weights):
    alone = [
        weights(run(ng.methods.get(m), job_for(data, seed=s))[0].fitted) for m, s in (("ce", 0), ("ln", 1))
    ]
    together = [Trainer(ng.methods.get(m).phases, job_for(data, seed=s)) for m, s in (("ce", 0), ("ln", 1))]
    for pair in zip(*together, strict=True):
        assert len(pair) == 2
    # zip stops the second iterator at its last epoch: let both end.
    for training, expected in zip(together, alone, strict=True):
        if training.fitted is None:
            list(training)
        assert torch.equal(weights(training.fitted), expected)


def test_streamed_rows_give_the_same_result_as_resident_ones(data, job_for, weights, monkeypatch):
    resident = weights(run(ng.methods.get("ln"), job_for(data))[0].fitted)
    monkeypatch.setattr("noisegate.data.loader.fits", lambda x, device: False)
    job = job_for(data)
    assert not job.train.resident
    assert torch.equal(weights(run(ng.methods.get("ln"), job)[0].fitted), resident)


def test_rows_of_weight_zero_have_no_influence(data, job_for, weights):
    weight = np.ones(60)
    weight[::4] = 0.0
    poisoned = data.train.y.copy()
    poisoned[::4] = (poisoned[::4] + 1) % 3
    other = Dataset("other", Split(data.train.x, poisoned), None, data.validation, classes=data.classes)
    results = [
        weights(run(ng.methods.get("ce"), job_for(d, sample_weight=weight))[0].fitted) for d in (data, other)
    ]
    assert torch.equal(*results)


@pytest.mark.parametrize("bad", [np.zeros(60), -np.ones(60), np.full(60, np.nan), np.ones(59)])
def test_bad_sample_weights_are_refused(data, job_for, bad):
    with pytest.raises(InputError, match="sample weights"):
        job_for(data, sample_weight=bad)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_every_precision_learns_and_leaves_the_global_setting_alone(job_for, data, precision):
    before = torch.get_float32_matmul_precision()
    recipe = ng.Recipe(epochs=20, batch_size=10, lr=0.02, precision=precision)
    training, epochs = run(ng.methods.get("ln"), job_for(data, recipe, network="mlp"))
    assert torch.get_float32_matmul_precision() == before
    assert (training.fitted.predict_proba(data.test.x).argmax(1) == data.test.y).mean() > 0.9
    assert epochs[-1].metrics["loss"] < epochs[0].metrics["loss"]


def test_a_diverging_run_stops_and_says_where(data, job_for):
    recipe = ng.Recipe(epochs=5, batch_size=10, optimizer="sgd", momentum=0.0, lr=1e18)
    with pytest.raises(
        DivergedError, match=r"not finite at step \d+ \(phase 0, epoch \d\); try a lower"
    ) as caught:
        run(ng.methods.get("ln"), job_for(data, recipe))
    assert caught.value.step // 6 == caught.value.epoch


def test_weights_that_break_in_the_last_step_are_noticed(data, job_for, recorded):
    class Exploding(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * math.inf

    class Method(recorded):
        def phases(self, job):
            phases = super().phases(job)
            phase = next(phases)
            forward = phase.module.forward
            phase.module.forward = lambda batch: Exploding.apply(forward(batch))
            history = yield phase
            try:
                phases.send(history)
            except StopIteration as stop:
                return stop.value

    with pytest.raises(DivergedError) as caught:
        run(Method(), job_for(data, ng.Recipe(epochs=1, batch_size=60)))
    assert caught.value.step == 0


def test_the_history_has_every_epochs_numbers(data, job_for):
    training, epochs = run(ng.methods.get("ce"), job_for(data))
    assert training.histories == [[e.metrics for e in epochs]]
    assert {"loss", "lr", "validation_accuracy", "validation_log_likelihood", "seconds"} <= set(
        epochs[0].metrics
    )


def test_only_weights_are_averaged(data):
    """What a method keeps for itself is what it was at the end, not a mean over its past."""
    recipe = {"epochs": 4, "batch_size": 20, "ema": 0.99, "keep": "ema"}
    fitted = ng.train(data, ng.methods.get("co-teaching", noise_rate=0.0), "mlp-4", recipe, device="cpu")
    assert torch.equal(fitted.extras["kept"].float(), torch.ones(len(data.train)))


def test_the_average_follows_the_statistics_of_normalisation(data, job_for):
    job = job_for(data, ng.Recipe(epochs=1, batch_size=20, ema=0.5))
    job.network_name = lambda shape, k: nn.Sequential(nn.BatchNorm1d(shape[0]), nn.Linear(shape[0], k))
    run = PhaseRun(next(ng.methods.get("ce").phases(job)), job, 0, None, 0)
    run.module.train()
    run.shuffle()
    (name,) = (name for name in run.module.state_dict() if name.endswith("running_mean"))
    wanted = run.module.state_dict()[name].clone()
    for _ in range(3):
        run.step()
        wanted = 0.5 * wanted + 0.5 * run.module.state_dict()[name]
    torch.testing.assert_close(run.step.average.values[name], wanted)


def test_the_average_follows_a_buffer_that_was_replaced(data, job_for):
    class Replacing(Direct):
        def __init__(self, network, objective):
            super().__init__(network, objective)
            self.register_buffer("level", torch.zeros(()))

        def begin_epoch(self, epoch, job):
            self.level = torch.tensor(float(epoch))

    job = job_for(data, ng.Recipe(epochs=3, batch_size=20, ema=0.5))
    objective = ng.CrossEntropy(3)
    run = PhaseRun(Phase(Replacing(job.network(objective), objective), job.recipe), job, 0, None, 0)
    for _ in range(3):
        run.run_epoch()
    assert float(run.step.average.values["level"]) == 2.0


def test_small_networks_are_trained_by_one_thread_and_the_caller_keeps_its_own(data, job_for, monkeypatch):
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        for small in (2**22, 1):
            monkeypatch.setattr(phase_run, "SMALL_STEP", small)
            monkeypatch.setattr(Step, "on", noting(Step.on, seen, torch.get_num_threads))
            ng.train(data, "ce", "mlp-8", {"epochs": 1, "batch_size": 1000}, device="cpu")
            monkeypatch.undo()
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2]


def noting(function, notes, what):
    def noted(*arguments):
        notes.append(what())
        return function(*arguments)

    return noted
