"""Trees of tensors and plain values on disk: one safetensors file each, replaced atomically, never a pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from noisegate._io.files import write_bytes
from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.errors import DamagedFileError, shown

if TYPE_CHECKING:
    from torch import Tensor

Tree = Any


def save_tree(path: Path, tree: Tree, checksum: bool = True) -> None:
    """Write nested dicts and lists of tensors and plain values to one file, atomically.

    The tensors are stored as such; the nesting and everything else is JSON in the file's header.

    Parameters
    ----------
    path : Path
    tree : nested dicts and lists
    checksum : bool, default=True
        Store a hash of the content, which `load_tree` compares: safetensors itself notices no changed
        number. Models have theirs in the name of the file.
    """
    from safetensors.torch import save  # here, since reading arrays needs no torch

    tensors: dict[str, Tensor] = {}
    skeleton = _flatten(tree, tensors)
    if checksum:
        # Beside the skeleton, since the order of several entries of metadata is not fixed.
        skeleton = {"checked": [_digest(skeleton, tensors), skeleton]}
    write_bytes(path, save(tensors, metadata={"tree": json.dumps(skeleton)}))


def _digest(skeleton: Any, tensors: Mapping[str, Any]) -> str:
    """A hash of everything in a file: the skeleton, and names, types, shapes and bytes of the tensors."""
    digest = hashlib.sha256(json.dumps(skeleton).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}".encode())
        if isinstance(value, np.ndarray):
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            import torch

            digest.update(value.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _flatten(node: Tree, tensors: dict[str, Tensor]) -> Any:
    from torch import Tensor

    if isinstance(node, Tensor):
        name = str(len(tensors))
        # A copy of its own: safetensors refuses tensors that share memory, and scalars need a
        # layout.
        tensors[name] = node.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(node, dict):
        return {"dict": [[key, _flatten(value, tensors)] for key, value in node.items()]}
    if isinstance(node, list | tuple):
        return {"tuple" if isinstance(node, tuple) else "list": [_flatten(value, tensors) for value in node]}
    return {"value": node}


def load_tree(path: Path, framework: str = "pt") -> Tree:
    """Read what `save_tree` wrote, as tensors ("pt") or arrays ("np"); a damaged file is named."""
    path = Path(path)
    check_room(regular_size(path, "a checkpoint"), path)
    with reading(path, "remove it"):
        try:
            with safe_open(path, framework=framework) as file:
                skeleton = json.loads((file.metadata() or {})["tree"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                if "checked" in skeleton:
                    digest, skeleton = skeleton["checked"]
                    if digest != _digest(skeleton, tensors):
                        raise ValueError("its numbers are not those that were written")
                return _unflatten(skeleton, tensors)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise DamagedFileError(
                f"{path} is not a noisegate checkpoint, or it is damaged ({shown(error)})"
            ) from None


def _unflatten(node: Any, tensors: Mapping[str, Any]) -> Tree:
    ((kind, value),) = node.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "dict":
        return {key: _unflatten(child, tensors) for key, child in value}
    if kind in ("list", "tuple"):
        children = [_unflatten(child, tensors) for child in value]
        return tuple(children) if kind == "tuple" else children
    if kind == "value":
        return value
    # A damaged "checked" would else be taken for plain data, and nothing be compared.
    raise ValueError(f"nothing that noisegate writes is called {shown(kind, 40)}")
