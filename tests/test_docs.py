"""Every command and every code block of README.md and docs/ is run as it stands there, page by page."""

import importlib
import re
import runpy
import shlex
import sys
import time
import warnings
from pathlib import Path

import pytest

import noisegate as ng
from noisegate.cli import main
from noisegate.data import DATASETS
from noisegate.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("**/*.md") if "_" not in str(path)
)
#: Pages that train for more than a moment.
DEAR = {"docs/index.md", *(f"docs/guides/{name}.md" for name in ("segmentation", "messy-data", "annotators"))}
#: Commands that are not run here, and why. Any other command that is not noisegate's fails the test.
ELSEWHERE = {
    "noisegate fit images": "several processes; tests/training/distributed",
    "make": "what a target does is checked below; the targets themselves are CI",
    "pip install": "the wheel is built and installed in tests/test_release.py",
    "uv tool install": "needs uv; the entry point is checked in tests/test_release.py",
    "pipx install": "likewise",
    "torchrun": "tests/training/distributed",
    "python benchmarks/": "minutes to hours; tests/test_benchmarks.py",
    "python reproduction/": "tests/test_reproduction.py",
    "python tools/walk.py": "tests/test_tools.py",
    "python tests/stored/write.py": "writes files of an older version",
}
#: Studies of the papers need data and hours: their settings are checked, nothing is trained.
DRY = ("study run ln-", "study run temperature-", "study run smoothing-", "study run causalnl-")


def blocks(page):
    """(kind, content) of each fenced block: kind is the word after the fence."""
    return re.findall(r"^ *```(\w*|\{[\w-]+\}[^\n]*)\n(.*?)^ *```$", (ROOT / page).read_text(), re.S | re.M)


def commands(page):
    """The lines of blocks without a kind, joined where a backslash ends one."""
    for kind, content in blocks(page):
        if kind in ("", "bash", "console"):
            for line in content.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    yield words


def run(source, names=None):
    names = {} if names is None else names
    exec(compile(source, "<documentation>", "exec"), names)
    return names


# -- commands --------------------------------------------------------------------------------------


def decide_all(app, token):
    """What a visitor of the review page does: takes every suggestion."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which of its two HTTP clients starlette prefers
        from starlette.testclient import TestClient
    from noisegate.auditing.review.security import TOKEN_HEADER

    client = TestClient(app, base_url="http://127.0.0.1:8123", headers={TOKEN_HEADER: token})
    rows = client.get("/api/rows", params={"limit": 200}).json()["rows"]
    choices = [
        {"row": row["row"], "decision": "accept", "label": None, "seen": row["state"]["version"]}
        for row in rows
    ]
    answer = client.post("/api/decide", json={"key": "0123456789abcdef", "choices": choices})
    assert answer.status_code == 200, answer.text
    return len(rows)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Run a command of a page in an empty folder; `decided` counts the rows that were reviewed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOISEGATE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("noisegate.runs.progress.EVERY_SECONDS", float("inf"))
    decided = []

    def serve(self, sockets=None):
        decided.append(decide_all(self.config.app, "t" * 43))

    def execute(words):
        line = " ".join(words)
        if words[0] == "noisegate" and not any(line.startswith(start) for start in ELSEWHERE):
            if words[1] == "review":
                uvicorn = pytest.importorskip("uvicorn")
                monkeypatch.setattr("noisegate.auditing.review.security.new_token", lambda: "t" * 43)
                monkeypatch.setattr(uvicorn.Server, "run", serve)
                words = [*words, "--no-browser", "--port", "8123"]
            expected = 0
            if any(line.startswith(f"noisegate {start}") for start in DRY):
                words = [*words, "--dry-run"]
            elif line.startswith("noisegate study report"):
                expected = 2  # it says which study to run first
            assert main(words[1:]) == expected, line
        elif words[0] == "python" and (ROOT / words[1]).is_relative_to(ROOT / "examples"):
            monkeypatch.setattr(sys, "argv", words[1:])
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        else:
            assert any(line.startswith(start) for start in ELSEWHERE), f"not run anywhere: {line}"

    execute.decided = decided
    return execute


def targets():
    return set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "reproduction/README.md", *PAGES]
)
def test_targets_and_files_that_pages_name_are_there(page):
    for words in commands(page):
        if words[0] == "make":
            assert words[1] in targets(), words
        if words[0] == "python" and not words[1].startswith("-"):
            assert (ROOT / words[1]).exists(), words


# -- pages -----------------------------------------------------------------------------------------


def everything(page, shell):
    """Run a page from top to bottom: commands and Python share a folder, Python its names."""
    names = {"__name__": "page"}
    for kind, content in blocks(page):
        if kind in ("", "bash", "console"):
            for line in content.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    shell(words)
        elif kind == "python":
            run(content, names)
    return names


def marked(pages):
    return [pytest.param(page, marks=pytest.mark.slow) if page in DEAR else page for page in pages]


@pytest.mark.parametrize("page", marked(page for page in PAGES if "five" not in page))
def test_a_page_runs_as_it_is_printed(page, shell):
    everything(page, shell)


_NUMBER = r"\d+(?:\.\d+)?"


def near(shown, found):
    return abs(float(shown) - float(found)) <= max(3, 0.05 * float(shown))


def told(line, printed):
    """Whether the words of a line were printed, with numbers near its numbers."""
    words = re.split(_NUMBER, " ".join(line.split()))
    found = re.search(f"({_NUMBER})".join(map(re.escape, words)), " ".join(printed.split()))
    return found is not None and all(map(near, re.findall(_NUMBER, line), found.groups()))


def test_what_is_told():
    assert told("about 110   rows, 18.0%", "of these: about\n112 rows, 18.7% and more")
    assert not told("about 110 rows", "about 150 rows")
    assert not told("about 110 rows", "about 110 labels")


@pytest.mark.slow
def test_the_five_minutes_find_what_they_say(shell, tmp_path, monkeypatch, capsys):
    import pandas as pd

    monkeypatch.setenv("COLUMNS", "300")
    names = everything("docs/five-minutes.md", shell)
    printed = capsys.readouterr().out + (tmp_path / "shop.csv").read_text()
    for kind, content in blocks("docs/five-minutes.md"):
        if kind == "text":
            assert [line for line in content.splitlines() if not told(line, printed)] == []
    given, right = (pd.read_csv(tmp_path / name)["category"] for name in ("shop.csv", "shop-truth.csv"))
    corrected = pd.read_csv(tmp_path / "corrected.csv")["category"]
    wrong = (given != right).sum()
    page = " ".join((ROOT / "docs" / "five-minutes.md").read_text().split())
    assert f"600 categories, {wrong} of them wrong" in page
    pattern = rf"of the ({_NUMBER}) flagged labels ({_NUMBER}) are wrong, and of the ({_NUMBER}) all are"
    issues = ng.AuditReport.load("AUDIT").issues.set_index("row").sort_index()
    look, sure = issues["is_label_issue"], issues["is_sure"]
    is_wrong = given != right
    for shown, found in zip(
        re.search(pattern, page).groups(), (look.sum(), is_wrong[look].sum(), sure.sum()), strict=True
    ):
        assert near(shown, found)
    assert is_wrong[sure].all()
    assert shell.decided == [look.sum()]
    assert (corrected != right).sum() < wrong / 3
    to_check = names["to_check"]["row"]
    assert (given != right)[to_check].mean() > 0.9
    assert names["probabilities"].shape == (300, 5)
    assert len(pd.read_csv(tmp_path / "predictions.csv")) == 300


@pytest.mark.slow
def test_the_commands_of_the_readme(shell, tmp_path):
    import pandas as pd

    runpy.run_path(str(ROOT / "examples" / "shop.py"))["main"](str(tmp_path), n=150)
    (tmp_path / "shop-new.csv").rename(tmp_path / "new.csv")
    for words in commands("README.md"):
        shell(words)
    assert len(pd.read_csv(tmp_path / "corrected.csv")) == 150
    assert shell.decided[0] > 10


@pytest.mark.parametrize("number", range(3))
def test_the_three_ways_in_run_as_they_are_printed(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run([content for kind, content in blocks("README.md") if kind == "python"][number])
    if number == 0:
        out = capsys.readouterr().out
        assert float(out.split()[0]) > 0.9
        assert "suggested_label" in out
    if number == 1:
        assert names["probabilities"].shape == (64, 10)
    if number == 2:
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == ["ce", "gce"]
        assert all(set(names["results"].values(cell, "test_accuracy")) == {0, 1} for cell in names["mine"])


def test_what_contributing_adds_works(tmp_path):
    names = {"__name__": "contributed"}
    try:
        for kind, block in blocks("CONTRIBUTING.md"):
            if kind == "python":
                run(block, names)
        data = ng.data.load("stripes", n=300).corrupt(names["LastDigit"](0.2), seed=0)
        assert 0.05 < data.noise_report().rate < 0.15
        for method in (names["Tempered"], "two-stage"):
            assert ng.train(data, method, recipe={"epochs": 5}).metrics["test_accuracy"] > 0.3
        results = ng.studies.run(names["stripes_study"], tmp_path / "results", workers=1)
        for cell in results.study:
            assert set(results.values(cell, "test_accuracy")) == {0, 1}
    finally:
        METHODS.pop("two-stage", None)
        DATASETS.pop("stripes", None)


# -- what is in the documentation ------------------------------------------------------------------


def test_every_method_has_a_page_with_its_parts():
    for name in METHODS.own():
        page = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
        for part in ("$$", f"_facts/{name}.svg", "-parameters.md", "-measured.md", "## When it fails"):
            assert part in page, (name, part)
        assert f"\n{name}\n" in (ROOT / "docs" / "methods" / "index.md").read_text()


def test_every_public_name_has_an_example(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    names = [pair for page in importlib.import_module("generated").public_names().values() for pair in page]
    assert len(names) > 100
    assert [name for name, thing in names if ">>> " not in (thing.__doc__ or "")] == []


def test_the_readme_is_short_and_has_one_picture():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len(re.findall(r"^!\[[^\]]+\]\(", text, re.M)) == 1


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "reproduction/README.md", *PAGES]
)
def test_links_and_pictures_lead_to_files(page):
    """Those into generated folders are left to `make docs`, where a missing one is an error."""
    targets = re.findall(r"\]\((?!https?:|mailto:|[#/])([^)#\s]+)", (ROOT / page).read_text())
    missing = [
        name for name in targets if "_facts" not in name and not (ROOT / page).parent.joinpath(name).exists()
    ]
    assert missing == []


def test_the_version_is_the_same_everywhere():
    changes = (ROOT / "CHANGELOG.md").read_text()
    version, date = re.search(r"^## (\S+) \((.*)\)$", changes, re.M).groups()
    assert version == ng.__version__
    # A release has a date; what comes after it is unreleased until it has one.
    released = "" if date == "unreleased" else f"date-released: {date}\n"
    assert f"version: {version}\n{released}" in (ROOT / "CITATION.cff").read_text()


GALLERY = sorted(path.name for path in (ROOT / "examples" / "gallery").glob("plot_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", GALLERY)
def test_an_example_of_the_gallery_ends_in_a_picture(name, monkeypatch, tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    shown, started = [], time.process_time()
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.get_fignums()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    try:
        with plt.rc_context({"backend": "agg"}):
            runpy.run_path(str(ROOT / "examples" / "gallery" / name))
        assert shown == [[1]], "the last thing it does is to show one picture"
        assert time.process_time() - started < 60, "an example takes less than a minute"
        assert plt.gcf().axes
    finally:
        plt.close("all")


def test_the_gallery_is_worth_a_visit():
    assert len(GALLERY) >= 12
