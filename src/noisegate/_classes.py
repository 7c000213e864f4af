"""Classes that are found by their name, because files and results say no more of them."""

from __future__ import annotations

from typing import TypeVar

from noisegate.errors import InputError

C = TypeVar("C", bound=type)


def enlist(cls: C, classes: dict[str, C], kind: str) -> None:
    """Enter a class by its name; later ones replace earlier ones, as in a notebook, but not those of noisegate."""
    known = classes.get(cls.__name__)
    if known is not None and known.__module__.startswith("noisegate.") and cls.__module__ != known.__module__:
        raise InputError(
            f"noisegate has {kind} called {cls.__name__}, and model folders find classes by their name: "
            "give yours another one"
        )
    classes[cls.__name__] = cls
