"""Markdown as the terminal shows it: what the one parser reads, with task boxes and images with addresses. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markdown_it.token import Token

from tailrace.delivery.text.parser import parser

_BOXES: Final = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}


def tokens_of(text: str, *, start: int | None = None) -> list[Token]:
    """`start` is the first number of a numbered list, where the text is a later part of one."""
    tokens = parser().parse(text)
    if start is not None and tokens and tokens[0].type == "ordered_list_open":
        tokens[0].attrs["start"] = start
    _mark_tasks(tokens)
    for token in tokens:
        if token.children and any(child.type == "image" for child in token.children):
            token.children = [_image(child) if child.type == "image" else child for child in token.children]
    return tokens


def _mark_tasks(tokens: Sequence[Token]) -> None:
    for item, paragraph, inline in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if item.type == "list_item_open" and paragraph.type == "paragraph_open" and inline.children:
            first = inline.children[0]
            if (box := _BOXES.get(first.content[:4])) is not None and first.type == "text":
                first.content = box + first.content[4:]


def _image(token: Token) -> Token:
    return Token("text", "", 0, content=f"[image: {token.content or 'no description'}] ({token.attrs.get('src', '')})")
