"""Ten thousand decisions by two clients while the server is killed ten times: nothing is lost or doubled."""

import random
import sqlite3
import threading
import time

import httpx
import pytest

from noisegate.auditing import stored

DECISIONS, KILLS, ROWS = 10_000, 10, 700


class Reviewer(threading.Thread):
    """Decides about random rows; a request without an answer is sent again under the same key."""

    def __init__(self, server, name, n):
        super().__init__(name=name)
        self.server, self.n = server, n
        self.random = random.Random(name)
        self.known, self.answered, self.conflicts, self.again = {}, {}, 0, 0
        self.failure = None

    def run(self):
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{self.server.port}",
                headers={"x-noisegate-token": self.server.token},
                timeout=20,
            ) as self.http:
                while len(self.answered) < self.n:
                    self.step(len(self.answered))
        except Exception as error:
            self.failure = error

    def step(self, number):
        row, key = self.random.randrange(ROWS), f"{self.name}-{number:06d}"
        while True:
            choice = {"row": row, "decision": "choose", "label": self.random.randrange(3)}
            choice["seen"] = self.known.get(row, 0)
            told = self.send({"key": key, "reviewer": self.name, "choices": [choice]})
            if not told["n_conflicts"]:
                break
            # The other one was first: look at what they decided, then decide again.
            self.conflicts += 1
            self.known[row] = told["conflicts"][0]["version"]
        (changed,) = told["changed"]
        self.known[row] = changed["version"]
        self.answered[key] = (changed["version"], row, changed["label"])

    def send(self, body):
        end = time.monotonic() + 120
        while True:
            try:
                answer = self.http.post("/api/decide", json=body)
                assert answer.status_code in (200, 409), answer.text
                return answer.json()
            except httpx.TransportError:
                self.again += 1
                assert time.monotonic() < end, "the server did not come back"
                time.sleep(0.02)


@pytest.mark.slow
def test_ten_thousand_decisions_and_ten_kills(table_audit, serve, capsys):
    folder, _ = table_audit(ROWS)
    server = serve(folder)
    begin = time.monotonic()
    clients = [Reviewer(server, name, DECISIONS // 2) for name in ("ana", "bo")]
    for client in clients:
        client.start()
    for kill in range(KILLS):
        goal = (kill + 1) * DECISIONS // (KILLS + 1)
        while sum(len(client.answered) for client in clients) < goal:
            assert any(client.is_alive() for client in clients), [client.failure for client in clients]
            time.sleep(0.002)
        server.kill()
        server.restart()
    for client in clients:
        client.join()
    seconds = time.monotonic() - begin
    assert [client.failure for client in clients] == [None, None]
    with sqlite3.connect(folder / "decisions.sqlite") as db:
        lines = db.execute(
            "SELECT a.key, d.id, d.item, d.label, d.previous "
            "FROM decisions d JOIN actions a ON a.id = d.action ORDER BY d.id"
        ).fetchall()
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    # Each answer is in the log once, as it was answered, and nothing else is.
    answered = {key: told for client in clients for key, told in client.answered.items()}
    assert len(answered) == len(lines) == DECISIONS
    assert {key: (number, row, label) for key, number, row, label, _ in lines} == answered
    # Nobody overwrote what they had not seen: each decision replaces the one before it.
    last = {}
    for _, number, row, _, previous in lines:
        assert previous == last.get(row, 0)
        last[row] = number
    assert stored.read(folder).audit_id
    with capsys.disabled():
        again, conflicts = (sum(getattr(c, name) for c in clients) for name in ("again", "conflicts"))
        print(
            f"\n{DECISIONS:,} decisions, {KILLS} kills, {again:,} requests sent again, "
            f"{conflicts:,} conflicts shown, {seconds:.0f} s"
        )
