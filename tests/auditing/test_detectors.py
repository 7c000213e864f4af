"""Detectors of wrong labels as methods."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import noisegate as ng
from noisegate.auditing import nearness
from noisegate.auditing.detectors import DETECTORS, CrossFitted, detector
from noisegate.errors import InputError, UnknownNameError
from noisegate.methods.direct import Plain

RECIPE = ng.Recipe(epochs=5, batch_size=32, lr=1e-2)


@pytest.fixture(scope="module")
def data():
    return ng.data.load("moons", n=300, n_test=200).corrupt(ng.noise.Symmetric(0.4), seed=0)


def fit(data, method, **options):
    return ng.train(data, method, "mlp-32", RECIPE, seed=0, device="cpu", **options)


@pytest.mark.parametrize("name", sorted(set(DETECTORS) - {"as-given", "own"}))
def test_every_detector_ranks_wrong_labels_first_and_predicts(data, name):
    fitted = fit(data, detector(name, Plain(ng.CrossEntropy)))
    probs = np.asarray(fitted.extras.get("said", fitted.extras.get("probs")))
    assert probs.shape == (300, 2)
    given = probs[np.arange(300), data.train.y]
    wrong = data.train.wrong
    # The probability that a wrong label has less than a right one.
    auroc = (given[wrong][:, None] < given[~wrong][None]).mean()
    assert auroc > 0.7, auroc
    assert fitted.metrics["test_accuracy"] > 0.8


def test_no_row_is_judged_by_a_network_that_was_trained_on_it():
    """Labels that only memory can know: out of fold nothing of them can be repeated."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 100)).astype(np.float32), rng.integers(0, 2, 300)
    recipe = ng.Recipe(epochs=20, batch_size=50, lr=1e-2)
    fitted = ng.train(ng.data.load((x, y)), CrossFitted(folds=3), "mlp-64", recipe, seed=0, device="cpu")
    # Two of the three networks have learnt each row by heart; the third has never seen it.
    assert (fitted.predict(x) == y).mean() > 0.75
    assert 0.4 < (np.asarray(fitted.extras["probs"]).argmax(1) == y).mean() < 0.6


def test_the_vote_of_a_network_is_that_of_the_rows(data):
    """Of a row that is not among the rows itself: the vote that it would have among them."""
    fitted = fit(data, detector("neighbours", Plain(ng.CrossEntropy)))
    row = 7
    alone = np.delete(np.arange(300), row)
    near = nearness.nearest(nearness.normalised(data.train.x), np.array([row]), 20).neighbours[0]
    assert set(near) <= set(alone)
    votes = fitted.network(torch.from_numpy(data.train.x[[row]])).exp().detach().numpy()[0]
    known = nearness.vote(nearness.normalised(data.train.x), data.train.y, 2)[row]
    # The row itself votes with weight 1 in the network and not out of sample.
    assert abs(votes / votes.sum() - known).max() < 0.06


@pytest.mark.parametrize("k", [2, 3])
def test_logistic_regression_is_that_of_scikit_learn(k):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (90, 1, 2, 2), dtype=np.uint8)
    y = (x[:, 0, 0, 0] // 86 + rng.integers(0, 2, 90)) % k
    fitted = ng.train(
        ng.data.load((x, y)), detector("logistic-regression", Plain(ng.CrossEntropy)), "linear", device="cpu"
    )
    model = LogisticRegression().fit(x.reshape(90, 4) / 255, y)
    np.testing.assert_allclose(
        fitted.predict_proba(x), model.predict_proba(x.reshape(90, 4) / 255), atol=2e-3
    )


def test_probabilities_are_taken_as_given():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 50).astype(np.float32)
    y = p.argmax(1)
    fitted = ng.train(ng.data.load((p, y)), detector("as-given", Plain(ng.CrossEntropy)), device="cpu")
    np.testing.assert_allclose(fitted.extras["probs"], p, atol=1e-6)
    np.testing.assert_allclose(fitted.predict_proba(p), p, atol=1e-5)
    with pytest.raises(InputError, match="expected probabilities of 3 classes as inputs, got the shape"):
        ng.train(ng.data.load((p[:, :2], y)), detector("as-given", Plain(ng.CrossEntropy)), device="cpu")


def test_what_does_not_go_is_said(data):
    with pytest.raises(UnknownNameError, match="did you mean 'neighbours'"):
        detector("neighbors", Plain(ng.CrossEntropy))
    with pytest.raises(InputError, match="an objective of one output a class"):
        fit(data, CrossFitted(Plain(ng.LogisticNormal)))
    with pytest.raises(InputError, match="folds"):
        fit(data, CrossFitted(folds=1))
