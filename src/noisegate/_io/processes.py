"""Child processes: shielding them from Ctrl-C, and describing how they ended."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess


@contextlib.contextmanager
def no_interrupt() -> Iterator[None]:
    """Start processes inside this block to make them ignore Ctrl-C.

    The parent decides when they stop.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def how_it_ended(process: BaseProcess, advice: str = "") -> str:
    """Describe how a process ended.

    `advice` is added if it was killed, perhaps for lack of memory.
    """
    process.join(timeout=5)
    code = process.exitcode
    if code is None or code >= 0:
        return f"ended with code {code}"
    hint = f"; perhaps memory ran out{advice}" if code == -signal.SIGKILL else ""
    return f"was killed by signal {-code}{hint}"
