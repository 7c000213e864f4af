"""The result of training: a classifier that predicts, can be saved, and records how it was trained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from noisegate._io.files import remove_parts, write_json
from noisegate._io.foreign import reading
from noisegate._io.forms import mismatch
from noisegate._io.lock import locked
from noisegate._io.models import (
    FORMAT,
    HASH_DIGITS,
    class_as_json,
    read_classes,
    read_description,
    read_weights,
    weights_name,
    with_checksum,
)
from noisegate._io.trees import save_tree
from noisegate._version import __version__
from noisegate.data import reader_from_dict
from noisegate.data.dataset import Inputs, Reader, as_inputs
from noisegate.data.loader import Rows, seeded
from noisegate.data.tables import TableReader, is_frame
from noisegate.errors import DamagedFileError, InputError
from noisegate.evaluation.widened import Widened
from noisegate.networks import ensemble
from noisegate.networks.layout import channels_last_
from noisegate.networks.prepare import Prepared, first_parameter
from noisegate.objectives import Objective
from noisegate.reporting.card import write_card

if TYPE_CHECKING:
    import pandas as pd

NetworkFactory = Callable[[tuple[int, ...], int], nn.Module]
#: Extras that a method sets if it has judged the given labels.
JUDGEMENT = ("row", "given", "suggested", "quality", "is_label_issue", "is_sure")


class Fitted:
    """A trained classifier.

    Parameters
    ----------
    network : nn.Module
        From raw inputs to outputs.
    objective : Objective
        What the outputs mean.
    **extras
        What else the method learnt: a transition matrix, a noise rate, per-example scores.

    Attributes
    ----------
    classes : list
        The label values, in the order of the columns of the probabilities.
    metrics : dict
        The metrics after training.
    history : list of list of dict
        One list a phase, one dict an epoch.
    record : dict
        How the classifier was trained: method, recipe, network, seed, versions.
    reader : Reader or None
        Converts tables or files to inputs as in training; it is saved with the model.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("moons", n=200)
    >>> fitted = ng.train(data, "ce", recipe={"epochs": 5}, device="cpu", progress=False)
    >>> fitted.predict_proba(data.test.x).shape, len(fitted.history[0])
    ((1000, 2), 5)
    >>> sorted(fitted.record)[:4]
    ['hardware', 'identity', 'rows', 'versions']
    """

    def __init__(self, network: nn.Module, objective: Objective, **extras: Any) -> None:
        self.network, self.objective, self.extras = network, objective, extras
        self.classes: list[Any] = list(range(objective.n_classes))
        self.metrics: dict[str, float] = {}
        self.history: list[list[dict[str, float]]] = []
        self.record: dict[str, Any] = {}
        self.reader: Reader | None = None
        self._widened = Widened()

    def predict_proba(self, x: npt.ArrayLike | Inputs, batch_size: int | None = None) -> npt.NDArray[Any]:
        """Probabilities of the clean class, `(N, K)`; of a model of maps `(N, K, H, W)`, at the size of the images.

        `x` is an array; or, for a model of tables or files, a table (pandas, Polars, Arrow) or the path of a file.
        Vectors are predicted in float64, so that the result of a row does not depend on the other rows.
        """
        return self.predict_inputs(self._inputs(x), batch_size)

    def predict_inputs(self, inputs: Inputs, batch_size: int | None = None) -> npt.NDArray[Any]:
        """`predict_proba` of what `as_inputs` or the reader has returned."""
        from noisegate.evaluation.passes import predictions

        first = first_parameter(self.network)
        device = torch.device("cpu") if first is None else first.device
        rows = Rows(inputs, None, device)
        self._check_shape(rows.shape)
        if isinstance(inputs, np.ndarray):
            self._check_pixels(inputs)
        network = self._widened(self.network) if len(rows.shape) == 1 else self.network
        found: npt.NDArray[Any] | None = None
        start = 0
        for values in predictions(network, self.objective, rows, batch_size=batch_size):
            probs = values.double().cpu().numpy()
            if found is None:
                found = np.empty((len(rows), *probs.shape[1:]))
            # float32 rows can sum to 1 + 1e-7.
            np.divide(probs, probs.sum(1, keepdims=True), out=found[start : start + len(probs)])
            start += len(probs)
        assert found is not None  # Rows always have a batch, if an empty one
        return found

    def _inputs(self, x: Any) -> Inputs:
        if isinstance(x, str | Path) or is_frame(x):
            if self.reader is None or (is_frame(x) and not isinstance(self.reader, TableReader)):
                raise InputError("the model was trained on arrays, not on tables or files: give it arrays")
            return self.reader.read(x)
        inputs: Inputs = x if hasattr(x, "fetch") else as_inputs(x)
        return inputs

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        spec = getattr(self.network, "spec", {})
        expected = tuple(spec.get("input_shape", shape))
        if spec.get("maps") and len(shape) == 3 and shape[0] == expected[0]:
            return  # a network of maps takes any size
        # With `crop_to` the network sees the middle of the training images: accept both sizes.
        known = list(dict.fromkeys([expected, tuple(spec.get("raw_shape", expected))]))
        if shape not in known:
            raise InputError(f"expected inputs of shape {' or '.join(map(str, known))} each, got {shape}")

    def _check_pixels(self, images: npt.NDArray[Any]) -> None:
        """Refuse images of another type than in training, since uint8 and floats are scaled differently."""
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

    def label_issues(self) -> pd.DataFrame:
        """The labels of the training rows, worst first, where the method has judged them (`auto` does).

        Columns: row, given_label, suggested_label, quality (the probability that the given label is right),
        is_label_issue (worth a look) and is_sure (at least 95 % of these are wrong).
        """
        import pandas as pd

        if "quality" not in self.extras:
            raise InputError("the method of this model does not judge labels; method='auto' does")
        values = {name: np.asarray(self.extras[name]) for name in JUDGEMENT}
        classes = np.asarray(self.classes)
        order = np.argsort(values["quality"], kind="stable")
        frame = {
            "row": values["row"],
            "given_label": classes[values["given"]],
            "suggested_label": classes[values["suggested"]],
            "quality": values["quality"],
            "is_label_issue": values["is_label_issue"],
            "is_sure": values["is_sure"],
        }
        return pd.DataFrame({name: column[order] for name, column in frame.items()})

    def save(self, path: str | Path, **more: Any) -> None:
        """Write a model folder: `model.json`, the weights as safetensors, and a model card, README.md.

        The weights are written under a new name and `model.json` is replaced last, so a full disk or a kill leaves
        the previous model intact. `more` is plain data to store in `model.json`.
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
                "reader": {name: _tensor(array) for name, array in self._reader_arrays().items()},
            }
            temporary = folder / ".weights.safetensors"
            save_tree(temporary, tree, checksum=False)  # their hash is in the name
            name = weights_name(hashlib.sha256(temporary.read_bytes()).hexdigest()[:HASH_DIGITS])
            temporary.replace(folder / name)
            description = self._description(spec, name) | more
            write_json(folder / "model.json", with_checksum(description))
            write_card(folder / "README.md", description, self.extras)
            for old in folder.glob("weights-*.safetensors"):
                if old.name != name:
                    old.unlink()

    def export(self, path: str | Path) -> None:
        """Write a program that predicts without noisegate: probabilities (N, K) of raw numbers or pixels, float32.

        The scaling of the inputs and the objective's probabilities are included; the conversion of the
        columns of a table (categories, dates, texts) is not: give the program `fitted.reader.read(table)`.

        Parameters
        ----------
        path : path
            Ends in .pt2 (`torch.export`; read it by `torch.export.load(path).module()(x)`), or in .onnx, which
            needs the packages onnx and onnxscript. Classifiers that sample (`het`) cannot be written.

        Examples
        --------
        >>> import noisegate as ng, tempfile, torch
        >>> data = ng.data.load("moons")
        >>> fitted = ng.train(data, "ce", recipe={"epochs": 1}, device="cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fitted.export(f"{folder}/model.pt2")
        ...     program = torch.export.load(f"{folder}/model.pt2").module()
        >>> program(torch.zeros(5, 2)).shape
        torch.Size([5, 2])
        """
        from noisegate.evaluation.export import write_program

        spec = getattr(self.network, "spec", {})
        shape = tuple(spec.get("raw_shape", spec.get("input_shape", ())))
        if not shape:
            raise InputError("only networks built through job.network can be exported")
        write_program(self.network, self.objective, shape, bool(spec.get("pixels")), Path(path))

    def _reader_arrays(self) -> dict[str, npt.NDArray[Any]]:
        arrays = getattr(self.reader, "arrays", dict)
        return dict(arrays())

    def _description(self, spec: dict[str, Any], weights: str) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "noisegate": __version__,
            "weights": weights,
            "network": spec,
            "objective": self.objective.to_dict(),
            "classes": [class_as_json(c) for c in self.classes],
            "metrics": self.metrics,
            "history": self.history,
            "record": self.record,
            "reader": None if self.reader is None else self.reader.to_dict(),
        }

    @classmethod
    def load(
        cls,
        path: str | Path,
        network: NetworkFactory | None = None,
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
        # A damaged description can make the constructors raise any exception.
        with reading(folder / "model.json", "copy the model again, or train it again"):
            return cls._build(folder, description, network, torch.device(device))

    @classmethod
    def _build(
        cls, folder: Path, description: dict[str, Any], network: NetworkFactory | None, device: torch.device
    ) -> Fitted:
        spec = description["network"]
        tree = read_weights(folder, str(description["weights"]))
        shape, n_outputs = tuple(spec["input_shape"]), spec["n_outputs"]
        if ensemble.needs_factory(spec["network"]) and network is None:
            raise InputError(
                f"the model in {folder} has a network of the user's own: hand its factory over as network="
            )
        state = tree["network"]
        _check_scales(state, shape, folder)
        _check_spec(spec, state)
        if network is None:
            # A damaged description can ask for gigabytes: compare sizes before allocating memory.
            with torch.device("meta"):
                body = ensemble.from_spec(spec["network"], shape, n_outputs)
                outline = Prepared(body, state["mean"], state["std"], spec)
            _check_state(outline, state, folder)
        # Initial weights are replaced below; restore the caller's random state.
        with seeded(0):
            body = ensemble.from_spec(spec["network"], shape, n_outputs, network)
        built = Prepared(body, state["mean"], state["std"], spec)
        _load_weights(built, state, folder)
        if device.type == "cpu":
            channels_last_(built)  # the layout of training, so that predictions are the same bit for bit
        objective = Objective.from_dict(description["objective"])
        if objective.n_outputs != n_outputs:
            raise DamagedFileError(
                f"{folder / 'model.json'} is damaged: its network has {n_outputs} outputs, its objective "
                f"needs {objective.n_outputs}"
            )
        _load_weights(objective, tree["objective"], folder)
        fitted = cls(built.to(device).eval(), objective.to(device).eval(), **tree["extras"])
        fitted.classes = read_classes(description["classes"], objective.n_classes, folder)
        if not isinstance(description["metrics"], dict) or not isinstance(description["history"], list):
            raise DamagedFileError(f"{folder / 'model.json'} does not tell metrics and history of a model")
        fitted.metrics, fitted.history = description["metrics"], description["history"]
        fitted.record = description["record"]
        if description.get("reader") is not None:
            arrays = {name: value.numpy() for name, value in tree.get("reader", {}).items()}
            fitted.reader = reader_from_dict(description["reader"], arrays)
        return fitted


def _check_state(module: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    """Refuse weights whose names, shapes or types differ from the module's, and weights that are not finite."""
    expected = module.state_dict()
    for name, wanted in expected.items():
        given = state.get(name)
        if given is None:
            raise DamagedFileError(f"the weights in {folder} do not fit its network: {name} is missing")
        if given.shape != wanted.shape or given.dtype != wanted.dtype:
            raise DamagedFileError(
                f"the weights in {folder} do not fit its network: {name} should be {wanted.dtype} "
                f"{tuple(wanted.shape)} and is {given.dtype} {tuple(given.shape)}"
            )
        if given.is_floating_point() and not bool(given.isfinite().all()):
            raise DamagedFileError(f"the weights in {folder} are damaged: {name} holds NaN or infinity")
    unknown = sorted(set(state) - set(expected))
    if unknown:
        raise DamagedFileError(
            f"the weights in {folder} do not fit its network, which has no {', '.join(unknown[:3])}"
        )


def _check_spec(spec: dict[str, Any], state: dict[str, Tensor]) -> None:
    """Refuse a description of other form, and one of more layers than there are weights: building takes long."""
    if told := mismatch(spec, {"input_shape": [int], "raw_shape?": [int], "n_outputs": int, "pixels?": bool}):
        raise ValueError(f"its network: {told}")
    if ensemble.least_layers(spec["network"]) > len(state):
        raise ValueError(f"its network has more layers than its {len(state)} weights")


def _check_scales(state: dict[str, Tensor], shape: tuple[int, ...], folder: Path) -> None:
    """Refuse means and deviations of the inputs that are not one for each feature or channel."""
    expected = (shape[0],) + (1,) * (len(shape) - 1)
    for name in ("mean", "std"):
        if tuple(state[name].shape) != expected or (name == "std" and not bool((state[name] > 0).all())):
            raise DamagedFileError(
                f"the weights in {folder} are damaged: {name} should hold {expected} numbers"
                f"{' above 0' if name == 'std' else ''}"
            )


def _load_weights(module: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    _check_state(module, state, folder)
    module.load_state_dict(state)


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
