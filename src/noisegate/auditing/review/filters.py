"""Filters of rows: from the parameters of a page's address to rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from noisegate.auditing.records import CODES
from noisegate.auditing.state import State
from noisegate.auditing.stored import StoredAudit
from noisegate.errors import InputError, UnknownNameError

SHOWN = ("look", "sure", "all")
STATES = ("open", "decided", "skipped", "changed", "kept", "all")


@dataclass(frozen=True)
class Filter:
    """Rows by label, quality, flag and decision; the fields are the parameters of the page's address.

    Attributes
    ----------
    show : {"look", "sure", "all"}
        Flagged rows, surely wrong rows, or all.
    state : {"open", "decided", "skipped", "changed", "kept", "all"}
        open: no decision. decided: a label was decided. changed, kept: another label, or the given one.
    given, suggested : str
        Names of classes; "" for any. Both together are a pair.
    qmin, qmax : float
        Bounds of the quality, both included.
    name : str
        A part of the row's id, in any case.
    reviewer : str
        Who decided last; "" for anybody.

    >>> Filter.of({"given": "cat", "qmax": "0.5"})
    Filter(show='look', state='open', given='cat', suggested='', qmin=0.0, qmax=0.5, name='', reviewer='')
    """

    show: str = "look"
    state: str = "open"
    given: str = ""
    suggested: str = ""
    qmin: float = 0.0
    qmax: float = 1.0
    name: str = ""
    reviewer: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Filter:
        """Make a filter from the parameters of an address; other parameters are ignored."""
        given: dict[str, Any] = {}
        for field in fields(cls):
            if field.name in values and values[field.name] not in ("", None):
                value = values[field.name]
                given[field.name] = (
                    _number(value, field.name) if field.name in ("qmin", "qmax") else str(value)
                )
        found = cls(**given)
        for kind, value, known in (("show", found.show, SHOWN), ("state", found.state, STATES)):
            if value not in known:
                raise UnknownNameError(kind, value, known)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Every field."""
        return asdict(self)


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{name} must be a number between 0 and 1, got {value!r}")
    return number


class Selector:
    """Applies filters to an audit: masks over its ranks (0 is the worst row)."""

    def __init__(self, audit: StoredAudit, state: State) -> None:
        rows = audit.rows
        self.state = state
        self.row = rows["row"].to_numpy()
        self.given = rows["given_label"].to_numpy()
        self.suggested = rows["suggested_label"].to_numpy()
        self.quality = rows["quality"].to_numpy()
        self.flags = {"look": rows["is_label_issue"].to_numpy(), "sure": rows["is_sure"].to_numpy()}
        self._ids = rows["id"]
        self._codes = {name: code for code, name in enumerate(audit.classes)}

    def mask(self, wanted: Filter) -> npt.NDArray[np.bool_]:
        """Bool (N,), by rank."""
        mask = np.ones(len(self.row), bool)
        if wanted.show != "all":
            mask &= self.flags[wanted.show]
        if wanted.given:
            mask &= self.given == self._codes.get(wanted.given, -1)
        if wanted.suggested:
            mask &= self.suggested == self._codes.get(wanted.suggested, -1)
        if wanted.qmin > 0:
            mask &= self.quality >= wanted.qmin
        if wanted.qmax < 1:
            mask &= self.quality <= wanted.qmax
        if wanted.name:
            mask &= self._ids.str.contains(wanted.name, case=False, regex=False).to_numpy(bool)
        if wanted.state != "all":
            mask &= self._in_state(wanted.state)
        if wanted.reviewer:
            known = self.state.reviewers
            place = known.index(wanted.reviewer) if wanted.reviewer in known else -2
            mask &= (self.state.reviewer[self.row] == place) & (self.state.decision[self.row] != CODES[""])
        return mask

    def _in_state(self, state: str) -> npt.NDArray[np.bool_]:
        decision = self.state.decision[self.row]
        if state == "open":
            return decision == CODES[""]
        if state == "skipped":
            return decision == CODES["skip"]
        answered = self.state.answered[self.row]
        if state == "decided":
            return answered
        same = self.state.label[self.row] == self.given
        return answered & (same if state == "kept" else ~same)
