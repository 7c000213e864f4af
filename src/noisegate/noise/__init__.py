"""Label noise: corrupt labels, describe the corruption, and estimate it from observed labels."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from noisegate.errors import InputError
from noisegate.noise.base import Noise, stream
from noisegate.noise.human import Human
from noisegate.noise.instance_dependent import InstanceDependent
from noisegate.noise.labels import LabelFile, NoiseReport, describe, label_hash, load_labels, save_labels
from noisegate.noise.maps import MapBoundaries, MapNoise, MapPatches, MapSegments
from noisegate.noise.synthetic import Asymmetric, ClassDependent, Symmetric, Transition
from noisegate.noise.transition import confident_joint, estimate_noise_rate, estimate_transition

__all__ = [
    "NOISES",
    "Asymmetric",
    "ClassDependent",
    "Human",
    "InstanceDependent",
    "LabelFile",
    "MapBoundaries",
    "MapNoise",
    "MapPatches",
    "MapSegments",
    "Noise",
    "NoiseReport",
    "Symmetric",
    "Transition",
    "build",
    "confident_joint",
    "describe",
    "estimate_noise_rate",
    "estimate_transition",
    "label_hash",
    "load_labels",
    "save_labels",
    "stream",
]

#: Every kind of noise by its name, including a user's own; `noisegate list noises` shows them.
NOISES = Noise.classes


def build(noise: str | Mapping[str, Any] | Noise, /, **settings: Any) -> Noise:
    """Make a noise from its name and settings, or from the dict of its `to_dict`.

    >>> build("symmetric", rate=0.4)
    Symmetric(rate=0.4, include_self=True)
    >>> build({"name": "symmetric", "rate": 0.4}, include_self=False)
    Symmetric(rate=0.4, include_self=False)
    """
    if isinstance(noise, Noise):
        if settings:
            raise InputError(f"{noise} is already made; settings go with a name: {', '.join(settings)}")
        return noise
    if isinstance(noise, Mapping):
        if "name" not in noise:
            raise InputError(
                f"a noise is described by a dict with its 'name', got keys {sorted(map(str, noise))}"
            )
        settings = {**{key: value for key, value in noise.items() if key != "name"}, **settings}
        noise = noise["name"]
    name = str(noise)
    kind = NOISES[name]
    try:
        return kind._from_settings(settings)
    except TypeError as error:
        expected = ", ".join(map(str, inspect.signature(kind).parameters.values()))
        raise InputError(f"{name} noise takes ({expected}), got {sorted(settings)} ({error})") from None
