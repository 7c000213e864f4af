"""`Objective`, the base class: targets, weights, reductions, the slices of the output vector."""

from __future__ import annotations

import contextlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from noisegate._registry import Registry
from noisegate.errors import InputError, is_real
from noisegate.objectives.upsampled import Size, upsample

REDUCTIONS = ("mean", "sum", "none")
# In a run on several processes: the function that turns the sum of weights of this process's part
# into that of the whole batch (an all-reduce). None otherwise.
_add_up: Callable[[Tensor], Tensor] | None = None


@contextlib.contextmanager
def added_up(function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Inside, `weighted_mean` divides by `function(sum of the weights)`.

    See `noisegate.training.distributed`.
    """
    global _add_up
    before, _add_up = _add_up, function
    try:
        yield
    finally:
        _add_up = before


def total_weight(weights: Tensor) -> Tensor:
    """The sum of the weights; in a run on several processes that of the whole batch.

    >>> import torch
    >>> total_weight(torch.tensor([1.0, 0.0, 0.5]))
    tensor(1.5000)
    """
    return weights.sum() if _add_up is None else _add_up(weights.sum())


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """sum(weights * losses) / sum(weights), or 0 if all weights are 0.

    All objectives and methods share this reduction. A row of weight 0 contributes nothing,
    even if its loss is infinite or NaN. In a run on several processes the divisor is the sum of
    weights of the whole batch, so that the results of all processes add up to the mean.

    >>> weighted_mean(torch.tensor([1.0, 3.0, float("inf")]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(2.)
    """
    total = total_weight(weights)
    kept = torch.where(weights != 0, losses * weights, losses.new_zeros(()))
    return kept.sum() / torch.where(total != 0, total, torch.ones_like(total))


class Objective(nn.Module, ABC):
    """Interprets the outputs of a network: how many there are, the loss of a label, probabilities.

    A subclass sets `slices` (the widths of the parts of the output vector), and defines `costs` and
    `log_probs`. It must store every constructor parameter as an attribute of the same name.

    Parameters
    ----------
    n_classes : int
        Number of classes K, at least 2.
    weight : tensor (K,), default=None
        Weight of each label; the reduction "mean" divides by the sum of the weights. None: all
        weights are 1.
    ignore_index : int, default=-100
        Integer targets of this value contribute nothing; if all targets have it, the loss is 0.
    reduction : {"mean", "sum", "none"}, default="mean"
        How the losses of the labels are combined.

    Notes
    -----
    Outputs are `(B, n_outputs)` or dense maps `(B, n_outputs, ...)`; the class dimension is 1, as
    in torch. Half-precision outputs are computed in float32, also under autocast.

    Examples
    --------
    >>> import torch
    >>> import noisegate as ng
    >>> objective = ng.GCE(n_classes=3, q=0.7)
    >>> isinstance(objective, ng.objectives.Objective), objective.n_outputs
    (True, 3)
    >>> outputs = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> losses = objective(outputs, torch.tensor([0, 0]), reduction="none")
    >>> [round(loss, 2) for loss in losses.tolist()]
    [0.22, 0.95]
    >>> objective.costs(outputs).shape, objective.probs(outputs).argmax(1).tolist()
    (torch.Size([2, 3]), [0, 1])
    """

    slices: tuple[int, ...]
    summary: ClassVar[str] = ""
    #: Every objective class by name, including a user's own; stored models refer to these names.
    classes: ClassVar[Registry[type[Objective]]] = Registry("objective")
    #: Whether the first K outputs rank the classes as their probabilities do.
    ranks_by_outputs: ClassVar[bool] = False
    weight: Tensor | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Objective.classes.add(cls.__name__, cls, cls.__module__)

    def __init__(
        self,
        n_classes: int,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if not is_real(n_classes) or int(n_classes) != n_classes or n_classes < 2:
            raise InputError(f"n_classes must be a whole number of at least 2, got {n_classes!r}")
        if reduction not in REDUCTIONS:
            raise InputError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        if weight is not None:
            weight = _class_weights(weight, n_classes)
        self.n_classes = int(n_classes)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.register_buffer("weight", weight)
        self.slices = (self.n_classes,)

    @property
    def n_outputs(self) -> int:
        """Number of outputs that the network must have."""
        return sum(self.slices)

    def label_signals(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """What the outputs say about given labels beside probabilities, by name: default nothing.

        Tensors `(B, ...)`, high where a label is likely wrong.
        """
        return {}

    # A subclass defines these.

    @abstractmethod
    def costs(self, outputs: Tensor) -> Tensor:
        """The cost of every label: `(B, n_outputs, ...)` -> `(B, K, ...)`."""

    @abstractmethod
    def log_probs(self, outputs: Tensor) -> Tensor:
        """Log-probabilities of the clean class: `(B, n_outputs, ...)` -> `(B, K, ...)`."""

    def label_costs(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The cost of the given integer labels, `(B, ...)`.

        A subclass may override this with a cheaper computation than gathering from all costs.
        """
        return self.costs(outputs).gather(1, targets.unsqueeze(1)).squeeze(1)

    # The rest follows from them.

    def probs(self, outputs: Tensor, size: Size | None = None) -> Tensor:
        """Probabilities of the clean class, `(B, K, ...)`; they sum to one over dimension 1.

        With `size=(H, W)` maps are resized to that size first: see `resized`. Default: no resizing.
        """
        return self.log_probs(self.at_size(outputs, size)).exp()

    def most_probable(self, outputs: Tensor) -> Tensor:
        """The most probable clean class of each row, `(B, ...)`; cheap enough for every training step.

        An objective that samples overrides this, so that nothing is drawn.
        """
        if not self.ranks_by_outputs:
            return self.log_probs(outputs).argmax(1)
        return (outputs if outputs.shape[1] == self.n_classes else outputs[:, : self.n_classes]).argmax(1)

    def probs_and_variance(self, outputs: Tensor, size: Size | None = None) -> tuple[Tensor, Tensor]:
        """`probs`, and how uncertain each of them is, both `(B, K, ...)`.

        Default: the variance of a label drawn from them, p (1 - p). `Heteroscedastic` returns the
        variance of the predictive distribution over its samples.

        >>> import noisegate as ng
        >>> ng.CrossEntropy(2).probs_and_variance(torch.zeros(1, 2))[1]
        tensor([[0.2500, 0.2500]])
        """
        probs = self.probs(outputs, size)
        return probs, probs * (1 - probs)

    def resized(self, outputs: Tensor, size: Size) -> Any:
        """Upsample maps of outputs bilinearly to the size of larger label maps.

        `costs`, `label_costs` and `log_probs` accept the result. `Heteroscedastic` overrides this
        to upsample its sampled logits instead; an objective that wraps another delegates to that.
        """
        return upsample(outputs, size)

    def at_size(self, outputs: Tensor, size: Sequence[int] | None) -> Any:
        """Outputs for labels of size `(H, W)`: unchanged if they have that size, else `resized`.

        >>> import noisegate as ng
        >>> ng.CrossEntropy(3).at_size(torch.zeros(1, 3, 2, 2), (8, 8)).shape
        torch.Size([1, 3, 8, 8])
        """
        if size is None or tuple(size) == tuple(outputs.shape[2:]):
            return outputs
        outputs = self.check_outputs(outputs)
        with torch.autocast(outputs.device.type, enabled=False):
            return self.resized(outputs, self.check_size(outputs, size))

    def observed_log_probs(self, outputs: Tensor) -> Tensor:
        """Log-probabilities of the observed (noisy) label, `(B, K, ...)`.

        Default: those of the clean class.
        """
        return self.log_probs(outputs)

    @property
    def tells_labels_from_classes(self) -> bool:
        """Whether observed labels have other probabilities than clean classes."""
        return type(self).observed_log_probs is not Objective.observed_log_probs

    def forward(self, outputs: Tensor, targets: Tensor, reduction: str | None = None) -> Tensor:
        """Compute the loss.

        Parameters
        ----------
        outputs : tensor (B, n_outputs, ...)
        targets : int64 tensor (B, ...) of labels, or float tensor (B, K, ...) of label probabilities
            With probabilities the loss is the expected cost. If outputs are maps
            `(B, n_outputs, h, w)`, targets may be larger, `(B, H, W)`: see `resized`.
        reduction : {"mean", "sum", "none"}, default=None
            None: the constructor's. "none" returns one number per label, `(B, ...)`.
        """
        reduction = self.reduction if reduction is None else reduction
        if reduction not in REDUCTIONS:
            raise InputError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
        losses, weights = self.losses_and_weights(outputs, targets)
        if reduction == "mean":
            return weighted_mean(losses, weights)
        losses = torch.where(weights != 0, losses * weights, losses.new_zeros(()))
        return losses.sum() if reduction == "sum" else losses

    def losses_and_weights(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The cost of each label and its weight, both `(B, ...)`; ignored labels have weight 0.

        With the reduction "mean" the loss is their `weighted_mean`. A method that weights or
        selects rows multiplies these weights by its own.
        """
        if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
            given = type(targets if isinstance(outputs, Tensor) else outputs).__name__
            raise InputError(f"outputs and targets must be tensors, got {given}")
        outputs = self.check_outputs(outputs)
        with torch.autocast(outputs.device.type, enabled=False):
            return (self._soft if targets.is_floating_point() else self._hard)(outputs, targets)

    def _hard(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        labels, valid = self._labels(outputs, targets)
        weights = valid.to(outputs.dtype)
        if self.weight is not None:
            weights = weights * self.weight.to(outputs.dtype)[labels]
        return self.label_costs(self.at_size(outputs, targets.shape[1:]), labels), weights

    def _labels(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Check labels; return them with ignored ones replaced by 0, and a mask of the others."""
        if not self._fits(outputs, targets.shape):
            raise InputError(
                f"targets of shape {tuple(targets.shape)} do not fit outputs of shape {tuple(outputs.shape)}"
            )
        # torch treats uint8 as a mask when indexing, and refuses other small integers as an index.
        targets = targets.long()
        valid = targets != self.ignore_index
        labels = torch.where(valid, targets, torch.zeros_like(targets))
        self._check_labels(labels)
        return labels, valid

    def _check_labels(self, labels: Tensor) -> None:
        """Raise InputError for labels outside 0..K-1, on a CPU.

        On a GPU there is no check, because the host would have to wait for the values.
        """
        if labels.device.type != "cpu" or torch.compiler.is_compiling() or not labels.numel():
            return
        try:
            values = labels.numpy()
        except (RuntimeError, TypeError):  # under vmap and other transforms there are no values
            return
        low, high = int(values.min()), int(values.max())
        if low < 0 or high >= self.n_classes:
            raise InputError(
                f"labels must lie in 0..{self.n_classes - 1}, got {low if low < 0 else high}; "
                f"ignore_index={self.ignore_index} marks those that do not count"
            )

    def _soft(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        fits = self._fits(outputs, targets.shape[:1] + targets.shape[2:])
        costs = self.costs(self.at_size(outputs, targets.shape[2:]) if fits else outputs)
        if targets.shape != costs.shape:
            raise InputError(
                f"target probabilities of shape {tuple(targets.shape)} do not fit {tuple(costs.shape)}"
            )
        shares = targets.to(costs.dtype)
        if self.weight is not None:
            shares = shares * self.weight.to(costs.dtype).view(-1, *[1] * (costs.dim() - 2))
        # `weighted_mean` multiplies by the weights later, so here the shares must sum to one.
        weights = shares.sum(1)
        total = torch.where(weights != 0, weights, torch.ones_like(weights))
        return torch.where(shares != 0, shares * costs, costs.new_zeros(())).sum(1) / total, weights

    def _fits(self, outputs: Tensor, shape: torch.Size) -> bool:
        """Whether labels of this shape fit the outputs: the same shape, or larger maps."""
        if shape == outputs.shape[:1] + outputs.shape[2:]:
            return True
        maps = outputs.dim() == 4 and len(shape) == 3 and shape[0] == outputs.shape[0]
        return maps and all(large >= small for large, small in zip(shape[1:], outputs.shape[2:], strict=True))

    def check_size(self, outputs: Tensor, size: Sequence[int]) -> Size:
        """Return `size` as (H, W); raise InputError if it is smaller than the maps."""
        if len(size) != 2 or not self._fits(outputs, torch.Size((len(outputs), *size))):
            raise InputError(
                f"size must be (H, W), at least that of the outputs {tuple(outputs.shape)}, got {tuple(size)}"
            )
        return int(size[0]), int(size[1])

    def check_outputs(self, outputs: Tensor) -> Tensor:
        """Check the shape of outputs, and return them in float32 or float64."""
        if outputs.dim() < 2 or outputs.shape[1] != self.n_outputs:
            raise InputError(
                f"{type(self).__name__} for {self.n_classes} classes needs outputs of shape "
                f"(B, {self.n_outputs}, ...), got {tuple(outputs.shape)}"
            )
        if outputs.is_complex():
            raise InputError(f"outputs must be real numbers, got {outputs.dtype}")
        return outputs if outputs.dtype in (torch.float32, torch.float64) else outputs.float()

    def split(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """The parts of the output vector, each `(B, width, ...)`, in the order of `slices`."""
        return self.check_outputs(outputs).split(self.slices, dim=1)

    @torch.no_grad()
    def init_head_(self, layer: nn.Module) -> None:
        """Initialise the last layer of a network in place, one slice after the other.

        An objective with a single slice leaves the layer as it is. Otherwise each slice is
        initialised as a layer of its own (Glorot uniform, zero bias), so that no slice starts at
        zero.
        """
        head_weight, bias = getattr(layer, "weight", None), getattr(layer, "bias", None)
        if not isinstance(head_weight, Tensor) or head_weight.shape[0] != self.n_outputs:
            raise InputError(f"expected a layer of {self.n_outputs} outputs, got {layer}")
        if len(self.slices) == 1:
            return
        for rows in head_weight.split(self.slices):
            fan_in = rows[0].numel()
            bound = math.sqrt(6.0 / (fan_in + rows.shape[0]))
            rows.uniform_(-bound, bound)
        if isinstance(bias, Tensor):
            bias.zero_()

    def settings(self) -> dict[str, Any]:
        """Constructor arguments as plain data: `type(self)(**settings)` is an equal objective."""
        names = ("n_classes", *objective_parameters(type(self)), *_SHARED)
        return {name: _as_json(getattr(self, name)) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Class and settings as plain data; `Objective.from_dict` is the inverse."""
        return {"name": type(self).__name__, "settings": self.settings()}

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> Objective:
        """Make an objective from the result of `to_dict`.

        A class of your own must have been imported before.
        """
        return Objective.classes[stored["name"]](**stored["settings"])

    def extra_repr(self) -> str:
        return ", ".join(f"{k}={v!r}" for k, v in self.settings().items() if k not in _SHARED)


_SHARED = ("weight", "ignore_index", "reduction")


def _class_weights(weight: Any, n_classes: int) -> Tensor:
    try:
        found = torch.as_tensor(weight, dtype=torch.get_default_dtype()).clone()
    except (TypeError, ValueError, RuntimeError):
        found = torch.zeros(0)
    if found.shape != (n_classes,) or not bool((found.isfinite() & (found >= 0)).all()):
        raise InputError(f"weight must hold {n_classes} finite numbers that are not negative, got {weight!r}")
    return found


def _as_json(value: Any) -> Any:
    """Convert tensors to lists and nested objectives to dicts, so that settings can be JSON."""
    if isinstance(value, Tensor):
        return value.tolist()
    return value.to_dict() if isinstance(value, Objective) else value


def objective_parameters(kind: type[Objective]) -> dict[str, Any]:
    """An objective's own parameters with their defaults; the settings of the method of that name.

    A parameter without a default, e.g. a transition matrix, has the value
    `inspect.Parameter.empty`.

    >>> import noisegate as ng
    >>> objective_parameters(ng.GCE)
    {'q': 0.7}
    """
    return {
        name: parameter.default
        for name, parameter in inspect.signature(kind).parameters.items()
        if name not in ("n_classes", *_SHARED) and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
