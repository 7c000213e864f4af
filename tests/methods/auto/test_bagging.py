"""The bag: which rows a network sees, and that the others are truly left out."""

import torch

import noisegate as ng
from noisegate.methods.auto.bagging import BagModule, Fronted, bag_recipe, pairs_left_out
from noisegate.methods.auto.rows import TrainingRows, training_rows
from noisegate.methods.auto.scores import spherical_score
from noisegate.networks.bag import Bag
from noisegate.runs.run import make_job
from noisegate.training.phase import Batch


def rows_of(n=100, folds=5):
    fold = torch.arange(n) % folds
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    trains = fold[:, None] != torch.arange(folds)
    return TrainingRows(x, fold % 2, torch.ones(n), 2, trains, folds)


def test_every_row_is_left_out_by_four_networks_of_ten():
    trains = pairs_left_out(rows_of())
    assert trains.shape == (100, 10)
    assert ((~trains).sum(1) == 4).all()
    assert (trains.sum(0) == 60).all()
    assert ((~pairs_left_out(rows_of(folds=3))).sum(1) == 1).all()


def test_a_row_reaches_only_the_networks_that_have_it():
    rows = rows_of()
    data = ng.data.load((rows.x.numpy(), rows.y.numpy()))
    job = make_job(data, "auto", ng.Recipe(epochs=1, batch_size=50), 0, torch.device("cpu"))
    torch.manual_seed(0)
    bag = Bag(4, 10, 8, 2)
    module = BagModule(job.prepared(Fronted(bag, None), None, 2), rows)
    one = torch.tensor([7])
    loss = module(Batch(rows.x[one], rows.y[one], one, torch.ones(1), torch.tensor(0)))
    loss.backward()
    moved = bag.out.grad.abs().sum((1, 2)) > 0
    assert torch.equal(moved, module.trains[7])


def test_its_held_out_probabilities_are_the_mean_of_the_networks_without_the_row():
    rows = rows_of()
    data = ng.data.load((rows.x.numpy(), rows.y.numpy()))
    job = make_job(data, "auto", ng.Recipe(epochs=1, batch_size=50), 0, torch.device("cpu"))
    prepared = job.prepared(Fronted(Bag(4, 10, 8, 2), None), None, 2)
    module = BagModule(prepared, training_rows(job, prepared, 5, 1))
    candidate = module.candidate("bag")
    each = module.bag.logits(module.rows.x).softmax(2)
    expected = each[~module.trains[3], 3].mean(0)
    torch.testing.assert_close(candidate.held_out[0, 3], expected.detach())


def test_the_spherical_score_is_proper():
    # In expectation over labels drawn from q nothing beats saying q itself.
    q = torch.tensor([[0.2, 0.5, 0.3]])
    said = torch.softmax(torch.randn(200, 3, generator=torch.Generator().manual_seed(0)), 1)

    def expected(p):
        return sum(q[0, k] * spherical_score(p, torch.full((len(p),), k)) for k in range(3))

    assert (expected(said) <= expected(q) + 1e-6).all()


def test_a_recipe_for_every_size():
    assert bag_recipe(3).batch_size == 8
    assert bag_recipe(1_000).epochs == 40
    assert bag_recipe(1_000_000).epochs == 12
