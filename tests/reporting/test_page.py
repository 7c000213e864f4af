"""The page: one file, well formed, escaped, nothing fetched."""

import base64
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from noisegate.errors import InputError
from noisegate.reporting import plots
from noisegate.reporting.page import Page, Span

VOID = {"meta", "img", "br", "hr"}


class Outline(HTMLParser):
    """Checks that tags are closed in order; collects tags, attributes and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style" and data.strip():
            self.texts.append((self.open[-1], data.strip()))


def tags(outline, name):
    return [attributes for tag, attributes in outline.tags if tag == name]


def full_page():
    figure = plots.heat_map(np.eye(2))
    return (
        Page("A <b>title</b>", "What & why")
        .section("One")
        .text("first", "second")
        .bullets(["a", "b"])
        .code("noisegate demo")
        .facts([("seed", 0)])
        .table(
            [["ce", 0.5, "1 of 2"], ["ln", 0.75, "0 of 2"]], ["method", "accuracy", "wrong"], caption="Both."
        )
        .figure(figure, "A map")
        .figures([(plots.png(figure), "left"), (figure, "right", "a map again")])
    )


def test_everything_is_there_once_and_in_order():
    outline = Outline(full_page().html())
    expected = [
        ("title", "A <b>title</b>"),
        ("h1", "A <b>title</b>"),
        ("p", "What & why"),
        ("h2", "One"),
        ("p", "first"),
        ("p", "second"),
        ("li", "a"),
        ("li", "b"),
        ("pre", "noisegate demo"),
        ("dt", "seed"),
        ("dd", "0"),
        *[("th", name) for name in ("method", "accuracy", "wrong")],
        *[("td", cell) for cell in ("ce", "0.5", "1 of 2", "ln", "0.75", "0 of 2")],
        *[("figcaption", text) for text in ("Both.", "A map", "left", "right")],
    ]
    assert outline.texts[:-1] == expected
    assert outline.texts[-1][0] == "footer"


def test_figures_are_inside_and_described():
    outline = Outline(full_page().html())
    images = tags(outline, "img")
    assert [image["alt"] for image in images] == ["A map", "left", "a map again"]
    for image in images:
        head, _, data = image["src"].partition(",")
        assert head == "data:image/png;base64"
        assert base64.b64decode(data, validate=True).startswith(b"\x89PNG")


def test_nothing_is_fetched_or_run():
    page = full_page().html()
    outline = Outline(page)
    assert not tags(outline, "script")
    assert not tags(outline, "link")
    assert not re.search(r"https?://|@import|url\(", page)
    policy = next(
        a["content"] for a in tags(outline, "meta") if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy


@pytest.mark.parametrize(
    "add",
    [
        lambda page, text: page.section(text),
        lambda page, text: page.text(text),
        lambda page, text: page.bullets([text]),
        lambda page, text: page.code(text),
        lambda page, text: page.facts([(text, text)]),
        lambda page, text: page.table([[text]], [text], caption=text),
        lambda page, text: page.table([[(Span(text), Span(text, bold=True, soft=True, below=True))]], [text]),
        lambda page, text: page.table([[text, text]], [text, text], groups=[[(text, 2)]], row_headers=True),
        lambda page, text: page.figure(b"", text),
    ],
)
def test_no_text_becomes_markup(add):
    evil = '"><script>alert(1)</script><img src=x onerror="y'
    outline = Outline(add(Page(evil, evil), evil).html())
    assert not tags(outline, "script")
    assert all("onerror" not in image for image in tags(outline, "img"))
    assert outline.texts.count(("h1", evil)) == 1


def test_numbers_are_aligned():
    page = Page("t").table([["a", 1, "1 of 2", True], ["b", 2.5, "0 of 2", False]], ["n", "x", "w", "f"])
    outline = Outline(page.html())
    marked = [attributes.get("class") for attributes in tags(outline, "td")]
    assert marked == [None, "number", None, None] * 2
    chosen = Outline(Page("t").table([["a", "1 of 2"]], ["n", "w"], numbers=[1]).html())
    assert [a.get("class") for a in tags(chosen, "th")] == [None, "number"]


def test_a_cell_may_be_bold_in_part_and_have_two_lines():
    cell = (Span("98.85", bold=True), Span(" (n=5)", soft=True), Span("paper 98.60", soft=True, below=True))
    page = Page("t").table([["ce", cell]], ["method", "accuracy"]).html()
    inner = '<strong>98.85</strong><span class="soft"> (n=5)</span><br><span class="soft">paper 98.60</span>'
    assert f"<td>{inner}</td>" in page
    Outline(page)


def test_headings_span_their_columns():
    page = Page("t").table(
        [["ce", 1, 2, 3]], ["m", "a", "b", "c"], groups=[[("", 1), ("A & B", 2), ("C", 1)]], row_headers=True
    )
    outline = Outline(page.html())
    assert [a.get("colspan") for a in tags(outline, "th")][:3] == ["1", "2", "1"]
    assert ("th", "A & B") in outline.texts
    # The names of the rows are headers too.
    assert [a for a in tags(outline, "th") if a.get("scope") == "row"] == [{"scope": "row"}]
    with pytest.raises(InputError, match="4 columns"):
        Page("t").table([["ce", 1, 2, 3]], ["m", "a", "b", "c"], groups=[[("A", 2)]])


def test_a_natural_figure_is_not_blown_up():
    figure = plots.heat_map(np.eye(2))
    wide = int.from_bytes(plots.png(figure)[16:20], "big")
    (image,) = tags(Outline(Page("t").figure(figure, "c", natural=True).html()), "img")
    assert image["style"] == f"max-width: {wide * 5 // 6}px"
    assert wide / 150 == pytest.approx(figure.get_figwidth(), abs=0.01)


def test_an_empty_table_is_a_header():
    outline = Outline(Page("t").table([], ["a", "b"]).html())
    assert outline.texts[2:4] == [("th", "a"), ("th", "b")]


def test_write(tmp_path):
    page = full_page()
    path = page.write(tmp_path / "deep" / "report.html")
    assert path == tmp_path / "deep" / "report.html"
    assert path.read_text(encoding="utf-8") == page.html()
