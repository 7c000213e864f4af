"""Functions that are compiled where networks are."""

import pytest
import torch

import noisegate as ng
from noisegate._fusing import fused, fusing
from noisegate.objectives import points, sampled

FUSED = ((sampled, "label_chunk"), (points, "sobol_normals"), (points, "sobol_table"))


def test_a_function_is_compiled_inside_only_and_once(graphs):
    @fused
    def doubled(x):
        return x + x

    x = torch.ones(3)
    assert doubled(x).sum() == 6
    assert not graphs
    for _ in range(2):
        with fusing():
            assert doubled(x).sum() == 6
    assert len(graphs) == 1
    assert doubled(x).sum() == 6
    assert doubled.__name__ == "doubled"


def test_an_error_inside_ends_it(graphs):
    @fused
    def doubled(x):
        return x + x

    with pytest.raises(ZeroDivisionError), fusing():
        raise ZeroDivisionError
    doubled(torch.ones(3))
    assert not graphs


@pytest.mark.parametrize("rank", [None, 1, 3])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_heteroscedastic_costs_are_the_same_compiled(rank, n_classes, graphs, monkeypatch):
    objective = ng.Heteroscedastic(
        n_classes, 0.7, "diagonal" if rank is None else "low-rank", rank, n_samples=100
    )
    outputs = torch.randn(6, objective.n_outputs, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(6) % n_classes

    def found():
        torch.manual_seed(0)
        costs = objective(outputs, labels, reduction="none")
        (gradient,) = torch.autograd.grad(costs.square().sum(), outputs)
        return costs.detach(), gradient

    wanted = found()
    for module, name in FUSED:
        # Anew, so that nothing is compiled already and nothing stays so.
        monkeypatch.setattr(module, name, fused(getattr(module, name).__wrapped__))
    with fusing():
        here = found()
    assert len(graphs) >= 3
    torch.testing.assert_close(here, wanted, rtol=1e-9, atol=1e-12)


def test_many_chunks_are_compiled_once(graphs, monkeypatch):
    """A chunk's place among the others must not be known to the compiler: there may be a thousand."""
    monkeypatch.setitem(sampled.CACHED, "logits", 2**8)
    monkeypatch.setitem(sampled.CACHED, "points", 2**6)
    for module, name in FUSED:
        monkeypatch.setattr(module, name, fused(getattr(module, name).__wrapped__))
    objective = ng.Heteroscedastic(5, n_samples=100)
    with fusing():
        objective(torch.randn(6, 10), torch.arange(6) % 5)
    # The table; and the points and costs of a chunk of 8 samples, and of the last one of 4.
    assert len(graphs) == 5
