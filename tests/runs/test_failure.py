"""A fit that failed to learn is reported."""

import logging

import numpy as np
import pytest

import noisegate as ng
from noisegate.fitted import Fitted
from noisegate.objectives import CrossEntropy
from noisegate.runs.failure import failure


@pytest.fixture
def data():
    return ng.data.load("moons").corrupt(ng.noise.Symmetric(0.2), seed=0)


def test_a_learning_rate_far_too_high_is_announced(data, caplog):
    with caplog.at_level(logging.WARNING, logger="noisegate"):
        fitted = ng.train(data, "ce", "mlp-8", {"epochs": 5, "lr": 1000.0}, device="cpu")
    assert failure(fitted, data) in caplog.text
    assert "failed to learn" in caplog.text


def test_a_good_fit_says_nothing(data, caplog):
    with caplog.at_level(logging.WARNING, logger="noisegate"):
        fitted = ng.train(data, "ce", "mlp-8", {"epochs": 30}, device="cpu")
    assert failure(fitted, data) is None
    assert "failed to learn" not in caplog.text


def test_held_out_rows_decide_where_there_are_some(data):
    fitted = ng.train(data, "ce", "mlp-8", {"epochs": 30}, device="cpu")
    y = data.train.y
    fitted.extras |= {"given": y, "probs": np.eye(2)[1 - y]}
    assert "predicts 0.0% of the labels of held-out rows" in failure(fitted, data)


def test_a_loss_that_rose_is_named(data):
    fitted = ng.train(data, "ce", "mlp-8", {"epochs": 30}, device="cpu")
    fitted.history = [[{"loss": 1.0}] * 4, [{"loss": 0.5}, {"loss": 0.75}, {"loss": 2.0}]]
    assert "rose from 0.5 to 2" in failure(fitted, data)
    fitted.history[-1].pop()
    assert failure(fitted, data) is None


def test_a_fitted_without_a_history_is_judged_by_what_it_says(data):
    good = ng.train(data, "ce", "mlp-8", {"epochs": 30}, device="cpu")
    assert failure(Fitted(good.network, CrossEntropy(2)), data) is None
