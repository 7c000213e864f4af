from __future__ import annotations

import math
from inspect import signature

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from noisegate.errors import InputError
from noisegate.evaluation import accuracy, brier, ece, log_likelihood, summary


def problem(
    n: int = 4000, k: int = 5, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(2 * torch.randn(n, k, generator=generator, dtype=torch.float64), dim=1)
    return probs.to(dtype), torch.multinomial(probs, 1, generator=generator)[:, 0]


def on_edges(n_bins: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes, every edge from one half to one as a confidence, several times with mixed outcomes."""
    edges = torch.linspace(0, 1, n_bins + 1, dtype=dtype)
    confidence = edges[edges >= 0.5].repeat(7)
    labels = (torch.arange(len(confidence)) * 5 % 7 < 2).long()
    return torch.stack([confidence, 1 - confidence], dim=1), labels


def test_against_sklearn():
    probs, y = problem()
    assert accuracy(probs, y) == pytest.approx(accuracy_score(y, probs.argmax(1)), abs=1e-15)
    assert log_likelihood(probs, y) == pytest.approx(-log_loss(y, probs), abs=1e-12)


@pytest.mark.skipif(
    "scale_by_half" not in signature(brier_score_loss).parameters, reason="scikit-learn before 1.7"
)
def test_brier_against_sklearn():
    probs, y = problem()
    assert brier(probs, y) == pytest.approx(brier_score_loss(y, probs, scale_by_half=False), abs=1e-12)


def test_brier_is_the_mean_of_squared_distances():
    probs, y = problem(dtype=torch.float32)
    direct = (probs.double() - torch.eye(5, dtype=torch.float64)[y]).square().sum(dim=1).mean()
    assert brier(probs, y) == pytest.approx(float(direct), abs=1e-12)
    assert brier(np.eye(3), [0, 1, 2]) == 0.0
    assert brier(np.eye(3), [1, 2, 0]) == 2.0


@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ece_is_that_of_torchmetrics(n_bins, dtype):
    for probs, y in (problem(dtype=dtype), on_edges(n_bins, dtype)):
        oracle = multiclass_calibration_error(probs, y, num_classes=probs.shape[1], n_bins=n_bins)
        assert ece(probs, y, n_bins) == pytest.approx(float(oracle), abs=2e-6)


def test_ece_by_hand():
    probs = torch.tensor([[0.95, 0.05], [0.91, 0.09], [0.62, 0.38], [0.34, 0.66]], dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 1])
    expected = (abs(1 - (0.95 + 0.91)) + abs(2 - (0.62 + 0.66))) / 4
    assert ece(probs, y, 10) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_likelihood_of_an_impossible_label_is_finite(dtype):
    probs = torch.tensor([[1.0, 0.0]], dtype=dtype)
    assert log_likelihood(probs, [1]) == pytest.approx(math.log(torch.finfo(dtype).tiny))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    probs, y = problem(dtype=dtype)
    exact, _ = problem()
    assert accuracy(probs, y) == pytest.approx(accuracy(exact, y), abs=0.01)
    assert log_likelihood(probs, y) == pytest.approx(log_likelihood(exact, y), abs=0.01)
    assert brier(probs, y) == pytest.approx(brier(exact, y), abs=0.01)


def test_summary_is_all_of_them_for_tensors_and_arrays():
    probs, y = problem()
    probs.requires_grad_()
    expected = {
        "accuracy": accuracy(probs, y),
        "log_likelihood": log_likelihood(probs, y),
        "ece": ece(probs, y, 10),
        "brier": brier(probs, y),
    }
    assert summary(probs, y, n_bins=10) == expected
    assert summary(probs.detach().numpy(), y.numpy().astype(np.int32), n_bins=10) == expected
    assert all(type(value) is float for value in expected.values())


@pytest.mark.parametrize(
    ("probs", "y", "message"),
    [
        (np.array([0.5, 0.5]), [0], r"shape \(N, K\)"),
        (np.zeros((0, 2)), [], r"shape \(N, K\)"),
        (np.array([[1, 0]]), [0], "int64"),
        (np.array([[0.5, 0.5]]), [0, 1], r"one label a row, shape \(1,\), got \(2,\)"),
        (np.array([[0.5, 0.5]]), [0.0], "integer labels"),
        (np.array([[0.5, 0.5]]), [2], r"0\.\.1, got 2\.\.2"),
        (np.array([[0.5, 0.5]]), [-1], r"got -1\.\.-1"),
        (np.array([[0.5, 0.5], [0.5, 0.4]]), [0, 1], "row 1 .* the sum 0.9"),
        (np.array([[1.5, -0.5]]), [0], "smallest entry -0.5"),
        (np.array([[np.nan, 0.5]]), [0], "row 0"),
    ],
)
@pytest.mark.parametrize("metric", [accuracy, log_likelihood, ece, brier, summary])
def test_bad_input(metric, probs, y, message):
    with pytest.raises(InputError, match=message):
        metric(probs, y)


def test_bad_number_of_bins():
    with pytest.raises(InputError, match="n_bins"):
        ece([[0.5, 0.5]], [0], n_bins=0)


def test_what_is_no_number_is_refused():
    with pytest.raises(InputError, match="expected numbers"):
        accuracy([["a", "b"]], [0])
    with pytest.raises(InputError, match="n_bins must be a whole number"):
        ece(torch.tensor([[0.5, 0.5]]), torch.tensor([0]), 2.5)
