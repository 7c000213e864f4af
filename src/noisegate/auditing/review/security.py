"""Access control of the review page: only this machine, this page, with its token.

Every page that the browser shows can send requests to a local server. So each request must have this
server as its host (another name for 127.0.0.1 would be DNS rebinding), must not come from another
origin, and must carry the session's cookie or token. A request that changes something must carry the
token itself, which no other origin can read: it is part of the first address only, never of a page, and
is kept in the browser's storage for this origin.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_HEADER = "x-noisegate-token"
#: Allow only this server's own files. Trusted Types stop scripts from using text as markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_SAFE = ("GET", "HEAD")
#: Maximum size of a request in bytes; decisions about ten thousand rows take one million.
MOST_BYTES = 4 << 20


def new_token() -> str:
    """A random token: 256 bits."""
    return secrets.token_urlsafe(32)


class Guard:
    """ASGI middleware that refuses requests which do not come from the page.

    Parameters
    ----------
    app : ASGI application
    token : str
    port : int
        The port that hosts and origins must name.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        # Cookies are shared by all ports: the name separates servers, and the value does not reveal the token.
        self.cookie = f"noisegate-{port}"
        self.session = hashlib.sha256(b"session:" + token.encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        answer = self._refusal(scope) or self._welcome(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if answer is not None:
            await answer(scope, receive, guarded)
        else:
            await self.app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """The reason for refusing a request; None if it is accepted."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self.hosts:
            return _refused("this server answers to 127.0.0.1 and localhost only")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return _refused("requests from another origin are refused")
        first = scope["path"] == "/" and scope["method"] in _SAFE
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not first:
            return _refused("requests from another site are refused")
        if int(headers.get("content-length") or 0) > MOST_BYTES:
            return _refused("the request is too long", 413)
        token = headers.get(TOKEN_HEADER, "")
        if scope["method"] not in _SAFE:
            return None if self._is_token(token) else _refused("the token is missing or wrong")
        if self._is_token(token) or self._has_session(headers) or self._brings_token(scope):
            return None
        return _refused("open the address that `noisegate review` printed: it carries the token")

    def _welcome(self, scope: Scope) -> Response | None:
        """Answer the first visit: set the cookie; the page moves the token from the address to its storage."""
        if not self._brings_token(scope):
            return None
        rest = [(k, v) for k, v in QueryParams(scope["query_string"]).multi_items() if k != "token"]
        address = "/" + (f"?{urlencode(rest)}" if rest else "") + f"#token={self.token}"
        response = RedirectResponse(address, status_code=303)
        response.set_cookie(self.cookie, self.session, httponly=True, samesite="strict", path="/")
        return response

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.token.encode())

    def _brings_token(self, scope: Scope) -> bool:
        if scope["path"] != "/" or scope["method"] not in _SAFE:
            return False
        return self._is_token(QueryParams(scope["query_string"]).get("token", ""))

    def _has_session(self, headers: Headers) -> bool:
        return hmac.compare_digest(_cookies(headers).get(self.cookie, "").encode(), self.session.encode())


def _cookies(headers: Mapping[str, str]) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return {name: value for name, _, value in pairs}


def _refused(why: str, status: int = 403) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)
