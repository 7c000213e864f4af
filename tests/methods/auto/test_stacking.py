"""Which candidates make the ensemble."""

import pytest
import torch
from torch import nn

from noisegate.methods.auto.candidates import Candidate
from noisegate.methods.auto.scores import mean_and_error
from noisegate.methods.auto.stacking import about_as_good, best_head, ensemble, stack


def said(y, right, sure=0.8, k=3):
    """Probabilities whose largest class is the given one in some rows and the next one in the others."""
    top = torch.where(right, y, (y + 1) % k)
    return torch.full((len(y), k), (1 - sure) / (k - 1)).scatter_(1, top[:, None], sure)


def test_the_standard_error_is_that_of_a_mean():
    values = torch.randn(3, 400, generator=torch.Generator().manual_seed(0)).double()
    mean, error = mean_and_error(values, torch.ones(400))
    torch.testing.assert_close(mean, values.mean(1))
    torch.testing.assert_close(error, values.std(1, correction=0) / 20)
    # Rows of no weight are as good as left out.
    half = mean_and_error(values, (torch.arange(400) < 200).float())
    torch.testing.assert_close(half, mean_and_error(values[:, :200], torch.ones(200)))


def test_heads_are_compared_row_by_row():
    # A head that is worse by a little in every row is left out; one that errs on other rows is kept.
    best = torch.rand(1, 50, generator=torch.Generator().manual_seed(0))
    other = best.flip(1) - 0.01
    assert about_as_good(torch.cat([best, best - 0.01, other]), torch.ones(50)).tolist() == [
        True,
        False,
        True,
    ]


def test_candidates_weigh_the_same_however_many_heads_they_have():
    y = torch.arange(60) % 3
    right = torch.arange(60) % 4 != 0
    many = Candidate("a", torch.stack([said(y, right)] * 5), nn.Identity())
    single = Candidate("b", said(y, right.roll(1))[None], nn.Identity())
    bad = Candidate("c", said(y, ~right)[None], nn.Identity())
    found = stack([many, bad, single], y, torch.ones(60))
    assert {part[0].family for part in found.parts} == {"a", "b"}
    weights = dict(zip("ab", (0.0, 0.0), strict=True))
    network, place = ensemble([found]), 0
    for candidate, heads, _ in found.parts:
        weights[candidate.family] = float(network.weights[place : place + len(heads)].sum())
        place += len(heads)
    assert weights == {"a": pytest.approx(0.5), "b": pytest.approx(0.5)}


def test_the_best_head_is_the_one_that_repeats_most_held_out_labels():
    y = torch.arange(60) % 3
    halves = Candidate("a", torch.stack([said(y, torch.arange(60) % n != 0) for n in (2, 3)]), nn.Identity())
    most = Candidate("b", torch.stack([said(y, torch.arange(60) % n != 0) for n in (4, 9, 5)]), nn.Identity())
    assert best_head([halves, most], y, torch.ones(60)) == (1, 1)
    # Weights decide which rows count: here those that the first candidate's second head knows.
    weight = (torch.arange(60) % 9 == 0).float() * (torch.arange(60) % 2 != 0)
    assert best_head([halves, most], y, weight)[0] == 0
