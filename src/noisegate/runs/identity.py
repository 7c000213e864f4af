"""The record of a run: its identity (what makes two runs the same), versions and hardware."""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from noisegate._version import __version__
from noisegate.data.dataset import Dataset, Inputs, Split
from noisegate.methods.base import Method
from noisegate.training import distributed
from noisegate.training.job import Job

#: Bytes of an array that are hashed at most, and per block.
HASHED_BYTES, BLOCK_BYTES = 2**30, 2**26


def describe_run(
    method: Method, job: Job, data: Dataset, sample_weight: npt.ArrayLike | None = None
) -> dict[str, Any]:
    """Describe a run as plain data: `identity`, `versions` and `hardware`.

    Two runs with the same `identity` give the same result: a folder of one is resumed by the other.

    Parameters
    ----------
    method : Method
    job : Job
    data : Dataset
    sample_weight : array (N,), default=None
        Weights of the training rows. None: all weights are 1.
    """
    network = job.network_name
    name = network if isinstance(network, str) else getattr(network, "__qualname__", type(network).__name__)
    identity = {
        "noisegate": __version__,
        "method": method.settings(),
        "network": name,
        "recipe": job.recipe.to_dict(),
        "seed": job.seed,
        "data": {
            "name": data.name,
            "train": fingerprint(data.train),
            "validation": None if data.validation is None else fingerprint(data.validation),
            "weights": None if sample_weight is None else hashed(np.asarray(sample_weight, dtype=np.float64)),
            "noise": data.info.get("noise"),
        },
    }
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    parts = {"training": data.train, "validation": data.validation, "test": data.test}
    described = {
        "identity": identity,
        "rows": {name: len(split) for name, split in parts.items() if split is not None},
        "versions": versions,
        "hardware": hardware_name(job.device),
    }
    if distributed.world().several:
        described["processes"] = distributed.world().size
    return json.loads(
        json.dumps(described, default=lambda v: v.item() if isinstance(v, np.generic) else repr(v))
    )


def hardware_name(device: torch.device) -> str:
    """Name of the GPU, or architecture of the CPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()


def fingerprint(split: Split) -> str:
    """Hash the observed labels and inputs of a split; large inputs in part (`input_hash`)."""
    return hashed(split.y, repr((len(split), split.input_shape)), input_hash(split.x))


def input_hash(x: Inputs) -> str:
    """Hash the dtype and the numbers of an array; of more than 1 GiB only evenly spaced rows.

    Inputs that are read on demand are identified by their method `fingerprint`, or by an empty
    string if they have none.
    """
    if not isinstance(x, np.ndarray):
        return x.fingerprint() if hasattr(x, "fingerprint") else ""
    step = max(1, -(-x.nbytes // HASHED_BYTES))
    rows = x[::step]
    size = max(1, BLOCK_BYTES // max(1, rows.nbytes // max(1, len(rows))))
    return hashed(str(x.dtype), *(rows[start : start + size] for start in range(0, len(rows), size)))


def hashed(*parts: np.ndarray | str) -> str:
    """Hash arrays and strings to 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else np.ascontiguousarray(part).data)
    return digest.hexdigest()[:16]
