"""One contract over every objective: what the rest of the library takes for granted."""

import copy
import pickle

import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives import OBJECTIVES, Objective, objective_parameters, weighted_mean

K = 5
CASES = {
    "ce": lambda **shared: ng.CrossEntropy(K, **shared),
    "ln": lambda **shared: ng.LogisticNormal(K, temperature=0.5, min_scale=0.3, **shared),
    "ln-no-dummy": lambda **shared: ng.LogisticNormal(K, dummy_class=False, **shared),
    "ln-diagonal": lambda **shared: ng.LogisticNormal(K, covariance="diagonal", **shared),
    "ln-isotropic": lambda **shared: ng.LogisticNormal(
        K, covariance="isotropic", dummy_class=False, **shared
    ),
    "ln-identity": lambda **shared: ng.LogisticNormal(K, covariance="identity", **shared),
}


@pytest.fixture(params=CASES)
def make(request):
    return CASES[request.param]


def outputs_for(objective, *extra, batch=7, dtype=torch.float64, scale=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(batch, objective.n_outputs, *extra, dtype=dtype, generator=generator)


def labels_for(*shape, seed=1):
    return torch.randint(0, K, shape, generator=torch.Generator().manual_seed(seed))


def test_every_registered_objective_is_under_contract():
    assert {type(make()) for make in CASES.values()} == set(OBJECTIVES.values())


def test_probabilities_sum_to_one_and_follow_from_log_probabilities(make):
    objective = make()
    outputs = outputs_for(objective)
    torch.testing.assert_close(objective.probs(outputs).sum(1), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(objective.probs(outputs), objective.log_probs(outputs).exp())
    torch.testing.assert_close(objective.observed_log_probs(outputs), objective.log_probs(outputs))


def test_the_cost_of_a_label_is_gathered_from_the_costs(make):
    objective, y = make(), labels_for(7)
    outputs = outputs_for(objective)
    expected = objective.costs(outputs)[torch.arange(7), y]
    torch.testing.assert_close(objective(outputs, y, reduction="none"), expected, rtol=1e-10, atol=1e-10)


def test_soft_targets_take_the_expectation_and_agree_with_integers(make):
    objective, y = make(), labels_for(7)
    outputs = outputs_for(objective)
    onehot = torch.eye(K, dtype=torch.float64)[y]
    torch.testing.assert_close(objective(outputs, onehot), objective(outputs, y), rtol=1e-10, atol=1e-10)
    soft = torch.rand(7, K, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    soft = soft / soft.sum(1, keepdim=True)
    expected = (soft * objective.costs(outputs)).sum(1)
    torch.testing.assert_close(objective(outputs, soft, reduction="none"), expected)


def test_reductions_agree(make):
    y = labels_for(7)
    outputs = outputs_for(make())
    each = make(reduction="none")(outputs, y)
    assert each.shape == (7,)
    torch.testing.assert_close(make(reduction="sum")(outputs, y), each.sum())
    torch.testing.assert_close(make()(outputs, y), each.mean())


def test_ignored_labels_contribute_nothing(make):
    objective, y = make(), labels_for(7)
    outputs = outputs_for(objective).requires_grad_()
    some = y.clone()
    some[2:4] = -100
    kept = torch.tensor([0, 1, 4, 5, 6])
    torch.testing.assert_close(objective(outputs, some), objective(outputs[kept], y[kept]))
    (gradient,) = torch.autograd.grad(objective(outputs, some), outputs)
    assert torch.equal(gradient[2:4], torch.zeros_like(gradient[2:4]))
    nothing = objective(outputs, torch.full_like(y, -100))
    assert nothing.item() == 0.0
    assert torch.isfinite(torch.autograd.grad(nothing, outputs)[0]).all()


def test_label_weights_divide_by_their_sum(make):
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 3.0])
    y = labels_for(7)
    outputs = outputs_for(make())
    each = make()(outputs, y, reduction="none")
    expected = (weight.double()[y] * each).sum() / weight.double()[y].sum()
    torch.testing.assert_close(make(weight=weight)(outputs, y), expected)
    onehot = torch.eye(K, dtype=torch.float64)[y]
    torch.testing.assert_close(make(weight=weight)(outputs, onehot), expected)


def test_cross_entropy_with_weights_and_ignored_labels_is_torchs():
    weight, y = torch.tensor([1.0, 0.1, 2.0, 0.5, 3.0]), labels_for(7)
    y[3] = -100
    outputs = outputs_for(ng.CrossEntropy(K), dtype=torch.float32)
    expected = nn.functional.cross_entropy(outputs, y, weight=weight)
    torch.testing.assert_close(ng.CrossEntropy(K, weight=weight)(outputs, y), expected)


def test_gradients_by_finite_differences(make):
    objective, y = make(), labels_for(7)
    outputs = outputs_for(objective).requires_grad_()
    assert torch.autograd.gradcheck(lambda o: objective(o, y), outputs)
    soft = torch.softmax(outputs_for(ng.CrossEntropy(K), seed=5), 1)
    assert torch.autograd.gradcheck(lambda o: objective(o, soft), outputs)
    assert torch.autograd.gradcheck(objective.log_probs, outputs)


@pytest.mark.parametrize("size", [1e4, 80.0, 1e-30])
def test_loss_and_gradient_are_finite_at_extreme_outputs(make, size):
    objective, y = make(), labels_for(40)
    signs = torch.randint(0, 2, (40, objective.n_outputs), generator=torch.Generator().manual_seed(0))
    outputs = (size * (2.0 * signs - 1)).requires_grad_()
    loss = objective(outputs, y)
    (gradient,) = torch.autograd.grad(loss, outputs)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()
    assert torch.isfinite(objective.costs(outputs)).all()


def test_dense_maps_are_their_pixels(make):
    objective, y = make(), labels_for(2, 3, 4)
    y[0, 0, 0] = -100
    outputs = outputs_for(objective, 3, 4, batch=2)
    flat = outputs.movedim(1, -1).reshape(-1, objective.n_outputs)
    torch.testing.assert_close(objective(outputs, y), objective(flat, y.reshape(-1)))
    torch.testing.assert_close(objective.probs(outputs).movedim(1, -1).reshape(-1, K), objective.probs(flat))
    torch.testing.assert_close(objective.costs(outputs).movedim(1, -1).reshape(-1, K), objective.costs(flat))


def test_permuting_the_classes_permutes_the_result(make):
    objective, y = make(), labels_for(7)
    if not getattr(objective, "dummy_class", True):
        # Softmax-centred treats its reference class differently: only the others may change places.
        order = torch.tensor([2, 0, 3, 1, 4])
    else:
        order = torch.tensor([2, 0, 4, 1, 3])
    outputs = outputs_for(objective)
    parts = [
        part[:, order[order < part.shape[1]]] if part.shape[1] > 1 else part
        for part in objective.split(outputs)
    ]
    position = torch.argsort(order)
    torch.testing.assert_close(objective(torch.cat(parts, 1), position[y]), objective(outputs, y))
    torch.testing.assert_close(objective.probs(torch.cat(parts, 1)), objective.probs(outputs)[:, order])


def test_half_precision_is_computed_in_float32_also_under_autocast(make):
    objective, y = make(), labels_for(7)
    outputs = outputs_for(objective, dtype=torch.float32).bfloat16()
    expected = objective(outputs.float(), y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = objective(outputs, y)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected)


def test_pickle_copy_and_state_round_trips(make):
    objective, y = make(weight=torch.arange(1.0, K + 1)), labels_for(7)
    outputs = outputs_for(objective)
    expected = objective(outputs, y)
    for other in (pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)):
        torch.testing.assert_close(other(outputs, y), expected)
    rebuilt = type(objective)(**objective.settings())
    rebuilt.load_state_dict(objective.state_dict())
    torch.testing.assert_close(rebuilt(outputs, y), expected)


def test_the_head_is_a_plain_layer_whose_slices_do_not_start_at_zero(make):
    objective = make()
    for layer in (nn.Linear(9, objective.n_outputs), nn.Conv2d(9, objective.n_outputs, 1)):
        nn.init.zeros_(layer.weight)
        objective.init_head_(layer)
        if len(objective.slices) > 1:
            assert all(bool(part.abs().sum() > 0) for part in layer.weight.split(objective.slices))
            assert not layer.bias.any()
    with pytest.raises(InputError, match="layer of"):
        objective.init_head_(nn.Linear(9, objective.n_outputs + 1))


def test_wrong_shapes_and_arguments_are_refused(make):
    objective = make()
    outputs = outputs_for(objective)
    with pytest.raises(InputError, match="needs outputs of shape"):
        objective(outputs[:, 1:], labels_for(7))
    with pytest.raises(InputError, match="do not fit"):
        objective(outputs, labels_for(6))
    with pytest.raises(InputError, match="do not fit"):
        objective(outputs, torch.rand(7, K + 1))
    with pytest.raises(InputError, match="reduction"):
        objective(outputs, labels_for(7), reduction="median")
    with pytest.raises(InputError, match="reduction"):
        make(reduction="median")
    with pytest.raises(InputError, match="weight must hold"):
        make(weight=torch.ones(K + 1))


@pytest.mark.parametrize("n_classes", [1, 0, 2.5, True])
def test_the_number_of_classes_is_checked(n_classes):
    with pytest.raises(InputError, match="n_classes"):
        ng.CrossEntropy(n_classes)


def test_a_new_objective_is_one_subclass_with_two_methods():
    class MeanAbsolute(Objective):
        def __init__(self, n_classes, power=1.0, **shared):
            super().__init__(n_classes, **shared)
            self.power = power

        def costs(self, outputs):
            return 1 - self.probs(outputs) ** self.power

        def log_probs(self, outputs):
            return torch.log_softmax(outputs, 1)

    assert objective_parameters(MeanAbsolute) == {"power": 1.0}
    assert MeanAbsolute(3, power=2.0).settings()["power"] == 2.0
    loss = MeanAbsolute(3)(torch.zeros(2, 3), torch.tensor([0, 1]))
    torch.testing.assert_close(loss, torch.tensor(2 / 3))


def test_weighted_mean_leaves_rows_of_weight_zero_out():
    losses = torch.tensor([1.0, float("nan"), 5.0])
    assert weighted_mean(losses, torch.tensor([3.0, 0.0, 1.0])) == 2.0
    assert weighted_mean(losses, torch.zeros(3)) == 0.0
