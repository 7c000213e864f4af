"""Processes that are started: what Ctrl-C means to them, and how they ended."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess


@contextlib.contextmanager
def no_interrupt() -> Iterator[None]:
    """A process that is started here ignores Ctrl-C from its first moment on: the parent decides what it means."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def how_it_ended(process: BaseProcess, advice: str = "") -> str:
    """How a process that gave no answer ended; where memory may have run out, with what to do about it."""
    process.join(timeout=5)
    code = process.exitcode
    if code is None or code >= 0:
        return f"ended with code {code}"
    hint = f"; perhaps memory ran out{advice}" if code == -signal.SIGKILL else ""
    return f"was killed by signal {-code}{hint}"
