"""Registries of things with a name: methods, objectives, noises, data sets, networks."""

from __future__ import annotations

from typing import TypeVar

from noisegate.errors import InputError, UnknownNameError

T = TypeVar("T")


class Registry(dict[str, T]):
    """A dict from names to registered things, in the order of registration.

    An unknown name raises `UnknownNameError`, which suggests similar names.

    Parameters
    ----------
    kind : str
        What is registered, for messages: "method", "data set".

    >>> colours = Registry("colour", {"red": 1, "blue": 2})
    >>> colours["blu"]
    Traceback (most recent call last):
    noisegate.errors.UnknownNameError: unknown colour 'blu'; did you mean 'blue'? (there are: blue, red)
    """

    def __init__(self, kind: str, known: dict[str, T] | None = None) -> None:
        super().__init__(known or {})
        self.kind = kind
        self._modules: dict[str, str] = {}

    def __missing__(self, name: object) -> T:
        raise UnknownNameError(self.kind, name, self)

    def add(self, name: str, thing: T, module: str) -> T:
        """Register `thing`.

        A later registration replaces an earlier one, so that a notebook cell can be run again. Names of
        noisegate itself cannot be replaced, since stored models and results refer to them.

        Parameters
        ----------
        name : str
        thing : object
        module : str
            The module that defines it, for instance `cls.__module__`.
        """
        before = self._modules.get(name, "")
        if name in self and before.startswith("noisegate.") and not module.startswith("noisegate."):
            raise InputError(
                f"{name!r} is the name of noisegate's own {self.kind}, by which stored models and results are "
                "found; give yours another name"
            )
        self._modules[name] = module
        self[name] = thing
        return thing

    def own(self) -> dict[str, T]:
        """What noisegate itself registered, without what users added."""
        return {
            name: thing
            for name, thing in self.items()
            if self._modules.get(name, "").startswith("noisegate.")
        }
