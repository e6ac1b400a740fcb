"""Long text as a chain of messages, each within the platform's limit by the platform's own count.

Pure. Cuts are prefix-stable: where a part ends depends only on the first `limit` units from where it begins, so what
was sent never changes while the text grows. Fences are closed and reopened, tables take their head along, links stay
whole; every part is at least one character long, so it always comes to an end (G82, G84).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tailrace.delivery.port import Unit
from tailrace.delivery.text.balance import open_markup
from tailrace.delivery.text.parser import FENCE, fence_after

CURSOR = " ▌"
HEADROOM = 32  # units kept free in every part: for the cursor, and for closing what a cut leaves open
MAX_CARRIED = 256  # characters that a part repeats of the one before it: a fence's line, a table's head
MIN_LIMIT = 96  # below it nothing is split any smaller

_ENCODINGS: dict[Unit, tuple[str, int]] = {"utf16": ("utf-16-le", 2), "bytes": ("utf-8", 1)}
_WORD_END = re.compile(r"\s+|(?<=[。！？，、；：])")
_KEPT_WHOLE = re.compile(
    r"!?\[(?:[^\[\]\n]++|\[[^\[\]\n]*+\])*+"  # the words of a link, `[1]` within them
    r"(?:\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:\)|$)|\]?$|\[[^\[\]\n]*$)|(`+)[^`\n]+\1|https?://\S+"
)
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_TABLE_LINE = re.compile(r"[ \t]*\|")
_TABLE_DELIMITER = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


class Part(NamedTuple):
    """`source[start:end]` with what must stand before it. `whole`: a cut ended it, so it cannot grow."""

    start: int
    end: int
    before: str
    whole: bool

    def raw(self, source: str) -> str:
        """As the source has it, with what a cut left open still open."""
        return self.before + source[self.start : self.end]

    def text(self, source: str) -> str:
        """As it is shown, once it does not grow any more."""
        raw = self.raw(source)
        return open_markup(raw).close(raw)


def units(text: str, unit: Unit) -> int:
    """The length of a text as the platform counts it."""
    if unit == "chars" or (unit == "utf16" and text.isascii()):
        return len(text)
    encoding, size = _ENCODINGS[unit]
    return len(text.encode(encoding, "replace")) // size


def fitting(text: str, start: int, room: int, unit: Unit) -> int:
    """The largest `end` for which `text[start:end]` is at most `room` units long."""
    window = text[start : start + room]  # no unit is larger than a character
    if unit == "chars":
        return start + len(window)
    encoding, size = _ENCODINGS[unit]
    data = window.encode(encoding, "replace")
    if len(data) <= room * size:
        return start + len(window)
    return start + len(data[: room * size].decode(encoding, "ignore"))


def part_from(text: str, start: int, before: str, limit: int, unit: Unit) -> Part:
    """The part that begins at `start`, where `before` stands ahead of it."""
    limit = max(limit, MIN_LIMIT)
    room = limit - HEADROOM - units(before, unit)
    if room < limit // 4:  # what would be carried along leaves no room for the text itself
        before, room = "", limit - HEADROOM
    end = fitting(text, start, room, unit)
    if end >= len(text):
        return Part(start, len(text), before, whole=False)
    line = before.removesuffix("\n")
    cut = _best_cut(text, start, max(end, start + 1), line if FENCE.fullmatch(line) else "")
    return Part(start, cut, before, whole=True)


def carried(part: Part, source: str) -> str:
    """The text that the next part must begin with: an open fence, open marks, or the head of a table."""
    text = part.raw(source)
    opened = open_markup(text)
    following = source[part.end : part.end + 1]  # and no more: a cut is stable once the text reaches past it
    if opened.fence or (opened.inline and not following.isspace()):
        return opened.reopening if len(opened.reopening) <= MAX_CARRIED else ""
    return _table_head(text) if text.endswith("\n") and following == "|" else ""


def parts(text: str, limit: int, unit: Unit) -> Iterator[Part]:
    """All parts of the text."""
    part = part_from(text, 0, "", limit, unit)
    yield part
    while part.whole and part.end < len(text):
        part = part_from(text, part.end, carried(part, text), limit, unit)
        yield part


class _Places:
    """Where a window may be cut, best kind first: before a paragraph, before a line, between lines of a code block or
    a table, between words, below a heading. Of each kind only the last place counts."""

    def __init__(self) -> None:
        self.paragraph = self.line = self.inner = self.word = self.below_heading = 0

    def best(self, start: int, end: int) -> int:
        """A better kind of place wins unless it would leave the message half empty."""
        for share in (2, 4):
            least = start + (end - start) // share
            for place in (self.paragraph, self.line, self.inner, self.word, self.below_heading):
                if place > least:
                    return place
        return next((place for place in (self.line, self.inner, self.word, self.below_heading) if place > start), 0)


def _best_cut(text: str, start: int, end: int, fence: str) -> int:
    places = _Places()
    at, in_table, headed = start, False, False
    while (newline := text.find("\n", at, end)) >= 0:
        line = text[at:newline]
        after = newline + 1
        was_in_code, fence = bool(fence), fence_after(line, fence)
        outside = not (was_in_code or fence)
        headed = outside and (bool(_HEADING.match(line)) or (headed and not line.strip()))
        if was_in_code and fence:
            places.inner = after
        elif was_in_code:
            places.line = after
        elif not fence:
            was_in_table, in_table = in_table, bool(_TABLE_LINE.match(line))
            if headed:
                places.below_heading = after  # its text would begin the next message
            elif in_table and _TABLE_LINE.match(text, after, end):
                places.inner = after if was_in_table else places.inner  # not between a table's head and its rows
            else:
                places.line = after
                places.paragraph = after if not line.strip() else places.paragraph
        at = after
    if not fence and (at == start or not _HEADING.match(text, at, end)):  # a heading stays whole
        places.word = _last_word_end(text, at, end)
    return places.best(start, end) or end


def _last_word_end(text: str, start: int, end: int) -> int:
    """The last place between words that no link, code span or address reaches over; 0 where there is none."""
    line = text[start:end]
    kept = [match.span() for match in _KEPT_WHOLE.finditer(line)]
    best = 0
    for match in _WORD_END.finditer(line):
        while kept and kept[0][1] < match.end():
            kept.pop(0)
        if match.end() < len(line) and not (kept and kept[0][0] < match.end() < kept[0][1]):
            best = start + match.end()
    if kept and start + kept[-1][0] > start and kept[-1][1] == len(line):
        best = max(best, start + kept[-1][0])
    return best


def _table_head(text: str) -> str:
    """The first two lines of the table that the text ends in, where they are short enough to be repeated."""
    lines = text.rstrip("\n").split("\n")
    first = len(lines)
    while first and _TABLE_LINE.match(lines[first - 1]):
        first -= 1
    head = lines[first : first + 2]
    if len(head) < 2 or not _TABLE_DELIMITER.fullmatch(head[1]):
        return ""
    joined = "\n".join(head) + "\n"
    return joined if len(joined) <= MAX_CARRIED else ""
