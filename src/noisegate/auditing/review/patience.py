"""Time limits for clients that send half a request, or do not read their answer.

uvicorn closes connections that are idle after an answer, but waits for ever for the rest of a request. A
`PatientConnection` has a clock. It runs while the client has something to do: send its request, or read
the answer. It stands while the application works. `Patience`, around the application, sets it.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds that a client has for sending a request, and again for reading its answer.
SECONDS = 20.0
#: More connections than this, and the one that has waited longest is closed.
MOST_CONNECTIONS = 200
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientConnection(H11Protocol):
    """An HTTP connection that is closed once its client takes too long."""

    def __init__(
        self,
        config: Any,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self.clock: asyncio.TimerHandle | None = None
        self._begun = self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.start_clock()
        # One that was aborted stays in this set for a while.
        there = [each for each in self.connections if not each.transport.is_closing()]
        if len(there) > MOST_CONNECTIONS:
            min(cast("list[PatientConnection]", there), key=_end).transport.abort()

    def data_received(self, data: bytes) -> None:
        self._begun = True
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_clock()
        super().connection_lost(exc)

    def start_clock(self, answered: bool = False) -> None:
        """Give the client its seconds from now on; `answered`: it has a part of its answer."""
        self.stop_clock()
        self._begun, self._answered = False, answered
        if not self.transport.is_closing():
            self.clock = self.loop.call_later(SECONDS, self._give_up)

    def stop_clock(self) -> None:
        """Wait for as long as the application takes."""
        if self.clock is not None:
            self.clock.cancel()
            self.clock = None

    def _give_up(self) -> None:
        self.clock = None
        if self._answered or not self._begun:
            self.transport.abort()
            return
        self.transport.write(_TIMED_OUT)
        self.transport.close()


def _end(connection: PatientConnection) -> float:
    return connection.clock.when() if connection.clock is not None else float("inf")


class Patience:
    """ASGI middleware that stops the clock of a connection while the application has the request in full."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope.get("state", {}).get("connection")
        if scope["type"] != "http" or not isinstance(connection, PatientConnection):
            await self.app(scope, receive, send)
            return
        if scope["method"] in ("GET", "HEAD"):
            connection.stop_clock()

        async def received() -> Message:
            message = await receive()
            if not message.get("more_body", False):
                connection.stop_clock()
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                connection.start_clock(answered=True)
            await send(message)

        try:
            await self.app(scope, received, sent)
        finally:
            connection.start_clock()
