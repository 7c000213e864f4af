"""Model folders: what lies in them, read without torch, whose import takes a second."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from noisegate._io.files import plain, read_json
from noisegate._io.foreign import regular_size
from noisegate._io.trees import load_tree
from noisegate._version import __version__
from noisegate.errors import DamagedFileError, InputError, MissingDataError, shown

#: Format 2 has a checksum of the description, format 1 (noisegate 0.1) has none.
FORMAT = 2
READABLE = (1, 2)
#: Digits of the weights' SHA-256 in the name of their file.
HASH_DIGITS = 16


def read_description(folder: Path | str) -> dict[str, Any]:
    """The content of `model.json`, after a look at whether it is one."""
    path = Path(folder) / "model.json"
    if not path.is_file():
        raise MissingDataError(f"{folder} is not a model folder: it has no model.json")
    description = read_json(path)
    if not isinstance(description, dict) or "format" not in description:
        raise DamagedFileError(f"{path} does not describe a noisegate model")
    if description["format"] not in READABLE:
        raise InputError(
            f"{path} has format {shown(description['format'], 40)}, this noisegate ({__version__}) reads "
            f"{' and '.join(map(str, READABLE))}; use the version that wrote it "
            f"({shown(description.get('noisegate'), 40)})"
        )
    # Where there is a checksum it counts in format 1 too: the number of the format can be what is damaged.
    checked = description["format"] > 1 or "checksum" in description
    if checked and description.get("checksum") != _checksum(description):
        raise DamagedFileError(
            f"{path} is damaged: its content does not have its checksum; copy the model again, or train it again"
        )
    missing = {"weights", "network", "objective", "classes", "metrics", "history", "record"} - set(
        description
    )
    if missing:
        raise DamagedFileError(f"{path} lacks {', '.join(sorted(missing))}")
    return description


def with_checksum(description: Mapping[str, Any]) -> dict[str, Any]:
    """A description as `model.json` holds it: with a hash of all its names and values."""
    content = {name: value for name, value in description.items() if name != "checksum"}
    return content | {"checksum": _checksum(content)}


def _checksum(description: Mapping[str, Any]) -> str:
    """A hash of what the JSON says, however it is laid out."""
    content = {name: value for name, value in description.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, default=plain).encode()).hexdigest()


def read_weights(folder: Path, name: str, framework: str = "pt") -> Any:
    """Read the weights of a model, if they are those that were written: their hash is in the file's name.

    Parameters
    ----------
    folder : Path
    name : str
        The file's name, as `model.json` has it.
    framework : {"pt", "np"}, default="pt"
        Tensors of torch, or arrays.
    """
    path = folder / Path(name).name
    regular_size(path, "the weights of a model")
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()[:HASH_DIGITS]
    if path.name != weights_name(found):
        raise DamagedFileError(f"{path} is damaged: its content has the hash {found}; copy the model again")
    tree = load_tree(path, framework)
    if not isinstance(tree, dict) or not {"network", "objective", "extras"} <= set(tree):
        raise DamagedFileError(f"{path} does not hold the weights of a noisegate model")
    return tree


def weights_name(digits: str) -> str:
    return f"weights-{digits}.safetensors"


def class_as_json(value: Any) -> Any:
    """A label value as JSON; JSON has no dates, so they become {"date": text}."""
    value = value.item() if isinstance(value, np.generic) and not isinstance(value, np.datetime64) else value
    if isinstance(value, np.datetime64 | datetime.date):
        return {"date": str(np.datetime64(value))}
    return value


def read_classes(stored: Any, n_classes: int, folder: Path) -> list[Any]:
    """The label values of a model: one a class, all different."""
    if not isinstance(stored, list) or len(stored) != n_classes:
        raise DamagedFileError(f"{folder / 'model.json'} should list {n_classes} classes")
    dated = [np.datetime64(c["date"]) if isinstance(c, dict) and set(c) == {"date"} else c for c in stored]
    kinds = {
        next((k for k in (str, bool, int | float, np.datetime64) if isinstance(c, k)), None) for c in dated
    }
    if None in kinds or len(kinds) > 1 or len({c for c in dated if c == c}) < n_classes:  # NaN is no class
        raise DamagedFileError(f"{folder / 'model.json'} should list {n_classes} different classes")
    return dated
