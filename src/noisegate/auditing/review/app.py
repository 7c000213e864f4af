"""The HTTP interface of the review page: its files, rows, pictures, decisions."""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from noisegate.auditing.review.filters import Filter
from noisegate.auditing.review.security import MOST_BYTES, Guard
from noisegate.auditing.review.session import MOST_ROWS, Review
from noisegate.errors import InputError, MissingDataError, NoisegateError, shown

# A fixed list, so that names in requests never become paths.
_FILES = {
    "review.js": "text/javascript; charset=utf-8",
    "review.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_PICTURE_SIDES = (32, 1600)
_MOST_NAME = 100
#: Numbers in addresses are smaller: larger ones are none that SQLite or a browser knows.
_LARGEST = 2**53


def build(review: Review, *, token: str, port: int, reviewer: str) -> Starlette:
    """The ASGI application of one audit's review.

    Parameters
    ----------
    review : Review
    token : str
        Required in requests that change something.
    port : int
        The port of the server, which is part of its host and origin.
    reviewer : str
        Default name of the reviewer.
    """
    pages = _Pages(review, reviewer)
    routes = [
        Route("/", pages.page),
        Route("/static/{name}", pages.static),
        Route("/api/audit", _answers(pages.audit)),
        Route("/api/rows", _answers(pages.rows)),
        Route("/api/progress", _answers(pages.progress)),
        Route("/api/picture/{row:int}", pages.picture),
        Route("/api/decide", _answers(pages.decide), methods=["POST"]),
        Route("/api/decide-all", _answers(pages.decide_all), methods=["POST"]),
        Route("/api/undo", _answers(functools.partial(pages.step, kind="undo")), methods=["POST"]),
        Route("/api/redo", _answers(functools.partial(pages.step, kind="redo")), methods=["POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token, port=port)])


def _answers(function: Callable[..., dict[str, Any]]) -> Callable[[Request], Any]:
    """Make a handler that answers with JSON; errors of the user have status 400."""

    async def handle(request: Request) -> Response:
        try:
            body = await _body(request) if request.method == "POST" else {}
            result = await run_in_threadpool(function, request, body)
        except NoisegateError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except ClientDisconnect:  # nobody is left to answer
            return Response(status_code=400)
        except sqlite3.DatabaseError as error:
            # A full disk, a held lock or a damaged file: nothing was stored, and the page tries again.
            return JSONResponse({"error": f"the decision could not be stored ({error})"}, status_code=503)
        conflict = request.method == "POST" and not result["n_changed"] and result["n_conflicts"]
        return JSONResponse(result, status_code=409 if conflict else 200)

    return handle


async def _body(request: Request) -> dict[str, Any]:
    """Read the request's JSON object, up to a limit of bytes."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InputError("expected JSON (content-type: application/json)")
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise InputError("the request is too long")
    try:
        body = json.loads(bytes(content))
        json.dumps(
            body, ensure_ascii=False
        ).encode()  # half of a surrogate pair can be neither stored nor shown
    except (ValueError, RecursionError):
        raise InputError("the request is not readable JSON") from None
    if not isinstance(body, dict):
        raise InputError("expected a JSON object")
    return body


class _Pages:
    """The handlers of one review."""

    def __init__(self, review: Review, reviewer: str) -> None:
        self.review, self.reviewer = review, reviewer
        self.files = resources.files(__package__) / "static"

    def page(self, request: Request) -> Response:
        """The page itself; it holds no data and no token."""
        return Response((self.files / "page.html").read_bytes(), media_type="text/html; charset=utf-8")

    def static(self, request: Request) -> Response:
        """The page's script and style."""
        name = request.path_params["name"]
        if name not in _FILES:
            return PlainTextResponse("there is no such file\n", status_code=404)
        return Response((self.files / name).read_bytes(), media_type=_FILES[name])

    def audit(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """The constant facts of the audit, and the reviewer."""
        return self.review.describe() | {"reviewer": self.reviewer}

    def rows(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Rows of a filter."""
        query = request.query_params
        before = _integer(query, "before")
        after = _integer(query, "after")
        at = _integer(query, "at")
        if at is not None and 0 <= at < len(self.review.audit):
            after = int(self.review.rank[at]) - 1
        return self.review.rows(
            Filter.of(query),
            after=-1 if after is None else after,
            before=before,
            limit=_integer(query, "limit") or 30,
        )

    def progress(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """The progress of the review, and recent changes."""
        reviewer = str(request.query_params.get("as") or self.reviewer)
        told = self.review.progress(Filter.of(request.query_params), _integer(request.query_params, "since"))
        return told | {"can": self.review.log.can(reviewer)}

    async def picture(self, request: Request) -> Response:
        """A picture of a row."""
        row = int(request.path_params["row"])
        layer = request.query_params.get("layer", "")
        try:
            size = _integer(request.query_params, "size") or 400
            size = min(max(size, _PICTURE_SIDES[0]), _PICTURE_SIDES[1])
            if row >= len(self.review.audit):
                raise MissingDataError(f"there is no row {row}")
            data = await run_in_threadpool(self.review.content.picture, row, layer, size)
        except (NoisegateError, OSError) as error:
            return PlainTextResponse(f"{error}\n", status_code=404)
        kind = "image/png" if data.startswith(b"\x89PNG") else "image/jpeg"
        return Response(data, media_type=kind)

    def decide(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Decide about single rows."""
        choices = body.get("choices")
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise InputError("expected a list of choices")
        if not 0 < len(choices) <= MOST_ROWS * 50:
            raise InputError(f"expected 1 to {MOST_ROWS * 50} choices, got {len(choices)}")
        return self.review.decide(choices, **self._who(body))

    def decide_all(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """Decide about every row of a filter."""
        wanted, revision = body.get("filter"), body.get("revision")
        if not isinstance(wanted, dict) or not isinstance(revision, int):
            raise InputError("expected a filter and the revision that was seen")
        return self.review.decide_all(
            Filter.of(wanted),
            str(body.get("decision")),
            body.get("label"),
            revision=revision,
            **self._who(body),
        )

    def step(self, request: Request, body: dict[str, Any], kind: str) -> dict[str, Any]:
        """Undo or redo."""
        who = self._who(body)
        return self.review.undo(**who) if kind == "undo" else self.review.redo(**who)

    def _who(self, body: dict[str, Any]) -> dict[str, str]:
        key, reviewer = body.get("key"), body.get("reviewer") or self.reviewer
        if not isinstance(key, str) or not 8 <= len(key) <= _MOST_NAME:
            raise InputError("expected a key of 8 to 100 characters that names this action")
        if not isinstance(reviewer, str) or not reviewer.strip() or len(reviewer) > _MOST_NAME:
            raise InputError("expected the reviewer's name, at most 100 characters")
        return {"key": key, "reviewer": reviewer.strip()}


def _integer(query: Any, name: str) -> int | None:
    text = query.get(name)
    if text is None or text == "":
        return None
    try:
        found = int(text)
    except ValueError:
        found = _LARGEST
    if abs(found) >= _LARGEST:
        raise InputError(f"{name} must be a whole number, got {shown(repr(text), 40)}")
    return found
