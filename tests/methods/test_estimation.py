import numpy as np
import pytest
import torch

import noisegate as ng
from noisegate.errors import InputError
from noisegate.methods.estimation import (
    Watched,
    check_choice,
    check_count,
    check_number,
    lasting,
    length_in_epochs,
    noise_rate,
    out_of_sample_probs,
    transition_matrix,
)

RECIPE = ng.Recipe(epochs=8, batch_size=64, lr=3e-3)


class Delegating:
    """A method that does nothing but delegate to one generator of phases."""

    def __init__(self, phases):
        self.phases = phases


@pytest.fixture
def estimate(run_phases):
    """Train the phases of an estimate; returns them and what was found."""

    def run(generator, job):
        return run_phases(Delegating(generator), job)

    return run


@pytest.fixture
def digits_job(noisy_digits, job_for):
    return job_for(noisy_digits, RECIPE, "mlp-128")


def test_every_row_is_predicted_by_a_network_that_was_not_trained_on_it(digits_job, estimate):
    phases, probs = estimate(lambda job: out_of_sample_probs(job, folds=4), digits_job)
    n = len(digits_job.train)
    held = [set(range(n)) - set(phase.rows.tolist()) for phase in phases]
    assert len(phases) == 4
    assert sorted(row for rows in held for row in rows) == list(range(n))
    # Every class is spread evenly over the folds.
    counts = np.array([np.bincount(digits_job.train.y[sorted(rows)], minlength=10) for rows in held])
    assert (counts.max(0) - counts.min(0) <= 1).all()
    for phase, rows in zip(phases, held, strict=True):
        torch.testing.assert_close(probs[sorted(rows)], phase.module.probs)
        assert torch.equal(phase.module.watched.y, digits_job.train.y[sorted(rows)])
    torch.testing.assert_close(probs.sum(1), torch.ones(n))


def test_labels_learnt_by_heart_do_not_show(job_for, estimate):
    rng = np.random.default_rng(0)
    rows = ng.data.Split(rng.standard_normal((300, 10)).astype(np.float32), rng.integers(0, 4, 300))
    data = ng.data.Dataset("guesswork", rows, classes=tuple("abcd"))
    job = job_for(data, ng.Recipe(epochs=60, batch_size=30, lr=1e-2), "mlp-64")
    given = lambda probs: float(probs.gather(1, job.train.y[:, None]).mean())
    _, unseen = estimate(lambda job: out_of_sample_probs(job, folds=3, epochs=60), job)
    phases, _ = estimate(lambda job: transition_matrix(job, "estimate"), job)
    assert given(job.predict(*phases[0].module.predictor())) > 0.7
    assert given(unseen) < 0.35


def test_the_epoch_in_which_the_held_out_labels_are_most_likely_is_kept(digits_job, monkeypatch, estimate):
    seen = []
    look = Watched.look

    def noting(self):
        look(self)
        seen.append(
            float(
                ng.methods.estimation.predict(*self.predictor(), self.watched)
                .log()[torch.arange(len(self.watched)), self.watched.y]
                .mean()
            )
        )

    monkeypatch.setattr(Watched, "look", noting)
    phases, _ = estimate(lambda job: out_of_sample_probs(job, folds=2, epochs=8), digits_job)
    assert len(seen) == 16
    for phase, scores in zip(phases, (seen[:8], seen[8:]), strict=True):
        module = phase.module
        kept = module.probs.log()[torch.arange(len(module.watched)), module.watched.y].mean()
        assert float(kept) == pytest.approx(max(scores), abs=1e-5)
        assert max(scores) > scores[-1]


@pytest.mark.parametrize(
    "noise",
    [
        ng.noise.Symmetric(0.4, include_self=False),
        ng.noise.Symmetric(0.2),
        ng.noise.Asymmetric(0.3, {7: 1, 2: 7, 5: 6, 6: 5, 3: 8}),
        ng.noise.Symmetric(0.0),
    ],
    ids=["40 % of other classes", "20 % over all classes", "pairs", "none"],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_estimated_rate_lies_within_six_hundredths_of_the_truth(noise, seed, job_for, estimate):
    data = ng.data.load("digits").corrupt(noise, seed=seed)
    truth = float((data.train.y != data.train.clean).mean())
    _, rate = estimate(lambda job: noise_rate(job, "estimate"), job_for(data, RECIPE, "mlp-128", seed))
    assert rate == pytest.approx(truth, abs=0.06)


def test_a_given_rate_is_handed_back_and_trains_nothing(digits_job, estimate):
    for value in (0, 0.25, np.float32(0.5)):
        phases, rate = estimate(lambda job, value=value: noise_rate(job, value), digits_job)
        assert phases == []
        assert rate == float(value)
        assert type(rate) is float


@pytest.mark.parametrize("value", [1.0, -0.1, True, None, float("nan"), "guess"])
def test_rates_that_make_no_sense_are_refused(value, digits_job, estimate):
    with pytest.raises(InputError, match="noise_rate must be"):
        estimate(lambda job: noise_rate(job, value), digits_job)


def test_a_given_matrix_is_checked_and_trains_nothing(digits_job, estimate):
    matrix = ng.noise.Symmetric(0.4).transition(10)
    for value in (matrix, matrix.tolist(), torch.tensor(matrix, dtype=torch.float32)):
        phases, found = estimate(lambda job, value=value: transition_matrix(job, value), digits_job)
        assert phases == []
        assert found.network is None
        np.testing.assert_allclose(found.transition.numpy(), matrix, atol=1e-7)
    for bad in (matrix[:5, :5], matrix * 1.1, "guess"):
        with pytest.raises(InputError, match="transition"):
            estimate(lambda job, bad=bad: transition_matrix(job, bad), digits_job)


def test_the_matrix_comes_from_the_row_at_the_percentile(digits_job, estimate):
    for percentile in (97.0, 99.9):
        phases, found = estimate(
            lambda job, p=percentile: transition_matrix(job, "estimate", percentile=p, epochs=3), digits_job
        )
        probs = digits_job.predict(*phases[0].module.predictor()).double()
        assert found.network is phases[0].module.network
        assert phases[0].recipe.epochs == 3
        for i in range(10):
            rank = int(np.floor(percentile / 100 * (len(probs) - 1)))
            row = probs[probs[:, i].argsort()[rank]]
            torch.testing.assert_close(found.transition[i], row / row.sum())


def test_cross_validated_predictions_show_the_noise_that_memory_hides(digits_job, noisy_digits, estimate):
    truth = torch.tensor(ng.noise.Symmetric(0.4, include_self=False).transition(10))
    errors = {}
    for folds in (0, 3):
        _, found = estimate(
            lambda job, folds=folds: transition_matrix(job, "estimate", folds=folds, epochs=25), digits_job
        )
        errors[folds] = float((found.transition - truth).abs().sum(1).mean())
    assert errors[3] < 0.6 * errors[0]


def test_a_finished_estimate_is_not_trained_again(noisy_digits, tmp_path):
    def run():
        epochs = []
        fitted = ng.train(
            noisy_digits,
            "mentornet",
            "mlp-32",
            {"epochs": 3},
            device="cpu",
            folder=tmp_path,
            on_epoch=epochs.append,
        )
        return fitted.extras["noise_rate"], len(epochs)

    rate, epochs = run()
    assert epochs == 12
    assert run() == (rate, 0)


def test_lengths_keep_the_unit_of_the_recipe():
    in_steps = ng.Recipe(epochs=None, steps=400, batch_size=100, milestones=(200,), schedule="step")
    assert lasting(RECIPE, None, 500) is RECIPE
    assert lasting(RECIPE, 3, 500) == RECIPE.replace(epochs=3)
    assert lasting(in_steps, 3, 550) == in_steps.replace(steps=15)
    assert lasting(in_steps, 3, 50).steps == 3
    assert length_in_epochs(RECIPE, 500) == 8
    assert length_in_epochs(in_steps, 550) == 80
    assert length_in_epochs(in_steps, 10**9) == 1


def test_folds_are_short_but_not_too_short(job_for, noisy_digits):
    for recipe, expected in (
        (ng.Recipe(epochs=60), {"epochs": 20, "steps": None}),
        (ng.Recipe(epochs=12), {"epochs": 10, "steps": None}),
        (
            ng.Recipe(epochs=4, patience=2, keep="ema", ema=0.9),
            {"epochs": 4, "keep": "last", "patience": None},
        ),
        (ng.Recipe(epochs=None, steps=300, batch_size=60), {"epochs": None, "steps": 140}),
    ):
        phase = next(out_of_sample_probs(job_for(noisy_digits, recipe), folds=3))
        assert {name: getattr(phase.recipe, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_number("x", 2, 0, 1), "x must be a number of at least 0 and at most 1, got 2"),
        (lambda: check_number("x", 1, 0, 1, below=True), "at least 0 and below 1, got 1"),
        (lambda: check_number("x", "1", 0), "at least 0, got '1'"),
        (lambda: check_count("x", 1.5, 1, optional=True), "whole number of at least 1 or None, got 1.5"),
        (lambda: check_count("x", None), "whole number of at least 0, got None"),
        (lambda: check_choice("x", "c", ("a", "b")), "x must be one of 'a', 'b', got 'c'"),
    ],
)
def test_checks_say_what_was_expected(check, message):
    with pytest.raises(InputError, match=message):
        check()


def test_one_label_a_row_is_needed(job_for, noisy_digits, estimate):
    job = job_for(noisy_digits)
    job.train.y = job.train.y[:, None]
    with pytest.raises(InputError, match="one label a row"):
        estimate(lambda job: out_of_sample_probs(job), job)
    with pytest.raises(InputError, match="folds must be a whole number of at least 2"):
        estimate(lambda job: out_of_sample_probs(job, folds=1), job)
