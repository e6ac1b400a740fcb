"""Markdown in the marks of a platform that is sent text, and what the markups of several platforms share.

Pure: text in, text out, linear. Takes any text, balanced or not, and never raises. A platform whose markup is more than
marks around text has a module of its own in its integration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, assert_never
from unicodedata import east_asian_width

from rich.cells import cell_len

from tailrace.delivery.text import markdown as md
from tailrace.delivery.text.parser import is_link

RULE = "———"
BULLETS = ("•", "◦", "▪")
BOXES = {True: "☑", False: "☐"}  # of a task that is done, or not
INDENT = "  "  # of what belongs to an item of a list, a level
WIDE = 40  # places that a column of a table may have for one cell's sake, and that a phone has for a table
_HEADINGS = 3  # levels that a rich platform knows


def text_of(nodes: Iterable[md.Node]) -> str:
    """The text of the nodes, without marks."""
    return _inline(nodes, Flavour(), urls=False)


def records(table: md.Table) -> list[md.Block] | None:
    """A table that is wider than a phone as paragraphs, one for each row: a line "name: value" for each cell that has
    something. None where its columns fit."""
    if all(cell_len(line) <= WIDE for line in columns(table).splitlines()):
        return None
    head, *rows = table.rows
    found: list[md.Block] = []
    for row in rows:
        lines: list[md.Node] = []
        for name, cell in zip(head, row, strict=True):
            if cell:
                lines += ["\n"] * bool(lines)
                lines += [md.Styled("bold", name), ": "] if name else []
                lines += cell
        found += [md.Blank()] * bool(found)
        found.append(md.Paragraph(lines))
    return found or None


def columns(table: md.Table) -> str:
    """The table as lines of even columns, for type of fixed width. Wide characters take two places. A cell that is much
    longer than the others of its column stands out of it: padded to such a cell, a table is many times its own text."""
    rows = [[_inline(cell, Flavour(), urls=True).replace("\n", " ") for cell in row] for row in table.rows]
    widths = [_column_width(column) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(_padded, row, widths, table.sides)) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _padded(cell: str, width: int, side: md.Side) -> str:
    room = max(0, width - cell_len(cell))
    before = {"left": 0, "center": room // 2, "right": room}[side]
    return " " * before + cell + " " * (room - before)


def _column_width(cells: Iterable[str]) -> int:
    widths = sorted(map(cell_len, cells))
    return min(widths[-1], max(WIDE, 2 * widths[len(widths) // 2]))


# ── platforms with other marks ───────────────────────────────────────────────────────────────────────────────────


class Flavour(NamedTuple):
    """The marks of one platform, each of which stands before and after what it marks. Empty: there is no such mark.
    `is_rich`: it also reads headings, links and the language of code as Markdown has them. `escape` makes a text of
    what the platform would take for marks."""

    bold: str = ""
    italic: str = ""
    strike: str = ""
    code: str = ""
    block: str = ""
    is_rich: bool = False
    escape: Callable[[str], str] = str


def marked_text(text: str, flavour: Flavour) -> str:
    """The text with the marks of this platform."""
    return _blocks(md.blocks(text), flavour)


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
        case md.Heading(level=level, children=children) if flavour.is_rich and level <= _HEADINGS:
            return f"{'#' * level} {_inline(children, flavour)}"
        case md.Heading(children=children):
            return _marked(flavour.bold, flavour.escape(text_of(children).replace("\n", " ")))
        case md.ItemList(children=items):
            return _blocks(items, flavour, depth)
        case md.Item(children=inner):
            sign = block.marker if flavour.is_rich and block.done is None else bullet(block, depth)
            return f"{sign} {_blocks(inner, flavour, depth + 1)}"
        case md.Quote(children=inner):
            lines = _blocks(inner, flavour).split("\n")  # a quote within a quote is one
            return start.join("> " + line.removeprefix("> ") for line in lines)
        case md.CodeBlock(info=info, text=text):
            return _fenced(text, flavour, info if flavour.is_rich and info.isalnum() else "")
        case md.Table():
            rows = records(block)
            return _fenced(columns(block), flavour) if rows is None else _blocks(rows, flavour)
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
                shown.append(flavour.escape(node))
            case md.Code(text=text):
                mark, end = ("`` ", " ``") if flavour.is_rich and "`" in text else (flavour.code, flavour.code)
                shown.append(f"{mark}{text}{end}")
            case md.Styled(style=style, children=children):
                text = _inline(children, flavour, urls=urls, before=left, after=right)
                shown.append(_marked(_mark(style, flavour, left, right), text))
            case md.Link(url=url, children=children):
                text = _inline(children, flavour, urls=urls, before=left, after="" if urls else right)
                shown.append(_link(url, text, flavour) if urls else text)
            case _:
                assert_never(node)
    return "".join(shown)


def _mark(style: md.Style, flavour: Flavour, left: str, right: str) -> str:
    """The mark of the style between these two characters. Inside of a word these platforms read none; languages
    without spaces have no such insides."""
    if any(character.isalnum() and east_asian_width(character) not in "WF" for character in (left, right)):
        return ""
    return {"bold": flavour.bold, "italic": flavour.italic, "strike": flavour.strike}[style]


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


def _fenced(text: str, flavour: Flavour, language: str = "") -> str:
    """A code block ends at its first closing mark: a mark inside the text is broken up by a zero-width space."""
    if not flavour.block:
        return text
    code = text.replace(flavour.block, f"{flavour.block[:-1]}\u200b{flavour.block[-1]}")
    return f"{flavour.block}{language}\n{code}\n{flavour.block}"


def _link(url: str, text: str, flavour: Flavour) -> str:
    if not is_link(url):
        return text or url
    if flavour.is_rich and text and text != flavour.escape(url):
        return f"[{text}]({url})"
    return url if not text or text == url else f"{text} ({url})"
