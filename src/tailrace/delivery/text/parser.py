"""The one Markdown parser, for chats and the terminal: markdown-it with what models and chats need on top.

CommonMark with tables and strikethrough. Emphasis may also begin and end at punctuation. A code block is found at any
indentation and ends only at its closing line, as `balance` and `split` see it. A line without "|" ends a table; what a
row has beyond the columns stands in its last cell. HTML is text, and so is math. Pure and linear: nesting and columns
are bounded, and what lies beyond the bounds is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock, table
from markdown_it.rules_inline import StateInline, backtick, link_pairs
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token
from markdown_it.utils import EnvType

from tailrace.delivery.text.readable_math import readable

MAX_NESTING = 20  # markdown-it's levels: a quote takes one, a list two
MAX_COLUMNS = 32  # of a table: every short row is filled up to its width
FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<marker>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_MARK = re.compile(r"[*_~`]")  # what emphasis and code are made of
_LINKED = re.compile(r"(?:https?|mailto|tel|tg):", re.IGNORECASE)
_CELL_END = re.compile(r"(?<!\\)\|")

READABLE_MATH: Final = "readable_math"  # in the parser's environment: formulas and footnotes become letters and signs
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


def is_link(url: str) -> bool:
    """Whether the address is one that a chat may make clickable."""
    return bool(_LINKED.match(url))


def closes_fence(line: str, marker: str) -> bool:
    """Whether the line ends a block that this marker opened (CommonMark 4.5)."""
    stripped = line.strip()
    return len(stripped) >= len(marker) and not stripped.strip(marker[0])


def fence_after(line: str, fence: str) -> str:
    """The line that opened the code block which the text is in after `line`; empty where it is in none. `fence` is the
    same before `line`."""
    opened = FENCE.fullmatch(fence or line)
    if not fence:
        return line if opened else ""
    return "" if opened is None or closes_fence(line, opened["marker"]) else fence


class _InlineState(StateInline):
    open_code: int | None = None  # where backticks stand that text follows but no closing ones

    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803 - markdown-it's names
        """Marks open before text and close after it. CommonMark also looks at punctuation: in "**注意：**请" it
        would leave the marks as they are."""
        end = start
        while end < self.posMax and self.src[end] == self.src[start]:
            end += 1
        before = self.src[start - 1] if start else " "
        after = self.src[end] if end < self.posMax else " "
        opens, closes = not after.isspace(), not before.isspace()
        if not canSplitWord:  # snake_case stays itself
            opens, closes = opens and not before.isalnum(), closes and not after.isalnum()
        return Scanned(opens, closes, end - start)


class _InlineParser(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _InlineState(readable(src) if READABLE_MATH in env else src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _ChatMarkdown(MarkdownIt):
    """Addresses stay as they were written. Which of them become clickable is for the platform's writer to say."""

    def validateLink(self, _url: str) -> bool:  # noqa: N802 - markdown-it's name
        return True

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - markdown-it's name
        return url

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802 - markdown-it's name
        return link


def _read_backticks(state: StateInline, silent: bool) -> bool:
    start = state.pos
    if not backtick(state, silent):
        return False
    if not silent and not state.level and isinstance(state, _InlineState) and state.open_code is None:
        closed = state.tokens and state.tokens[-1].type == "code_inline" and not state.pending
        if not closed and state.src[state.pos :].strip():
            state.open_code = start
    return True


def _read_deep_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Where markdown-it would leave out what is nested too deeply, it is text."""
    if silent or state.level < MAX_NESTING - 2:
        return False
    line = start + 1
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        line += 1
    state.line = line
    state.push("paragraph_open", "p", 1).map = [start, line]
    text = state.push("inline", "", 0)
    text.content = state.getLines(start, line, state.blkIndent, False).strip()
    text.map, text.children = [start, line], []
    state.push("paragraph_close", "p", -1)
    return True


def _read_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """A line without "|" ends a table. A row with more cells than the head has the rest of them in its last one:
    markdown-it would leave them out."""
    if start + 1 >= end or _line(state, start + 1).count("|") > MAX_COLUMNS or not table(state, start, end, True):
        return False
    last = start + 2
    while not silent and last < end and "|" in _line(state, last):
        last += 1
    before = len(state.tokens)
    if not silent and table(state, start, last, False):
        _keep_rest(state, state.tokens[before:], len(_cells(_line(state, start))))
    return True


def _keep_rest(state: StateBlock, tokens: Sequence[Token], columns: int) -> None:
    for cell, row_end in zip(tokens, tokens[2:], strict=False):
        if row_end.type != "tr_close" or cell.map is None:
            continue
        written = _cells(_line(state, cell.map[0]))
        while len(written) > columns and not written[-1].strip():
            written.pop()
        if len(written) > columns:
            cell.content = "|".join(written[columns - 1 :]).replace("\\|", "|").strip()


def _read_fence(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    opened = FENCE.fullmatch(_line(state, start))
    if opened is None:
        return False
    if silent:
        return True
    line = start + 1
    while line < end and not closes_fence(_line(state, line), opened["marker"]):
        line += 1
    state.line = min(line + 1, end)
    token = state.push("fence", "code", 0)
    token.info, token.markup, token.map = opened["info"], opened["marker"], [start, state.line]
    token.content = state.getLines(start + 1, line, state.sCount[start], True)
    return True


def _cells(line: str) -> list[str]:
    """As they were written, without the bars at both ends of the line."""
    cells = _CELL_END.split(line.strip())
    first, last = int(not cells[0]), len(cells) - int(not cells[-1])
    return cells[first:last]


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


@cache
def parser() -> MarkdownIt:
    markdown = _ChatMarkdown()
    markdown.inline = _InlineParser()
    markdown.configure("commonmark", {"html": False, "maxNesting": MAX_NESTING, "inline_definitions": True})
    markdown.enable("strikethrough").disable("fence")
    interrupts = ["paragraph", "reference", "blockquote", "list"]
    markdown.block.ruler.before("table", "deep_block", _read_deep_block)
    markdown.block.ruler.at("table", _read_table, {"alt": ["paragraph", "reference"]})
    markdown.block.ruler.before("code", "fence_at_any_indent", _read_fence, {"alt": interrupts})
    markdown.inline.ruler.at("backticks", _read_backticks)
    markdown.inline.ruler.before("escape", "math", read_math)
    return markdown.enable("table")


def open_inline(text: str) -> tuple[int | None, tuple[str, ...]]:
    """What a stretch of text opens and does not close: where an open code span begins, and the marks of emphasis. These
    are the ones before the code span, where there is one: nothing in it is a mark."""
    if _MARK.search(text) is None:
        return None, ()
    state = _state_of(text)
    if (code := state.open_code) is not None:
        state = _state_of(text[:code] + "x")
    marks: list[str] = []
    at, last = 0, -2
    while at < len(state.delimiters):
        delimiter = state.delimiters[at]
        if delimiter.end >= 0:
            at = delimiter.end  # what stands between two that match is text
        elif delimiter.open:
            mark = state.tokens[delimiter.token].content
            if delimiter.token == last + 1 and marks[-1][0] == mark[0]:
                marks[-1] += mark
            else:
                marks.append(mark)
            last = delimiter.token
        at += 1
    return code, tuple(marks)


def _state_of(text: str) -> _InlineState:
    markdown = parser()
    state = _InlineState(text, markdown, {}, [])
    markdown.inline.tokenize(state)
    link_pairs(state)
    return state
