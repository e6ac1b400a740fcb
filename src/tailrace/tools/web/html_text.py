"""The text of an HTML page as a model can read it: headings, paragraphs, lists, links; no scripts, no styles. Pure."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urljoin

_SKIPPED: Final = {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select", "canvas"}
_BLOCKS: Final = {
    *("address", "article", "aside", "blockquote", "body", "dd", "details", "dialog", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hr", "html", "legend", "main", "nav", "ol", "p", "pre"),
    *("section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"),
}
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_MAX_PARSE_S: Final = 5.0  # a page made to be slow is read as far as that goes


class _TooSlow(Exception):
    """The page takes longer to parse than its text is worth."""


def text_of(html: str, base_url: str = "", *, max_parse_s: float = _MAX_PARSE_S) -> tuple[str, str]:
    """Title and text of a page; links as `[text](address)`, with the address in full."""
    page = _Page(base_url, time.monotonic() + max_parse_s)
    try:
        page.feed(html)
        page.close()
    except _TooSlow:
        page.pieces.append("\n[the rest of the page took too long to read]")
    lines = (line.rstrip() for line in "".join(page.pieces).split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return " ".join("".join(page.title).split()), text


class _Page(HTMLParser):
    def __init__(self, base_url: str, deadline: float) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._base_url = base_url
        self._deadline = deadline
        self._skipping: list[str] = []  # the elements we are inside of that hold no text for people
        self._in_title = False
        self._in_pre = 0
        self._links: list[tuple[str, int]] = []  # address, and where in `pieces` its text begins

    def updatepos(self, i: int, j: int) -> int:  # noqa: ARG002 - the parser's own signature
        """Called between any two constructs. We need no line numbers; we need to know when to give up."""
        if time.monotonic() > self._deadline:
            raise _TooSlow
        return j

    def parse_html_declaration(self, i: int) -> int:
        """`<![` begins a bogus comment in HTML (WHATWG HTML, section 13.2.5.42); the parser would trip over it."""
        if self.rawdata.startswith("<![", i):
            return self.parse_bogus_comment(i)
        return super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipping.append(tag)
        if self._skipping:
            return
        attributes = dict(attrs)
        if tag == "title":
            self._in_title = True
        elif tag == "base" and (href := attributes.get("href")):
            self._base_url = _joined(self._base_url, href)
        elif tag == "br":
            self.pieces.append("\n")
        elif tag == "li":
            self.pieces.append("\n- ")
        elif tag in ("td", "th"):
            self.pieces.append("| " if not self.pieces or self.pieces[-1].endswith("\n") else " | ")
        elif tag == "img" and (alt := (attributes.get("alt") or "").strip()):
            self.pieces.append(f"[image: {' '.join(alt.split())}]")
        elif tag == "a" and (href := attributes.get("href")):
            self._links.append((_joined(self._base_url, href), len(self.pieces)))
        elif tag in _HEADINGS:
            self.pieces.append(f"\n\n{_HEADINGS[tag]}")
        elif tag in _BLOCKS:
            self._in_pre += tag == "pre"
            self.pieces.append("\n" if tag == "tr" else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._skipping:
            while self._skipping.pop() != tag:
                pass
            return
        if self._skipping:
            return
        if tag == "title":
            self._in_title = False
        elif tag == "a" and self._links:
            self._end_link(*self._links.pop())
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._in_pre -= tag == "pre" and self._in_pre > 0
            self.pieces.append("" if tag == "tr" else "\n\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SKIPPED:  # `<script/>` opens a script in HTML, but in an SVG it is all of one
            self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        if self._skipping:
            return
        if self._in_title:
            self.title.append(data)
        elif self._in_pre:
            self.pieces.append(data)
        else:
            text = re.sub(r"\s+", " ", data)
            at_start = not self.pieces or self.pieces[-1].endswith(("\n", " "))
            self.pieces.append(text.lstrip() if at_start else text)

    def _end_link(self, address: str, start: int) -> None:
        text = " ".join("".join(self.pieces[start:]).split())
        if address.startswith(("http://", "https://")) and text:
            self.pieces[start:] = [f"[{text}]({address})"]


def _joined(base: str, href: str) -> str:
    try:
        return urljoin(base, href.strip())
    except ValueError:  # brackets that are no IPv6 address
        return ""
