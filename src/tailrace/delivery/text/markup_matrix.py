"""Markdown as the HTML that Matrix clients show (the subset of the client-server API's `org.matrix.custom.html`).

Pure and linear. Everything that came from the model is escaped: no tag gets through that is not written here.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import assert_never

from tailrace.delivery.text.markdown import (
    Blank,
    Block,
    Code,
    CodeBlock,
    Heading,
    Item,
    Link,
    Node,
    Paragraph,
    Quote,
    Rule,
    Styled,
    Table,
    blocks,
)
from tailrace.delivery.text.markup import is_link

_TAGS = {"bold": "strong", "italic": "em", "strike": "del"}


def matrix(text: str) -> str:
    """The `formatted_body` of a text."""
    writer = _Writer()
    for block in blocks(text):
        writer.block(block)
    return writer.finish()


class _Writer:
    def __init__(self) -> None:
        self._html: list[str] = []
        self._lists: list[tuple[int, str]] = []  # open lists: (indent, tag), outermost first

    def finish(self) -> str:
        self._end_lists(-1)
        return "".join(self._html)

    def block(self, block: Block) -> None:
        if not isinstance(block, Item | Blank):
            self._end_lists(-1)
        match block:
            case Paragraph(children=children):
                self._html.append(f"<p>{_inline(children)}</p>")
            case Heading(level=level, children=children):
                self._html.append(f"<h{level}>{_inline(children)}</h{level}>")
            case Item(indent=indent, marker=marker, children=children):
                self._item(indent, marker, _inline(children))
            case Quote(children=children):
                self._html.append(f"<blockquote>{_inline(children)}</blockquote>")
            case CodeBlock(info=info, text=text):
                language = f' class="language-{escape(info)}"' if info else ""
                self._html.append(f"<pre><code{language}>{escape(text)}\n</code></pre>")
            case Table(rows=rows):
                self._html.append(_table(rows))
            case Rule():
                self._html.append("<hr>")
            case Blank():
                pass
            case _:
                assert_never(block)

    def _item(self, indent: int, marker: str, html: str) -> None:
        tag = "ul" if marker == "-" else "ol"
        self._end_lists(indent)
        if self._lists and self._lists[-1][0] == indent and self._lists[-1][1] == tag:
            self._html.append("</li>")
        else:
            if self._lists and self._lists[-1][0] == indent:
                self._end_lists(indent - 1)
            start = f' start="{marker[:-1]}"' if tag == "ol" and marker[:-1] != "1" else ""
            self._html.append(f"<{tag}{start}>")
            self._lists.append((indent, tag))
        self._html.append(f"<li>{html}")

    def _end_lists(self, indent: int) -> None:
        """Ends the lists that are further in than this."""
        while self._lists and self._lists[-1][0] > indent:
            self._html.append(f"</li></{self._lists.pop()[1]}>")


def _table(rows: list[list[list[Node]]]) -> str:
    def cells(row: list[list[Node]], tag: str) -> str:
        return "".join(f"<{tag}>{_inline(cell)}</{tag}>" for cell in row)

    head = f"<thead><tr>{cells(rows[0], 'th')}</tr></thead>"
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows[1:])
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _inline(nodes: Iterable[Node]) -> str:
    html: list[str] = []
    for node in nodes:
        match node:
            case str():
                html.append(escape(node, quote=False).replace("\n", "<br>"))
            case Code(text=text):
                html.append(f"<code>{escape(text, quote=False)}</code>")
            case Styled(style=style, children=children):
                tag = _TAGS[style]
                html.append(f"<{tag}>{_inline(children)}</{tag}>")
            case Link(url=url, children=children):
                inner = _inline(children or [url])
                html.append(f'<a href="{escape(url)}">{inner}</a>' if is_link(url) else inner)
            case _:
                assert_never(node)
    return "".join(html)
