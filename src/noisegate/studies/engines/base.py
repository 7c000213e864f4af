"""What an engine is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from noisegate.studies.execute import Event
from noisegate.studies.study import RunSettings


@dataclass(frozen=True)
class Context:
    """Where results go, where data lies, and on what the runs are done.

    Attributes
    ----------
    out : Path
        The folder of a Store.
    root : str or None
        Where data sets lie.
    device : str
        "auto", "cpu", "cuda", "cuda:N".
    """

    out: Path
    root: str | None = None
    device: str = "auto"


class Engine(ABC):
    """Does runs, several at a time, and tells what happens to them."""

    @abstractmethod
    def run(self, todo: Sequence[RunSettings], context: Context) -> Generator[Event, None, None]:
        """Do all runs; every one ends in exactly one final event. Closing the iterator stops the work."""

    @abstractmethod
    def width(self, todo: Sequence[RunSettings], context: Context) -> int:
        """How many runs it does at a time."""

    def hardware(self, context: Context) -> str | None:
        """What the runs will be done on, by name; None where that is not known here."""
        return None
