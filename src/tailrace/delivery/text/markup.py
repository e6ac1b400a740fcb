"""Markdown in the words of each platform that has words of its own: Discord, Slack, WhatsApp, plain text.

Pure: text in, text out, linear. Telegram's entities and Matrix's HTML have modules of their own. Each takes any text,
balanced or not, and never raises.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple, assert_never

from tailrace.delivery.text.markdown import (
    FENCE,
    TABLE_DELIMITER,
    TABLE_LINE,
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
    closes_fence,
)

RULE = "———"
BULLETS = ("•", "◦", "▪")
_LINKED = re.compile(r"(?:https?|mailto|tel|tg|matrix):", re.IGNORECASE)
_DEEP_HEADING = re.compile(r" {0,3}#{4,6}[ \t]+(.*?)[ \t#]*$")


def text_of(nodes: Iterable[Node]) -> str:
    """What the nodes say, without any mark."""
    said: list[str] = []
    for node in nodes:
        match node:
            case str():
                said.append(node)
            case Code(text=text):
                said.append(text)
            case Styled(children=children) | Link(children=children):
                said.append(text_of(children))
            case _:
                assert_never(node)
    return "".join(said)


def is_link(url: str) -> bool:
    """Whether the address is one that a chat may make clickable."""
    return bool(_LINKED.match(url))


def columns(table: Table) -> str:
    """The table as lines of even columns, for type of fixed width. Wide characters take two places."""
    rows = [[text_of(cell).replace("\n", " ") for cell in row] for row in table.rows]
    count = max(map(len, rows), default=0)
    rows = [row + [""] * (count - len(row)) for row in rows]
    widths = [max(_width(row[place]) for row in rows) for place in range(count)]
    lines = [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


# ── Markdown that is nearly ours ─────────────────────────────────────────────────────────────────────────────


def discord(text: str) -> str:
    """Discord reads Markdown itself, but for tables, headings below the third and rules."""
    return _line_by_line(text)


def slack_markdown(text: str) -> str:
    """For Slack's `markdown_text`, which reads Markdown itself, but for tables."""
    return _line_by_line(text)


def _line_by_line(text: str) -> str:
    lines = text.split("\n")
    shown: list[str] = []
    at, fence = 0, ""
    while at < len(lines):
        line = lines[at]
        if fence:
            fence = "" if closes_fence(line, fence) else fence
        elif opened := FENCE.fullmatch(line):
            fence = opened["marker"]
        elif TABLE_LINE.match(line) and at + 1 < len(lines) and TABLE_DELIMITER.fullmatch(lines[at + 1]):
            end = at + 2
            while end < len(lines) and TABLE_LINE.match(lines[end]):
                end += 1
            shown.append(_fenced_table("\n".join(lines[at:end])))
            at = end
            continue
        elif deep := _DEEP_HEADING.match(line):
            line = f"**{deep[1].replace('**', '')}**"
        shown.append(line)
        at += 1
    return "\n".join(shown)


def _fenced_table(source: str) -> str:
    return "\n".join(f"```\n{columns(block)}\n```" for block in blocks(source) if isinstance(block, Table))


# ── markup of another kind ───────────────────────────────────────────────────────────────────────────────────


class _Flavour(NamedTuple):
    """The marks of one platform, each of which stands before and after what it marks. Empty: there is no such mark."""

    bold: str = ""
    italic: str = ""
    strike: str = ""
    code: str = ""
    block: str = ""


_WHATSAPP = _Flavour(bold="*", italic="_", strike="~", code="`", block="```")


def whatsapp(text: str) -> str:
    return _write(text, _WHATSAPP)


def plain(text: str) -> str:
    """What the text says, without marks: for a platform that shows no markup."""
    return _write(text, _Flavour())


def _write(text: str, flavour: _Flavour) -> str:
    return "\n".join(_block(block, flavour) for block in blocks(text))


def _block(block: Block, flavour: _Flavour) -> str:
    match block:
        case Paragraph(children=children):
            return _inline(children, flavour)
        case Heading(children=children):
            return _marked(flavour.bold, _inline([text_of(children)], flavour))
        case Item(indent=indent, marker=marker, children=children):
            return f"{' ' * indent}{bullet(indent, marker)} {_inline(children, flavour)}"
        case Quote(children=children):
            return "\n".join("> " + line for line in _inline(children, flavour).split("\n"))
        case CodeBlock(text=text):
            return _fenced(text, flavour)
        case Table():
            return _fenced(columns(block), flavour)
        case Rule():
            return RULE
        case Blank():
            return ""
        case _:
            assert_never(block)


def bullet(indent: int, marker: str) -> str:
    """The sign that an item of a list begins with."""
    return BULLETS[min(indent // 2, len(BULLETS) - 1)] if marker == "-" else marker


def _inline(nodes: Iterable[Node], flavour: _Flavour) -> str:
    said: list[str] = []
    for node in nodes:
        match node:
            case str():
                said.append(node)
            case Code(text=text):
                said.append(f"{flavour.code}{text}{flavour.code}")
            case Styled(style=style, children=children):
                mark = {"bold": flavour.bold, "italic": flavour.italic, "strike": flavour.strike}[style]
                said.append(_marked(mark, _inline(children, flavour)))
            case Link(url=url, children=children):
                said.append(_link(url, _inline(children, flavour)))
            case _:
                assert_never(node)
    return "".join(said)


def _marked(mark: str, text: str) -> str:
    """Marks hold on to the text: with a space between, these platforms show the mark itself."""
    inner = text.strip()
    if not inner or not mark:
        return text
    start = text.index(inner)
    return f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"


def _fenced(text: str, flavour: _Flavour) -> str:
    return f"{flavour.block}\n{text}\n{flavour.block}" if flavour.block else text


def _link(url: str, text: str) -> str:
    if not is_link(url):
        return text or url
    return url if not text or text == url else f"{text} ({url})"
