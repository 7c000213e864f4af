"""Metrics of maps against torchmetrics and by hand; void counts nowhere, batches make no difference."""

import numpy as np
import pytest
import torch
import torchmetrics.functional as reference

from noisegate.errors import InputError
from noisegate.evaluation.maps import (
    boundaries,
    class_iou,
    confusion,
    map_scores,
    map_summary,
    mean_iou,
    metrics,
)

VOID = -100
K = 4


@pytest.fixture
def maps():
    g = torch.Generator().manual_seed(0)
    coarse = torch.randint(0, K, (6, 4, 5), generator=g)
    labels = coarse.repeat_interleave(4, 1).repeat_interleave(3, 2)
    labels[torch.rand(labels.shape, generator=g) < 0.1] = VOID
    logits = torch.randn(6, K, 16, 15, generator=g, dtype=torch.float64)
    logits += 2 * torch.nn.functional.one_hot(labels.clamp_min(0), K).movedim(-1, 1)
    return torch.log_softmax(logits, 1), labels


def test_against_torchmetrics(maps):
    log_p, labels = maps
    found = map_summary(map_scores(log_p, labels), K)
    counted = labels != VOID
    flat, y = log_p.exp().movedim(1, -1)[counted], labels[counted]
    assert found["accuracy"] == pytest.approx((flat.argmax(1) == y).double().mean().item())
    assert found["log_likelihood"] == pytest.approx(flat.log().gather(1, y[:, None]).mean().item())
    ece = reference.calibration_error(flat, y, task="multiclass", num_classes=K, n_bins=15)
    assert found["ece"] == pytest.approx(ece.item())
    onehot = torch.nn.functional.one_hot(y, K)
    assert found["brier"] == pytest.approx((flat - onehot).square().sum(1).mean().item())
    # One pooled matrix, void out; not the mean over images.
    iou = reference.jaccard_index(
        log_p.argmax(1), labels, task="multiclass", num_classes=K, ignore_index=VOID, average="none"
    )
    table = confusion(map_scores(log_p, labels), K)
    torch.testing.assert_close(class_iou(table).float(), iou)
    assert found["mean_iou"] == pytest.approx(iou.mean().item())
    expected = reference.confusion_matrix(flat.argmax(1), y, task="multiclass", num_classes=K)
    assert torch.equal(table.long(), expected)


def test_batches_make_no_difference(maps):
    log_p, labels = maps
    whole = map_summary(map_scores(log_p, labels), K)
    parts = torch.cat([map_scores(log_p[i : i + 2], labels[i : i + 2]) for i in (0, 2, 4)])
    for name, value in map_summary(parts, K).items():
        assert value == pytest.approx(whole[name].item(), rel=1e-12)


def test_a_class_that_never_occurs_does_not_count():
    table = torch.tensor([[3, 1, 0], [0, 4, 0], [0, 0, 0]])
    assert mean_iou(table) == pytest.approx((3 / 4 + 4 / 5) / 2)
    assert torch.isnan(class_iou(table)[2])
    # Predicted, though nobody has it: it occurs, and nothing of it is right.
    table[0, 2] = 1
    assert mean_iou(table) == pytest.approx((3 / 5 + 4 / 5 + 0) / 3)


def test_boundaries_by_hand(maps):
    _, labels = maps
    for width in (1, 2, 3):
        expected = np.zeros(labels.shape, bool)
        for image, rows, columns in np.ndindex(*labels.shape):
            window = labels[
                image,
                max(0, rows - width) : rows + width + 1,
                max(0, columns - width) : columns + width + 1,
            ]
            seen = set(window.flatten().tolist()) - {VOID}
            expected[image, rows, columns] = labels[image, rows, columns] != VOID and len(seen) > 1
        assert np.array_equal(boundaries(labels, width).numpy(), expected)


def test_boundary_and_inside_make_up_the_whole(maps):
    log_p, labels = maps
    found = map_summary(map_scores(log_p, labels), K)
    edge = boundaries(labels)
    right = log_p.argmax(1) == labels
    counted = labels != VOID
    assert found["boundary_accuracy"] == pytest.approx(right[edge & counted].double().mean().item())
    inside = ~edge & counted
    if inside.any():
        assert found["interior_accuracy"] == pytest.approx(right[inside].double().mean().item())


def test_nothing_but_void():
    found = map_summary(map_scores(torch.full((1, 2, 3, 3), -0.7), torch.full((1, 3, 3), VOID)), 2)
    assert found["accuracy"] == 0
    assert torch.isnan(found["mean_iou"])


def test_labels_as_given_have_their_own_likelihood(maps):
    log_p, labels = maps
    other = torch.log_softmax(torch.zeros_like(log_p), 1)
    found = map_summary(map_scores(log_p, labels, other), K)
    assert found["log_likelihood"] == pytest.approx(-np.log(K))
    assert found["accuracy"] == map_summary(map_scores(log_p, labels), K)["accuracy"]


def test_metrics_of_arrays(maps):
    log_p, labels = maps
    found = metrics(log_p.exp().numpy(), labels.numpy())
    assert found["accuracy"] == pytest.approx(map_summary(map_scores(log_p, labels), K)["accuracy"].item())
    with pytest.raises(InputError, match="expected probabilities"):
        metrics(log_p.exp().numpy(), labels[:, 0].numpy())
