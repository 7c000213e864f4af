"""A lock for the global state of a process.

Random states, precision and the number of threads are shared by all threads of a process. Code that
sets one of them holds `TURN` and restores the old value before it releases it, so that each of
several fits in parallel threads computes what it computes alone, and leaves the state unchanged.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from types import TracebackType


class Turn:
    """A re-entrant lock that waiting threads get in the order in which they asked for it.

    `threading.RLock` promises no order: a thread that gives it back and asks again at once would
    usually be the next to get it, and others would wait for as long as it goes on.

    Examples
    --------
    >>> turn = Turn()
    >>> with turn, turn:
    ...     turn.wanted
    False
    """

    def __init__(self) -> None:
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._owner: int | None = None
        self._depth = 0

    @property
    def wanted(self) -> bool:
        """Whether another thread waits for it."""
        return bool(self._waiting)

    def __enter__(self) -> Turn:
        me = threading.get_ident()
        with self._mutex:
            if self._owner in (None, me):
                self._owner = me
                self._depth += 1
                return self
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append((me, gate))
        try:
            gate.acquire()  # wait until the owner hands it over
        except BaseException:  # Ctrl-C
            self._withdraw(me, gate)
            raise
        return self

    def _withdraw(self, me: int, gate: threading.Lock) -> None:
        with self._mutex:
            if (me, gate) in self._waiting:
                self._waiting.remove((me, gate))
                return
        self.__exit__(None, None, None)  # it was handed over in the meantime

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._mutex:
            self._depth -= 1
            if self._depth:
                return
            self._owner = None
            if self._waiting:
                # Hand it to the next thread directly, so that no other thread can take it in between.
                self._owner, gate = self._waiting.popleft()
                self._depth = 1
                gate.release()


#: Held while random states, precision or the number of threads of this process are changed.
TURN = Turn()

if hasattr(os, "register_at_fork"):
    # A child has only the thread that forked; the owner may have been another one.
    os.register_at_fork(after_in_child=TURN._start_afresh)
