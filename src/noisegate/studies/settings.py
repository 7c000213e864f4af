"""All settings of one run, and the key that they make."""

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
        `name`, and what its loader takes.
    method : str
        A name of the registry.
    params : mapping
        Parameters of the method. `noise_rate="known"` stands for the realised rate of the training
        labels, where a paper's protocol hands it to the method.
    noise : mapping or None
        `name`, and what the noise takes; None leaves the labels as they are.
    network : str
    weights : str or None
        A file of pretrained weights below the data root; the last layer starts afresh.
    recipe : mapping
        Fields of a Recipe; fields that are left out take its defaults.
    validation : float, int, "own" or None
        Share or number of training rows held out, with labels as noisy as training's; "own" takes
        the validation rows that the data brings, whose labels may be clean.
    noisy_test : bool
        Also corrupt the test labels, for metrics on noisy labels. The clean ones are kept as well.
    rows : int or None
        Train on this many rows only, sampled with the seed.
    balanced : bool
        Train on equally many rows of every given label, as many as the rarest has, sampled with the
        seed.
    evidence : tuple of str
        Clean labels that each epoch is evaluated on: "test", "train", "validation".
    evaluate_every : int
        Epochs between two such evaluations, as in `noisegate.train`.
    probes : tuple of mapping
        What is measured on the trained network beyond its metrics: `name`, and what the probe
        takes.
    detector : str or None
        For studies of finding wrong labels: one of `noisegate.auditing.detectors.DETECTORS`, around the
        method. Then `recipe` has the fields that differ from the automatic recipe of the data.
    seed : int
        Decides label noise, validation rows, initial weights and batches.

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
        """A copy with some fields changed."""
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
            # Left out, so that the keys of runs that were stored before there were detectors stay the same.
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
