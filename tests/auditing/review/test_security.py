"""Who may talk to the page, and what its answers forbid the browser."""

import json

import pytest
from PIL import Image

from noisegate.auditing import stored
from noisegate.auditing.review.security import TOKEN_HEADER

TOKEN, PORT = "t" * 43, 8123  # those of the fixture

READS = ["/", "/static/review.js", "/api/audit", "/api/rows", "/api/progress", "/api/picture/0"]
WRITES = ["/api/decide", "/api/decide-all", "/api/undo", "/api/redo"]


@pytest.mark.parametrize("path", READS)
def test_reading_needs_the_session(client, path, visit):
    stranger = visit(client.review, token=None)
    answer = stranger.get(path)
    assert answer.status_code == 403
    assert "noisegate review" in answer.text
    stranger.http.cookies.set(f"noisegate-{PORT}", "0" * 64)
    assert stranger.get(path).status_code == 403


@pytest.mark.parametrize("token", [None, "", "x" * 43, TOKEN[:-1]])
def test_writing_needs_the_token(client, token, visit):
    visitor = visit(client.review, token=None)
    visitor.get(f"/?token={TOKEN}")
    assert visitor.get("/api/audit").status_code == 200  # the cookie is enough to read
    headers = {} if token is None else {TOKEN_HEADER: token}
    assert {visitor.post(path, {}, headers=headers).status_code for path in WRITES} == {403}
    assert client.review.log.revision() == 0


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"0.0.0.0:{PORT}",
        f"127.0.0.1.evil.example:{PORT}",
    ],
)
def test_another_host_is_refused(client, host):
    assert {client.get(path, headers={"host": host}).status_code for path in READS} == {403}
    assert {client.post(path, {}, headers={"host": host}).status_code for path in WRITES} == {403}


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        f"https://127.0.0.1:{PORT}",
        "http://127.0.0.1:1",
        f"http://localhost:{PORT}",
    ],
)
def test_another_origin_is_refused(client, origin):
    assert {client.get(path, headers={"origin": origin}).status_code for path in READS} == {403}
    assert {client.post(path, {}, headers={"origin": origin}).status_code for path in WRITES} == {403}


def test_another_site_is_refused_by_what_the_browser_says(client):
    for site in ("cross-site", "same-site"):
        assert client.get("/api/rows", headers={"sec-fetch-site": site}).status_code == 403
        assert client.post("/api/undo", {}, headers={"sec-fetch-site": site}).status_code == 403
    assert client.get("/api/rows", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_the_own_origin_may_write(client):
    row = client.rows()["rows"][0]
    answer = client.decide(row, "keep")
    assert answer.status_code == 200
    headers = {"origin": f"http://127.0.0.1:{PORT}"}
    assert client.post("/api/undo", {}, headers=headers).status_code == 200
    assert client.get("/api/rows", headers={"host": f"localhost:{PORT}"}).status_code == 200


def test_the_first_visit_moves_the_token_out_of_the_address(client, visit):
    visitor = visit(client.review, token=None)
    answer = visitor.get("/", params={"token": TOKEN, "given": "cat & <dog>"})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/?given=cat+%26+%3Cdog%3E#token={TOKEN}"
    cookie = answer.headers["set-cookie"].lower()
    assert "samesite=strict" in cookie
    assert "httponly" in cookie
    assert TOKEN not in cookie
    page = visitor.get("/")
    assert page.status_code == 200
    assert TOKEN not in page.text
    assert (
        visitor.get("/?token=wrong").status_code == 200
    )  # the cookie still holds; the wrong token changes nothing
    assert visit(client.review, token=None).get("/?token=wrong").status_code == 403


@pytest.mark.parametrize("path", [*READS, "/nothing", f"/?token={TOKEN}"])
def test_every_answer_has_a_strict_policy(client, path):
    policy = client.get(path).headers["content-security-policy"]
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == "'self'"
    assert directives["frame-ancestors"] == directives["base-uri"] == "'none'"
    assert "unsafe" not in policy
    assert "http" not in policy
    assert client.get(path).headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in client.get(path).headers


def test_the_page_brings_nothing_from_other_hosts_and_no_inline_script(client):
    page = client.get("/").text
    assert "http://" not in page
    assert "https://" not in page
    assert "<style" not in page
    assert page.count("<script") == 1
    assert " style=" not in page
    script = client.get("/static/review.js").text
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write", "https://"):
        assert forbidden not in script


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/%2fetc%2fpasswd",
        "/static/page.html",
        "/../../../../etc/passwd",
        "/api/picture/../../etc/passwd",
        "/api/picture/-1",
        "/api/picture/1e3",
        "/api/picture/999999",
    ],
)
def test_no_path_leads_out(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "import" not in answer.text


def test_links_out_of_the_folder_are_refused(folder_audit, review_of, tmp_path, visit):
    folder, top = folder_audit(12)
    secret = tmp_path / "secret.png"
    Image.new("RGB", (8, 8), "red").save(secret)
    audit = stored.read(folder)
    ids, rows = audit.rows["id"].to_numpy(object).copy(), audit.rows["row"].tolist()
    (top / ids[0]).unlink()
    (top / ids[0]).symlink_to(secret)
    ids[1], ids[2] = "../secret.png", str(secret)
    stored.write(folder, stored.StoredAudit(audit.info, audit.rows.assign(id=ids), audit.probs))
    client = visit(review_of(folder))
    for row in rows[:3]:
        answer = client.get(f"/api/picture/{row}")
        assert answer.status_code == 404
        assert "leads outside" in answer.text
    picture = client.get(f"/api/picture/{rows[3]}", params={"size": 10**9})
    assert picture.status_code == 200
    assert picture.headers["content-type"] == "image/png"


def test_markup_travels_as_data(table_audit, review_of, visit, nasty):
    folder, _ = table_audit(70, classes=nasty, cells=nasty)
    client = visit(review_of(folder))
    answer = client.get("/api/rows", params={"show": "all", "state": "all", "limit": 70})
    assert answer.headers["content-type"] == "application/json"
    cells = {text for row in answer.json()["rows"] for _, text in row["view"]["cells"]}
    assert set(nasty) <= cells
    assert client.get("/api/audit").json()["classes"] == list(nasty)
    chosen = client.get("/api/rows", params={"show": "all", "given": nasty[0], "state": "all"}).json()
    assert {row["given"] for row in chosen["rows"]} == {0}


def test_what_is_too_long_is_refused(client):
    body = json.dumps({"key": "k" * 10, "choices": [], "more": "x" * (5 << 20)})
    headers = {"content-type": "application/json"}
    assert client.http.post("/api/decide", content=body, headers=headers).status_code == 413

    def parts():
        yield from (body[i : i + 65536].encode() for i in range(0, len(body), 65536))

    assert client.http.post("/api/decide", content=parts(), headers=headers).status_code == 400
