"""Which candidates make the ensemble, and when models of weighed labels join it."""

import pytest
import torch
from torch import nn

from noisegate.methods.auto.candidates import Candidate
from noisegate.methods.auto.cleaning import evidence_supports
from noisegate.methods.auto.scores import mean_and_error
from noisegate.methods.auto.stacking import Stack, about_as_good, ensemble, stack


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


@pytest.mark.parametrize(
    ("better", "worse", "cleans"), [(20, 0, True), (6, 2, False), (0, 0, False), (2, 20, False)]
)
def test_cleaning_needs_a_gain_beyond_chance(better, worse, cleans):
    y = torch.arange(200) % 3
    place = torch.arange(200)
    first = said(y, place >= 60)
    second = said(y, (place >= 60 - better) & (place < 200 - worse))
    # 20 of 20 changed rows are far beyond chance; 6 of 8 are z = 4 / sqrt(8) = 1.4.
    stacks = [Stack(probs, []) for probs in (first, second)]
    assert evidence_supports(*stacks, y, torch.ones(200)) is cleans
