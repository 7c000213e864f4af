"""All settings of one run, and their hash, the key of the run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

#: Part of every run key. Increase it when the meaning of stored results changes.
FORMAT = 1

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """All settings of one run. Runs with equal settings are the same run.

    Attributes
    ----------
    data : mapping
        `name`, and options of its loader.
    method : str
        Name of a method.
    params : mapping
        Parameters of the method. `noise_rate="known"` stands for the realised rate of the training
        labels, for papers whose protocol gives it to the method.
    noise : mapping or None
        `name`, and parameters of the noise. None: keep the labels.
    network : str
    weights : str or None
        A file of pretrained weights below the data root; the last layer is freshly initialised.
    recipe : mapping
        Fields of a Recipe; other fields have their defaults.
    validation : float, int, "own" or None
        Share or number of training rows to hold out, with labels as noisy as for training. "own": the data's
        own validation rows, whose labels may be clean.
    noisy_test : bool
        Whether to corrupt the test labels too, for metrics on noisy labels. The clean ones are kept as well.
    rows : int or None
        Number of training rows to use, sampled with the seed. None: all.
    balanced : bool
        Whether to train on the same number of rows of every given label (that of the rarest), sampled with
        the seed.
    evidence : tuple of str
        Parts whose clean labels are evaluated after each epoch: "test", "train", "validation".
    evaluate_every : int
        Epochs between two such evaluations, as in `noisegate.train`.
    probes : tuple of mapping
        Measurements of the trained network beyond its metrics: `name`, and options of the probe.
    detector : str or None
        For studies of finding wrong labels: one of `noisegate.auditing.detectors.DETECTORS`, around the
        method. Then `recipe` has the fields that differ from the automatic recipe of the data.
    seed : int
        Random seed of label noise, validation rows, initial weights and batches.

    Examples
    --------
    >>> run = RunSettings(data={"name": "digits"}, method="ce", network="mlp", recipe={"epochs": 2})
    >>> run.key == run.replace(recipe={"epochs": 2, "batch_size": 128}).key
    True
    >>> run.key == run.replace(seed=1).key
    False
    """

    data: Settings
    method: str
    network: str
    recipe: Settings
    params: Settings = field(default_factory=dict)
    noise: Settings | None = None
    weights: str | None = None
    validation: float | int | str | None = 0.1
    noisy_test: bool = False
    rows: int | None = None
    balanced: bool = False
    evidence: tuple[str, ...] = ("test",)
    evaluate_every: int = 1
    probes: tuple[Settings, ...] = ()
    detector: str | None = None
    seed: int = 0

    def replace(self, **changes: Any) -> RunSettings:
        """Return a copy with some fields changed."""
        changed = dataclasses.replace(self, **changes)
        if set(changes) == {"seed"}:
            # Cache: a study computes the keys of thousands of runs that differ only in the seed.
            changed.__dict__["_without_seed"] = self._without_seed
        return changed

    def full(self) -> dict[str, Any]:
        """All settings as plain data, defaults of recipe and method written out."""
        from noisegate import methods
        from noisegate.training.recipe import Recipe

        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if self.detector is None:
            # Left out without a detector, so that the keys of runs stored before detectors existed do not change.
            del values["detector"]
        recipe = Recipe.from_dict(self.recipe).to_dict()
        values["recipe"] = recipe if self.detector is None else {k: recipe[k] for k in self.recipe}
        values["method"] = {"name": self.method} | methods.get(self.method, **self.params).settings()
        return json.loads(json.dumps({"format": FORMAT} | values))

    @cached_property
    def key(self) -> str:
        """A hash of the full settings: the name of the run's folder."""
        return hashlib.sha256(f"{self._without_seed} seed {self.seed}".encode()).hexdigest()[:20]

    @cached_property
    def _without_seed(self) -> str:
        settings = {name: value for name, value in self.full().items() if name != "seed"}
        return json.dumps(settings, sort_keys=True, separators=(",", ":"))

    @property
    def label(self) -> str:
        """A short description of the run."""
        # "file" alone would not say which.
        words = [str(self.data.get("table") or self.data.get("y") or self.data["name"])]
        if self.noise is not None:
            words += [str(self.noise["name"]), *_values(self.noise)]
        # n_samples_eval is left out: it is the same in almost all runs of a study.
        numbers = {k: v for k, v in self.params.items() if isinstance(v, int | float)}
        chosen = [f"{k}={v}" for k, v in numbers.items() if k != "n_samples_eval"]
        words.append(self.method + (f"({', '.join(chosen)})" if chosen else ""))
        words += [*([] if self.detector is None else [self.detector]), f"seed {self.seed}"]
        return " ".join(words)


def _values(settings: Settings) -> list[str]:
    kinds = int | float | str
    return [
        str(v) for k, v in settings.items() if k != "name" and isinstance(v, kinds) and v not in (True, False)
    ]
