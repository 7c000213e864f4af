"""Turn images or texts into vectors with an encoder of the user's, and cache them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate._io.files import write_bytes
from noisegate.data.arrays import read_npz
from noisegate.data.dataset import Dataset, LazyInputs, as_inputs
from noisegate.data.registry import root_folder
from noisegate.errors import DamagedFileError, InputError

log = logging.getLogger("noisegate")

Vectors = npt.NDArray[np.float32]


def embed(
    data: Any,
    module: Callable[[Any], Any],
    *,
    key: str | None = None,
    batch_size: int = 64,
    device: str = "cpu",
    root: str | os.PathLike[str] | None = None,
) -> Any:
    """Turn inputs into vectors with a pretrained encoder: the first thing to try for images and texts.

    A linear model on a pretrained network's features needs far fewer labels than a network trained from
    scratch, and method "auto" is made for such vectors. They are cached on disk under a hash of the
    inputs and the encoder, so the next call only reads them.

    Parameters
    ----------
    data : Dataset, array (N, ...), or sequence of str
    module : nn.Module, or function
        Maps a batch to vectors `(B, d)`; outputs of another shape are flattened. A batch is a float32
        tensor on `device`, with uint8 pixels divided by 255 (put the encoder's own normalisation in front
        of it), or a list of str. A module is run in evaluation mode without gradients.
    key : str, default=None
        Name and version of the encoder if it is a function, since code cannot be hashed. None: vectors of a
        function are not cached. A module needs no key, because its weights are hashed.
    batch_size : int, default=64
    device : str, default="cpu"
    root : path, default=None
        Vectors are cached in its folder `embeddings`. None: $NOISEGATE_DATA, else the user's cache.

    Returns
    -------
    Dataset with vectors for inputs, or float32 array (N, d)

    Examples
    --------
    >>> import noisegate as ng
    >>> images = ng.data.load("digits", as_images=True)
    >>> vectors = ng.data.embed(images, lambda batch: batch.mean(3))
    >>> images.train.x.shape[1:], vectors.train.x.shape[1:]
    ((1, 8, 8), (8,))
    """
    if not callable(module):
        raise InputError(f"module must be an nn.Module or a function of a batch, got {module!r}")
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")

    def vectors(inputs: Any) -> Vectors:
        name = _name(inputs, module, key)
        path = None if name is None else root_folder(root) / "embeddings" / f"{name}.npz"
        kept = None if path is None else _kept(path, len(inputs))
        if kept is not None:
            return kept
        made = np.concatenate(list(_encoded(inputs, module, batch_size, device)))
        if path is not None:
            _store(path, made)
        return made

    if isinstance(data, Dataset):
        parts = {name: getattr(data, name) for name in ("train", "validation", "test")}
        done: dict[str, Any] = {
            name: dataclasses.replace(part, x=vectors(part.x))
            for name, part in parts.items()
            if part is not None
        }
        # The reader returns original inputs, not vectors, so it cannot be kept.
        return dataclasses.replace(data, **done, reader=None)
    if not len(data):
        raise InputError("there are no rows to embed")
    return vectors(data if _are_texts(data) or hasattr(data, "fetch") else as_inputs(data))


def _are_texts(data: Any) -> bool:
    return isinstance(data, Sequence) and all(isinstance(each, str) for each in data)


def _batches(inputs: Any, size: int) -> Iterator[Any]:
    from noisegate.data.loader import fetch  # it needs torch, which data sets do not

    for start in range(0, len(inputs), size):
        stop = min(start + size, len(inputs))
        yield inputs[start:stop] if _are_texts(inputs) else fetch(inputs, np.arange(start, stop))


def _encoded(inputs: Any, module: Any, batch_size: int, device: str) -> Iterator[Vectors]:
    # Imported here: data sets need no torch.
    import torch

    mode = module.training if isinstance(module, torch.nn.Module) else None
    if mode is not None:
        module.to(device).eval()
    try:
        with torch.no_grad():
            for batch in _batches(inputs, batch_size):
                made = module(batch if isinstance(batch, Sequence) else _tensor(batch).to(device))
                rows = torch.as_tensor(made).detach().float().cpu()
                if len(rows) != len(batch):
                    raise InputError(
                        f"the encoder must give one vector for each of {len(batch)} inputs, got the shape "
                        f"{tuple(rows.shape)}"
                    )
                yield rows.flatten(1).numpy()
    finally:
        if mode is not None:
            module.train(mode)


def _tensor(batch: npt.NDArray[Any]) -> Any:
    import torch

    x = torch.from_numpy(np.require(batch, requirements=["C", "W"])).float()
    return x / 255 if batch.dtype == np.uint8 else x


def _name(inputs: Any, module: Any, key: str | None) -> str | None:
    """A hash of the encoder and the inputs; None for what cannot be hashed."""
    state = getattr(module, "state_dict", None)
    if (state is None and key is None) or (
        isinstance(inputs, LazyInputs) and getattr(inputs, "random", False)
    ):
        return None
    digest = hashlib.sha256(f"{key} {module!r}".encode() if state is not None else str(key).encode())
    for name, value in state().items() if state is not None else ():
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}".encode())
        digest.update(array.flatten().view(dtype=_bytes()).numpy() if array.numel() else b"")
    for batch in _batches(inputs, 256):
        if isinstance(batch, Sequence):
            digest.update("\0".join(batch).encode() + b"\0\0")
        else:
            digest.update(f"{batch.dtype} {batch.shape}".encode() + np.ascontiguousarray(batch).tobytes())
    return digest.hexdigest()[:32]


def _bytes() -> Any:
    import torch

    return torch.uint8


def _kept(path: Path, n: int) -> Vectors | None:
    """The vectors of an earlier call; None if there are none, or none that can be read."""
    if not path.exists():
        return None
    try:
        found = read_npz(path).get("vectors", np.empty(0))
    except DamagedFileError as error:
        log.warning("%s; the inputs are embedded once more", error)
        return None
    if found.dtype != np.float32 or found.ndim != 2 or len(found) != n:
        log.warning("%s does not hold the vectors of these inputs; they are embedded once more", path)
        return None
    return found


def _store(path: Path, vectors: Vectors) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    np.savez(content, vectors=vectors)  # an archive has checksums
    write_bytes(path, content.getvalue())
