"""Logistic regression: scikit-learn's solution at every strength, and rows that are truly held out."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from noisegate.methods.auto.logistic import logistic_path


def problem(n=150, d=6, k=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * rng.uniform(0.5, 2, d) + rng.normal(size=d)
    y = (x @ rng.normal(size=(d, k)) + rng.gumbel(size=(n, k))).argmax(1)
    return x, y


def folds_of(n, folds=5):
    fold = torch.arange(n) % folds
    return fold[:, None] != torch.arange(folds)


@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_scikit_learns_solution(weighted):
    x, y = problem()
    weight = np.random.default_rng(1).uniform(0.2, 2, len(y)) if weighted else np.ones(len(y))
    penalties = [1e-4, 1e-2, 1e-1]
    path = logistic_path(
        torch.from_numpy(x),
        torch.from_numpy(y),
        3,
        folds_of(len(y)),
        torch.from_numpy(weight),
        penalties,
        400,
    )
    share = weight / weight.sum()
    variance = (share @ (x - share @ x) ** 2).sum()
    for number, penalty in enumerate(penalties):
        # scikit-learn has C sum_i w_i CE_i + |W|^2 / 2, here it is sum_i w_i CE_i / sum w + lambda s / 2 |W|^2.
        oracle = LogisticRegression(C=1 / (penalty * variance * weight.sum()), tol=1e-10, max_iter=5000)
        oracle.fit(x, y, weight)
        logits = x @ path.weight[number].T.numpy() + path.bias[number].numpy()
        probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        np.testing.assert_allclose(probs, oracle.predict_proba(x), atol=2e-4)


def test_held_out_probabilities_are_those_of_a_model_without_the_row():
    x, y = problem()
    trains = folds_of(len(y))
    whole = logistic_path(
        torch.from_numpy(x), torch.from_numpy(y), 3, trains, torch.ones(150).double(), [1e-2], 400
    )
    rows = ~trains[:, 2].numpy()
    variance = x.var(0).sum()
    oracle = LogisticRegression(C=1 / (1e-2 * variance * (~rows).sum()), tol=1e-10, max_iter=5000)
    oracle.fit(x[~rows], y[~rows])
    np.testing.assert_allclose(whole.held_out[0][rows], oracle.predict_proba(x[rows]), atol=2e-4)


def test_a_rows_label_does_not_reach_its_held_out_probabilities():
    x, y = problem()
    arguments = torch.from_numpy(x), folds_of(150), torch.ones(150).double(), [1e-4, 1e-2]

    def held_out(labels):
        return logistic_path(arguments[0], torch.from_numpy(labels), 3, *arguments[1:]).held_out

    flipped = y.copy()
    flipped[7] = (y[7] + 1) % 3
    before, after = held_out(y), held_out(flipped)
    assert torch.equal(before[:, 7], after[:, 7])
    assert not torch.equal(before[:, 8], after[:, 8])


def test_constant_inputs_give_the_shares_of_the_classes():
    y = torch.tensor([0, 0, 0, 1] * 10)
    path = logistic_path(torch.ones(40, 3), y, 2, folds_of(40), torch.ones(40), [1e-3], 200)
    assert path.held_out[0, :, 0].mean() == pytest.approx(0.75, abs=0.02)
