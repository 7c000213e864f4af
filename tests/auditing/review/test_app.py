"""What the page asks for and gets: rows, pages of them, decisions, conflicts, progress."""

import numpy as np
import pytest

from noisegate.auditing import stored


def test_rows_come_worst_first_in_pages(client):
    seen, after = [], -1
    while True:
        page = client.rows(show="all", state="all", after=after, limit=50)
        if not page["rows"]:
            break
        assert page["first"] == len(seen)
        seen += page["rows"]
        after = seen[-1]["rank"]
    assert [row["rank"] for row in seen] == list(range(120))
    qualities = [row["quality"] for row in seen]
    assert qualities == sorted(qualities)
    back = client.rows(show="all", state="all", before=seen[70]["rank"], limit=20)
    assert back["rows"] == seen[50:70]
    assert back["first"] == 50
    at = client.rows(show="all", state="all", at=seen[30]["row"], limit=1)
    assert at["rows"] == [seen[30]]


def test_filters(client):
    audit = stored.read(client.review.audit.folder)
    rows, names = audit.rows, audit.classes
    pair = client.rows(show="all", state="all", given="cat", suggested="dog", limit=200)
    wanted = (rows["given_label"] == names.index("cat")) & (rows["suggested_label"] == names.index("dog"))
    assert [row["row"] for row in pair["rows"]] == rows["row"][wanted].tolist()
    low = client.rows(show="all", state="all", qmin=0.2, qmax=0.6, limit=200)
    assert low["total"] == rows["quality"].between(0.2, 0.6).sum() > 0
    assert client.rows(show="sure")["total"] == rows["is_sure"].sum()
    assert client.rows()["total"] == rows["is_label_issue"].sum()
    assert {row["id"] for row in client.rows(show="all", name="11", limit=200)["rows"]} == {
        name for name in rows["id"] if "11" in name
    }
    assert client.rows(given="unicorn")["total"] == 0


@pytest.mark.parametrize(
    "query", [{"show": "some"}, {"state": "x"}, {"qmin": "low"}, {"qmax": "nan"}, {"after": "z"}]
)
def test_wrong_filters_say_what_is_expected(client, query):
    answer = client.get("/api/rows", params=query)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_row_says_why(client):
    row = client.rows()["rows"][0]
    probs = client.review.audit.probs[row["row"]]
    assert row["top"] == [[int(k), pytest.approx(float(probs[k]))] for k in np.argsort(-probs)[:5]]
    assert [near["similarity"] for near in row["neighbours"]] == pytest.approx([0.9, 0.8, 0.7])
    near = client.rows(show="all", state="all", at=row["neighbours"][0]["row"], limit=1)["rows"][0]
    assert near["given"] == row["neighbours"][0]["given"]
    assert near["view"] == row["neighbours"][0]["view"]
    assert client.rows(show="all", state="all", at=0, limit=1)["rows"][0]["duplicates"][0]["row"] == 1


def test_decisions_take_rows_out_of_the_open_ones(client):
    before = client.rows()
    first, second, third = before["rows"][:3]
    client.decide(first, "accept")
    client.decide(second, "keep")
    client.decide(third, "skip")
    assert client.rows()["total"] == before["total"] - 3
    decided = client.rows(state="decided")["rows"]
    assert [row["state"]["label"] for row in decided] == [first["suggested"], second["given"]]
    assert [row["row"] for row in client.rows(state="changed")["rows"]] == [first["row"]]
    assert [row["row"] for row in client.rows(state="kept")["rows"]] == [second["row"]]
    assert [row["row"] for row in client.rows(state="skipped")["rows"]] == [third["row"]]
    progress = client.get("/api/progress", params={"since": 0}).json()
    assert (progress["decided"], progress["skipped"]) == (2, 1)
    assert progress["left"] == before["total"] - 2
    assert [change["row"] for change in progress["changed"]] == [first["row"], second["row"], third["row"]]
    assert progress["can"] == {"undo": True, "redo": False}


def test_undo_and_redo_over_http(client):
    row = client.rows()["rows"][0]
    client.decide(row, "skip")
    assert client.post("/api/undo", {}).json()["changed"][0]["decision"] == ""
    assert client.post("/api/redo", {}).json()["changed"][0]["decision"] == "skip"
    client.post("/api/undo", {})
    nothing = client.post("/api/undo", {})
    assert nothing.status_code == 200
    assert nothing.json()["action"] is None


def test_a_conflict_is_shown_and_nothing_overwritten(client):
    row = client.rows()["rows"][0]
    client.decide(row, "keep", reviewer="bo")
    answer = client.decide(row, "accept")
    assert answer.status_code == 409
    conflict = answer.json()["conflicts"][0]
    assert (conflict["reviewer"], conflict["decision"], conflict["row"]) == ("bo", "keep", row["row"])
    assert client.decide(row, "accept", seen=conflict["version"]).status_code == 200


def test_a_bulk_decision_takes_the_whole_filter(client):
    pair = {"show": "all", "state": "open", "given": "cat"}
    total = client.rows(**pair, limit=1)["total"]
    row = client.rows(**pair)["rows"][0]
    revision = client.rows()["revision"]
    client.decide(row, "skip", reviewer="bo")
    body = {"filter": pair | {"state": "all"}, "decision": "accept", "revision": revision}
    told = client.post("/api/decide-all", body).json()
    assert told["n_changed"] == total - 1
    assert [conflict["row"] for conflict in told["conflicts"]] == [row["row"]]
    assert client.rows(**pair)["total"] == 0
    decided = client.rows(show="all", state="decided", given="cat", limit=200)["rows"]
    assert all(known["state"]["label"] == known["suggested"] for known in decided)
    client.post("/api/undo", {})
    assert client.rows(**pair)["total"] == total - 1


def test_the_estimate_follows_the_decisions(client):
    before = client.get("/api/progress").json()["errors_left"]["value"]
    client.decide(client.rows(limit=1)["rows"][0], "keep")
    first = client.get("/api/progress").json()
    assert 0 < first["precision"]["look"]["value"] < 1
    for row in client.rows(limit=30)["rows"]:
        client.decide(row, "keep")
    client.review._learnt = None
    after = client.get("/api/progress").json()
    assert after["found"] == 0
    assert after["errors_left"]["value"] < before - 15
    for row in client.rows(limit=200)["rows"]:
        client.decide(row, "keep")
    client.review._learnt = None
    after = client.get("/api/progress").json()
    assert after["left"] == 0
    assert after["precision"]["look"]["value"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"choices": []},
        {"choices": "all"},
        {"choices": [{"row": 10**9, "decision": "keep", "seen": 0}]},
        {"choices": [{"row": -1, "decision": "keep", "seen": 0}]},
        {"choices": [{"row": 1.5, "decision": "keep", "seen": 0}]},
        {"choices": [{"row": True, "decision": "keep", "seen": 0}]},
        {"choices": [{"row": 1, "decision": "burn", "seen": 0}]},
        {"choices": [{"row": 1, "decision": "choose", "label": 99, "seen": 0}]},
        {"choices": [{"row": 1, "decision": "choose", "label": "cat", "seen": 0}]},
        {"choices": [{"row": 1, "decision": "keep"}]},
        {"choices": [{"row": 1, "decision": "keep", "seen": 0}] * 2},
        {"choices": [{"row": 1, "decision": "keep", "seen": 0}], "key": "short"},
        {"choices": [{"row": 1, "decision": "keep", "seen": 0}], "reviewer": "x" * 101},
    ],
)
def test_requests_that_cannot_be_are_refused(client, body):
    answer = client.post("/api/decide", body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert client.review.log.revision() == 0


def test_only_json_is_read(client):
    for kind, content in (("text/plain", "{}"), ("application/json", "{"), ("application/json", "[1]")):
        answer = client.http.post("/api/undo", content=content, headers={"content-type": kind})
        assert answer.status_code == 400


def test_two_servers_of_one_audit_follow_each_other(client, review_of, visit):
    other = visit(review_of(client.review.audit.folder))
    row = client.rows()["rows"][0]
    client.decide(row, "keep")
    assert row["row"] not in [known["row"] for known in other.rows()["rows"]]
    assert other.decide(row, "accept", reviewer="bo").status_code == 409


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [{"row": 0, "decision": "keep", "seen": 0}], "key": "abcdefgh", "reviewer": "\\ud800"}',
        b'{"choices": [{"row": 0, "decision": "keep", "seen": 0}], "key": "abcdefgh\\ud800"}',
        b'{"choices": [{"row": 0, "decision": [1], "seen": 0}], "key": "abcdefgh"}',
        b'{"choices": [{"row": 0, "decision": {}, "seen": 0}], "key": "abcdefgh"}',
        b'{"choices": [{"row": 0, "decision": "keep", "seen": 1' + b"0" * 300 + b'}], "key": "abcdefgh"}',
        b'{"choices": [{"row": 1' + b"0" * 5000 + b', "decision": "keep", "seen": 0}], "key": "abcdefgh"}',
        b"[" * 100_000,
    ],
)
def test_bodies_that_no_page_sends_are_refused(client, body):
    answer = client.http.post("/api/decide", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]


@pytest.mark.parametrize("number", ["1e400", "9" * 30, "9" * 5000, "-" + "9" * 30])
def test_numbers_that_no_page_sends_are_refused(client, number):
    assert client.get("/api/progress", params={"since": number}).status_code == 400
    assert client.get("/api/rows", params={"after": number}).status_code == 400
