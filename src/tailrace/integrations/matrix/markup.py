"""Markdown as the HTML that Matrix clients show (the subset of the client-server API's `org.matrix.custom.html`).

Pure and linear. Everything that came from the model is escaped: no tag gets through that is not written here.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import assert_never

from tailrace.delivery.text import markdown as md
from tailrace.delivery.text.markup import BOXES
from tailrace.delivery.text.parser import is_link

_TAGS = {"bold": "strong", "italic": "em", "strike": "del"}


def matrix_html(text: str) -> str:
    """The `formatted_body` of a text."""
    return "".join(map(_block, md.blocks(text)))


def _block(block: md.Block) -> str:
    match block:
        case md.Paragraph(children=children):
            return f"<p>{_inline(children)}</p>"
        case md.Heading(level=level, children=children):
            return f"<h{level}>{_inline(children)}</h{level}>"
        case md.ItemList(children=items):
            return _list(items)
        case md.Item(children=inner, done=done):
            box = "" if done is None else f"{BOXES[done]} "
            return f"<li>{box}{_inner(inner)}</li>"
        case md.Quote(children=inner):
            return f"<blockquote>{_inner(inner)}</blockquote>"
        case md.CodeBlock(info=info, text=text):
            language = f' class="language-{escape(info)}"' if info else ""
            return f"<pre><code{language}>{escape(text)}\n</code></pre>"
        case md.Table(rows=rows):
            return _table(rows)
        case md.Rule():
            return "<hr>"
        case md.Blank():
            return ""
        case _:
            assert_never(block)


def _inner(blocks: list[md.Block]) -> str:
    """What an item or a quote holds. Its first paragraph needs no tag."""
    match blocks:
        case [md.Paragraph(children=children), *rest]:
            return _inline(children) + "".join(map(_block, rest))
        case _:
            return "".join(map(_block, blocks))


def _list(items: list[md.Block]) -> str:
    marker = next((item.marker for item in items if isinstance(item, md.Item)), "-")
    tag = "ul" if marker == "-" else "ol"
    start = f' start="{marker[:-1]}"' if tag == "ol" and marker[:-1] != "1" else ""
    return f"<{tag}{start}>{''.join(map(_block, items))}</{tag}>"


def _table(rows: list[list[list[md.Node]]]) -> str:
    def cells(row: list[list[md.Node]], tag: str) -> str:
        return "".join(f"<{tag}>{_inline(cell)}</{tag}>" for cell in row)

    head = f"<thead><tr>{cells(rows[0], 'th')}</tr></thead>"
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows[1:])
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _inline(nodes: Iterable[md.Node]) -> str:
    html: list[str] = []
    for node in nodes:
        match node:
            case str():
                html.append(escape(node, quote=False).replace("\n", "<br>"))
            case md.Code(text=text):
                html.append(f"<code>{escape(text, quote=False)}</code>")
            case md.Styled(style=style, children=children):
                tag = _TAGS[style]
                html.append(f"<{tag}>{_inline(children)}</{tag}>")
            case md.Link(url=url, children=children):
                inner = _inline(children or [url])
                html.append(f'<a href="{escape(url)}">{inner}</a>' if is_link(url) else inner)
            case _:
                assert_never(node)
    return "".join(html)
