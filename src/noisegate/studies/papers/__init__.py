"""The studies that come with noisegate: one folder a paper, each with its `STUDIES`."""

from __future__ import annotations

import importlib

from noisegate.errors import UnknownNameError
from noisegate.studies.study import Study

#: Folders of this folder, in the order of the list.
PAPERS = ("demo", "audit", "ln", "temperature", "smoothing", "causalnl")


def studies() -> dict[str, Study]:
    """Every study by name.

    >>> sorted(studies())[:3]
    ['audit-quality', 'causalnl-figure2', 'causalnl-table1']
    """
    found: dict[str, Study] = {}
    for paper in PAPERS:
        for study in importlib.import_module(f"{__name__}.{paper}").STUDIES:
            found[study.name] = study
    return found


def get(name: str) -> Study:
    """The study of a name; an unknown one is refused with the near ones.

    >>> get("ln-table1-mnist").rows[:3]
    ['CE', 'Bi-tempered', 'GCE']
    """
    known = studies()
    if name not in known:
        raise UnknownNameError("study", name, known)
    return known[name]
