"""The studies that come with noisegate: one file a paper, each with its `STUDIES`."""

from __future__ import annotations

import importlib

from noisegate.errors import UnknownNameError
from noisegate.studies.study import Study

#: Files of this folder, in the order of the list.
FILES = ("demo", "ln", "temperature", "smoothing", "causalnl")


def studies() -> dict[str, Study]:
    """Every study by name."""
    found: dict[str, Study] = {}
    for file in FILES:
        for study in importlib.import_module(f"{__name__}.{file}").STUDIES:
            found[study.name] = study
    return found


def get(name: str) -> Study:
    """The study of a name; an unknown one is refused with the near ones."""
    known = studies()
    if name not in known:
        raise UnknownNameError("study", name, known)
    return known[name]
