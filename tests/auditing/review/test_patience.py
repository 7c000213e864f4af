"""Clients that do not finish: they are closed after a time, and keep nobody else waiting."""

import contextlib
import socket
import time

import httpx
import pytest

pytest.importorskip("uvicorn")

SECONDS, MOST = 1.0, 8
BEFORE = (
    "from noisegate.auditing.review import patience; "
    f"patience.SECONDS = {SECONDS}; patience.MOST_CONNECTIONS = {MOST}"
)


@pytest.fixture
def server(serve, table_audit):
    folder, _ = table_audit(40)
    return serve(folder, BEFORE)


@pytest.fixture
def connect(server):
    with contextlib.ExitStack() as stack:

        def connect(content=b""):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            client.sendall(content)
            return client

        yield connect


def closed(client, keep_sending=b""):
    """Everything that comes until the server closes, and the seconds that this took."""
    began, told = time.monotonic(), b""
    client.settimeout(0.2)
    while time.monotonic() - began < 30:
        try:
            if keep_sending:
                client.sendall(keep_sending)
            part = client.recv(65536)
        except TimeoutError:
            continue
        except OSError:  # reset
            part = b""
        if not part:
            return told, time.monotonic() - began
        told += part
    raise AssertionError(f"the connection was still open after 30 s: {told!r}")


def post(server, length, *, token=True):
    lines = [
        "POST /api/decide HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "content-type: application/json",
        f"content-length: {length}",
    ]
    lines += [f"x-noisegate-token: {server.token}"] if token else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


@pytest.mark.parametrize("drip", [b"", b"x"], ids=["silent", "dripping"])
@pytest.mark.parametrize(
    "part", ["nothing", "half a line", "half of the headers", "half of the body", "no token"]
)
def test_a_request_that_is_never_finished_is_closed(server, connect, part, drip):
    start = {
        "nothing": b"",
        "half a line": b"GET /api/au",
        "half of the headers": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nx-slow: ",
        "half of the body": post(server, 100_000) + b'{"key": "',
        "no token": post(server, 100_000, token=False) + b"{",
    }[part]
    told, seconds = closed(connect(start), drip)
    assert seconds > 0.5 * SECONDS
    if part == "no token":
        assert told.startswith(b"HTTP/1.1 403")
    else:
        assert told.startswith(b"HTTP/1.1 408") or (not told and not start + drip)
    # Everybody else is served meanwhile and afterwards.
    assert httpx.get(server.at(f"token={server.token}"), timeout=20).status_code == 303


def test_an_answer_that_is_never_read_is_closed(server, connect):
    client = connect()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    ask = f"GET /static/review.js HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    ask += f"x-noisegate-token: {server.token}\r\n\r\n"
    with pytest.raises(ConnectionError):  # a server that waits would end in a TimeoutError
        for _ in range(100_000):  # until no buffer takes more
            client.sendall(ask.encode())
    assert httpx.get(server.at(f"token={server.token}"), timeout=20).status_code == 303


def test_many_unfinished_requests_do_not_keep_others_out(serve, table_audit):
    """The server may have 64 open files; the connections that wait longest are closed before it needs more."""
    folder, _ = table_audit(40)
    few = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); patience.SECONDS = 600"
    server = serve(folder, f"{BEFORE}; {few}")
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            client.sendall(b"GET / HTTP/1.1\r\n")
        assert httpx.get(server.at(f"token={server.token}"), timeout=20).status_code == 303


def test_a_connection_is_kept_for_further_requests(server):
    with httpx.Client(headers={"x-noisegate-token": server.token}, timeout=20) as client:
        address = f"http://127.0.0.1:{server.port}/api/progress"
        sockets = set()
        for _ in range(6):
            answer = client.get(address)
            assert answer.status_code == 200
            sockets.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
            time.sleep(0.3 * SECONDS)
        assert len(sockets) == 1


def test_work_that_takes_long_is_waited_for(serve, table_audit):
    folder, _ = table_audit(40)
    slow = (
        "from noisegate.auditing.review.session import Review; import time; old = Review.progress\n"
        f"Review.progress = lambda *a: (time.sleep({3 * SECONDS}), old(*a))[1]"
    )
    server = serve(folder, f"{BEFORE}\n{slow}")
    token = {"x-noisegate-token": server.token}
    answer = httpx.get(f"http://127.0.0.1:{server.port}/api/progress", headers=token, timeout=30)
    assert answer.status_code == 200
