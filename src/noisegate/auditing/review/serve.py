"""Serve the review page on this machine."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from pathlib import Path

from noisegate.auditing import stored
from noisegate.errors import InputError

HOST = "127.0.0.1"


def serve(
    folder: str | Path,
    *,
    port: int = 0,
    reviewer: str | None = None,
    root: Path | None = None,
    token: str | None = None,
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the review page of an audit until it is interrupted.

    Parameters
    ----------
    folder : path
        An audit folder.
    port : int, default=0
        0: any free port.
    reviewer : str, default=None
        Name of the reviewer; default: the name of the account.
    root : path, default=None
        Where named data sets lie.
    token : str, default=None
        Required in requests; default: a random one. A server that is restarted with the same token and
        port keeps serving pages that are already open.
    started : callable
        Called with the page's address once it can be opened.
    """
    try:
        import uvicorn

        from noisegate.auditing.review.app import build
        from noisegate.auditing.review.patience import Patience, PatientConnection
        from noisegate.auditing.review.security import new_token
    except ImportError:
        raise InputError(
            "the review page needs starlette and uvicorn: pip install 'noisegate[review]'"
        ) from None
    from noisegate.auditing.review.session import Review

    review = Review(stored.read(folder), root)
    listener = _listen(port)
    bound = int(listener.getsockname()[1])
    token = new_token() if token is None else token
    app = build(review, token=token, port=bound, reviewer=reviewer or _account())
    config = uvicorn.Config(
        Patience(app),
        http=PatientConnection,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=3,  # seconds; a connection that never ends does not keep the server
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started(f"http://{HOST}:{bound}/?token={token}")

    try:
        Server(config).run(sockets=[listener])
    finally:
        listener.close()
        review.close()


def _listen(port: int) -> socket.socket:
    """Open a socket on the loopback interface."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise InputError(
            f"port {port} cannot be used ({error.strerror}); choose another with --port"
        ) from None
    return listener


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return "reviewer"
