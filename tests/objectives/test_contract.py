"""One contract over every objective: what the rest of the library takes for granted."""

import copy
import functools
import json
import math
import pickle

import pytest
import torch
from torch import nn

import noisegate as ng
from noisegate.errors import InputError
from noisegate.objectives import Objective, objective_parameters, weighted_mean
from noisegate.testing import OBJECTIVE_CHECKS
from noisegate.testing.objectives import loss_and_gradient, outputs_for

K = 5
# Column 4 has a single entry: label 4 is only ever given to class 4.
SPARSE = [
    [0.7, 0.3, 0, 0, 0],
    [0, 1, 0, 0, 0],
    [0.1, 0, 0.6, 0.3, 0],
    [0, 0, 0.2, 0.8, 0],
    [0.3, 0, 0, 0.2, 0.5],
]
DENSE = [[0.5 * (i == j) + 0.05 * (1 + (2 * i + j) % 5) - 0.05 for j in range(K)] for i in range(K)]
CASES = {
    "ce": lambda **shared: ng.CrossEntropy(K, **shared),
    "ls": lambda **shared: ng.LabelSmoothing(K, alpha=0.3, **shared),
    "smearing": lambda **shared: ng.LabelSmearing(K, torch.arange(25.0).view(K, K).sin(), **shared),
    "smearing-ln": lambda **shared: ng.LabelSmearing(K, DENSE, base=ng.LogisticNormal(K), **shared),
    "fc": lambda **shared: ng.ForwardCorrection(K, SPARSE, **shared),
    "fc-dense": lambda **shared: ng.ForwardCorrection(K, DENSE, **shared),
    "fc-bi-tempered": lambda **shared: ng.ForwardCorrection(K, SPARSE, base=ng.BiTempered(K), **shared),
    "bc": lambda **shared: ng.BackwardCorrection(K, SPARSE, **shared),
    "bc-gce": lambda **shared: ng.BackwardCorrection(K, DENSE, base=ng.GCE(K), ridge=0.1, **shared),
    "gce": lambda **shared: ng.GCE(K, **shared),
    "bi-tempered": lambda **shared: ng.BiTempered(K, **shared),
    "bi-tempered-light": lambda **shared: ng.BiTempered(K, t1=0.4, t2=0.8, **shared),
    "nan": lambda **shared: ng.NoiseAgainstNoise(K, **shared),
    "bootstrap": lambda **shared: ng.Bootstrap(K, **shared),
    "bootstrap-soft": lambda **shared: ng.Bootstrap(K, kind="soft", **shared),
    "het": lambda **shared: ng.Heteroscedastic(K, temperature=0.5, n_samples=16, **shared),
    "het-low-rank": lambda **shared: ng.Heteroscedastic(
        K, covariance="low-rank", rank=2, n_samples=16, **shared
    ),
    "ln": lambda **shared: ng.LogisticNormal(K, temperature=0.5, min_scale=0.3, **shared),
    "ln-no-dummy": lambda **shared: ng.LogisticNormal(K, dummy_class=False, **shared),
    "ln-diagonal": lambda **shared: ng.LogisticNormal(K, covariance="diagonal", **shared),
    "ln-isotropic": lambda **shared: ng.LogisticNormal(
        K, covariance="isotropic", dummy_class=False, **shared
    ),
    "ln-identity": lambda **shared: ng.LogisticNormal(K, covariance="identity", **shared),
}


# An objective of noisegate that has no case above is tested with its defaults.
for _kind in set(Objective.classes.own().values()) - {type(_make()) for _make in CASES.values()}:
    CASES[_kind.__name__] = functools.partial(_kind, K)


# What does not hold by definition, by name.
#: The own prediction is held fixed, which finite differences do not see.
DETACHED = {"bootstrap-soft"}
#: The label as given has other probabilities than the clean class.
CORRECTED = {"fc", "fc-dense", "fc-bi-tempered", "bc", "bc-gce"}
#: Costs with negative weights, or minus the log of a density.
NEGATIVE = {"smearing", "bc", "bc-gce"} | {name for name in CASES if "ln" in name}

#: Sampled at fixed points, which no order of the classes leaves as they are: equal up to the error of sampling.
SAMPLED = {"het": {"rtol": 0.05, "atol": 0.005}, "het-low-rank": {"rtol": 0.05, "atol": 0.005}}


@pytest.fixture(params=CASES)
def name(request):
    return request.param


@pytest.fixture
def make(name):
    """Makes the objective in evaluation mode, where nothing is drawn; tests that mean training say `.train()`."""
    return lambda **shared: CASES[name](**shared).eval()


def labels_for(*shape, seed=1):
    return torch.randint(0, K, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("check", OBJECTIVE_CHECKS)
def test_every_objective_keeps_its_promises(make, name, check):
    if not (check == "gradients" and name in DETACHED):
        OBJECTIVE_CHECKS[check](make)


def test_the_most_probable_class_is_that_of_the_probabilities_and_draws_nothing(make):
    objective = make().train()
    outputs = 3 * torch.randn(64, objective.n_outputs, generator=torch.Generator().manual_seed(0))
    before = torch.get_rng_state()
    found = objective.most_probable(outputs)
    assert torch.equal(torch.get_rng_state(), before)
    agree = found == objective.eval().probs(outputs).argmax(1)
    # With large scales and few samples the mean of a sampled softmax may be largest elsewhere.
    assert agree.all() if not isinstance(objective, ng.Heteroscedastic) else agree.float().mean() > 0.6


def test_probabilities_sum_to_one_and_follow_from_log_probabilities(make, name):
    objective = make()
    outputs = outputs_for(objective)
    torch.testing.assert_close(objective.probs(outputs).sum(1), torch.ones(7, dtype=torch.float64))
    torch.testing.assert_close(objective.probs(outputs), objective.log_probs(outputs).exp())
    observed = objective.observed_log_probs(outputs)
    torch.testing.assert_close(observed.exp().sum(1), torch.ones(7, dtype=torch.float64))
    if name in CORRECTED:
        expected = objective.probs(outputs) @ objective.transition
        torch.testing.assert_close(observed.exp(), expected)
    elif type(objective).observed_log_probs is Objective.observed_log_probs:
        torch.testing.assert_close(observed, objective.log_probs(outputs))


def test_costs_are_negative_only_where_they_may_be(make, name):
    objective = make()
    least = objective.costs(outputs_for(objective, batch=500)).min()
    assert least > -1e-12 or name in NEGATIVE


def test_cross_entropy_with_weights_and_ignored_labels_is_torchs():
    weight, y = torch.tensor([1.0, 0.1, 2.0, 0.5, 3.0]), labels_for(7)
    y[3] = -100
    outputs = outputs_for(ng.CrossEntropy(K), dtype=torch.float32)
    expected = nn.functional.cross_entropy(outputs, y, weight=weight)
    torch.testing.assert_close(ng.CrossEntropy(K, weight=weight)(outputs, y), expected)


@pytest.mark.parametrize("case", sorted(DETACHED))
def test_a_detached_prediction_has_the_gradient_of_a_fixed_target(case):
    objective, y = CASES[case](), labels_for(7)
    outputs = outputs_for(objective).requires_grad_()
    target = objective.beta * torch.eye(K)[y] + (1 - objective.beta) * objective.probs(outputs).detach()
    fixed = -(target * objective.log_probs(outputs)).sum(1).mean()
    (expected,) = torch.autograd.grad(fixed, outputs)
    (gradient,) = torch.autograd.grad(objective(outputs, y), outputs)
    torch.testing.assert_close(gradient, expected)


def test_labels_of_a_larger_map_are_costs_of_the_upsampled_one(make, name):
    objective, y = make(), labels_for(2, 6, 7)
    y[0, 0, 0] = -100
    outputs = outputs_for(objective, 3, 4, batch=2)
    found = objective(outputs, y)
    probs = objective.probs(outputs, (6, 7))
    torch.testing.assert_close(probs.sum(1), torch.ones(2, 6, 7, dtype=torch.float64))
    ready = objective.at_size(outputs, (6, 7))
    torch.testing.assert_close(objective.log_probs(ready).exp(), probs)
    onehot = torch.eye(K, dtype=torch.float64)[y.clamp_min(0)].movedim(-1, 1)
    onehot[0, :, 0, 0] = 0.0
    torch.testing.assert_close(objective(outputs, onehot), found)
    if name not in SAMPLED:  # those upsample what they sample: see their own tests
        large = nn.functional.interpolate(outputs, (6, 7), mode="bilinear", align_corners=False)
        torch.testing.assert_close(found, objective(large, y))
        torch.testing.assert_close(probs, objective.probs(large))
        observed = objective.observed_log_probs(ready)
        torch.testing.assert_close(observed, objective.observed_log_probs(large))
    torch.testing.assert_close(objective.probs(outputs, (3, 4)), objective.probs(outputs))


def test_a_correction_of_a_sampled_objective_upsamples_what_it_samples():
    base = ng.Heteroscedastic(K, temperature=0.5, n_samples_eval=32)
    objective = ng.ForwardCorrection(K, DENSE, base=base).eval()
    outputs, y = outputs_for(objective, 3, 4, batch=2), labels_for(2, 6, 7)
    expected = torch.einsum("bkhw,kj->bjhw", base.eval().probs(outputs, (6, 7)), objective.transition)
    found = objective(outputs, y, reduction="none")
    torch.testing.assert_close(found, -expected.gather(1, y.unsqueeze(1)).squeeze(1).log())


def permuted(objective, order):
    """The objective for permuted classes: its matrices are permuted along."""
    settings = objective.settings()
    for key in {"matrix", "transition"} & set(settings):
        settings[key] = torch.tensor(settings[key], dtype=torch.float64)[order][:, order]
    return type(objective)(**settings).eval()


def moved_classes(part, order):
    """A slice of the outputs with its classes in another order; several numbers a class stand together."""
    if part.shape[1] == K * K:  # a square matrix of classes
        return part.unflatten(1, (K, K))[:, order][:, :, order].flatten(1)
    if part.shape[1] < 2 * K:
        return part[:, order[order < part.shape[1]]]
    return part.unflatten(1, (K, -1))[:, order].flatten(1)


def test_permuting_the_classes_permutes_the_result(make, name):
    objective, y = make(), labels_for(7)
    if not getattr(objective, "dummy_class", True):
        # Softmax-centred treats its reference class differently: only the others may change places.
        order = torch.tensor([2, 0, 3, 1, 4])
    else:
        order = torch.tensor([2, 0, 4, 1, 3])
    outputs = outputs_for(objective)
    parts = [part if part.shape[1] == 1 else moved_classes(part, order) for part in objective.split(outputs)]
    position = torch.argsort(order)
    other, moved = permuted(objective, order), torch.cat(parts, 1)
    near = SAMPLED.get(name, {})
    torch.testing.assert_close(other(moved, position[y]), objective(outputs, y), **near)
    torch.testing.assert_close(other.probs(moved), objective.probs(outputs)[:, order], **near)
    torch.testing.assert_close(other.costs(moved), objective.costs(outputs)[:, order], **near)


def test_pickle_copy_and_state_round_trips(make):
    objective, y = make(weight=torch.arange(1.0, K + 1)), labels_for(7)
    outputs = outputs_for(objective)
    expected = objective(outputs, y)
    for other in (pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)):
        torch.testing.assert_close(other(outputs, y), expected)
    rebuilt = type(objective)(**objective.settings()).eval()
    rebuilt.load_state_dict(objective.state_dict())
    torch.testing.assert_close(rebuilt(outputs, y), expected)
    read = Objective.from_dict(json.loads(json.dumps(objective.to_dict()))).eval()
    assert read.to_dict() == objective.to_dict()
    torch.testing.assert_close(read(outputs, y), expected)


# aot_eager traces the backward pass too, which takes its time: the quick run is content with one graph.
@pytest.mark.filterwarnings("ignore")  # of torch's own tracing, which differ from version to version
@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
def test_a_training_step_is_one_graph_for_torch_compile(make, backend):
    objective, y = make().train(), labels_for(7)
    outputs = outputs_for(objective)
    torch._dynamo.reset()
    compiled = torch.compile(objective, fullgraph=True, backend=backend)
    soft = torch.softmax(outputs_for(ng.CrossEntropy(K), seed=5), 1)
    for targets in (y,) if backend == "eager" else (y, soft):
        expected = loss_and_gradient(objective, outputs, targets)
        torch.testing.assert_close(loss_and_gradient(compiled, outputs, targets), expected)


#: Objectives at the value of a parameter where they are cross-entropy, and how near they come.
LIMITS = {
    "alpha 0": (lambda: ng.LabelSmoothing(K, alpha=0.0), 1e-12),
    "M = I": (lambda: ng.LabelSmearing(K, torch.eye(K)), 1e-12),
    "T = I, forward": (lambda: ng.ForwardCorrection(K, torch.eye(K)), 1e-12),
    "T = I, backward": (lambda: ng.BackwardCorrection(K, torch.eye(K)), 1e-12),
    "q -> 0": (lambda: ng.GCE(K, q=1e-9), 1e-4),
    "t1 = t2 = 1": (lambda: ng.BiTempered(K, t1=1.0, t2=1.0), 1e-12),
    "t1, t2 -> 1 from below": (lambda: ng.BiTempered(K, t1=1 - 2e-9, t2=1 - 1e-9), 1e-4),
    "t1 -> 1, t2 -> 1 from above": (lambda: ng.BiTempered(K, t1=1 - 1e-9, t2=1 + 1e-9), 1e-4),
    "sigma 0": (lambda: ng.NoiseAgainstNoise(K, sigma=0.0), 1e-12),
    "beta 1, hard": (lambda: ng.Bootstrap(K, beta=1.0), 1e-12),
    "beta 1, soft": (lambda: ng.Bootstrap(K, beta=1.0, kind="soft"), 1e-12),
}


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("scale", [2.0, 1e4])
def test_in_the_limit_it_is_cross_entropy(limit, scale):
    build, tolerance = LIMITS[limit]
    outputs = outputs_for(ng.CrossEntropy(K), batch=20, scale=scale)
    soft = torch.softmax(outputs_for(ng.CrossEntropy(K), batch=20, seed=5), 1)
    for targets in (labels_for(20), soft):
        found = loss_and_gradient(build(), outputs, targets)
        expected = loss_and_gradient(ng.CrossEntropy(K), outputs, targets)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


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


@pytest.mark.parametrize("label", [-1, K, 77])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_labels_outside_the_classes_are_refused(make, label, mode):
    objective, y = getattr(make(), mode)(), labels_for(7)
    y[3] = label
    with pytest.raises(InputError, match=rf"labels must lie in 0\.\.{K - 1}, got {label}"):
        objective(outputs_for(objective), y)
    objective.ignore_index = label
    assert torch.isfinite(objective(outputs_for(objective), y))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: ng.CrossEntropy(v), "n_classes"),
        (lambda v: ng.CrossEntropy(2, weight=v), "weight must hold 2"),
        (lambda v: ng.CrossEntropy(2, weight=[1.0, v]), "weight must hold 2"),
        (lambda v: ng.GCE(3, q=v), "q must"),
        (lambda v: ng.BiTempered(3, t1=v), "t1 must"),
        (lambda v: ng.BiTempered(3, t2=v), "t2 must"),
        (lambda v: ng.NoiseAgainstNoise(3, sigma=v), "sigma must"),
        (lambda v: ng.Bootstrap(3, beta=v), "beta must"),
        (lambda v: ng.LabelSmoothing(3, alpha=v), "alpha must"),
        (lambda v: ng.BackwardCorrection(2, torch.eye(2), ridge=v), "ridge must"),
        (lambda v: ng.LogisticNormal(3, temperature=v), "temperature must"),
        (lambda v: ng.LogisticNormal(3, min_scale=v), "min_scale"),
        (lambda v: ng.LogisticNormal(3, smoothing=v), "smoothing must"),
        (lambda v: ng.Heteroscedastic(3, temperature=v), "temperature must"),
        (lambda v: ng.Heteroscedastic(3, covariance="low-rank", rank=v), "rank"),
        (lambda v: ng.Heteroscedastic(3, n_samples=v), "n_samples must"),
    ],
)
def test_parameters_that_are_no_numbers_are_refused_by_name(make, message):
    for value in ("a", math.nan, math.inf, [1, 2, 3]):
        with pytest.raises(InputError, match=message):
            make(value)


def test_what_is_no_tensor_of_real_numbers_is_refused():
    objective, outputs, labels = ng.CrossEntropy(3), torch.randn(4, 3), torch.zeros(4, dtype=torch.int64)
    for given in ((outputs, labels.numpy()), (outputs.tolist(), labels)):
        with pytest.raises(InputError, match="must be tensors"):
            objective(*given)
    with pytest.raises(InputError, match="real numbers, got torch.complex64"):
        objective(outputs.cfloat(), labels)
