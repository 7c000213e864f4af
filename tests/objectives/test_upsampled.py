"""Upsampling against torch's own; the parts it goes in make no difference."""

import pytest
import torch
from torch.nn import functional as F

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives import points
from noisegate.objectives.upsampled import source_rows, upsample

SIZES = [((3, 4), (3, 4)), ((3, 4), (12, 16)), ((3, 5), (7, 11)), ((1, 1), (4, 3)), ((4, 6), (5, 6))]


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("small", "large"), SIZES)
def test_upsampling_and_its_gradient_are_torchs(small, large):
    x = random(2, 3, *small).requires_grad_()
    given = random(2, 3, *large, seed=1)
    expected = F.interpolate(x, large, mode="bilinear", align_corners=False)
    found = upsample(x, large)
    torch.testing.assert_close(found, expected)
    wanted, got = (torch.autograd.grad((each * given).sum(), x)[0] for each in (expected, found))
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(("height", "full"), [(1, 4), (3, 7), (4, 16), (33, 129), (5, 5), (180, 721)])
def test_the_source_rows_are_those_with_a_share(height, full):
    matrix = F.interpolate(torch.eye(height).unsqueeze(0), full, mode="linear")[0].T
    for start, stop in ((0, 1), (0, full), (full // 2, full // 2 + 1), (full - 1, full)):
        source = source_rows(range(start, stop), height, full)
        used = matrix[start:stop].sum(0).nonzero()
        assert 0 <= source.start <= used.min()
        assert used.max() < source.stop <= height


@pytest.mark.parametrize("variant", [{}, {"covariance": "low-rank", "rank": 2}])
def test_a_heteroscedastic_map_is_the_same_in_parts(variant, monkeypatch):
    objective = ng.Heteroscedastic(4, 0.3, n_samples=20, n_samples_eval=20, **variant)
    outputs = random(3, objective.n_outputs, 4, 5).requires_grad_()
    y = torch.randint(0, 4, (3, 13, 16), generator=torch.Generator().manual_seed(2))
    y[0, 3:7] = -100
    soft = torch.softmax(random(3, 4, 13, 16, seed=4), 1)

    def everything():
        torch.manual_seed(0)
        losses = [objective.train()(outputs, y), objective.eval()(outputs, soft)]
        gradients = [torch.autograd.grad(loss, outputs)[0] for loss in losses]
        return [
            *losses,
            *gradients,
            objective.probs(outputs, (13, 16)),
            objective.variance(outputs, (13, 16)),
        ]

    whole = everything()
    for room, samples in ((4 * 16 * 3, 4), (4 * 16, 1), (1, 8), (2 * 4 * 13 * 16, 2)):
        monkeypatch.setitem(points.CHUNK_LIMITS, "cpu", (room, samples))
        for found, expected in zip(everything(), whole, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_the_gradient_of_label_costs_by_finite_differences():
    objective = ng.Heteroscedastic(3, 0.5, n_samples=8, covariance="low-rank", rank=1)
    outputs = random(1, objective.n_outputs, 2, 2).requires_grad_()
    y = torch.randint(0, 3, (1, 3, 5), generator=torch.Generator().manual_seed(2))
    y[0, 0, 0] = -100

    def loss(x):
        torch.manual_seed(0)
        return objective(x, y)

    assert torch.autograd.gradcheck(loss, outputs)


def test_sizes_that_do_not_fit_are_refused():
    for objective in (ng.CrossEntropy(3), ng.Heteroscedastic(3), ng.ForwardCorrection(3, torch.eye(3))):
        outputs = random(2, objective.n_outputs, 4, 4)
        for size in ((2, 2), (8, 3), (8,)):
            with pytest.raises(InputError, match="size must be"):
                objective.probs(outputs, size)
