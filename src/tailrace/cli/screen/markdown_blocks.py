"""Markdown cut into its top-level blocks while it arrives.

Pure. The one Markdown parser reads the open block anew with each line; a block is finished when the next one begins.
A finished block never changes, whatever follows: it is drawn once and forgotten. Blocks that could grow without end (a
listing, a list, a table) are cut into parts that join without a gap, so the cost of a long answer is linear.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from markdown_it.token import Token

from tailrace.delivery.text.balance import balance
from tailrace.delivery.text.parser import FENCE, closes_fence, parser

MAX_CODE_LINES: Final = 100  # of one part of a listing; it is cut earlier at a blank line before unindented code
MIN_CODE_LINES: Final = 24
MIN_LIST_LINES: Final = 24  # after so many the next item of the list begins a new part
MAX_TABLE_ROWS: Final = 100
MAX_TEXT_LINES: Final = 200  # of a paragraph, a quotation or one item of a list

Kind = Literal["markdown", "code"]


class Block(msgspec.Struct, frozen=True):
    """`text` of a listing is the code alone. `joined`: the rest of the block before it, no gap between the two."""

    kind: Kind
    text: str
    info: str = ""  # of a listing: its language
    start: int | None = None  # of a part of a numbered list: the first number
    joined: bool = False


class BlockSplitter:
    """Text in, finished blocks out. Any split of the same text gives the same blocks."""

    def __init__(self) -> None:
        self._partial: list[str] = []  # the line that has not ended
        self._lines: list[str] = []  # of the open block
        self._token: Token | None = None  # that opens it
        self._joined = False
        self._start: int | None = None  # of the open part of a numbered list

    def feed(self, text: str) -> list[Block]:
        """The blocks that this finishes."""
        done: list[Block] = []
        first, *rest = text.split("\n")
        self._partial.append(first)
        for piece in rest:
            line = "".join(self._partial)
            self._partial = [piece]
            done += self._add_line(line)
        return done

    def close(self) -> list[Block]:
        """The remaining blocks; the text has ended."""
        line = "".join(self._partial)
        self._partial = []
        return (self._add_line(line) if line else []) + self._finish()

    @property
    def open(self) -> Block | None:
        """The growing block, as far as it can be shown: a table's row is shown when it is complete."""
        line = "".join(self._partial)
        if self._token is not None and self._token.type == "fence":
            return self._block(self._token, [*self._lines, line] if line else self._lines)
        if self._token is not None and self._token.type == "table_open":
            return self._block(self._token, self._lines)
        if len(self._lines) <= 1:
            if (self._lines[0] if self._lines else line).lstrip().startswith("|"):
                return None  # probably the head of a table; the next line decides
            if not self._lines and FENCE.fullmatch(line):
                return None
        text = balance("\n".join([*self._lines, line]))
        return Block("markdown", text, start=self._start, joined=self._joined) if text.strip() else None

    def _add_line(self, line: str) -> list[Block]:
        """The blocks that this line finishes."""
        self._lines.append(line)
        if self._token is not None and _continues(self._token, line):
            return self._cut(self._token, line, [])
        tokens: list[Token] = []
        parser().block.parse("\n".join(self._lines), parser(), {}, tokens)
        tops = [token for token in tokens if not token.level and token.nesting >= 0 and token.type != "definition"]
        last = tops[-1] if tops else None
        done: list[Block] = []
        for token in tops[:-1]:
            done.append(self._block(token, self._lines[slice(*token.map or ())]))
            self._joined, self._start = False, None
        before = last.map[0] if last is not None and last.map else len(self._lines)
        del self._lines[:before]
        self._token = last
        if last is None:
            return done
        if last.type == "ordered_list_open" and self._start is None:
            self._start = int(last.attrs.get("start", 1))
        if self._is_over(last, line):
            return done + self._finish()
        items = [
            token.map[0] - before
            for token in tokens
            if token.type == "list_item_open" and token.level == 1 and token.map
        ]
        return done + self._cut(last, line, [item for item in items if item >= 0])

    def _is_over(self, token: Token, line: str) -> bool:
        """Whether nothing that follows can belong to the open block."""
        match token.type:
            case "heading_open" | "hr":
                return True
            case "fence":
                return len(self._lines) > 1 and closes_fence(line, token.markup)
            case "paragraph_open" | "blockquote_open" | "table_open":
                return not line.strip()
            case _:
                return False

    def _cut(self, token: Token, line: str, items: list[int]) -> list[Block]:
        """The part of a long block that ends before its last line; the next part joins it."""
        count, head = len(self._lines), list[str]()
        start = self._start
        match token.type:
            case "fence":
                head, written = self._lines[:1], count - 2
                indent = len(head[0]) - len(head[0].lstrip())
                gap = (
                    written >= MIN_CODE_LINES
                    and not self._lines[-2].strip()
                    and bool(line[indent : indent + 1].strip())
                )
                is_long = written >= MAX_CODE_LINES or gap
            case "table_open":
                head, is_long = self._lines[:2], count > MAX_TABLE_ROWS + 2
            case "bullet_list_open" | "ordered_list_open":
                is_long = (count > MIN_LIST_LINES and items[-1] == count - 1) or count > MAX_TEXT_LINES
                start = start + len(items) - 1 if start is not None else None
            case "code_block":
                is_long = count > MAX_CODE_LINES
            case _:
                is_long = count > MAX_TEXT_LINES
        if not is_long:
            return []
        part = self._block(token, self._lines[:-1])
        self._lines, self._joined, self._start = [*head, line], True, start
        return [part]

    def _finish(self) -> list[Block]:
        block = self._block(self._token, self._lines) if self._token is not None else None
        self._lines, self._token, self._joined, self._start = [], None, False, None
        return [block] if block is not None else []

    def _block(self, token: Token, lines: list[str]) -> Block:
        if token.type != "fence":
            return Block("markdown", "\n".join(lines).rstrip(), start=self._start, joined=self._joined)
        indent = len(lines[0]) - len(lines[0].lstrip(" "))
        code = lines[1:-1] if len(lines) > 1 and closes_fence(lines[-1], token.markup) else lines[1:]
        text = "\n".join(line[min(indent, len(line) - len(line.lstrip(" "))) :] for line in code)
        return Block("code", text, token.info.strip().partition(" ")[0], joined=self._joined)


def _continues(token: Token, line: str) -> bool:
    """Whether the line is certain to belong to the open block, so that the block need not be parsed again."""
    match token.type:
        case "fence":
            return not closes_fence(line, token.markup)
        case "table_open":
            return "|" in line and (line.startswith("|") or line[:1].isalpha())
        case "paragraph_open":
            return line[:1].isalpha()
        case _:
            return False
