"""Functions of tensors that are compiled into few kernels if the run compiles its networks."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")
_fusing: ContextVar[bool] = ContextVar("fusing", default=False)


@contextlib.contextmanager
def fusing() -> Iterator[None]:
    """Inside, functions marked `fused` go through `torch.compile`."""
    token = _fusing.set(True)
    try:
        yield
    finally:
        _fusing.reset(token)


def fused(function: Callable[P, T]) -> Callable[P, T]:
    """Mark a function that makes many passes over large tensors, and draws no random numbers.

    Inside `fusing` it is compiled, once for all who call it; elsewhere it stays as it is.
    """
    compiled: list[Any] = []

    @functools.wraps(function)
    def either(*args: P.args, **kwargs: P.kwargs) -> T:
        # Inside torch.compile there is nothing left to compile, and context variables cannot be read.
        if torch.compiler.is_compiling() or not _fusing.get():
            return function(*args, **kwargs)
        if not compiled:
            compiled.append(torch.compile(function, dynamic=False))
        return compiled[0](*args, **kwargs)

    return either
