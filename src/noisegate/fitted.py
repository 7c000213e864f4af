"""What training yields: something that predicts, can be saved, and says how it came about."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisegate import networks
from noisegate._io.files import read_json, remove_parts, write_json
from noisegate._io.lock import locked
from noisegate._io.trees import load_tree, save_tree
from noisegate._version import __version__
from noisegate.data.dataset import Inputs, as_inputs
from noisegate.data.loader import Rows
from noisegate.errors import DamagedFileError, InputError, MissingDataError
from noisegate.networks.layout import channels_last_
from noisegate.networks.prepare import Prepared
from noisegate.objectives import Objective

FORMAT = 1


class Fitted:
    """A trained classifier.

    Parameters
    ----------
    network : nn.Module
        From raw inputs to outputs.
    objective : Objective
        What the outputs mean.
    **extras
        What the method learnt beside: a transition matrix, a noise rate, per-example scores.

    Attributes
    ----------
    classes : list
        The label values, in the order of the columns of the probabilities.
    metrics : dict
        What was measured at the end.
    history : list of list of dict
        One list a phase, one dict an epoch.
    record : dict
        Method, recipe, network, seed, versions: how it was trained.
    """

    def __init__(self, network: nn.Module, objective: Objective, **extras: Any) -> None:
        self.network, self.objective, self.extras = network, objective, extras
        self.classes: list[Any] = list(range(objective.n_classes))
        self.metrics: dict[str, float] = {}
        self.history: list[list[dict[str, float]]] = []
        self.record: dict[str, Any] = {}

    def predict_proba(self, x: npt.ArrayLike | Inputs, batch_size: int | None = None) -> npt.NDArray[Any]:
        """Probabilities of the clean class, `(N, K)`.

        Vectors are predicted in float64: so the result of a row does not depend on the rows beside it.
        """
        from noisegate.evaluation.passes import predict

        inputs = x if hasattr(x, "fetch") else as_inputs(x)  # type: ignore[arg-type]
        device = next((p.device for p in self.network.parameters()), torch.device("cpu"))
        rows = Rows(inputs, None, device)  # type: ignore[arg-type]
        self._check_shape(rows.shape)
        if isinstance(inputs, np.ndarray):
            self._check_pixels(inputs)
        network = copy.deepcopy(self.network).double() if len(rows.shape) == 1 else self.network
        probs = predict(network, self.objective, rows, batch_size=batch_size).double().cpu().numpy()
        # Rounding leaves sums of 1 + 1e-7 in float32.
        return probs / probs.sum(1, keepdims=True)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        spec = getattr(self.network, "spec", {})
        expected = tuple(spec.get("input_shape", shape))
        # Those of training, whose middle the network sees where `crop_to` cut them; or that middle.
        known = list(dict.fromkeys([expected, tuple(spec.get("raw_shape", expected))]))
        if shape not in known:
            raise InputError(f"expected inputs of shape {' or '.join(map(str, known))} each, got {shape}")

    def _check_pixels(self, images: npt.NDArray[Any]) -> None:
        """Pixels and other numbers are scaled differently: refuse images of another kind than those of training."""
        pixels = getattr(self.network, "spec", {}).get("pixels")
        if pixels is None or images.ndim != 4 or not images.size or (images.dtype == np.uint8) == pixels:
            return
        if not pixels:
            raise InputError(
                "the model was trained on images of floating-point numbers, got uint8: convert them alike"
            )
        low, high = images.min(), images.max()
        if low < 0 or high > 1:
            raise InputError(
                f"the model was trained on uint8 images, got {images.dtype} from {low:g} to {high:g}; "
                "give it uint8, or numbers from 0 to 1"
            )

    def predict(self, x: npt.ArrayLike | Inputs) -> npt.NDArray[Any]:
        """The most probable label value of each row."""
        return np.asarray(self.classes)[self.predict_proba(x).argmax(1)]

    def save(self, path: str | Path, **more: Any) -> None:
        """Write a model folder: `model.json`, and the weights as safetensors.

        The weights get a new name and `model.json` is replaced last, so a full disk or a kill leaves the model
        that was there before, whole. `more` is plain data kept in `model.json`.
        """
        folder = Path(path)
        spec = getattr(self.network, "spec", None)
        if spec is None:
            raise InputError("only networks built through job.network can be saved")
        with locked(folder, "saving a model"):
            remove_parts(folder)
            extras = {k: _tensor(v) for k, v in self.extras.items()}
            tree = {
                "network": self.network.state_dict(),
                "objective": self.objective.state_dict(),
                "extras": extras,
            }
            temporary = folder / ".weights.safetensors"
            save_tree(temporary, tree)
            name = f"weights-{hashlib.sha256(temporary.read_bytes()).hexdigest()[:16]}.safetensors"
            temporary.replace(folder / name)
            write_json(folder / "model.json", self._description(spec, name) | more)
            for old in folder.glob("weights-*.safetensors"):
                if old.name != name:
                    old.unlink()

    def _description(self, spec: dict[str, Any], weights: str) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "noisegate": __version__,
            "weights": weights,
            "network": spec,
            "objective": self.objective.to_dict(),
            "classes": [c.item() if isinstance(c, np.generic) else c for c in self.classes],
            "metrics": self.metrics,
            "history": self.history,
            "record": self.record,
        }

    @classmethod
    def load(
        cls,
        path: str | Path,
        network: Callable[[tuple[int, ...], int], nn.Module] | None = None,
        device: str | torch.device = "cpu",
    ) -> Fitted:
        """Read a model folder; nothing in it is executed.

        Parameters
        ----------
        network : function (input_shape, n_outputs) -> nn.Module, optional
            The factory, for a model that was trained with one: code is not stored, only weights.
        """
        folder = Path(path)
        description = read_description(folder)
        spec = description["network"]
        tree = load_tree(folder / Path(description["weights"]).name)
        shape, n_outputs = tuple(spec["input_shape"]), spec["n_outputs"]
        if spec["network"] is None and network is None:
            raise InputError(
                f"the model in {folder} has a network of the user's own: hand its factory over as network="
            )
        body = network(shape, n_outputs) if network else networks.build(spec["network"], shape, n_outputs)
        state = tree["network"]
        built = Prepared(body, state["mean"], state["std"], spec)
        _load_weights(built, state, folder)
        if torch.device(device).type == "cpu":
            channels_last_(built)  # as it was trained: the last bits of what it predicts are the same
        objective = Objective.from_dict(description["objective"])
        objective.load_state_dict(tree["objective"])
        fitted = cls(built.to(device).eval(), objective.to(device).eval(), **tree["extras"])
        fitted.classes, fitted.metrics = description["classes"], description["metrics"]
        fitted.history, fitted.record = description["history"], description["record"]
        return fitted


def read_description(folder: Path | str) -> dict[str, Any]:
    """The content of `model.json`, after a look at whether it is one."""
    path = Path(folder) / "model.json"
    if not path.is_file():
        raise MissingDataError(f"{folder} is not a model folder: it has no model.json")
    description = read_json(path)
    if not isinstance(description, dict) or "format" not in description:
        raise DamagedFileError(f"{path} does not describe a noisegate model")
    if description["format"] != FORMAT:
        raise InputError(
            f"{path} has format {description['format']}, this noisegate ({__version__}) reads {FORMAT}; "
            f"use the version that wrote it ({description.get('noisegate')})"
        )
    missing = {"weights", "network", "objective", "classes", "metrics", "history", "record"} - set(
        description
    )
    if missing:
        raise DamagedFileError(f"{path} lacks {', '.join(sorted(missing))}")
    return description


def _load_weights(module: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise DamagedFileError(
            f"the weights in {folder} do not fit its network: {lines[-1].strip()}"
        ) from None


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
