"""Errors that a user can fix. Messages say in one line what was expected, what was found and what to do."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any

#: Maximum number of characters of an error's message: what a file holds can be of any length.
MOST_CHARACTERS = 1000


class NoisegateError(Exception):
    """Base of every error noisegate raises on purpose.

    Control characters in its message are escaped: names and values from files are part of messages, and
    must not move the cursor or colour the terminal.

    >>> import noisegate as ng
    >>> try:
    ...     ng.data.load("no-such-file.csv", label="kind")
    ... except ng.errors.NoisegateError as error:
    ...     print(type(error).__name__)
    MissingDataError
    >>> print(ng.errors.NoisegateError("no " + chr(27) + "[31mred"))
    no \\x1b[31mred
    """

    def __str__(self) -> str:
        text = Exception.__str__(self)
        text = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 4]} ..."
        return "".join(c if c.isprintable() or c in "\n\u00a0" else _escaped(c) for c in text)


class InputError(NoisegateError, ValueError):
    """An argument, a setting or the data are not valid.

    >>> import noisegate as ng
    >>> ng.noise.Symmetric(1.4)
    Traceback (most recent call last):
    noisegate.errors.InputError: rate must lie in [0, 1], got 1.4
    """


class UnknownNameError(InputError):
    """A name is unknown; the message suggests similar ones.

    >>> raise UnknownNameError("method", "lm", ["ce", "ln"])
    Traceback (most recent call last):
    noisegate.errors.UnknownNameError: unknown method 'lm'; did you mean 'ln'? (there are: ce, ln)
    """

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        known = sorted(known)
        self._given = kind, name, known
        near = difflib.get_close_matches(str(name)[:60], known, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        choice = f"there are: {', '.join(known)}" if known else "there are none"
        super().__init__(f"unknown {kind} {shown(repr(name), 60)}{hint} ({choice})")

    def __reduce__(self) -> tuple[Any, ...]:
        # An error of another process arrives pickled; by default it would be built from its message alone.
        return type(self), self._given


class MissingDataError(InputError, FileNotFoundError):
    """A file or data set is missing.

    >>> import noisegate as ng
    >>> ng.data.load("no-such-file.csv", label="kind")
    Traceback (most recent call last):
    noisegate.errors.MissingDataError: there is no file or folder no-such-file.csv
    """

    __str__ = NoisegateError.__str__


class DamagedFileError(InputError):
    """A file exists but is not valid: truncated, wrong checksum, wrong format.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import noisegate as ng
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "labels.txt").write_text("")
    ...     try:
    ...         ng.noise.load_labels(Path(folder, "labels.txt"))
    ...     except ng.errors.DamagedFileError as error:
    ...         print(str(error).replace(folder, "FOLDER"))
    FOLDER/labels.txt is empty; expected labels written by save_labels
    """


class OtherRunError(InputError):
    """The folder holds checkpoints of a different run.

    >>> import tempfile
    >>> import noisegate as ng
    >>> data = ng.data.load("moons", n=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for method in ("ce", "gce"):
    ...         try:
    ...             _ = ng.train(data, method, recipe={"epochs": 1}, device="cpu", folder=folder, progress=False)
    ...         except ng.errors.OtherRunError:
    ...             print(f"{method}: the folder belongs to another run")
    gce: the folder belongs to another run
    """


class BusyError(NoisegateError, RuntimeError):
    """Another process is writing to the same folder.

    >>> import tempfile
    >>> import noisegate as ng
    >>> from noisegate._io.lock import locked
    >>> fitted = ng.train(ng.data.load("moons", n=100), "ce", recipe={"epochs": 1}, progress=False)
    >>> with tempfile.TemporaryDirectory() as folder, locked(folder, "saving a model"):
    ...     try:
    ...         fitted.save(folder)
    ...     except ng.errors.BusyError:
    ...         print("try again when the other process has finished")
    try again when the other process has finished
    """


class ProcessDiedError(NoisegateError, RuntimeError):
    """A process of a run on several devices was killed or ended before its work was done.

    >>> issubclass(ProcessDiedError, RuntimeError)
    True
    """


class DivergedError(NoisegateError, RuntimeError):
    """Training diverged: the loss or a weight is not finite.

    Attributes
    ----------
    phase, epoch, step : int
        Where training diverged, counted from 0; `step` counts updates within the phase.

    Examples
    --------
    >>> import noisegate as ng
    >>> data = ng.data.load("moons", n=100)
    >>> recipe = {"epochs": 3, "lr": 1e30, "optimizer": "sgd"}
    >>> try:
    ...     ng.train(data, "ce", recipe=recipe, device="cpu", progress=False)
    ... except ng.errors.DivergedError as error:
    ...     print(error.phase, error.epoch)
    0 0
    """

    def __init__(self, phase: int, epoch: int, step: int) -> None:
        self.phase, self.epoch, self.step = phase, epoch, step
        super().__init__(
            f"training diverged: the loss or a weight is not finite at step {step} "
            f"(phase {phase}, epoch {epoch}); try a lower learning rate or clip_norm=1.0 in the recipe"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.phase, self.epoch, self.step)


def is_real(value: object) -> bool:
    """Whether a value is a finite real number; strings, bools and NaN are not.

    >>> [is_real(value) for value in (1, 0.5, "1", None, True, float("nan"))]
    [True, True, False, False, False, False]
    """
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def first_line(error: BaseException) -> str:
    """Describe an error in one line.

    >>> first_line(ValueError("no\\nway")), first_line(AssertionError())
    ('ValueError: no', 'AssertionError')
    """
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


def shown(value: object, limit: int = 200) -> str:
    """Make the text of an error, or text from a file, safe to print: one line of limited length.

    Control characters are escaped, so that a file cannot move the cursor or colour the terminal.

    Parameters
    ----------
    value : object
    limit : int, default=200
        Number of characters to keep.

    >>> shown("a\\x1b[31mb\\nc")
    'a\\\\x1b[31mb\\\\nc'
    >>> len(shown("a" * 1000))
    200
    """
    text = str(value)
    text = text if len(text) <= 4 * limit else text[: 4 * limit]
    text = "".join(c if c.isprintable() else _escaped(c) for c in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
