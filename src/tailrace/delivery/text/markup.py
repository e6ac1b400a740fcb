"""Markdown in the marks of a platform that is sent text, and what the markups of several platforms share.

Pure: text in, text out, linear. Takes any text, balanced or not, and never raises. A platform whose markup is more than
marks around text has a module of its own in its integration.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple, assert_never

from tailrace.delivery.text import markdown as md
from tailrace.delivery.text.parser import is_link

RULE = "———"
BULLETS = ("•", "◦", "▪")
BOXES = {True: "☑", False: "☐"}  # of a task that is done, or not
INDENT = "  "  # of what belongs to an item of a list, a level
WIDE = 40  # places that a column of a table may have for one cell's sake
# What takes no place of its own: an emoji that is joined to the one before it, shades of skin, and the joiners.
_JOINED = re.compile("\\u200d[\\u2600-\\u27bf\\U0001f300-\\U0001faff]|[\\u200d\\ufe0e\\ufe0f\\U0001f3fb-\\U0001f3ff]")
# How the names of the letters begin that are written without spaces between words, or with particles at the word.
_WITHOUT_SPACES = (
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH", "BOPOMOFO", "HANGUL", "YI "),
    *("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "JAVANESE", "BALINESE", "TAI "),
)
_SOURCE_MARKS: dict[md.Style, str] = {"bold": "**", "italic": "*", "strike": "~~"}


def text_of(nodes: Iterable[md.Node]) -> str:
    """The text of the nodes, without marks."""
    return _inline(nodes, Flavour(), urls=False)


def columns(table: md.Table) -> str:
    """The table as lines of even columns, for type of fixed width. Wide characters take two places. A cell that is much
    longer than the others of its column stands out of it: padded to such a cell, a table is many times its own text."""
    rows = [[_inline(cell, Flavour(), urls=True).replace("\n", " ") for cell in row] for row in table.rows]
    widths = [_column_width(column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(_padded, row, widths, table.sides)) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _padded(cell: str, width: int, side: md.Side) -> str:
    room = max(0, width - _width(cell))
    before = {"left": 0, "center": room // 2, "right": room}[side]
    return " " * before + cell + " " * (room - before)


def _column_width(cells: Iterable[str]) -> int:
    widths = sorted(map(_width, cells))
    return min(widths[-1], max(WIDE, 2 * widths[len(widths) // 2]))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    joined = _JOINED.sub("", text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in joined
    )


# ── platforms with other marks ───────────────────────────────────────────────────────────────────────────────────


class Flavour(NamedTuple):
    """The marks of one platform, each of which stands before and after what it marks. Empty: there is no such mark."""

    bold: str = ""
    italic: str = ""
    strike: str = ""
    code: str = ""
    block: str = ""


def marked_text(text: str, flavour: Flavour) -> str:
    """The text with the marks of this platform."""
    return _blocks(md.blocks(text), flavour)


def plain_text(text: str) -> str:
    """The text without marks: for a platform that shows no markup."""
    return marked_text(text, Flavour())


def line_start(block: md.Block, depth: int) -> str:
    """The line end before a block in `depth` lists, and the indentation of its lines. Code is not indented."""
    return "\n" if isinstance(block, md.CodeBlock | md.Table | md.Blank) else "\n" + INDENT * depth


def bullet(item: md.Item, depth: int) -> str:
    """The sign that an item of a list begins with. A task has its box, behind the number where it has one."""
    if item.done is None:
        return BULLETS[min(depth, len(BULLETS) - 1)] if item.marker == "-" else item.marker
    return BOXES[item.done] if item.marker == "-" else f"{item.marker} {BOXES[item.done]}"


def _blocks(blocks: Iterable[md.Block], flavour: Flavour, depth: int = 0) -> str:
    """The first line is not indented: the sign of an item may stand before it."""
    return "".join(
        (line_start(block, depth) if place else "") + _block(block, flavour, depth)
        for place, block in enumerate(blocks)
    )


def _block(block: md.Block, flavour: Flavour, depth: int) -> str:
    start = line_start(block, depth)
    match block:
        case md.Paragraph(children=children):
            return _inline(children, flavour).replace("\n", start)
        case md.Heading(children=children):
            return _marked(flavour.bold, text_of(children).replace("\n", " "))
        case md.ItemList(children=items):
            return _blocks(items, flavour, depth)
        case md.Item(children=inner):
            return f"{bullet(block, depth)} {_blocks(inner, flavour, depth + 1)}"
        case md.Quote(children=inner):
            return start.join("> " + line for line in _blocks(inner, flavour).split("\n"))
        case md.CodeBlock(text=text):
            return _fenced(text, flavour)
        case md.Table():
            return _fenced(columns(block), flavour)
        case md.Rule():
            return RULE
        case md.Blank():
            return ""
        case _:
            assert_never(block)


def _inline(nodes: Iterable[md.Node], flavour: Flavour, *, urls: bool = True, before: str = "", after: str = "") -> str:
    """`before`, `after`: the characters next to the nodes, where these are part of something else."""
    shown: list[str] = []
    rest = list(nodes)
    for place, node in enumerate(rest, 1):
        left = shown[-1][-1:] if shown else before
        right = _first_character(rest[place : place + 1]) if place < len(rest) else after
        match node:
            case str():
                shown.append(node)
            case md.Code(text=text):
                shown.append(f"{flavour.code}{text}{flavour.code}")
            case md.Styled(style=style, children=children):
                text = _inline(children, flavour, urls=urls, before=left, after=right)
                shown.append(_marked(_mark(style, flavour, left, right), text))
            case md.Link(url=url, children=children):
                text = _inline(children, flavour, urls=urls, before=left, after="" if urls else right)
                shown.append(_link(url, text) if urls else text)
            case _:
                assert_never(node)
    return "".join(shown)


def _mark(style: md.Style, flavour: Flavour, left: str, right: str) -> str:
    """The mark of the style between these two characters. Inside of a word these platforms read none. `5*3 and 2*2` or
    `2**3 and 4**5` is emphasis to Markdown and arithmetic to people: the signs stay."""
    if not _is_letter(left) and not _is_letter(right):
        return {"bold": flavour.bold, "italic": flavour.italic, "strike": flavour.strike}[style]
    is_sign = style == "italic" or left.isdigit() or right.isdigit() or (_is_letter(left) and _is_letter(right))
    return _SOURCE_MARKS[style] if is_sign else ""


def _is_letter(character: str) -> bool:
    """Whether a mark next to it is inside of a word. Languages without spaces have no such insides."""
    if character.isascii() or character.isdigit():
        return character.isalnum()
    return character.isalnum() and not unicodedata.name(character, "").startswith(_WITHOUT_SPACES)


def _first_character(nodes: Sequence[md.Node]) -> str:
    while nodes:
        match nodes[0]:
            case str(text):
                return text[:1]
            case md.Code():
                return ""  # it has a mark of its own
            case md.Styled(children=children) | md.Link(children=children):
                nodes = children
            case other:
                assert_never(other)
    return ""


def _marked(mark: str, text: str) -> str:
    """Puts the marks next to the text: with a space between, these platforms show the mark itself."""
    inner = text.strip()
    if not inner or not mark:
        return text
    start = text.index(inner)
    return f"{text[:start]}{mark}{inner}{mark}{text[start + len(inner) :]}"


def _fenced(text: str, flavour: Flavour) -> str:
    return f"{flavour.block}\n{text}\n{flavour.block}" if flavour.block else text


def _link(url: str, text: str) -> str:
    if not is_link(url):
        return text or url
    return url if not text or text == url else f"{text} ({url})"
