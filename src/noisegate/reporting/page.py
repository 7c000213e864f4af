"""Reports: described once from top to bottom, written as one HTML file and as Markdown."""

from __future__ import annotations

import base64
import functools
import numbers
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from noisegate._io.files import write_text
from noisegate._version import __version__
from noisegate.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Span:
    """A stretch of text in a table's cell; a cell that is a tuple of them may be bold in part.

    Attributes
    ----------
    text : str
    bold : bool, default=False
    soft : bool, default=False
        Smaller and paler, for what is said beside a number. Markdown has no such thing.
    below : bool, default=False
        Begins a new line.
    """

    text: str
    bold: bool = False
    soft: bool = False
    below: bool = False


@dataclass(frozen=True)
class Picture:
    """A figure in a report.

    Attributes
    ----------
    figure : bytes or matplotlib Figure
        A PNG, or what becomes one.
    caption : str
    alt : str, default=None
        For those who cannot see it; None: the caption.
    path : str, default=None
        Of its file beside the report, for Markdown, which leaves out pictures without one.
    natural : bool, default=False
        Not much wider than it was drawn; else as wide as the page.
    """

    figure: Figure | bytes
    caption: str
    alt: str | None = None
    path: str | None = None
    natural: bool = False


#: Columns of a table under one heading: the heading, and how many columns it spans.
Heading = tuple[str, int]


class Page:
    """Build a report from top to bottom; every method adds a block and returns the page.

    All text is escaped. In HTML, pictures are part of the file, so that it can be mailed or opened
    anywhere; there are no scripts, and nothing is fetched.

    Parameters
    ----------
    title : str
    lead : str, default=None
        A sentence or two below the title.

    Examples
    --------
    >>> page = Page("Two methods").section("Result").text("One run each.")
    >>> page = page.table([["ce", 0.75], ["ln", 0.94]], ["method", "accuracy"])
    >>> "<td class=\\"number\\">0.94</td>" in page.html()
    True
    >>> print(page.markdown())
    # Two methods
    <BLANKLINE>
    ## Result
    <BLANKLINE>
    One run each.
    <BLANKLINE>
    | method | accuracy |
    | --- | --- |
    | ce | 0.75 |
    | ln | 0.94 |
    <BLANKLINE>
    Written by noisegate ...
    """

    def __init__(self, title: str, lead: str | None = None) -> None:
        self.title, self.lead = title, lead
        self._blocks: list[dict[str, Any]] = []

    def _add(self, kind: str, **content: Any) -> Page:
        self._blocks.append({"kind": kind, **content})
        return self

    def section(self, title: str) -> Page:
        """Begin a section."""
        return self._add("section", text=title)

    def text(self, *paragraphs: str) -> Page:
        """Paragraphs."""
        return self._add("text", parts=paragraphs)

    def bullets(self, items: Iterable[str]) -> Page:
        """A list of short texts."""
        return self._add("bullets", parts=list(items))

    def code(self, text: str) -> Page:
        """Text as it would be typed."""
        return self._add("code", text=text)

    def facts(self, pairs: Iterable[tuple[str, Any]]) -> Page:
        """Names and values, one pair a line."""
        return self._add("facts", parts=list(pairs))

    def table(
        self,
        rows: Iterable[Sequence[Any]],
        header: Sequence[Any],
        *,
        caption: str | None = None,
        numbers: Iterable[int] | None = None,
        groups: Iterable[Sequence[Heading]] = (),
        row_headers: bool = False,
    ) -> Page:
        """A table.

        Parameters
        ----------
        rows : sequences of cells, as many as in `header`
            A cell is anything with a text, a `Span` or a tuple of them; so are those of `header`.
        header : sequence of cells
        caption : str, default=None
        numbers : column numbers, default=None
            Columns to align to the right; None: those that hold only numbers.
        groups : lines of headings over the header, default=()
            Each line gives (heading, how many columns it spans) from the first column to the last.
        row_headers : bool, default=False
            The first column names the rows: it stays in sight while a wide table is scrolled.
        """
        cells, lines = [list(row) for row in rows], [list(line) for line in groups]
        for line in lines:
            if sum(count for _, count in line) != len(header):
                raise InputError(f"the headings {line} do not span a table of {len(header)} columns")
        return self._add(
            "table",
            rows=[[_spans(cell) for cell in row] for row in cells],
            header=[_spans(cell) for cell in header],
            caption=caption,
            numbers=_number_columns(cells) if numbers is None else set(numbers),
            groups=lines,
            row_headers=row_headers,
        )

    def figure(
        self,
        picture: Figure | bytes,
        caption: str,
        *,
        alt: str | None = None,
        path: str | None = None,
        natural: bool = False,
    ) -> Page:
        """A figure; see `Picture` for the parameters."""
        return self._add("figure", parts=[_drawn(Picture(picture, caption, alt, path, natural))])

    def figures(
        self, items: Iterable[Picture | tuple[Figure | bytes, str] | tuple[Figure | bytes, str, str]]
    ) -> Page:
        """Figures side by side where there is room: each a `Picture`, or (picture, caption[, alt])."""
        pictures = [item if isinstance(item, Picture) else Picture(*item) for item in items]
        return self._add("figures", parts=[_drawn(picture) for picture in pictures])

    def html(self) -> str:
        """The page as one HTML file."""
        return self._render("page.html")

    def markdown(self) -> str:
        """The page as Markdown."""
        return self._render("page.md")

    def _render(self, template: str) -> str:
        found = _environment().get_template(template)
        return found.render(title=self.title, lead=self.lead, blocks=self._blocks, version=__version__)

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, atomically: Markdown if its name ends in .md, else HTML."""
        target = Path(path)
        write_text(target, self.markdown() if target.suffix == ".md" else self.html())
        return target


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("noisegate.reporting"),
        autoescape=jinja2.select_autoescape(["html"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"inline": escape, "line": _line, "fenced": _fenced, "lines": _table_lines}
    return environment


def _spans(cell: Any) -> tuple[Span, ...]:
    if isinstance(cell, Span):
        return (cell,)
    if isinstance(cell, tuple) and cell and all(isinstance(part, Span) for part in cell):
        return cell
    return (Span(str(cell)),)


def _number_columns(rows: Sequence[Sequence[Any]]) -> set[int]:
    if not rows:
        return set()
    return {
        place
        for place in range(len(rows[0]))
        if all(isinstance(row[place], numbers.Real) and not isinstance(row[place], bool) for row in rows)
    }


def _drawn(picture: Picture) -> dict[str, Any]:
    """What the templates need of a picture."""
    png = picture.figure
    if not isinstance(png, bytes):
        from noisegate.reporting import plots

        png = plots.png(png)
    return {
        "data": base64.b64encode(png).decode(),
        # A PNG tells its width in bytes 16 to 19; ours have 150 pixels an inch, a page 96.
        "width": int.from_bytes(png[16:20]) * 5 // 6,
        "alt": picture.alt or picture.caption,
        "caption": picture.caption,
        "path": picture.path,
        "natural": picture.natural,
    }


# -- Markdown --------------------------------------------------------------------------------------


def escape(value: Any) -> str:
    """Text on one line that Markdown leaves as it is.

    >>> print(escape("a|b *c* <d>"))
    a\\|b \\*c\\* &lt;d&gt;
    """
    text = " ".join(str(value).split())
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, entity)
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", text)


def _line(value: Any) -> str:
    """Escaped text that begins no list, heading or quotation at the start of a line."""
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", re.sub(r"^([#+=-])", r"\\\1", escape(value)))


def _fenced(text: str) -> str:
    """A block of code; its fence is longer than any within the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}\n{text}\n{fence}"


def _table_lines(block: dict[str, Any]) -> list[list[str]]:
    """The lines of a table.

    Headings over several columns are repeated in each, as Markdown has no others.
    """
    above = [[(Span(title),) for title, count in line for _ in range(count)] for line in block["groups"]]
    paths = [map(_cell, path) for path in zip(*above, block["header"], strict=True)]
    titles = ["<br>".join(filter(None, path)) for path in paths]
    return [titles, ["---"] * len(titles), *([_cell(cell) for cell in row] for row in block["rows"])]


def _cell(spans: Iterable[Span]) -> str:
    return "".join(map(_span, spans))


def _span(span: Span) -> str:
    # Spaces at the ends stay outside of the stars: Markdown would not take those for bold.
    inner = span.text.strip()
    before, after = (" " if span.text[:1] == " " else ""), (" " if span.text[-1:] == " " and inner else "")
    text = f"**{escape(inner)}**" if span.bold and inner else escape(inner)
    return ("<br>" if span.below else "") + before + text + after
