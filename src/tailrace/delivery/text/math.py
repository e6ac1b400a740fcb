"""Math in Markdown stays as the model wrote it: no chat sets it, and its stars and backslashes are no marks.

Pure. Linear: a mark that has no partner is looked for once.
"""

from __future__ import annotations

from typing import Final

from markdown_it.rules_inline import StateInline

_PAIRS: Final = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}


def read_math(state: StateInline, silent: bool) -> bool:
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
