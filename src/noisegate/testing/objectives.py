"""What the rest of the library takes for granted of an objective, one function a promise."""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from noisegate._registry import Registry
from noisegate.errors import InputError
from noisegate.objectives import Objective, objective_parameters
from noisegate.testing.guard import operations

#: Makes an objective in evaluation mode, where nothing is drawn; keywords are `weight` and
#: `reduction`.
Make = Callable[..., Objective]
Check = Callable[[Make], None]

#: The promises by name.
OBJECTIVE_CHECKS: Registry[Check] = Registry("check of objectives")

_B = 7  # rows of a batch


def check_objective(
    objective: type[Objective], n_classes: int = 5, *, detached: bool = False, **params: Any
) -> None:
    """Check that an objective keeps the promises that the rest of noisegate relies on.

    Among them: probabilities sum to one, soft targets take the expectation of the costs, ignored
    labels contribute nothing, gradients agree with finite differences and stay finite at extreme
    outputs, dense maps are their pixels, settings survive JSON, and a training step can be captured
    in a CUDA graph.

    Parameters
    ----------
    objective : type of Objective
    n_classes : int, default=5
        At least 3.
    detached : bool, default=False
        Whether the loss holds a part of its own outputs fixed, which finite differences cannot see:
        its gradient is then not compared with theirs.
    **params
        Parameters of the objective; those without a default are needed.

    Raises
    ------
    AssertionError
        Names the class and the first promise that it breaks.

    >>> import noisegate as ng
    >>> check_objective(ng.GCE, q=0.5)
    >>> class Halved(ng.CrossEntropy):
    ...     def log_probs(self, outputs):
    ...         return super().log_probs(outputs) / 2
    >>> check_objective(Halved)
    Traceback (most recent call last):
    AssertionError: Halved: probabilities: ...
    >>> del ng.objectives.OBJECTIVES["Halved"]
    """
    needed = [
        name for name, value in objective_parameters(objective).items() if value is inspect.Parameter.empty
    ]
    lacking = [name for name in needed if name not in params]
    if lacking:
        raise InputError(
            f"{objective.__name__} needs its {', '.join(lacking)}: check_objective(cls, {lacking[0]}=...)"
        )

    def make(**shared: Any) -> Objective:
        return objective(n_classes, **params, **shared).eval()

    with torch.random.fork_rng(devices=[]):
        for name, check in OBJECTIVE_CHECKS.items():
            if detached and name == "gradients":
                continue
            torch.manual_seed(0)
            try:
                check(make)
            except Exception as error:
                raise AssertionError(f"{objective.__name__}: {name}: {error}") from error


def _promise(name: str) -> Callable[[Check], Check]:
    """Add a check under the name that its failure is told by."""
    return lambda check: OBJECTIVE_CHECKS.add(name, check, __name__)


def outputs_for(
    objective: Objective,
    *extra: int,
    batch: int = _B,
    dtype: torch.dtype = torch.float64,
    scale: float = 2.0,
    seed: int = 0,
) -> Tensor:
    """Random outputs (batch, n_outputs, *extra); the same seed gives the same."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(batch, objective.n_outputs, *extra, dtype=dtype, generator=generator)


def labels_for(objective: Objective, *shape: int, seed: int = 1) -> Tensor:
    """Random labels; (7,) of them where no shape is given."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, objective.n_classes, shape or (_B,), generator=generator)


def soft_targets_for(objective: Objective, *extra: int, batch: int = _B, seed: int = 5) -> Tensor:
    """Random label probabilities (batch, K, *extra)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, objective.n_classes, *extra)
    return torch.softmax(2 * torch.randn(shape, dtype=torch.float64, generator=generator), 1)


def one_hot(objective: Objective, labels: Tensor) -> Tensor:
    """Labels as probabilities, (B, K, ...)."""
    return torch.eye(objective.n_classes, dtype=torch.float64)[labels].movedim(-1, 1)


def loss_and_gradient(objective: nn.Module, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The loss with the same draws at every call, and its gradient."""
    torch.manual_seed(0)
    leaf = outputs.clone().requires_grad_()
    loss = objective(leaf, targets)
    return loss.detach(), torch.autograd.grad(loss, leaf)[0]


def seeded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function with the same draws at every call."""

    def call(*args: Any) -> Tensor:
        torch.manual_seed(0)
        return function(*args)

    return call


@_promise("probabilities")
def _probabilities(make: Make) -> None:
    """They sum to one and are the exponentials of the log-probabilities.

    So are those of the given label.
    """
    objective = make()
    outputs = outputs_for(objective)
    ones = torch.ones(len(outputs), dtype=torch.float64)
    probs = objective.probs(outputs)
    assert probs.shape == (len(outputs), objective.n_classes), f"shape {tuple(probs.shape)}"
    torch.testing.assert_close(probs.sum(1), ones)
    torch.testing.assert_close(probs, objective.log_probs(outputs).exp())
    torch.testing.assert_close(objective.observed_log_probs(outputs).exp().sum(1), ones)


@_promise("the cost of a label")
def _label_costs(make: Make) -> None:
    """It is that label's entry among the costs of all."""
    objective = make()
    outputs, y = outputs_for(objective), labels_for(objective)
    expected = objective.costs(outputs)[torch.arange(len(y)), y]
    torch.testing.assert_close(objective(outputs, y, reduction="none"), expected, rtol=1e-10, atol=1e-10)


@_promise("soft targets")
def _soft_targets(make: Make) -> None:
    """They take the expectation of the costs, and agree with labels where they are certain."""
    objective = make()
    outputs, y, soft = outputs_for(objective), labels_for(objective), soft_targets_for(objective)
    hard = objective(outputs, y)
    torch.testing.assert_close(objective(outputs, one_hot(objective, y)), hard, rtol=1e-10, atol=1e-10)
    expected = (soft * objective.costs(outputs)).sum(1)
    torch.testing.assert_close(objective(outputs, soft, reduction="none"), expected)


@_promise("reductions")
def _reductions(make: Make) -> None:
    """Sum and mean are those of the costs of each label."""
    outputs, y = outputs_for(make()), labels_for(make())
    each = make(reduction="none")(outputs, y)
    assert each.shape == y.shape, f"shape {tuple(each.shape)}"
    torch.testing.assert_close(make(reduction="sum")(outputs, y), each.sum())
    torch.testing.assert_close(make()(outputs, y), each.mean())


@_promise("ignored labels")
def _ignored_labels(make: Make) -> None:
    """They contribute neither loss nor gradient; if all are ignored the loss is 0."""
    objective = make()
    y, outputs = labels_for(objective), outputs_for(objective).requires_grad_()
    some = y.clone()
    some[2:4] = objective.ignore_index
    kept = torch.tensor([0, 1, 4, 5, 6])
    torch.testing.assert_close(objective(outputs, some), objective(outputs[kept], y[kept]))
    (gradient,) = torch.autograd.grad(objective(outputs, some), outputs)
    assert not gradient[2:4].any(), "an ignored label has a gradient"
    nothing = objective(outputs, torch.full_like(y, objective.ignore_index))
    assert nothing.item() == 0.0, f"a batch of ignored labels costs {nothing.item()}"
    assert torch.isfinite(torch.autograd.grad(nothing, outputs)[0]).all(), "their gradient is not finite"


@_promise("label weights")
def _label_weights(make: Make) -> None:
    """The mean divides by their sum, for labels and for soft targets alike."""
    objective = make()
    weight = torch.arange(objective.n_classes) / 2.0
    y, outputs = labels_for(objective), outputs_for(objective)
    each = objective(outputs, y, reduction="none")
    expected = (weight.double()[y] * each).sum() / weight.double()[y].sum()
    torch.testing.assert_close(make(weight=weight)(outputs, y), expected)
    torch.testing.assert_close(make(weight=weight)(outputs, one_hot(objective, y)), expected)


@_promise("gradients")
def _gradients(make: Make) -> None:
    """They agree with finite differences in float64."""
    objective = make().train()
    y, soft = labels_for(objective), soft_targets_for(objective)
    outputs = outputs_for(objective).requires_grad_()
    for target in (y, soft):
        assert torch.autograd.gradcheck(seeded(lambda o, t=target: objective(o, t)), outputs)


@_promise("gradients of log-probabilities")
def _gradients_of_log_probs(make: Make) -> None:
    """They agree with finite differences in float64."""
    objective = make().train()
    outputs = outputs_for(objective).requires_grad_()
    assert torch.autograd.gradcheck(seeded(objective.log_probs), outputs)


@_promise("extreme outputs")
def _extreme_outputs(make: Make) -> None:
    """Loss, gradient and costs stay finite."""
    objective = make().train()
    y = labels_for(objective, 40)
    signs = torch.randint(0, 2, (40, objective.n_outputs), generator=torch.Generator().manual_seed(0))
    for size in (1e4, 80.0, 1e-30):
        outputs = (size * (2.0 * signs - 1)).requires_grad_()
        loss = objective(outputs, y)
        (gradient,) = torch.autograd.grad(loss, outputs)
        assert torch.isfinite(loss), f"the loss at outputs of ±{size:g} is {loss.item()}"
        assert torch.isfinite(gradient).all(), f"the gradient at outputs of ±{size:g} is not finite"
        assert torch.isfinite(objective.costs(outputs)).all(), f"costs at outputs of ±{size:g} are not finite"


@_promise("probabilities that underflow")
def _underflow(make: Make) -> None:
    """exp(-300) is 0 in float32 and an ordinary number in float64: the loss is the same in both."""
    objective = make()
    y = torch.arange(objective.n_classes)
    outputs = torch.zeros(len(y), objective.n_outputs)
    outputs[:, 1] = 300.0
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = outputs.to(dtype).requires_grad_()
        loss = objective(leaf, y)
        found.append((loss, *torch.autograd.grad(loss, leaf), objective.costs(leaf)))
    for single, double in zip(*found, strict=True):
        assert torch.isfinite(single).all(), "a result in float32 is not finite"
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-6)


@_promise("dense maps")
def _dense_maps(make: Make) -> None:
    """They are their pixels."""
    objective = make()
    y = labels_for(objective, 2, 3, 4)
    y[0, 0, 0] = objective.ignore_index
    outputs = outputs_for(objective, 3, 4, batch=2)
    flat, k = outputs.movedim(1, -1).reshape(-1, objective.n_outputs), objective.n_classes
    torch.testing.assert_close(objective(outputs, y), objective(flat, y.reshape(-1)))
    for function in (objective.probs, objective.costs):
        pixels = function(outputs).movedim(1, -1).reshape(-1, k)
        torch.testing.assert_close(pixels, function(flat))


@_promise("half precision")
def _half_precision(make: Make) -> None:
    """Outputs in bfloat16 are computed in float32, also under autocast."""
    objective = make()
    y, outputs = labels_for(objective), outputs_for(objective, dtype=torch.float32).bfloat16()
    expected = objective(outputs.float(), y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, costs = objective(outputs, y), objective.costs(outputs)
    assert loss.dtype == costs.dtype == torch.float32, f"computed in {loss.dtype} and {costs.dtype}"
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(costs, objective.costs(outputs.float()))


@_promise("copies and settings")
def _round_trips(make: Make) -> None:
    """A copy, and what is built from the settings after JSON, are the same objective."""
    objective = make(weight=torch.arange(1.0, make().n_classes + 1))
    y, outputs = labels_for(objective), outputs_for(objective)
    expected = objective(outputs, y)
    torch.testing.assert_close(copy.deepcopy(objective)(outputs, y), expected)
    read = type(objective)(**json.loads(json.dumps(objective.settings()))).eval()
    assert read.settings() == objective.settings(), "settings change when they are stored and read"
    torch.testing.assert_close(read(outputs, y), expected)
    read.load_state_dict(objective.state_dict())
    torch.testing.assert_close(read(outputs, y), expected)


@_promise("bad input")
def _bad_input(make: Make) -> None:
    """Labels outside the classes and shapes that do not fit are refused with InputError."""
    objective = make()
    outputs, y = outputs_for(objective), labels_for(objective)
    for label in (-1, objective.n_classes):
        wrong = y.clone()
        wrong[3] = label
        _refuses(f"the label {label}", functools.partial(objective, outputs, wrong))
    _refuses("outputs that are too narrow", lambda: objective(outputs[:, 1:], y))
    _refuses("too few labels", lambda: objective(outputs, y[1:]))
    _refuses("an unknown reduction", lambda: objective(outputs, y, reduction="median"))


def _refuses(what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except InputError:
        return
    raise AssertionError(f"{what} is not refused with InputError")


@_promise("small integers and empty batches")
def _labels_of_any_size(make: Make) -> None:
    """Labels may be integers of any width, and there may be none."""
    objective = make()
    outputs, y = outputs_for(objective), labels_for(objective)
    for dtype in (torch.uint8, torch.int16, torch.int32):
        torch.testing.assert_close(objective(outputs, y.to(dtype)), objective(outputs, y))
    assert objective(outputs[:0], y[:0]).item() == 0, "an empty batch costs something"
    assert objective.probs(outputs[:0]).shape == (0, objective.n_classes)


@_promise("the last layer")
def _head(make: Make) -> None:
    """A plain layer of `n_outputs` can be initialised, and no part of it starts at zero."""
    objective = make()
    for layer in (nn.Linear(9, objective.n_outputs), nn.Conv2d(9, objective.n_outputs, 1)):
        if len(objective.slices) == 1:
            objective.init_head_(layer)
            continue
        nn.init.zeros_(layer.weight)
        objective.init_head_(layer)
        parts = layer.weight.split(objective.slices)
        assert all(bool(part.abs().sum() > 0) for part in parts), "a slice of the last layer starts at zero"


@_promise("capture")
def _capture(make: Make) -> None:
    """A training step holds no operation that a CUDA graph cannot, and is the same for all values."""
    objective = make(weight=torch.ones(make().n_classes)).train()
    traces = []
    for seed in (0, 1):
        outputs = outputs_for(objective, 2, 2, scale=50.0**seed, seed=seed)
        y = labels_for(objective, _B, 2, 2, seed=seed)
        y[: 3 * seed] = objective.ignore_index
        soft = soft_targets_for(objective, 2, 2, seed=seed)

        def step(outputs: Tensor = outputs, y: Tensor = y, soft: Tensor = soft) -> None:
            loss_and_gradient(objective, outputs, y)
            loss_and_gradient(objective, outputs, soft)

        traces.append(operations(step))
    assert traces[0] == traces[1], "the operations of a step depend on values"
