"""A review behind the test client, which speaks HTTP without a network."""

from __future__ import annotations

import re
import secrets
import signal
import subprocess
import sys
import warnings

import pytest

pytest.importorskip("starlette")
pytest.importorskip("httpx")

with warnings.catch_warnings():
    # Which of its two HTTP clients starlette prefers is of no matter here.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

from noisegate.auditing import stored
from noisegate.auditing.review.app import build
from noisegate.auditing.review.security import TOKEN_HEADER
from noisegate.auditing.review.session import Review

TOKEN, PORT = "t" * 43, 8123


class Client:
    """A visitor with the token, and short names for what a page asks."""

    def __init__(self, review, token=TOKEN, **headers):
        app = build(review, token=TOKEN, port=PORT, reviewer="ana")
        self.review = review
        self.http = TestClient(app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False)
        self.http.headers.update(({TOKEN_HEADER: token} if token else {}) | headers)

    def get(self, path, **options):
        return self.http.get(path, **options)

    def post(self, path, body, **options):
        return self.http.post(path, json={"key": secrets.token_hex(8)} | body, **options)

    def rows(self, **query):
        return self.get("/api/rows", params=query).json()

    def decide(self, row, decision, label=None, seen=None, **body):
        known = row["state"]["version"] if seen is None else seen
        choice = {"row": row["row"], "decision": decision, "label": label, "seen": known}
        return self.post("/api/decide", {"choices": [choice]} | body)


@pytest.fixture
def review_of():
    """Open audit folders for review; they are closed after the test."""
    opened = []

    def open_(folder):
        opened.append(Review(stored.read(folder)))
        return opened[-1]

    yield open_
    for review in opened:
        review.close()


@pytest.fixture
def visit():
    """`visit(review)`: a client with the token; with token=None, one without."""
    return Client


@pytest.fixture
def client(table_audit, review_of):
    folder, _ = table_audit(120)
    return Client(review_of(folder))


class Server:
    """`noisegate review` as a process, which can be killed and started again with the same address."""

    def __init__(self, folder, before=""):
        self.folder, self.before = folder, before  # what to execute first
        self.start(0, None)

    def start(self, port, token):
        # The command draws a new token each time; a server that is started again is told the old one.
        code = (
            f"import sys; from noisegate.auditing.review.serve import serve; {self.before}\n"
            "serve(sys.argv[1], port=int(sys.argv[2]), token=sys.argv[3] or None, reviewer='ana', "
            "started=lambda address: print(address, flush=True))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(self.folder), str(port), token or ""],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self.process.stdout.readline().strip()
        self.port, self.token = re.search(r":(\d+)/\?token=(.+)", self.address).groups()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def restart(self):
        self.start(int(self.port), self.token)

    def at(self, query):
        return f"http://127.0.0.1:{self.port}/?{query}"


@pytest.fixture
def serve():
    servers = []

    def start(folder, before=""):
        servers.append(Server(folder, before))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
