"""A page for people: one HTML file with text, tables and pictures inside it; no scripts, nothing fetched."""

from __future__ import annotations

import base64
import html
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisegate._io.files import write_text
from noisegate._version import __version__
from noisegate.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The policy forbids scripts and fetching even if a text slipped through unescaped.
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="generator" content="noisegate {version}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
"""
_STYLE = """\
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5a6672; --line: #d9dee3; --paper: #ffffff;
  --shade: #f4f6f8; --accent: #0072b2; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #9aa6b2; --line: #39424b;
  --paper: #14181c; --shade: #1e242a; --accent: #6cbdf0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .75rem; text-wrap: balance; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--line); }
p, ul { max-width: 46rem; margin: .6rem 0; }
p.lead { font-size: 1.1rem; color: var(--soft); }
code, pre { font: .92em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { background: var(--shade); border-radius: 6px; padding: .7rem 1rem; overflow-x: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .45rem 1.1rem .45rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { font-weight: 600; color: var(--soft); border-bottom-width: 2px; }
th.number, td.number { text-align: right; padding: .45rem 0 .45rem 1.1rem; }
th.number + th:not(.number), td.number + td:not(.number) { padding-left: 1.6rem; }
.soft { color: var(--soft); font-size: .88em; font-weight: 400; }
/* Results in a grid: as wide as the window allows, then it scrolls, and the names of the rows stay in sight. */
figure.grid { position: relative; left: 50%; transform: translateX(-50%); width: max-content; min-width: 100%;
  max-width: calc(100vw - 2.5rem); }
.grid th, .grid td { white-space: nowrap; line-height: 1.45; }
.grid tr > :first-child { position: sticky; left: 0; z-index: 1; background: var(--paper); }
.grid tbody th { color: var(--ink); font-weight: 400; border-bottom-width: 1px; }
.grid thead .soft { display: inline-block; max-width: 15rem; white-space: normal; }
.grid thead tr:not(:last-child) th { border-bottom: none; padding-bottom: 0; }
.grid thead tr:not(:last-child) th.over { box-shadow: inset -1.1rem 0 var(--paper), inset 0 -1px var(--line); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.25rem; margin: 1rem 0; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr));
  gap: 1.25rem; margin: 1.25rem 0; align-items: start; }
figure { margin: 0; break-inside: avoid; }
figure.table { margin: 1rem 0; break-inside: auto; }
figure img { display: block; width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 6px; padding: .4rem; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .45rem; max-width: 46rem; }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; }
  .grid tbody th { white-space: normal; min-width: 6rem; } }
@media print { :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --shade: #f4f4f4; }
  main { max-width: none; padding: 0; } h2 { break-after: avoid; } pre { white-space: pre-wrap; } }
"""


@dataclass(frozen=True)
class Span:
    """A stretch of text in a table's cell; a cell that is a tuple of them may be bold in part.

    Attributes
    ----------
    bold : bool
    soft : bool
        Smaller and paler: what is said beside the number.
    below : bool
        Begins a new line.
    """

    text: str
    bold: bool = False
    soft: bool = False
    below: bool = False

    def html(self) -> str:
        """The text, escaped, in its tags."""
        inner = _escape(self.text)
        inner = f"<strong>{inner}</strong>" if self.bold else inner
        inner = f'<span class="soft">{inner}</span>' if self.soft else inner
        return f"<br>{inner}" if self.below else inner


#: Columns of a table under one heading: the heading, and how many columns it spans.
Heading = tuple[str, int]


class Page:
    """Build a page from top to bottom; every method adds a block and returns the page.

    All text is escaped. Figures become pictures within the file, so that it can be mailed or opened anywhere.

    Parameters
    ----------
    title : str
    lead : str, optional
        A sentence or two below the title.

    Examples
    --------
    >>> page = Page("Two methods").section("Result").text("One run each.")
    >>> page = page.table([["ce", 0.75], ["ln", 0.94]], ["method", "accuracy"])
    >>> "<td class=\\"number\\">0.94</td>" in page.html()
    True
    """

    def __init__(self, title: str, lead: str | None = None) -> None:
        self.title = title
        self._blocks = [f"<h1>{_escape(title)}</h1>"]
        if lead:
            self._blocks.append(f'<p class="lead">{_escape(lead)}</p>')

    def _add(self, block: str) -> Page:
        self._blocks.append(block)
        return self

    def section(self, title: str) -> Page:
        """Begin a section."""
        return self._add(f"<h2>{_escape(title)}</h2>")

    def text(self, *paragraphs: str) -> Page:
        """Paragraphs."""
        return self._add("\n".join(f"<p>{_escape(paragraph)}</p>" for paragraph in paragraphs))

    def bullets(self, items: Iterable[str]) -> Page:
        """A list of short texts."""
        return self._add("<ul>\n" + "\n".join(f"<li>{_escape(item)}</li>" for item in items) + "\n</ul>")

    def code(self, text: str) -> Page:
        """Text as it would be typed."""
        return self._add(f"<pre>{_escape(text)}</pre>")

    def facts(self, pairs: Iterable[tuple[str, Any]]) -> Page:
        """Names and values, one pair a line."""
        lines = "\n".join(f"<dt>{_escape(name)}</dt><dd>{_escape(value)}</dd>" for name, value in pairs)
        return self._add(f"<dl>\n{lines}\n</dl>")

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
            A cell is anything with a text, or a tuple of `Span`; so are those of `header`.
        numbers : column numbers, optional
            Columns to align to the right; by default those that hold only numbers.
        groups : lines of headings over the header, optional
            Each line tells (heading, how many columns it spans) from the first column to the last.
        row_headers : bool
            The first column names the rows: it stays in sight while a wide table is scrolled.
        """
        cells = [list(row) for row in rows]
        aligned = _number_columns(cells) if numbers is None else set(numbers)
        head = "\n".join([*(_headings(line, len(header)) for line in groups), _row("th", header, aligned)])
        body = "\n".join(_row("td", row, aligned, row_headers) for row in cells)
        lines = [f"<thead>{head}</thead>", f"<tbody>{body}</tbody>"]
        note = f"\n<figcaption>{_escape(caption)}</figcaption>" if caption else ""
        drawn = '<div class="scroll"><table>\n' + "\n".join(lines if cells else [head]) + "\n</table></div>"
        kind = "table grid" if row_headers else "table"
        return self._add(f'<figure class="{kind}">\n{drawn}{note}\n</figure>')

    def figure(
        self, picture: Figure | bytes, caption: str, *, alt: str | None = None, natural: bool = False
    ) -> Page:
        """A figure; `alt` is for those who cannot see it, the caption by default.

        It is as wide as the page or, if `natural`, not much wider than it was drawn.
        """
        return self._add(_figure(picture, caption, alt, natural))

    def figures(self, items: Iterable[tuple[Figure | bytes, str] | tuple[Figure | bytes, str, str]]) -> Page:
        """Figures side by side where there is room: (picture, caption) or (picture, caption, alt) each."""
        drawn = "\n".join(_figure(item[0], item[1], item[2] if len(item) == 3 else None) for item in items)
        return self._add(f'<div class="figures">\n{drawn}\n</div>')

    def html(self) -> str:
        """The whole page."""
        head = _HEAD.format(title=_escape(self.title), version=__version__, style=_STYLE)
        footer = f"<footer>Written by noisegate {__version__}.</footer>"
        return head + "\n".join([*self._blocks, footer]) + "\n</main>\n</body>\n</html>\n"

    def write(self, path: str | Path) -> Path:
        """Write the page to a file, atomically."""
        write_text(Path(path), self.html())
        return Path(path)


def _escape(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _number_columns(rows: Sequence[Sequence[Any]]) -> set[int]:
    if not rows:
        return set()
    return {
        place
        for place in range(len(rows[0]))
        if all(isinstance(row[place], numbers.Real) and not isinstance(row[place], bool) for row in rows)
    }


def _headings(line: Sequence[Heading], width: int) -> str:
    if sum(count for _, count in line) != width:
        raise InputError(f"the headings {list(line)} do not span a table of {width} columns")
    cells = (
        f'<th class="over" colspan="{count}">{_escape(title)}</th>'
        if title
        else f'<th colspan="{count}"></th>'
        for title, count in line
    )
    return f"<tr>{''.join(cells)}</tr>"


def _row(tag: str, cells: Sequence[Any], aligned: set[int], row_headers: bool = False) -> str:
    inner = []
    for place, cell in enumerate(cells):
        names = row_headers and place == 0
        kind = ' class="number"' if place in aligned else ""
        opening = 'th scope="row"' if names else tag
        inner.append(f"<{opening}{kind}>{_cell(cell)}</{'th' if names else tag}>")
    return f"<tr>{''.join(inner)}</tr>"


def _cell(cell: Any) -> str:
    if isinstance(cell, Span):
        return cell.html()
    if isinstance(cell, tuple) and cell and all(isinstance(part, Span) for part in cell):
        return "".join(part.html() for part in cell)
    return _escape(cell)


def _figure(picture: Figure | bytes, caption: str, alt: str | None, natural: bool = False) -> str:
    if not isinstance(picture, bytes):
        from noisegate.reporting.plots import png

        picture = png(picture)
    data = base64.b64encode(picture).decode()
    # A PNG tells its width in bytes 16 to 19; ours have 150 pixels an inch, a page 96.
    width = f' style="max-width: {int.from_bytes(picture[16:20]) * 5 // 6}px"' if natural else ""
    image = f'<img src="data:image/png;base64,{data}" alt="{_escape(alt or caption)}"{width}>'
    return f"<figure>\n{image}\n<figcaption>{_escape(caption)}</figcaption>\n</figure>"
