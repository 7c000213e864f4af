"""Fetching from a server on this machine that gives good, damaged, cut-off and hostile files."""

import hashlib
import http.server
import io
import sys
import tarfile
import threading

import pytest

from noisegate.data import DATASETS, Remote, Source, load
from noisegate.data import download as download_module
from noisegate.data.download import extract, fetch, status
from noisegate.data.registry import Entry
from noisegate.errors import DamagedFileError, InputError, MissingDataError, UnknownNameError

GOOD = bytes(range(256)) * 8000  # two chunks


def md5(content):
    return hashlib.md5(content).hexdigest()


@pytest.fixture
def server():
    """Serves `files`: name -> (body, stated length); remembers what was asked for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rsplit("/", 1)[-1]
            self.server.asked.append(name)
            if name not in self.server.files:
                self.send_error(404)
                return
            body, length = self.server.files[name]
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.asked = {}, []
        running.url = f"http://127.0.0.1:{running.server_port}/data"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def dataset(monkeypatch):
    """Register a dataset of the given files for one test."""

    def add(*remotes, places=("thing",), files=None):
        source = Source(places, files or tuple(remote.name for remote in remotes), remotes)
        monkeypatch.setitem(DATASETS, "thing", Entry("thing", "a thing", lambda: None, source))

    return add


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_good_file_is_fetched_once(server, dataset, tmp_path):
    server.files["a.gz"] = (GOOD, len(GOOD))
    dataset(Remote("a.gz", md5(GOOD), (server.url,)))
    seen = []
    folder = fetch("thing", tmp_path, progress=lambda *what: seen.append(what))
    assert folder == tmp_path / "thing"
    assert (folder / "a.gz").read_bytes() == GOOD
    assert tree(tmp_path) == ["thing/a.gz"]
    assert seen[-1] == ("a.gz", len(GOOD), len(GOOD))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    fetch("thing", tmp_path)
    assert server.asked == ["a.gz"]


@pytest.mark.parametrize(
    ("body", "length", "message"),
    [
        (b"\1" + GOOD[1:], len(GOOD), "is published: damaged on the way"),
        (GOOD[:-1], len(GOOD) - 1, "gave 2047999 bytes"),
        (b"", 0, "gave 0 bytes"),
        (GOOD[:1_500_000], len(GOOD), "broke off after"),
    ],
    ids=["corrupted", "short", "empty", "truncated"],
)
def test_a_damaged_download_leaves_nothing(server, dataset, tmp_path, body, length, message):
    server.files["a.gz"] = (body, length)
    dataset(Remote("a.gz", md5(GOOD), (server.url,)))
    with pytest.raises(DamagedFileError, match=message) as error:
        fetch("thing", tmp_path)
    assert tree(tmp_path) == []
    assert "\n" not in str(error.value)


def test_a_damaged_download_leaves_the_old_file(server, dataset, tmp_path):
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "a.gz").write_bytes(b"old")
    server.files["a.gz"] = (GOOD[:-5], len(GOOD) - 5)
    dataset(Remote("a.gz", md5(GOOD), (server.url,)))
    with pytest.raises(DamagedFileError):
        fetch("thing", tmp_path, replace=True)
    assert (tmp_path / "thing" / "a.gz").read_bytes() == b"old"


def test_a_wrong_checksum_on_disk_is_said_and_replaced_on_request(server, dataset, tmp_path):
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "a.gz").write_bytes(b"old")
    server.files["a.gz"] = (GOOD, len(GOOD))
    dataset(Remote("a.gz", md5(GOOD), (server.url,)))
    with pytest.raises(DamagedFileError, match=f"its MD5 is {md5(b'old')} and the published one {md5(GOOD)}"):
        fetch("thing", tmp_path)
    assert server.asked == []
    fetch("thing", tmp_path, replace=True)
    assert (tmp_path / "thing" / "a.gz").read_bytes() == GOOD


def test_the_next_mirror_is_tried(server, dataset, tmp_path):
    server.files["a.gz"] = (GOOD, len(GOOD))
    dataset(Remote("a.gz", md5(GOOD), ("http://127.0.0.1:9/nothing", server.url)))
    fetch("thing", tmp_path)
    assert tree(tmp_path) == ["thing/a.gz"]


def test_unreachable_says_which_files_to_put_where(server, dataset, tmp_path):
    dataset(Remote("a.gz", md5(GOOD), (server.url, "http://127.0.0.1:9/")))
    with pytest.raises(MissingDataError) as error:
        fetch("thing", tmp_path)
    message = str(error.value)
    assert message.startswith("thing: could not reach")
    assert f"{server.url}/a.gz (HTTP 404)" in message
    assert "127.0.0.1:9/a.gz (ConnectionError)" in message
    assert message.endswith(f"get a.gz elsewhere and put into {tmp_path / 'thing'}")
    assert "\n" not in message
    assert tree(tmp_path) == []


def test_base_url_replaces_the_addresses(server, dataset, tmp_path):
    server.files["a.gz"] = (GOOD, len(GOOD))
    dataset(Remote("a.gz", md5(GOOD), ("http://127.0.0.1:9",)))
    fetch("thing", tmp_path, base_url=server.url + "/")
    assert tree(tmp_path) == ["thing/a.gz"]


def test_optional_files_come_on_request(server, dataset, tmp_path):
    server.files.update({"a": (b"a", 1), "b": (b"b", 1)})
    dataset(
        Remote("a", md5(b"a"), (server.url,)),
        Remote("b", md5(b"b"), (server.url,), optional=True),
        files=("a",),
    )
    fetch("thing", tmp_path)
    assert tree(tmp_path) == ["thing/a"]
    fetch("thing", tmp_path, optional=True)
    assert tree(tmp_path) == ["thing/a", "thing/b"]


def tar_of(members):
    """A .tar.gz; a member is (name, content), or (name, None, link target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content, *target in members:
            info = tarfile.TarInfo(name)
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, target[0]
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def archive_dataset(server, dataset, content, members):
    server.files["a.tar.gz"] = (content, len(content))
    remote = Remote("a.tar.gz", md5(content), (server.url,), members)
    dataset(remote, places=("thing/inner", "inner"), files=tuple(name.split("/")[1] for name in members))


def test_an_archive_is_unpacked_and_not_fetched_again(server, dataset, tmp_path):
    members = {"inner/one": md5(b"1"), "inner/two": md5(b"2")}
    content = tar_of([("inner/one", b"1"), ("inner/two", b"2"), ("inner/readme", b"r")])
    archive_dataset(server, dataset, content, members)
    assert fetch("thing", tmp_path) == tmp_path / "thing" / "inner"
    assert tree(tmp_path) == ["thing/inner/one", "thing/inner/readme", "thing/inner/two"]
    fetch("thing", tmp_path)
    assert server.asked == ["a.tar.gz"]
    (tmp_path / "thing" / "inner" / "two").unlink()
    fetch("thing", tmp_path)
    assert server.asked == ["a.tar.gz"] * 2
    (tmp_path / "thing" / "inner" / "two").write_bytes(b"other")
    with pytest.raises(DamagedFileError, match="two is there, but its MD5"):
        fetch("thing", tmp_path)


def test_files_that_lie_elsewhere_are_completed_there(server, dataset, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one").write_bytes(b"1")
    content = tar_of([("inner/one", b"1"), ("inner/two", b"2")])
    archive_dataset(server, dataset, content, {"inner/one": md5(b"1"), "inner/two": md5(b"2")})
    assert fetch("thing", tmp_path) == tmp_path / "inner"
    assert tree(tmp_path) == ["inner/one", "inner/two"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("inner/one", b"1"), ("../escape", b"x")], "leads outside; nothing was unpacked"),
        ([("inner/one", b"1"), ("inner/../../escape", b"x")], "leads outside"),
        ([("inner/one", b"1"), ("/tmp/noisegate-escape", b"x")], "leads outside"),
        ([("inner/one", b"1"), ("inner/link", None, "/etc")], "no plain file"),
        ([("inner/other", b"1")], "lacks inner/one"),
        ([("inner/one", b"changed")], "inner/one has the MD5"),
    ],
)
def test_hostile_or_wrong_archives_are_refused(server, dataset, tmp_path, members, message):
    archive_dataset(server, dataset, tar_of(members), {"inner/one": md5(b"1")})
    root = tmp_path / "deep" / "root"
    with pytest.raises(DamagedFileError, match=message):
        fetch("thing", root)
    assert tree(tmp_path) == []


def test_an_archive_out_of_reach_says_where_to_unpack_it(server, dataset, tmp_path):
    archive_dataset(server, dataset, b"", {"inner/one": md5(b"1")})
    server.files.clear()
    with pytest.raises(MissingDataError, match="HTTP 404") as error:
        fetch("thing", tmp_path)
    made = tmp_path / "thing" / "inner"
    assert str(error.value).endswith(
        f"get a.tar.gz elsewhere and unpack in {made.parent}, which makes {made}"
    )
    assert tree(tmp_path) == []


def test_a_cut_off_archive_is_refused(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(tar_of([("inner/one", GOOD)])[:-300])
    with pytest.raises(DamagedFileError, match="damaged archive"):
        extract(tmp_path / "a.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_mnist_comes_in_the_layout_its_loader_reads(server, tmp_path, write_idx, monkeypatch):
    write_idx(tmp_path / "made")
    entry = DATASETS["mnist"]
    remotes = []
    for remote in entry.source.remotes:
        body = (tmp_path / "made" / remote.name).read_bytes()
        server.files[remote.name] = (body, len(body))
        remotes.append(Remote(remote.name, md5(body), remote.urls))
    source = Source(entry.source.places, entry.source.files, tuple(remotes))
    monkeypatch.setitem(DATASETS, "mnist", Entry("mnist", entry.description, entry.loader, source))
    fetch("mnist", tmp_path / "root", base_url=server.url)
    assert len(load("mnist", root=tmp_path / "root").train) == 30


def test_published_checksums_are_well_formed_and_distinct():
    remotes = {r.name + r.md5: r for e in DATASETS.values() if e.source for r in e.source.remotes}
    sums = [r.md5 for r in remotes.values()] + [
        m for r in remotes.values() for m in (r.members or {}).values()
    ]
    assert len(sums) == len(set(sums)) == 4 + 4 + 2 + 3 + 7 + 3
    assert all(len(s) == 32 and int(s, 16) for s in sums)
    assert all(url.startswith(("https://", "http://")) for r in remotes.values() for url in r.urls)


def test_what_cannot_be_fetched_says_so(tmp_path):
    with pytest.raises(InputError, match="digits needs no download"):
        fetch("digits", tmp_path)
    with pytest.raises(
        MissingDataError, match=r"cifar10n cannot be fetched: .*put CIFAR-10_human\.pt into .*cifar-n"
    ):
        fetch("cifar10n", tmp_path)
    with pytest.raises(UnknownNameError, match="did you mean 'mnist'"):
        fetch("mnits", tmp_path)
    (tmp_path / "cifar-n").mkdir()
    (tmp_path / "cifar-n" / "cifar10n.npz").touch()
    assert fetch("cifar10n", tmp_path) == tmp_path / "cifar-n"


def test_without_pooch_the_extra_is_named(dataset, tmp_path, monkeypatch):
    dataset(Remote("a", md5(b"a"), ("http://127.0.0.1:9",)))
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(InputError, match=r"pip install noisegate\[data\]"):
        fetch("thing", tmp_path)
    assert tree(tmp_path) == []


def test_a_full_disk_leaves_nothing(server, dataset, tmp_path, monkeypatch):
    server.files["a.gz"] = (GOOD, len(GOOD))
    dataset(Remote("a.gz", md5(GOOD), (server.url,)))

    def full(self, chunk):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download_module._Checked, "write", full)
    with pytest.raises(OSError, match="No space left"):
        fetch("thing", tmp_path)
    assert tree(tmp_path) == []


def test_status_tells_where_or_how(tmp_path, write_idx):
    write_idx(tmp_path / "mnist")
    found = {row.name: row for row in status(tmp_path)}
    assert list(found) == sorted(DATASETS)
    assert found["mnist"].available
    assert found["mnist"].folder == tmp_path / "mnist"
    assert found["digits"].available
    assert found["digits"].advice == "built in"
    assert not found["cifar10"].available
    assert found["cifar10"].advice == "noisegate data fetch cifar10"
    assert "github.com/UCSC-REAL" in found["cifar10n"].advice
