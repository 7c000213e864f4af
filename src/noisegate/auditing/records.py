"""Decisions as plain data: requests, stored lines, outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field

#: The possible decisions. "accept": the suggestion is right; "keep": the given label is right; "choose": another
#: class is; "skip": not now. Code 0 means that nothing is decided.
DECISIONS = ("", "accept", "keep", "choose", "skip")
CODES = {name: code for code, name in enumerate(DECISIONS)}


@dataclass(frozen=True)
class Choice:
    """A decision about one row, before it is stored.

    Attributes
    ----------
    row : int
        The row of the data.
    decision : {"accept", "keep", "choose", "skip", ""}
        "" takes a decision back.
    label : int
        Code of the right class, -1 if none is given.
    seen : int
        Version of the row that the reviewer has seen; 0 if nothing was decided.
    reviewer, at : str or None
        Who decided and when, if that differs from the action (in imports).
    """

    row: int
    decision: str
    label: int
    seen: int
    reviewer: str | None = None
    at: str | None = None


@dataclass(frozen=True)
class Decided:
    """The last decision about a row; `id` is its version, and decision "" means that it was undone."""

    id: int
    row: int
    decision: str
    label: int
    reviewer: str
    at: str


@dataclass(frozen=True)
class Line:
    """A line of the table of decisions before it has a number; origin None stands for its own number."""

    row: int
    decision: int
    label: int
    previous: int
    origin: int | None
    reviewer: str | None = None
    at: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of an action.

    Attributes
    ----------
    action : int or None
        Its number in the log; None if nothing was done.
    changed : list of Decided
        New states of rows.
    conflicts : list of Decided
        States of rows that somebody else changed in the meantime, which are left as they are.
    """

    action: int | None
    changed: list[Decided] = field(default_factory=list)
    conflicts: list[Decided] = field(default_factory=list)
