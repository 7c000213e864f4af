from __future__ import annotations

import itertools

import numpy as np
import pytest

import noisegate as ng
from noisegate.errors import InputError, UnknownNameError
from noisegate.noise import Asymmetric, ClassDependent, Symmetric, confident
from noisegate.quality import judge, posterior
from noisegate.quality.issues import best_f1, confidence_rank


def problem(noise, n=3000, k=5, sharpness=4.0, seed=0):
    """(probs, given, true) of a classifier that was trained on the noisy labels: flattened, calibrated for them."""
    rng = np.random.default_rng(seed)
    true = rng.integers(k, size=n)
    logits = rng.normal(size=(n, k))
    logits[np.arange(n), true] += sharpness
    clean = np.exp(1.2 * logits)
    clean /= clean.sum(axis=1, keepdims=True)
    given = true if noise is None else noise.corrupt(true, n_classes=k, seed=seed)
    return clean if noise is None else clean @ noise.transition(k), given, true


def human(n=4000, k=5, seed=0):
    """Labels that go wrong where the inputs are hard: towards the class that looks alike."""
    rng = np.random.default_rng(seed)
    true = rng.integers(k, size=n)
    ease = rng.uniform(0.5, 6.0, n)
    views = rng.normal(size=(2, n, k))
    views[:, np.arange(n), true] += ease
    given = views[0].argmax(axis=1)
    p = np.exp(views[1])
    p = (p / p.sum(axis=1, keepdims=True)) ** 0.7
    return p / p.sum(axis=1, keepdims=True), given, true


def f1(flags, wrong):
    return 2 * (flags & wrong).sum() / (flags.sum() + wrong.sum())


def best_possible(probs, given, wrong):
    """F1 of the best cut of self-confidence, chosen with the truth."""
    order = np.argsort(probs[np.arange(len(given)), given])
    found = np.cumsum(wrong[order])
    return (2 * found / (np.arange(1, len(given) + 1) + wrong.sum())).max()


NOISES = {
    "symmetric": Symmetric(0.3),
    "pairs": Asymmetric(0.3, {i: (i + 1) % 5 for i in range(5)}),
    "classes": ClassDependent([0.0, 0.1, 0.2, 0.4, 0.6]),
}


@pytest.mark.parametrize("name", [*NOISES, "human"])
def test_look_comes_close_to_the_best_cut_and_sure_is_precise(name):
    probs, given, true = human() if name == "human" else problem(NOISES[name])
    wrong = given != true
    found = judge(probs, given)
    assert f1(found.is_label_issue, wrong) > best_possible(probs, given, wrong) - 0.03
    if name != "pairs":  # their probabilities of .7 and .3 leave doubt on every row
        assert wrong[found.is_sure].mean() > (0.9 if name == "human" else 0.95)
        assert found.is_sure.sum() > 0.1 * wrong.sum()
    assert not (found.is_sure & ~found.is_label_issue).any()
    assert (found.suggested[found.is_label_issue] != given[found.is_label_issue]).all()
    assert (found.suggested == true)[wrong & found.is_label_issue].mean() > (0.6 if name == "human" else 0.95)


@pytest.mark.parametrize("name", NOISES)
def test_noise_is_estimated(name):
    noise = NOISES[name]
    probs, given, true = problem(noise, n=6000)
    found = judge(probs, given)
    assert found.noise_rate == pytest.approx((given != true).mean(), abs=0.04)
    np.testing.assert_allclose(found.transition, noise.transition(5), atol=0.07)
    np.testing.assert_allclose(found.transition.sum(axis=1), 1.0)
    precision = (given != true)[found.is_label_issue].mean()
    assert found.precision["look"] == pytest.approx(precision, abs=0.12)


def test_slope_tells_human_noise_from_noise_of_the_class():
    assert judge(*human()[:2]).model.slope > 0.5
    assert abs(judge(*problem(NOISES["symmetric"])[:2]).model.slope) < 0.5


def test_clean_labels_of_a_good_classifier_are_left_alone():
    probs, given, _ = problem(None, sharpness=7.0)
    found = judge(probs, given)
    assert found.noise_rate < 0.01
    assert found.is_sure.sum() <= 3


def test_classes_and_rows_may_come_in_any_order():
    probs, given, _ = problem(NOISES["classes"], n=1000)
    found = judge(probs, given)
    classes = np.random.default_rng(1).permutation(5)
    other = judge(probs[:, classes], np.argsort(classes)[given])
    np.testing.assert_allclose(other.wrong, found.wrong, atol=1e-6)
    np.testing.assert_array_equal(classes[other.suggested], found.suggested)
    rows = np.random.default_rng(2).permutation(1000)
    np.testing.assert_allclose(judge(probs[rows], given[rows]).wrong, found.wrong[rows], atol=1e-6)


def test_the_posterior_is_bayes_rule_in_a_model_that_is_known():
    k, n = 3, 40
    rng = np.random.default_rng(0)
    p, y, rank = rng.dirichlet(np.ones(k), n), rng.integers(k, size=n), rng.random(n)
    noise = rng.dirichlet(np.ones(k), k) * (1 - np.eye(k))
    noise /= noise.sum(axis=1, keepdims=True)
    model = posterior.NoiseModel(
        2.0, np.array([0.1, -0.2, 0.1]), np.array([-1.0, 0.0, 1.0]), 1.5, np.arange(k * k), noise.ravel(),
        np.ones(k), np.ones(k) / k,
    )  # fmt: skip
    slots = posterior.make_slots(p, y, rank)
    found, logs = posterior.posterior(model, slots)
    c = p**2.0 * np.exp(model.bias)
    c /= c.sum(axis=1, keepdims=True)
    e = 1 / (1 + np.exp(-(model.rate + 1.5 * (rank[:, None] - 0.5))))
    for i in range(n):
        joint = np.array(
            [c[i, t] * (e[i, t] * noise[t, y[i]] if t != y[i] else 1 - e[i, t]) for t in range(k)]
        )
        np.testing.assert_allclose(found[i], joint[slots.classes[i]] / joint.sum(), rtol=1e-9)
        assert logs[i] == pytest.approx(np.log(joint.sum()))


def test_em_never_lowers_the_likelihood_by_much_and_ends_above_its_start():
    probs, given, _ = problem(NOISES["pairs"], n=800)
    rank = confidence_rank(probs.argmax(axis=1), probs.max(axis=1))
    slots = posterior.make_slots(probs, given, rank)
    model = posterior.fit(slots, 5)
    flat = posterior.NoiseModel(
        model.beta, np.zeros(5), np.full(5, -1.5), 0.0, model.pairs, np.full(len(model.pairs), 0.25), np.ones(5),
        np.full(5, 0.2),
    )  # fmt: skip
    assert posterior.posterior(model, slots)[1].sum() > posterior.posterior(flat, slots)[1].sum()


def test_many_classes_use_their_most_probable_slots(monkeypatch):
    k = 40
    probs, given, true = problem(Symmetric(0.2), n=4000, k=k, sharpness=7.0)
    found = judge(probs, given)
    assert posterior.make_slots(probs[:5], given[:5], np.zeros(5)).classes.shape == (5, posterior.MOST_SLOTS)
    assert f1(found.is_label_issue, given != true) > 0.9
    monkeypatch.setattr(posterior, "MOST_SLOTS", k)
    np.testing.assert_allclose(judge(probs, given).wrong, found.wrong, atol=0.05)


def test_blocks_do_not_matter(monkeypatch):
    probs, given, _ = problem(NOISES["symmetric"], n=500)
    found = judge(probs, given)
    monkeypatch.setattr(confident, "BLOCK", 64)
    np.testing.assert_allclose(judge(probs, given).wrong, found.wrong, atol=1e-12)


def test_nothing_is_flagged_where_probably_nothing_is_wrong():
    """F1 in expectation over all outcomes, in which no flags among no wrong labels count as 1."""
    rng = np.random.default_rng(0)
    outcomes = np.array(list(itertools.product([0, 1], repeat=8)))
    flagged = 0
    for scale in np.tile([0.02, 0.1, 0.3, 1.0], 10):
        wrong = np.sort(scale * rng.random(8))[::-1]
        chance = np.prod(np.where(outcomes, wrong, 1 - wrong), axis=1)
        hits = np.c_[np.zeros(len(outcomes)), np.cumsum(outcomes, axis=1)]
        sizes = np.arange(9) + outcomes.sum(axis=1, keepdims=True)
        exact = chance @ np.where(sizes > 0, 2 * hits / sizes.clip(min=1), 1.0)
        mask, _ = best_f1(wrong)
        flagged += mask.any()
        assert exact[mask.sum()] > exact.max() - 0.12
    assert 5 < flagged < 35
    probs = np.where(np.eye(2, dtype=bool)[np.repeat([0, 1], 100)], 0.9999, 0.0001)
    assert not judge(probs, np.repeat([0, 1], 100)).is_label_issue.any()


def test_best_f1_is_the_best_of_all_cuts():
    wrong = np.random.default_rng(0).beta(0.3, 1.0, 60)
    flags, expected = best_f1(wrong)
    cuts = [2 * wrong[wrong >= c].sum() / ((wrong >= c).sum() + wrong.sum()) for c in wrong]
    assert expected == pytest.approx(max(cuts))
    assert wrong[flags].min() >= expected / 2  # the rule of F*/2
    assert wrong[~flags].max() <= expected / 2


def test_with_few_rows_a_class_a_doubtful_classifier_makes_nobody_sure():
    flagged, right = 0, 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        # Calibrated doubt: most labels that look odd are right, only a tenth of all is wrong.
        probs = 0.97 * rng.dirichlet(np.full(20, 0.1), 200) + 0.03 / 20
        true = np.array([rng.choice(20, p=row) for row in probs])
        given = np.where(rng.random(200) < 0.1, rng.integers(0, 20, 200), true)
        sure = judge(probs, given).is_sure
        flagged, right = flagged + sure.sum(), right + (sure & (given != true)).sum()
    # With the faith of many rows 249 were flagged, of which 109 were wrong.
    assert 0 < flagged < 40
    assert right / flagged > 0.7


def test_rank_counts_within_the_predicted_class_from_the_surest():
    rank = confidence_rank(np.array([1, 0, 1, 1, 0]), np.array([0.5, 0.9, 0.7, 0.6, 0.8]))
    np.testing.assert_allclose(rank, [5 / 6, 0.25, 1 / 6, 0.5, 0.75])


@pytest.mark.parametrize(("probs", "y"), [([[1.0, 0.0]], [1]), (np.full((4, 3), 1 / 3), [0, 1, 1, 1])])
def test_tiny_and_degenerate_input_is_judged_without_a_warning(probs, y):
    found = judge(probs, y)
    assert np.isfinite(found.wrong).all()
    assert found.wrong.min() >= 0
    assert found.wrong.max() <= 1


def test_one_class_is_refused():
    with pytest.raises(InputError, match="at least two columns"):
        judge([[1.0]], [0])


def test_unknown_point():
    with pytest.raises(UnknownNameError, match="did you mean 'sure'"):
        ng.find_label_issues([[1.0, 0.0]], [0], point="shure")
