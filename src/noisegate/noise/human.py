"""Labels by human annotators: noise that is read from a file, not sampled."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from noisegate.errors import DamagedFileError, InputError
from noisegate.noise.base import Labels, Noise, check_labels
from noisegate.noise.labels import label_hash


@dataclass(frozen=True, eq=False)
class Human(Noise):
    """Labels of human annotators, such as CIFAR-10N (Wei et al., 2022), in the order of the training set.

    `corrupt(y)` returns these labels for any seed. It checks that their number is that of `y` and, if
    `clean` was given, that `y` equals the clean labels: otherwise the training set is in another order,
    and labels would belong to other images.

    Parameters
    ----------
    labels : integer array (N,)
    name : str
        Their origin, e.g. "cifar10n-worst".
    clean : integer array (N,), or the `label_hash` of one, optional
        The clean labels in the same order; only their hash is kept.

    >>> noise = Human([0, 1, 1], "two friends", clean=[0, 0, 1])
    >>> noise.corrupt([0, 0, 1])
    array([0, 1, 1])
    >>> noise.corrupt([1, 0, 0])
    Traceback (most recent call last):
    noisegate.errors.InputError: the clean labels differ from those that came with two friends: \
the training set is in another order
    """

    kind: ClassVar[str] = "human"
    labels: npt.ArrayLike
    name: str = "human"
    clean: npt.ArrayLike | str | None = None

    def __post_init__(self) -> None:
        labels, _ = check_labels(self.labels, None, f"labels of {self.name}")
        labels.flags.writeable = False
        object.__setattr__(self, "labels", labels)
        if self.clean is None or isinstance(self.clean, str):
            return
        clean, _ = check_labels(self.clean, None, f"clean labels of {self.name}")
        if len(clean) != len(labels):
            raise InputError(f"{self.name} has {len(labels)} labels but {len(clean)} clean labels")
        object.__setattr__(self, "clean", label_hash(clean))

    def draw(self, y: Labels, x: npt.NDArray[Any] | None, n_classes: int, seed: int) -> Labels:
        given, _ = check_labels(self.labels, n_classes, f"labels of {self.name}")
        if len(given) != len(y):
            raise InputError(
                f"{self.name} has {len(given)} labels but the training set has {len(y)}: "
                "corrupt the whole training set, before any split"
            )
        if self.clean is not None and label_hash(y) != self.clean:
            raise InputError(
                f"the clean labels differ from those that came with {self.name}: "
                "the training set is in another order"
            )
        return given

    def to_dict(self) -> dict[str, Any]:
        """Name, source and labels; the labels are packed (zlib, base64) since there may be many."""
        labels = np.asarray(self.labels, dtype="<i8")
        packed = base64.b64encode(zlib.compress(labels.tobytes(), 9)).decode()
        return {"name": self.kind, "source": self.name, "labels": packed, "clean": self.clean}

    @classmethod
    def _from_settings(cls, settings: Mapping[str, Any]) -> Self:
        settings = dict(settings)
        if "source" in settings:
            settings["name"] = settings.pop("source")
        if isinstance(settings.get("labels"), str):
            settings["labels"] = _unpack(settings["labels"])
        return cls(**settings)

    def __repr__(self) -> str:
        return f"Human({self.name!r}, {np.size(self.labels)} labels)"


def _unpack(packed: str) -> Labels:
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(packed, validate=True)), dtype="<i8").astype(
            np.int64
        )
    except (binascii.Error, zlib.error, ValueError):
        raise DamagedFileError("the packed human labels cannot be read; they are damaged") from None
