"""The interface of engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from noisegate.studies.execute import Event
from noisegate.studies.settings import RunSettings


@dataclass(frozen=True)
class Context:
    """Results folder, data root and device of a study's runs.

    Attributes
    ----------
    out : Path
        The folder of a Store.
    root : str or None
        Folder of the data sets.
    device : str
        "auto", "cpu", "cuda", "cuda:N".
    """

    out: Path
    root: str | None = None
    device: str = "auto"


class Engine(ABC):
    """Executes runs, several at a time, and yields their events."""

    @abstractmethod
    def run(self, todo: Sequence[RunSettings], context: Context) -> Generator[Event, None, None]:
        """Execute all runs. Each ends in exactly one final event.

        Closing the iterator stops the work.
        """

    @abstractmethod
    def width(self, todo: Sequence[RunSettings], context: Context) -> int:
        """How many runs are executed at a time."""

    def hardware(self, context: Context) -> str | None:
        """Name of the hardware that runs execute on; None if it is not known here."""
        return None
