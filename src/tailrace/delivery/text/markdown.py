"""Markdown as a small tree that every platform's markup is written from.

Lines stay lines, blank ones too: a chat shows them as they were written. Pure and linear. Never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias, assert_never

from markdown_it.token import Token

from tailrace.delivery.text.parser import MAX_NESTING, READABLE_MATH, is_link, parser
from tailrace.delivery.text.readable_math import readable

Style = Literal["bold", "italic", "strike"]
Side = Literal["left", "center", "right"]
_MARKS: dict[Style, str] = {"bold": "**", "italic": "*", "strike": "~~"}
_STYLES: dict[str, Style] = {"strong": "bold", "em": "italic", "s": "strike"}
_SIDES: dict[object, Side] = {"text-align:center": "center", "text-align:right": "right"}


class Code(NamedTuple):
    text: str


class Styled(NamedTuple):
    style: Style
    children: list[Node]


class Link(NamedTuple):
    """A link, or an image: then the children are its description."""

    url: str
    children: list[Node]


Node: TypeAlias = "str | Code | Styled | Link"


class Paragraph(NamedTuple):
    """Lines that belong together, with their line ends."""

    children: list[Node]


class Heading(NamedTuple):
    level: int
    children: list[Node]


class Item(NamedTuple):
    """An item of a list. `marker` is "-" or a number with its dot. `done`: of a task, whether it is; None: no task."""

    marker: str
    children: list[Block]
    done: bool | None = None


class ItemList(NamedTuple):
    """Items, and the blank lines between them."""

    children: list[Block]


class Quote(NamedTuple):
    children: list[Block]


class CodeBlock(NamedTuple):
    info: str
    text: str


class Table(NamedTuple):
    """Cells by row; the first row is the head. `sides`: where the cells of each column stand in it."""

    rows: list[list[list[Node]]]
    sides: list[Side]


class Rule(NamedTuple):
    pass


class Blank(NamedTuple):
    pass


Block: TypeAlias = "Paragraph | Heading | Item | ItemList | Quote | CodeBlock | Table | Rule | Blank"

_LINE_END = re.compile(r"\r\n?")
_TASK = re.compile(r"\[([ xX])\](?:[ \t]+|$)")


def lines_of(text: str) -> list[str]:
    """The lines, as the parser counts them."""
    return _LINE_END.sub("\n", text).split("\n")


def blocks(text: str) -> list[Block]:
    return _TreeBuilder(parser().parse(text, {READABLE_MATH: True}), lines_of(text)).document()


class _TreeBuilder:
    def __init__(self, tokens: list[Token], lines: list[str]) -> None:
        self._tokens, self._lines = tokens, lines
        self._at = 0
        self._line = 0  # where the block before ended
        self._linked = {
            child.attrs.get("href") for token in tokens for child in token.children or () if child.type == "link_open"
        }

    def document(self) -> list[Block]:
        return self._siblings() + self._blanks(len(self._lines))

    def _siblings(self) -> list[Block]:
        """The blocks up to the end of the one that holds them."""
        found: list[Block] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.nesting < 0:
                break
            start, end = token.map or (self._line, self._line)
            found += self._blanks(start)
            self._line = max(self._line, start)
            block = self._block(token)
            if not isinstance(block, Item | ItemList | Quote):
                self._line = end  # a container ends where its last block does: its map counts blank lines after it
            elif self._line == start:
                self._line = start + 1
            if block is not None:
                found.append(block)
        return found

    def _blanks(self, until: int) -> list[Block]:
        return [Blank() for line in self._lines[self._line : until] if not line.strip(" \t>")]

    def _block(self, token: Token) -> Block | None:
        match token.type:
            case "paragraph_open":
                return Paragraph(self._leaf())
            case "heading_open":
                return Heading(int(token.tag[1:]), self._leaf())
            case "fence" | "code_block":
                return CodeBlock(token.info.strip().split(" ")[0], token.content.removesuffix("\n"))
            case "bullet_list_open" | "ordered_list_open":
                return ItemList(self._siblings())
            case "list_item_open":
                return _item(f"{token.info}{token.markup}" if token.info else "-", self._siblings())
            case "blockquote_open":
                return Quote(self._siblings())
            case "table_open":
                return self._table()
            case "hr":
                return Rule()
            case "definition" if token.meta["url"] in self._linked and is_link(token.meta["url"]):
                return None
            case _:  # a definition that no link uses, or no address: shown as it is written
                start, end = token.map or (0, 0)
                return Paragraph([readable("\n".join(line.strip() for line in self._lines[start:end]))])

    def _leaf(self) -> list[Node]:
        children = self._tokens[self._at].children
        self._at += 2  # past its text and its end
        return _with_signs(_nodes(children or ()))

    def _table(self) -> Table:
        table = Table([], [])
        while (token := self._tokens[self._at]).type != "table_close":
            if token.type == "tr_open":
                table.rows.append([])
            elif token.type == "th_open":
                table.sides.append(_SIDES.get(token.attrGet("style"), "left"))
            elif token.type == "inline":
                table.rows[-1].append(_with_signs(_nodes(token.children or ())))
            self._at += 1
        self._at += 1
        return table


def _item(marker: str, children: list[Block]) -> Item:
    """`[x]` at the start of an item makes it a task, as on GitHub."""
    match children:
        case [Paragraph([str(text), *nodes]), *blocks] if task := _TASK.match(text):
            rest = text[task.end() :]
            return Item(marker, [Paragraph([rest, *nodes] if rest else nodes), *blocks], task[1] != " ")
        case _:
            return Item(marker, children)


def _nodes(tokens: Sequence[Token]) -> list[Node]:
    found: list[Node] = []
    outer: list[tuple[Token, list[Node]]] = []
    for token in tokens:
        match token.type:
            case "text":
                found.append(token.content)
            case "softbreak" | "hardbreak":
                found.append("\n")
            case "code_inline":
                found.append(Code(token.content))
            case "image" if any(opened.tag == "a" for opened, _ in outer):  # the address is the link's
                found += _nodes(token.children or ())
            case "image":
                found.append(Link(str(token.attrs["src"]), _nodes(token.children or ())))
            case _ if token.nesting > 0:
                outer.append((token, found))
                found = [] if len(outer) <= MAX_NESTING else found
            case _:
                opened, around = outer.pop()
                if around is not found:
                    around.append(_styled(opened, _merged(found)))
                found = around
    return _merged(found)


def _styled(token: Token, children: list[Node]) -> Node:
    return Link(str(token.attrs["href"]), children) if token.tag == "a" else Styled(_STYLES[token.tag], children)


def _merged(nodes: Iterable[Node]) -> list[Node]:
    """Neighbouring strings as one, empty ones left out."""
    merged: list[Node] = []
    for is_text, group in groupby(nodes, lambda node: isinstance(node, str)):
        if not is_text:
            merged += group
        elif text := "".join(str(node) for node in group):
            merged.append(text)
    return merged


def _with_signs(nodes: Sequence[Node], before: str = "", after: str = "") -> list[Node]:
    """`2*3*4` and `x**n + y**m` are emphasis to Markdown and arithmetic to people: the signs stay. `before`, `after`:
    the characters next to the nodes."""
    found: list[Node] = []
    for place, node in enumerate(nodes):
        left = _source(nodes[place - 1 : place])[-1:] if place else before
        right = _source(nodes[place + 1 : place + 2])[:1] if place + 1 < len(nodes) else after
        match node:
            case Styled(style=style, children=children) if _is_arithmetic(style, left, _source(children), right):
                found.append(_source([node]))
            case Styled(style=style, children=children):
                found.append(Styled(style, _with_signs(children, left, right)))
            case _:
                found.append(node)
    return _merged(found)


def _is_arithmetic(style: Style, left: str, text: str, right: str) -> bool:
    if (left.isdigit() and _is_operand(text[:1])) or (right.isdigit() and _is_operand(text[-1:])):
        return True
    within_words = _is_operand(left) and _is_operand(right)
    return within_words and (style == "italic" or (style == "bold" and " " in text))


def _is_operand(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in ("(", ")"))


def _source(nodes: Sequence[Node]) -> str:
    """As it was written, more or less: a link or code among the nodes is its text."""
    return "".join(map(_source_of, nodes))


def _source_of(node: Node) -> str:
    match node:
        case str():
            return node
        case Code(text=text):
            return f"`{text}`"
        case Styled(style=style, children=children):
            return f"{_MARKS[style]}{_source(children)}{_MARKS[style]}"
        case Link(children=children):
            return _source(children)
        case _:
            assert_never(node)
