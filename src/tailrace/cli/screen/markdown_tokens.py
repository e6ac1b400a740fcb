"""Markdown as the terminal shows it: the one parser with math left as written, task boxes, and images with addresses.

Pure. Linear: a mark that has no partner is looked for once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from tailrace.delivery.text.parser import new_parser

_PAIRS: Final = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
_BOXES: Final = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}


def tokens_of(text: str, *, start: int | None = None) -> list[Token]:
    """`start` is the first number of a numbered list, where the text is a later part of one."""
    tokens = _parser().parse(text)
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


@cache
def _parser() -> MarkdownIt:
    markdown = new_parser()
    markdown.inline.ruler.before("escape", "math", _read_math)
    return markdown


def _read_math(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    end = _end_of_pair(state, opening) if opening in _PAIRS else _end_of_dollar(state)
    if end <= state.pos:
        return False
    if not silent:
        state.push("text", "", 0).content = state.src[state.pos : end]
    state.pos = end
    return True


def _end_of_pair(state: StateInline, opening: str) -> int:
    closing = _PAIRS[opening]
    missing = state.env.setdefault("math_missing", {})
    if missing.get(closing) == state.src:
        return -1
    at = state.src.find(closing, state.pos + 2, state.posMax)
    if at < 0:
        missing[closing] = state.src
        return -1
    return at + 2


def _end_of_dollar(state: StateInline) -> int:
    """`$x$`: text touches both marks, and no digit follows the second, so that prices stay prices."""
    src, start = state.src, state.pos
    if src[start] != "$" or src[start + 1 : start + 2].isspace():
        return -1
    at = src.find("$", start + 1, state.posMax)
    touches = at > start + 1 and not src[at - 1].isspace() and not src[at + 1 : at + 2].isdigit()
    return at + 1 if touches and "\n" not in src[start:at] else -1
