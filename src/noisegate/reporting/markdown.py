"""Markdown as GitHub reads it, written with the methods of `Page`: one description gives both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from noisegate._io.files import write_text
from noisegate._version import __version__
from noisegate.reporting.page import Heading, Span


class Markdown:
    """Build a document from top to bottom; every method adds a block and returns the document.

    All text is escaped. Pictures are named by their path.

    Examples
    --------
    >>> text = Markdown("Two methods").table([["ce", (Span("0.94", bold=True),)]], ["method", "accuracy"]).text_of()
    >>> print(text.splitlines()[4])
    | ce | **0.94** |
    """

    def __init__(self, title: str, lead: str | None = None) -> None:
        self._blocks = [f"# {escape(title)}"]
        if lead:
            self.text(lead)

    def _add(self, block: str) -> Markdown:
        self._blocks.append(block)
        return self

    def section(self, title: str) -> Markdown:
        """Begin a section."""
        return self._add(f"## {escape(title)}")

    def text(self, *paragraphs: str) -> Markdown:
        """Paragraphs."""
        return self._add("\n\n".join(_no_block(escape(paragraph)) for paragraph in paragraphs))

    def bullets(self, items: Iterable[str]) -> Markdown:
        """A list of short texts."""
        return self._add("\n".join(f"- {_no_block(escape(item))}" for item in items))

    def code(self, text: str) -> Markdown:
        """Text as it would be typed."""
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        return self._add(f"{fence}\n{text}\n{fence}")

    def facts(self, pairs: Iterable[tuple[str, Any]]) -> Markdown:
        """Names and values, one pair a line."""
        return self._add("\n".join(f"- {escape(name)}: {escape(value)}" for name, value in pairs))

    def table(
        self,
        rows: Iterable[Sequence[Any]],
        header: Sequence[Any],
        *,
        caption: str | None = None,
        groups: Iterable[Sequence[Heading]] = (),
        row_headers: bool = False,
    ) -> Markdown:
        """A table; headings over several columns are repeated in each, as Markdown has no others."""
        above = [[title for title, count in line for _ in range(count)] for line in groups]
        titles = ["<br>".join(_cell(t) for t in path if t) for path in zip(*above, header, strict=True)]
        lines = [titles, ["---"] * len(header), *([_cell(cell) for cell in row] for row in rows)]
        drawn = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return self._add(f"{drawn}\n\n{_no_block(escape(caption))}" if caption else drawn)

    def figure(
        self, picture: str, caption: str, *, alt: str | None = None, natural: bool = False
    ) -> Markdown:
        """A picture by its path; its size is the reader's."""
        return self._add(f"![{escape(alt or caption)}]({picture})\n\n{_no_block(escape(caption))}")

    def text_of(self) -> str:
        """The whole document."""
        return "\n\n".join([*self._blocks, f"Written by noisegate {__version__}."]) + "\n"

    def write(self, path: str | Path) -> Path:
        """Write the document to a file, atomically."""
        write_text(Path(path), self.text_of())
        return Path(path)


def escape(value: Any) -> str:
    """Text on one line that Markdown leaves as it is.

    >>> print(escape("a|b *c* <d>"))
    a\\|b \\*c\\* &lt;d&gt;
    """
    text = " ".join(str(value).split())
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, entity)
    return re.sub(r"([\\`*_\[\]|~$])", r"\\\1", text)


def _no_block(text: str) -> str:
    """What would begin a list, a heading or a quotation at the start of a line does not."""
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", re.sub(r"^([#+=-])", r"\\\1", text))


def _cell(cell: Any) -> str:
    spans = (cell,) if isinstance(cell, Span) else cell
    if not (isinstance(spans, tuple) and all(isinstance(part, Span) for part in spans)):
        return escape(cell)
    return "".join(_span(part) for part in spans)


def _span(span: Span) -> str:
    # Spaces at the ends stay outside of the stars: Markdown would not take those for bold.
    inner = span.text.strip()
    before, after = (" " if span.text[:1] == " " else ""), (" " if span.text[-1:] == " " and inner else "")
    text = f"**{escape(inner)}**" if span.bold and inner else escape(inner)
    return ("<br>" if span.below else "") + before + text + after
