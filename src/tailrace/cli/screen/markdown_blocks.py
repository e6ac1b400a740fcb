"""Markdown cut into its top-level blocks while it arrives.

Pure. A finished block never changes, whatever follows: it is drawn once and forgotten. Only the open block is drawn
again, so the cost of a long answer is linear. Blocks that could grow without end (a listing, a list, a table) are cut
into parts that join without a gap.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from tailrace.delivery.text.balance import balance

MAX_CODE_LINES: Final = 100  # of one part of a listing; it is cut earlier at a blank line before unindented code
MIN_CODE_LINES: Final = 24
MIN_LIST_LINES: Final = 24  # after so many the next item of the list begins a new part
MAX_TABLE_ROWS: Final = 100
MAX_COLUMN: Final = 1 << 30  # beyond any indentation

_FENCE: Final = re.compile(r"( {0,3})(?:(`{3,})([^`]*)|(~{3,})(.*))$")
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_RULE: Final = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_SETEXT: Final = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_ITEM: Final = re.compile(r"( {0,3})(?:([-+*])|(\d{1,9})([.)]))(?:([ \t]+)|$)")
_QUOTE: Final = re.compile(r" {0,3}>")
_DELIMITER_ROW: Final = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")

Kind = Literal["markdown", "code"]
_Inside = Literal["nothing", "text", "quote", "list", "fence", "table", "indented"]


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
        self._inside: _Inside = "nothing"
        self._blank = False  # a blank line in a list or an indented listing: what follows decides
        self._joined = False
        self._fence = ("", 0, "")  # its mark, its indentation, its language
        self._bullet = ""  # what marks the items of the open list
        self._content_at = 0  # the column where the text of its last item begins
        self._needs_indent = False  # its last line can only be followed by an indented one: an empty item, a listing
        self._item_fence = ""  # the mark of the listing within an item that is open
        self._item_text = False  # the last item is not empty
        self._next_number = 1  # of the item after the last
        self._start: int | None = None
        self._table_head: tuple[str, str] = ("", "")
        self._done: list[Block] = []

    def feed(self, text: str) -> list[Block]:
        """The blocks that this finishes."""
        first, *rest = text.split("\n")
        self._partial.append(first)
        for piece in rest:
            line = "".join(self._partial)
            self._partial = [piece]
            self._line(line)
        return self._pop_done()

    def close(self) -> list[Block]:
        """The remaining blocks; the text has ended."""
        if line := "".join(self._partial):
            self._line(line)
        self._partial = []
        self._finish()
        return self._pop_done()

    @property
    def open(self) -> Block | None:
        """The growing block, as far as it can be shown: a table's row is shown when it is complete."""
        line = "".join(self._partial)
        if self._inside == "fence":
            return self._code([*self._lines, self._dedented(line)] if line else self._lines)
        if self._inside == "table":
            return Block("markdown", "\n".join(self._lines), joined=self._joined)
        if self._inside in ("nothing", "text") and len(self._lines) <= 1:
            if (self._lines[0] if self._lines else line).lstrip().startswith("|"):
                return None  # probably the head of a table; the next line decides
            if not self._lines and _FENCE.match(line):
                return None
        lines = [*self._lines, line]
        text = balance("\n".join(lines))
        return Block("markdown", text, start=self._start, joined=self._joined) if text.strip() else None

    # ── one line ─────────────────────────────────────────────────────────────────────────────────────────────

    def _line(self, line: str) -> None:
        match self._inside:
            case "fence":
                self._in_fence(line)
            case "list":
                self._in_list(line)
            case "indented":
                self._in_indented(line)
            case "nothing":
                self._begin(line)
            case "text" | "quote" | "table":
                self._in_paragraph(line)

    def _begin(self, line: str) -> None:
        """The first line of a block."""
        if not line.strip():
            return
        if self._opens_alone(line):
            return
        if item := _ITEM.match(line):
            self._open_list(line, item)
        elif _indented(line):
            self._inside, self._lines = "indented", [line]
        else:
            self._inside = "quote" if _QUOTE.match(line) else "text"
            self._lines = [line]

    def _opens_alone(self, line: str) -> bool:
        """A fence begins here; a heading or a rule is over with its line."""
        if found := _FENCE.match(line):
            self._finish()
            language = (found[3] or found[5] or "").strip().partition(" ")[0]
            self._inside, self._fence = "fence", (found[2] or found[4], len(found[1]), language)
            return True
        if _HEADING.match(line) or _RULE.match(line):
            self._finish()
            self._done.append(Block("markdown", line))
            return True
        return False

    def _in_paragraph(self, line: str) -> None:
        if not line.strip():
            self._finish()
        elif self._inside == "text" and _SETEXT.match(line):
            self._lines.append(line)
            self._finish()
        elif self._opens_alone(line):
            return
        elif (item := _ITEM.match(line)) and (self._inside != "text" or _may_interrupt(item)):
            self._finish()
            self._open_list(line, item)
        elif (self._inside != "quote" and _QUOTE.match(line)) or (self._inside == "table" and _indented(line)):
            self._finish()
            self._begin(line)
        else:
            self._lines.append(line)
            self._watch_table(line)

    def _watch_table(self, line: str) -> None:
        """A row of dashes under a row of as many cells makes a table of both."""
        if self._inside == "table":
            if len(self._lines) >= MAX_TABLE_ROWS + 2:
                self._cut()
                self._lines = list(self._table_head)
        elif self._inside == "text" and len(self._lines) > 1 and _is_table_head(self._lines[-2], line):
            self._table_head = (self._lines[-2], line)
            del self._lines[-2:]
            self._finish()
            self._inside, self._lines = "table", list(self._table_head)

    def _in_fence(self, line: str) -> None:
        mark, indent, _ = self._fence
        bare = line.strip()
        if len(line) - len(line.lstrip(" ")) <= 3 and len(bare) >= len(mark) and bare == mark[0] * len(bare):
            self._finish()
            return
        count = len(self._lines)
        if count >= MAX_CODE_LINES or (
            count >= MIN_CODE_LINES and not self._lines[-1].strip() and line[indent : indent + 1].strip()
        ):
            self._cut()
        self._lines.append(self._dedented(line))

    def _in_indented(self, line: str) -> None:
        if not line.strip():
            self._blank = True
            self._lines.append(line)
        elif _indented(line):
            self._blank = False
            if len(self._lines) >= MAX_CODE_LINES:
                self._cut()
            self._lines.append(line)
        else:
            self._finish()
            self._begin(line)

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_list(self, line: str, item: re.Match[str]) -> None:
        self._inside, self._lines, self._blank = "list", [line], False
        self._bullet = item[2] or item[4]
        self._start = int(item[3]) if item[3] else None
        self._next_number = self._start or 0
        self._begin_item(line, item)

    def _begin_item(self, line: str, item: re.Match[str]) -> None:
        self._next_number += 1
        self._content_at = _content_column(item)
        self._item_fence, self._item_text = "", False
        self._watch_item(line[item.end() :])

    def _in_list(self, line: str) -> None:
        if not line.strip():
            if self._lines[-1].strip() and not self._item_text:
                self._content_at = MAX_COLUMN  # an item that begins with two blank lines is empty
            self._blank = True
            self._lines.append(line)
            return
        indent = len(line) - len(line.lstrip(" "))
        item = _ITEM.match(line)
        if indent >= self._content_at:
            self._watch_item(line.strip())
        elif item and not _RULE.match(line) and (item[2] or item[4]) == self._bullet:
            if len(self._lines) >= MIN_LIST_LINES:
                self._cut()
                self._start = self._next_number if item[3] else None
            self._begin_item(line, item)
        elif self._blank or self._needs_indent or item or _ends_item(line):
            self._finish()
            self._begin(line)
            return
        self._blank = False
        self._lines.append(line)

    def _watch_item(self, content: str) -> None:
        """Keeps track of what the item holds: only a paragraph can go on with text that is not indented."""
        self._item_text = self._item_text or bool(content.strip())
        self._needs_indent = bool(self._item_fence) or not content.strip()
        if self._item_fence:
            closes = content.startswith(self._item_fence) and not content.strip(self._item_fence[0])
            self._item_fence = "" if closes else self._item_fence
        elif found := _FENCE.match(content):
            self._item_fence, self._needs_indent = found[2] or found[4], True

    # ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self) -> None:
        """Ends a part of the open block; its next part joins it."""
        self._done.append(self._open_part())
        self._lines, self._joined = [], True

    def _finish(self) -> None:
        if self._inside == "fence" or any(line.strip() for line in self._lines):
            self._done.append(self._open_part())
        self._lines, self._inside, self._blank = [], "nothing", False
        self._joined, self._start = False, None

    def _open_part(self) -> Block:
        if self._inside == "fence":
            return self._code(self._lines)
        return Block("markdown", "\n".join(self._lines).rstrip(), start=self._start, joined=self._joined)

    def _code(self, lines: list[str]) -> Block:
        return Block("code", "\n".join(lines), self._fence[2], joined=self._joined)

    def _dedented(self, line: str) -> str:
        """Without the indentation of the fence it stands in."""
        indent = self._fence[1]
        return line[min(indent, len(line) - len(line.lstrip(" "))) :]

    def _pop_done(self) -> list[Block]:
        done, self._done = self._done, []
        return done


def _may_interrupt(item: re.Match[str]) -> bool:
    """CommonMark 5.3: an empty item cannot interrupt a paragraph, nor can a number other than 1."""
    return bool(item[5]) and (item[3] is None or int(item[3]) == 1)


def _indented(line: str) -> bool:
    return line.startswith(("    ", "\t"))


def _is_table_head(cells: str, dashes: str) -> bool:
    return "|" in cells and bool(_DELIMITER_ROW.match(dashes)) and _columns(cells) == _columns(dashes)


def _columns(row: str) -> int:
    bare = row.strip().removeprefix("|")
    if bare.endswith("|") and not bare.endswith("\\|"):
        bare = bare[:-1]
    return bare.count("|") - bare.count("\\|") + 1


def _ends_item(line: str) -> bool:
    """What is no text cannot go on with an item's paragraph without being indented."""
    return any(start.match(line) for start in (_FENCE, _HEADING, _RULE, _QUOTE))


def _content_column(item: re.Match[str]) -> int:
    spaces = len((item[5] or " ").expandtabs(4))
    return item.end() - len(item[5] or "") + (spaces if spaces <= 4 else 1)


def blocks_of(text: str) -> list[Block]:
    """The blocks of a whole text."""
    splitter = BlockSplitter()
    return splitter.feed(text) + splitter.close()
