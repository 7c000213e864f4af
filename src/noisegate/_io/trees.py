"""Trees of tensors and plain values on disk: one safetensors file each, replaced atomically, never a pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from noisegate._io.files import write_bytes
from noisegate._io.foreign import check_room, reading, regular_size
from noisegate.errors import DamagedFileError, shown

if TYPE_CHECKING:
    from torch import Tensor

Tree = Any


def save_tree(path: Path, tree: Tree) -> None:
    """Write nested dicts and lists of tensors and plain values to one file, atomically.

    The tensors are stored as such; the nesting and everything else is JSON in the file's header.
    """
    from safetensors.torch import save  # here, since reading arrays needs no torch

    tensors: dict[str, Tensor] = {}
    skeleton = _flatten(tree, tensors)
    write_bytes(path, save(tensors, metadata={"tree": json.dumps(skeleton)}))


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
                return _unflatten(skeleton, file)
        except (SafetensorError, KeyError, ValueError, TypeError) as error:
            raise DamagedFileError(
                f"{path} is not a noisegate checkpoint, or it is damaged ({shown(error)})"
            ) from None


def _unflatten(node: Any, file: Any) -> Tree:
    ((kind, value),) = node.items()
    if kind == "tensor":
        return file.get_tensor(value)
    if kind == "dict":
        return {key: _unflatten(child, file) for key, child in value}
    if kind in ("list", "tuple"):
        children = [_unflatten(child, file) for child in value]
        return tuple(children) if kind == "tuple" else children
    return value
