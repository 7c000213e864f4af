"""`Recipe`: all settings of training other than data, network and method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from noisegate.errors import InputError, UnknownNameError

CHOICES = {
    "optimizer": ("sgd", "nesterov", "adam", "adamw", "lars"),
    "schedule": ("constant", "step", "cosine", "poly"),
    "normalize": ("auto", "none"),
    "precision": ("fp32", "tf32", "bf16"),
    "keep": ("last", "best", "ema"),
    "monitor": ("accuracy", "log_likelihood", "mean_iou"),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a network is trained. Python, the command line and stored results share this object.

    Attributes
    ----------
    epochs : int or None, default=100
        Length of training in passes over the data; None if `steps` is given.
    steps : int or None, default=None
        Length of training in updates; None if `epochs` is given.
    batch_size : int, default=128
        All batches are full: each reshuffled epoch has N // batch_size of them, or one batch of N
        rows if N is smaller.
    optimizer : {"sgd", "nesterov", "adam", "adamw", "lars"}, default="adam"
        As in torch.optim; "nesterov" is SGD with Nesterov momentum.
    lr : float, default=1e-3
        Learning rate.
    momentum : float, default=0.9
        Momentum of sgd, nesterov and lars.
    betas : (float, float), default=(0.9, 0.999)
        Decay rates of the moments of adam and adamw.
    eps : float, default=1e-8
        Added to the denominator of adam and adamw.
    weight_decay : float, default=0.0
        Weight decay: decoupled in adamw, an L2 term of the gradient in the others.
    decay_norm_and_bias : bool, default=True
        False exempts biases and the parameters of normalisation layers from weight decay (and, with
        lars, from the layer-wise rates).
    schedule : {"constant", "step", "cosine", "poly"}, default="constant"
        "step" multiplies the rate by `gamma` at each milestone; "cosine" decays to 0; "poly" does
        so as (1 - step / steps)^power.
    milestones : tuple of int, default=()
        Milestones of the schedule "step", in epochs, or in steps if the length is in steps.
    gamma : float, default=0.1
        Factor of the schedule "step".
    power : float, default=0.9
        Exponent of the schedule "poly".
    warmup : float, default=0.0
        Length of a linear warm-up from 0, in epochs, or in steps if the length is in steps.
    clip_norm : float or None, default=None
        Maximum norm of the gradient. None: no clipping.
    crop : int, default=0
        Zero padding of random crops, in pixels. With 0 and `crop_to` None there are no crops.
    crop_to : int or None, default=None
        Side of the crops, if smaller than that of the images; prediction uses the centre. None:
        crops are as large as the images.
    flip : bool, default=False
        Whether images are flipped horizontally at random.
    scales : tuple of float, default=()
        Images with a label for every pixel are scaled by one of these factors, drawn at random each
        time, and then cropped. Empty: no scaling.
    normalize : {"auto", "none"}, default="auto"
        "auto" standardises inputs by the statistics of the training rows: images per channel,
        vectors per feature. "none" only scales pixels to [0, 1].
    ema : float, default=0.0
        Decay of an exponential moving average of the weights; 0: no average.
    keep : {"last", "best", "ema"}, default="last"
        Which weights a phase ends with. "best": those of the epoch with the best `monitor` on the
        noisy validation rows.
    monitor : {"accuracy", "log_likelihood", "mean_iou"}, default="accuracy"
        Metric of early stopping and of "best", computed on observed labels.
    patience : int or None, default=None
        Stop after this many epochs without improvement on the noisy validation rows. None: never.
    precision : {"fp32", "tf32", "bf16"}, default="fp32"
        Number format of convolutions and matrix products; see `noisegate.training.precision`.

    Examples
    --------
    >>> Recipe(epochs=5, lr=0.01).replace(optimizer="nesterov").optimizer
    'nesterov'
    >>> Recipe(optimizer="adan")
    Traceback (most recent call last):
    noisegate.errors.UnknownNameError: unknown optimizer 'adan'; did you mean 'adam' or 'adamw'? (there are: adam, adamw, lars, nesterov, sgd)
    """  # noqa: E501

    epochs: int | None = 100
    steps: int | None = None
    batch_size: int = 128
    optimizer: str = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay_norm_and_bias: bool = True
    schedule: str = "constant"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.1
    power: float = 0.9
    warmup: float = 0.0
    clip_norm: float | None = None
    crop: int = 0
    crop_to: int | None = None
    flip: bool = False
    scales: tuple[float, ...] = ()
    normalize: str = "auto"
    ema: float = 0.0
    keep: str = "last"
    monitor: str = "accuracy"
    patience: int | None = None
    precision: str = "fp32"

    def __post_init__(self) -> None:
        # Convert numpy scalars to Python numbers, so that recipes can be JSON.
        for field in dataclasses.fields(self):
            if isinstance(value := getattr(self, field.name), np.generic):
                object.__setattr__(self, field.name, value.item())
        for name in ("betas", "milestones", "scales"):
            if not isinstance(getattr(self, name), tuple | list):
                raise InputError(f"recipe: {name} must be a list of numbers, got {getattr(self, name)!r}")
            values = (v.item() if isinstance(v, np.generic) else v for v in getattr(self, name))
            object.__setattr__(self, name, tuple(values))
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), known)
        for name, (test, range_) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float | None) or not test(value):
                raise InputError(f"recipe: {name} must be {range_}, got {value!r}")
        for name in ("decay_norm_and_bias", "flip"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"recipe: {name} must be true or false, got {getattr(self, name)!r}")
        if len(self.betas) != 2 or not all(0 <= b < 1 for b in self.betas):
            raise InputError(f"recipe: betas must be two numbers in [0, 1), got {self.betas!r}")
        if not all(_positive(scale) for scale in self.scales):
            raise InputError(f"recipe: scales must be positive numbers, got {self.scales!r}")
        if (self.epochs is None) == (self.steps is None):
            raise InputError("recipe: give the length either in epochs or in steps (with epochs=None)")
        if self.schedule == "step" and not self.milestones:
            raise InputError("recipe: schedule='step' needs milestones")
        if self.optimizer == "nesterov" and not self.momentum:
            raise InputError("recipe: optimizer='nesterov' needs a momentum above 0; without one it is 'sgd'")
        if self.keep == "ema" and not self.ema:
            raise InputError("recipe: keep='ema' needs an ema decay, e.g. ema=0.999")

    def replace(self, **changes: Any) -> Recipe:
        """Copy with some fields changed; giving `steps` alone unsets `epochs`, and vice versa."""
        unknown = set(changes) - {field.name for field in dataclasses.fields(self)}
        if unknown:
            raise UnknownNameError(
                "recipe field", sorted(unknown)[0], [field.name for field in dataclasses.fields(self)]
            )
        if changes.get("steps") is not None:
            changes.setdefault("epochs", None)
        if changes.get("epochs") is not None:
            changes.setdefault("steps", None)
        return dataclasses.replace(self, **changes)

    @property
    def needs_validation(self) -> bool:
        """Whether training uses noisy validation rows, for early stopping or for "best"."""
        return self.patience is not None or self.keep == "best"

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain data.

        Fields that were added in later versions are left out if they have their default, so that
        runs stored before keep their identity.
        """
        values = dataclasses.asdict(self)
        values = {name: v for name, v in values.items() if name not in _LATER or v != _LATER[name]}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """Make a recipe from the result of `to_dict`; missing fields take their defaults."""
        return cls().replace(**values)

    def total_steps(self, steps_per_epoch: int) -> int:
        """Number of updates in a phase."""
        return self.steps if self.steps is not None else int(self.epochs or 0) * steps_per_epoch

    def learning_rates(self, steps_per_epoch: int) -> list[float]:
        """The learning rate of every update."""
        total = self.total_steps(steps_per_epoch)
        unit = 1 if self.steps is not None else steps_per_epoch
        return [self.lr * self._factor(step, total, unit) for step in range(total)]

    def _factor(self, step: int, total: int, unit: int) -> float:
        """Learning rate at a step relative to `lr`; `unit` is 1 or the steps per epoch."""
        warmup = self.warmup * unit
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if self.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1.0, total - warmup)))
        if self.schedule == "poly":
            return (1 - (step - warmup) / max(1.0, total - warmup)) ** self.power
        passed = sum(step >= milestone * unit for milestone in self.milestones)
        return self.gamma**passed if self.schedule == "step" else 1.0


def _positive(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _not_negative(value: float | None) -> bool:
    return value is not None and math.isfinite(value) and value >= 0


def _count(value: float | None) -> bool:
    return isinstance(value, int) and value >= 1


def _optional_count(value: float | None) -> bool:
    return value is None or _count(value)


_RANGES: dict[str, tuple[Callable[[float | None], bool], str]] = {
    "epochs": (_optional_count, "a whole number of at least 1"),
    "steps": (_optional_count, "a whole number of at least 1"),
    "batch_size": (_count, "a whole number of at least 1"),
    "lr": (_positive, "a positive number"),
    "momentum": (lambda v: _not_negative(v) and v < 1, "in [0, 1)"),  # type: ignore[operator]
    "eps": (_positive, "a positive number"),
    "weight_decay": (_not_negative, "at least 0"),
    "gamma": (_positive, "a positive number"),
    "power": (_positive, "a positive number"),
    "warmup": (_not_negative, "at least 0"),
    "clip_norm": (lambda v: v is None or _positive(v), "a positive number or None"),
    "crop": (lambda v: isinstance(v, int) and v >= 0, "a whole number of at least 0"),
    "crop_to": (_optional_count, "a whole number of at least 1, or None"),
    "ema": (lambda v: _not_negative(v) and v < 1, "in [0, 1)"),  # type: ignore[operator]
    "patience": (_optional_count, "a whole number of at least 1, or None"),
}


#: Fields added after the first stored runs, with their defaults: see `to_dict`.
_LATER: dict[str, Any] = {"power": 0.9, "scales": ()}
#: The scales that DeepLab's published code draws from.
SCALES = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
#: Side of the windows that it trains on: whole images of 2048 x 1024 would take 16 times as much memory.
MAP_CROP = 513
#: From this number of classes on the automatic recipe of Adam warms up.
MANY_CLASSES = 200


def auto_recipe(n_rows: int, input_shape: tuple[int, ...], maps: bool = False, n_classes: int = 2) -> Recipe:
    """Choose a recipe that works without tuning, by the size and shape of the data.

    The batch size is the largest of 8, 16, 32, 64 and 128 that is at most a sixteenth of the rows
    (at least 8). There are about 1,000 updates, in 20 (images: 30) to 100 epochs, with a cosine
    schedule. Vectors and grey images are trained by Adam, from 200 classes on after a warm-up of
    one epoch, without which Logistic-Normal kills most units of the last hidden layer. Colour
    images are trained by Nesterov SGD with weight decay, crops, flips and gradient clipping,
    without which Logistic-Normal diverges.
    Label maps use batches of 8, about 1,500 updates, SGD with the schedule "poly", random scales
    and flips; of larger images windows of 513 pixels, as in DeepLab's code.

    Parameters
    ----------
    n_rows : int
        Number of training rows.
    input_shape : tuple of int
        (d,) or (C, H, W).
    maps : bool, default=False
        Whether there is a label for every pixel.
    n_classes : int, default=2

    Examples
    --------
    >>> recipe = auto_recipe(5_000, (192,))
    >>> recipe.epochs, recipe.batch_size, recipe.optimizer
    (26, 128, 'adam')
    """
    if maps:
        epochs = min(100, max(10, math.ceil(1500 / max(1, n_rows // 8))))
        recipe = Recipe(epochs=epochs, batch_size=8, schedule="poly", scales=SCALES, flip=True)
        recipe = recipe.replace(optimizer="sgd", lr=0.05, weight_decay=1e-4, clip_norm=1.0)
        return recipe.replace(crop_to=MAP_CROP) if max(input_shape[1:]) > MAP_CROP else recipe
    # Powers of two, so that two, four or eight processes take equal parts of the same batch.
    batch_size = max(8, 1 << min(7, (n_rows // 16).bit_length() - 1)) if n_rows >= 16 else 8
    steps_per_epoch = max(1, n_rows // batch_size)
    epochs = min(100, max(20 if len(input_shape) == 1 else 30, math.ceil(1000 / steps_per_epoch)))
    recipe = Recipe(epochs=epochs, batch_size=batch_size, lr=3e-3, schedule="cosine")
    if len(input_shape) == 1 or input_shape[0] == 1:
        return recipe.replace(warmup=1.0) if n_classes >= MANY_CLASSES else recipe
    crop = max(1, min(input_shape[1:]) // 8)
    sgd = {"optimizer": "nesterov", "lr": 0.05, "weight_decay": 5e-4, "clip_norm": 1.0}
    return recipe.replace(**sgd, crop=crop, flip=True)
