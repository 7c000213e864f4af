"""Weights of labels, and what vetoes them, against data whose labels are known to be right or wrong."""

import pytest
import torch

from noisegate.methods.auto.cleaning import does_harm, gentle_weights, label_weights


def blobs(seed, n=600, rate=0.3):
    """Three blobs; a share of labels drawn anew at random, and which."""
    draw = torch.Generator().manual_seed(seed)
    clean = torch.randint(3, (n,), generator=draw)
    x = torch.eye(3, 5)[clean] * 2 + 0.6 * torch.randn(n, 5, generator=draw)
    wrong = torch.rand(n, generator=draw) < rate
    moved = (clean + torch.randint(1, 3, (n,), generator=draw)) % 3
    return x, torch.where(wrong, moved, clean), wrong


def exceptions(seed, n=1500):
    """Labels without noise: the sign of one number, but for the rows with one of six rare marks."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=draw)
    marks = (torch.rand(n, 6, generator=draw) < 0.04).float()
    return torch.cat([x, marks], 1), ((x[:, 0] > 0) | (marks.sum(1) > 0)).long()


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_rows_of_their_kind_contradict_weigh_little(seed):
    _, y, wrong = blobs(seed)
    truth = torch.where(wrong, (y + 1) % 3, y)
    probs = torch.full((len(y), 3), 0.1).scatter_(1, truth[:, None], 0.8)
    weights = label_weights(probs, y)
    assert float(weights[~wrong].min()) > 0.9
    assert float(weights[wrong].max()) < 0.2


def test_gentle_weights_spare_what_is_merely_doubtful():
    _, y, _ = blobs(0)
    probs = torch.full((len(y), 3), 0.33).scatter_(1, ((y + 1) % 3)[:, None], 0.34)
    torch.testing.assert_close(gentle_weights(probs, y), torch.full((len(y),), 33 / 34))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("penalty", [1e-2, 1e-3])
def test_random_mistakes_are_weighed_down_without_harm(seed, penalty):
    torch.manual_seed(seed)
    x, y, _ = blobs(seed)
    assert not does_harm(x, y, 3, torch.ones(len(y)), penalty, 60)


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_a_stiff_model_takes_for_mistakes_are_kept(seed):
    # So much regularisation hides the marks; taking their rows away would hide them for good.
    torch.manual_seed(seed)
    x, y = exceptions(seed)
    assert does_harm(x, y, 2, torch.ones(len(y)), 0.1, 60)
    assert not does_harm(x, y, 2, torch.ones(len(y)), 1e-3, 60)


def test_a_handful_of_rows_is_not_cleaned():
    x, y, _ = blobs(0, n=12)
    assert does_harm(x, y, 3, torch.ones(12), 1e-2, 10)
