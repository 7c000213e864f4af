"""Write the inventories that link the documentation to Python, NumPy, PyTorch, scikit-learn and pandas.

    python docs/_inventories/write.py

Sphinx usually fetches `objects.inv` of other projects from the network. These small ones hold only the
names that noisegate's docstrings use, so that the documentation builds without a network. To link another
name, add it below: the part after `:` is the page, `$` stands for the name.
"""

from __future__ import annotations

import zlib
from pathlib import Path

HERE = Path(__file__).parent

#: project -> version -> role -> names
NAMES: dict[str, dict[str, list[str]]] = {
    "python": {
        "py:class": [
            *(f"{name}:library/stdtypes.html#$" for name in ("int", "float", "str", "list", "dict", "tuple")),
            *(f"{name}:library/stdtypes.html#$" for name in ("bytes", "set", "range")),
            "bool:library/functions.html#$",
            "object:library/functions.html#$",
            "pathlib.Path:library/pathlib.html#$",
            "collections.abc.Callable:library/collections.abc.html#$",
            "collections.abc.Iterable:library/collections.abc.html#$",
            "collections.abc.Iterator:library/collections.abc.html#$",
            "collections.abc.Mapping:library/collections.abc.html#$",
            "collections.abc.Sequence:library/collections.abc.html#$",
        ],
        "py:exception": [
            f"{name}:library/exceptions.html#$"
            for name in ("ValueError", "TypeError", "KeyError", "RuntimeError", "OSError", "Exception")
        ],
        "py:data": ["None:library/constants.html#$", "typing.Any:library/typing.html#$"],
    },
    "numpy": {
        "py:class": [
            "numpy.ndarray:reference/generated/numpy.ndarray.html#$",
            "numpy.random.Generator:reference/random/generator.html#$",
        ]
    },
    "torch": {
        "py:class": [
            "torch.Tensor:tensors.html#$",
            "torch.nn.Module:generated/torch.nn.Module.html#$",
            "torch.nn.Linear:generated/torch.nn.Linear.html#$",
            "torch.Generator:generated/torch.Generator.html#$",
            "torch.utils.data.Dataset:data.html#$",
            "torch.utils.data.DataLoader:data.html#$",
            "torch.optim.Optimizer:optim.html#$",
        ]
    },
    "sklearn": {
        "py:class": [
            "sklearn.base.BaseEstimator:modules/generated/sklearn.base.BaseEstimator.html#$",
            "sklearn.base.ClassifierMixin:modules/generated/sklearn.base.ClassifierMixin.html#$",
            "sklearn.model_selection.GridSearchCV:modules/generated/sklearn.model_selection.GridSearchCV.html#$",
        ]
    },
    "pandas": {
        "py:class": [
            "pandas.DataFrame:reference/api/pandas.DataFrame.html#$",
            "pandas.Series:reference/api/pandas.Series.html#$",
        ]
    },
}


def inventory(project: str, names: dict[str, list[str]]) -> bytes:
    """One inventory in version 2 of Sphinx's format: four lines of text, then compressed entries."""
    head = (
        f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    lines = [
        f"{name} {role} 1 {page} -\n"
        for role, entries in sorted(names.items())
        for name, _, page in (entry.partition(":") for entry in sorted(entries))
    ]
    return head.encode() + zlib.compress("".join(lines).encode(), 9)


if __name__ == "__main__":
    for project, names in NAMES.items():
        (HERE / f"{project}.inv").write_bytes(inventory(project, names))
