"""Markdown as Telegram's text with entities, which say in UTF-16 units which part of it is bold, code, a link.

Entities are never refused for what a text contains, as parsed markup is. Pure and linear.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

import msgspec

from tailrace.delivery.text import markdown as md
from tailrace.delivery.text.markup import RULE, bullet, columns, line_start, records
from tailrace.delivery.text.parser import is_link
from tailrace.delivery.text.split import units

EntityType = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]
MAX_ENTITIES = 100  # of one message: Telegram drops the others without a word
# Where there are more, what is needed to read the text stays: addresses, then code, then quotes.
_RANKS: dict[EntityType, int] = {"text_link": 0, "pre": 1, "code": 2, "blockquote": 3}
_STYLES: dict[str, EntityType] = {"bold": "bold", "italic": "italic", "strike": "strikethrough"}


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """As the Bot API has it, JSON included: `offset` and `length` in UTF-16 units."""

    type: EntityType
    offset: int
    length: int
    url: str = ""
    language: str = ""


class RichText(msgspec.Struct, frozen=True):
    """A text and its entities."""

    text: str
    entities: tuple[Entity, ...] = ()


def telegram_text(text: str) -> RichText:
    return _Writer().write(md.blocks(text.strip("\n")))


class _Writer:
    def __init__(self) -> None:
        self._texts: list[str] = []
        self._offset = 0
        self._quotes = 0  # open ones
        self._links = 0
        self._entities: list[Entity] = []

    def write(self, found: Iterable[md.Block]) -> RichText:
        self._blocks(found, 0)
        text = "".join(self._texts)
        end = units(text.rstrip(), "utf16")
        # Telegram drops the spaces at the end of a message: no entity may reach into them.
        clipped = (msgspec.structs.replace(each, length=min(each.length, end - each.offset)) for each in self._entities)
        return RichText(text.rstrip(), _most_needed([entity for entity in clipped if entity.length > 0]))

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self._offset += units(text, "utf16")

    def _mark(self, kind: EntityType, start: int, *, url: str = "", language: str = "") -> None:
        if self._offset > start:
            self._entities.append(Entity(kind, start, self._offset - start, url, language))

    def _blocks(self, blocks: Iterable[md.Block], depth: int) -> None:
        """`depth`: how many lists the blocks are in."""
        for place, block in enumerate(blocks):
            if place:
                self._add(line_start(block, depth))
            self._block(block, depth)

    def _block(self, block: md.Block, depth: int) -> None:
        start = self._offset
        match block:
            case md.Paragraph(children=children):
                self._inline(children, line_start(block, depth))
            case md.Heading(children=children):
                self._inline(children)
                self._mark("bold", start)
            case md.ItemList(children=items):
                self._blocks(items, depth)
            case md.Item(children=inner):
                self._add(f"{bullet(block, depth)} ")
                self._blocks(inner, depth + 1)
            case md.Quote(children=inner):
                self._quotes += 1
                self._blocks(inner, depth)
                self._quotes -= 1
                if not self._quotes:  # Telegram takes no quote within a quote
                    self._mark("blockquote", start)
            case md.CodeBlock(info=info, text=text):
                self._add(text)
                self._mark("pre", start, language=info)
            case md.Table() if (rows := records(block)) is not None:
                self._blocks(rows, 0)
            case md.Table():
                self._add(columns(block))
                self._mark("pre", start)
            case md.Rule():
                self._add(RULE)
            case md.Blank():
                pass
            case _:
                assert_never(block)

    def _inline(self, nodes: Iterable[md.Node], line_end: str = "\n") -> None:
        for node in nodes:
            start = self._offset
            match node:
                case str():
                    self._add(node.replace("\n", line_end))
                case md.Code(text=text):
                    self._add(text)
                    self._mark("code", start)
                case md.Styled(style=style, children=children):
                    self._inline(children, line_end)
                    self._mark(_STYLES[style], start)
                case md.Link(url=url, children=children):
                    self._inline(children or [url], line_end)
                    if is_link(url) and self._links >= MAX_ENTITIES:
                        self._add(f" ({url})")
                    elif is_link(url):
                        self._links += 1
                        self._mark("text_link", start, url=url)
                case _:
                    assert_never(node)


def _most_needed(entities: list[Entity]) -> tuple[Entity, ...]:
    """As many as one message takes, in their order."""
    by_rank = sorted(range(len(entities)), key=lambda place: _RANKS.get(entities[place].type, len(_RANKS)))
    return tuple(entities[place] for place in sorted(by_rank[:MAX_ENTITIES]))
