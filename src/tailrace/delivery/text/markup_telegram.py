"""Markdown as Telegram's text with entities: what each stretch of it is, counted in UTF-16 units.

Entities are never refused for what a text contains, as parsed markup is. Pure and linear.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

import msgspec

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
from tailrace.delivery.text.markup import RULE, bullet, columns, is_link
from tailrace.delivery.text.split import units

EntityType = Literal["bold", "italic", "strikethrough", "code", "pre", "text_link", "blockquote"]
_STYLES: dict[str, EntityType] = {"bold": "bold", "italic": "italic", "strike": "strikethrough"}


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """As the Bot API has it: `offset` and `length` in UTF-16 units. To JSON as it is."""

    type: EntityType
    offset: int
    length: int
    url: str = ""
    language: str = ""


class Rich(msgspec.Struct, frozen=True):
    """A text and what its stretches are."""

    text: str
    entities: tuple[Entity, ...] = ()


def telegram(text: str) -> Rich:
    return _Writer().write(blocks(text.strip("\n")))


class _Writer:
    def __init__(self) -> None:
        self._said: list[str] = []
        self._offset = 0
        self._entities: list[Entity] = []

    def write(self, found: Iterable[Block]) -> Rich:
        for place, block in enumerate(found):
            if place:
                self._say("\n")
            self._block(block)
        text = "".join(self._said)
        end = units(text.rstrip(), "utf16")
        clipped = (self._clipped(entity, end) for entity in self._entities)
        return Rich(text.rstrip(), tuple(entity for entity in clipped if entity.length > 0))

    @staticmethod
    def _clipped(entity: Entity, end: int) -> Entity:
        """Telegram drops the spaces at the end of a message: no entity may reach into them."""
        if entity.offset + entity.length <= end:
            return entity
        return msgspec.structs.replace(entity, length=end - entity.offset)

    def _say(self, text: str) -> None:
        self._said.append(text)
        self._offset += units(text, "utf16")

    def _mark(self, kind: EntityType, start: int, *, url: str = "", language: str = "") -> None:
        if self._offset > start:
            self._entities.append(Entity(kind, start, self._offset - start, url, language))

    def _block(self, block: Block) -> None:
        start = self._offset
        match block:
            case Paragraph(children=children):
                self._inline(children)
            case Heading(children=children):
                self._inline(children)
                self._mark("bold", start)
            case Item(indent=indent, marker=marker, children=children):
                self._say(f"{' ' * indent}{bullet(indent, marker)} ")
                self._inline(children)
            case Quote(children=children):
                self._inline(children)
                self._mark("blockquote", start)
            case CodeBlock(info=info, text=text):
                self._say(text)
                self._mark("pre", start, language=info)
            case Table():
                self._say(columns(block))
                self._mark("pre", start)
            case Rule():
                self._say(RULE)
            case Blank():
                pass
            case _:
                assert_never(block)

    def _inline(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            start = self._offset
            match node:
                case str():
                    self._say(node)
                case Code(text=text):
                    self._say(text)
                    self._mark("code", start)
                case Styled(style=style, children=children):
                    self._inline(children)
                    self._mark(_STYLES[style], start)
                case Link(url=url, children=children):
                    self._inline(children or [url])
                    if is_link(url):
                        self._mark("text_link", start, url=url)
                case _:
                    assert_never(node)
