"""The think filter: keeps thoughts that a model wrote into its text out of the answer.

The one place where think tags are handled, for streamed and whole answers alike. Pure: text in, text out. Holds back
what could still become a tag (C42). A thought begins at the start of the message or of a line and nowhere else: a tag
that a sentence or code mentions is text (M150). A thought that is never closed is never shown (C43).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, Literal, NamedTuple

DEFAULT_TAGS = ("think", "thinking", "thought", "reasoning", "mm:think")
_MAX_ATTRIBUTE_CHARS: Final = 100  # of a tag; with more it is text
_MAX_LINE_CHARS: Final = 40  # how much of a line is looked at to see whether it has begun
_MAX_GAP_CHARS: Final = 200  # blanks of one line that are held back after a thought
_RUNS: Final = ("`", "~")  # characters of which a run of any length opens and closes code
_SPAN_END: Final = re.compile(r"`+|\n")
_BLANK_LINES: Final = re.compile(rf"(?:[ \t\r]{{0,{_MAX_GAP_CHARS}}}\n)*")
_BEFORE_FENCE: Final = re.compile(r"[ \t]*(?:(?:[-*+]|[0-9]{1,9}[.)])[ \t]+)*")  # blanks and the marks of lists
_GLUED: Final = re.compile(r"[\w.!?…]")  # a tag right after one of these belongs to no sentence


# Of the code we are in: none; on the line that opened it; inside; on a line that ends it unless a word follows.
_Fence = Literal["", "opening", "open", "ending"]


class Filtered(NamedTuple):
    """The two halves of a piece of model text."""

    shown: str
    thought: str


class ThinkFilter:
    """`feed` the text in any pieces, then `close`: the joined halves do not depend on the pieces.

    Every attribute is immutable, so a copy has its attributes and is independent.
    """

    def __init__(self, tags: Iterable[str] = DEFAULT_TAGS) -> None:
        names_given = filter(None, (tag.strip(" <>/").lower() for tag in tags))
        self._names = tuple(sorted(names_given, key=len, reverse=True))
        names = "|".join(map(re.escape, self._names))
        tag = rf"<(?P<end>/?)(?P<name>{names})(?:[ \t][^<>`~\n]{{0,{_MAX_ATTRIBUTE_CHARS}}})?>"
        self._tag = re.compile(tag, re.IGNORECASE)
        self._plain = re.compile(rf"(?P<ticks>`+|~{{3,}})|{tag}", re.IGNORECASE)
        self._max_tag_chars = _MAX_ATTRIBUTE_CHARS + max(map(len, self._names), default=0) + 4
        self._held = ""  # could still become a tag or a longer run of backticks
        self._repeats = 0  # how often the last character of `_held` follows it: a long run costs no copies (L140)
        self._depth = 0
        self._name = ""  # the tag of the thought we are in
        self._code = ""  # the backticks or tildes that opened the code we are in, "" outside
        self._fence: _Fence = ""
        self._line = ""  # the line so far, of the text or of the thought; long ones are cut
        self._last = ""  # its last character
        self._blank_so_far = True  # nothing but blanks is shown yet
        self._in_gap = False  # between a thought and the answer: blank lines are dropped here
        self._indent = ""  # blanks in the gap: dropped with their line, shown if the answer begins after them
        self._mentions = 0  # opening tags shown as text: as many closing tags are text as well

    def copy(self) -> ThinkFilter:
        """One in the same state."""
        copied = ThinkFilter.__new__(ThinkFilter)
        copied.__dict__.update(self.__dict__)
        return copied

    def feed_plain(self, text: str) -> str | None:
        """As `feed`, for a piece that is shown as it is, whatever follows: nearly every one. None, with nothing taken,
        for any other."""
        if self._blank_so_far or self._held or self._depth or self._code or self._in_gap:
            return None
        if "<" in text or "`" in text or ("~" in text and not _is_in_line(text)):
            return None
        # as `_pass_line`, without a call of it for each token
        if "\n" in text:
            self._pass_line(text)
        else:
            line = self._line + text
            self._line = line if len(line) <= _MAX_LINE_CHARS else "…"
            self._last = text[-1:] or self._last
        return text

    def feed(self, text: str) -> Filtered:
        if self._held[-1:] in _RUNS and not text.strip(self._held[-1]):
            self._repeats += len(text)
            return Filtered("", "")
        ordinary = not (self._held or self._depth or self._code or self._in_gap)
        if ordinary and "<" not in text and "`" not in text and ("~" not in text or _is_in_line(text)):
            return Filtered(self._show(text), "")
        return self._scan(self._take_held() + text, last=False)

    def close(self) -> Filtered:
        """What was held back, now that nothing follows."""
        return self._scan(self._take_held(), last=True)

    def _take_held(self) -> str:
        held, self._held, self._repeats = self._held + self._held[-1:] * self._repeats, "", 0
        return held

    def _scan(self, data: str, *, last: bool) -> Filtered:
        shown: list[str] = []
        thought: list[str] = []
        end = len(data) if last else self._held_from(data)
        at = 0
        while at < end:
            if self._depth:
                at = self._in_thought(data, at, end, thought)
            elif self._code and not self._fence:
                at = self._in_span(data, at, end, shown)
            else:
                at = self._in_text(data, at, end, shown)
        self._held = data[end:]
        return Filtered("".join(shown), "".join(thought))

    # ── where we are: each consumes up to and including what changes it, and returns where that ends ─────────

    def _in_thought(self, data: str, at: int, end: int, thought: list[str]) -> int:
        match = self._tag.search(data, at, end)
        before = data[at : match.start() if match else end]
        thought.append(before)
        self._pass_line(before)
        if match is None:
            return end
        if self._name != match["name"].lower() or (not match["end"] and self._is_mention()):
            thought.append(match[0])
            self._pass_line(match[0])
        elif not match["end"]:
            self._depth += 1
        else:
            self._depth -= 1
            if not self._depth:
                self._line, self._in_gap, self._indent = "", self._blank_so_far, ""
        return match.end()

    def _in_span(self, data: str, at: int, end: int, shown: list[str]) -> int:
        """Inside `code`: ends at the same run of backticks, and at the end of the line at the latest."""
        match = _SPAN_END.search(data, at, end)
        stop = match.end() if match else end
        shown.append(self._show(data[at:stop]))
        if match and match[0] in (self._code, "\n"):
            self._code = ""
        return stop

    def _in_text(self, data: str, at: int, end: int, shown: list[str]) -> int:
        """Also inside a fence, where tags are text."""
        match = self._plain.search(data, at, end)
        shown.append(self._show(data[at : match.start() if match else end]))
        if match is None:
            return end
        if match["ticks"]:
            self._at_ticks(match["ticks"])
            shown.append(self._show(match[0], ticks=True))
        elif self._fence or self._is_text(closing=bool(match["end"])):
            shown.append(self._show(match[0]))
        elif match["end"]:  # it closes nothing: it leaked from a template
            self._in_gap = self._in_gap or self._blank_so_far
        else:
            self._name, self._depth, self._line = match["name"].lower(), 1, ""
        return match.end()

    def _is_text(self, *, closing: bool) -> bool:
        """Whether a tag outside thoughts and code is part of the answer."""
        if closing and self._mentions:
            self._mentions -= 1
            return True
        if closing:
            return self._is_mention()
        begins = self._blank_so_far or (not self._line.strip() and len(self._line.expandtabs(4)) < 4)
        self._mentions += not begins
        return not begins  # four blanks before it: an indented block of code

    def _is_mention(self) -> bool:
        """Whether the tag that comes now stands in the middle of a sentence."""
        return bool(self._line.strip()) and not _GLUED.match(self._last)

    def _at_ticks(self, ticks: str) -> None:
        fence = len(ticks) >= 3 and _BEFORE_FENCE.fullmatch(self._line) is not None
        if self._fence == "opening" and self._code[0] == ticks[0] == "`":  # no fence: a span that begins a line
            self._fence, self._code = "", "" if ticks == self._code else self._code
        elif self._fence in ("open", "ending"):
            self._fence = "ending" if fence and ticks.startswith(self._code) else "open"
        elif self._fence:
            pass
        elif fence:
            self._code, self._fence = ticks, "opening"
        elif ticks[0] == "`":
            self._code = ticks

    # ── what may be shown ────────────────────────────────────────────────────────────────────────────────────

    def _held_from(self, data: str) -> int:
        """Where the tail begins that more text could turn into something else."""
        end = len(data)
        run = data.rstrip("`")  # also in a thought: whether this is one is known only when what comes before is read
        if run == data:
            run = data.rstrip("~")
        if len(run) < end:
            return len(run)
        at = data.rfind("<", max(0, end - self._max_tag_chars))
        if at >= 0 and ">" not in data[at:] and self._may_be_tag(data[at + 1 :].lower().removeprefix("/")):
            return at
        return end

    def _may_be_tag(self, begun: str) -> bool:
        for name in self._names:
            if name.startswith(begun) or (begun.startswith(name) and begun[len(name)] in " \t"):
                return True
        return False

    def _show(self, text: str, *, ticks: bool = False) -> str:
        """The text, without blank lines where it follows a thought that began the message."""
        if self._fence and not ticks:
            self._pass_fence(text)
        self._pass_line(text)
        self._blank_so_far = self._blank_so_far and not text.strip()
        return self._after_gap(text) if self._in_gap else text

    def _pass_fence(self, text: str) -> None:
        rest, newline, _ = text.partition("\n")
        if self._fence == "ending" and rest.strip():
            self._fence = "open"
        elif self._fence == "ending" and newline:
            self._code, self._fence = "", ""
        elif self._fence == "opening" and newline:
            self._fence = "open"

    def _after_gap(self, text: str) -> str:
        text = self._indent + text
        lines = _BLANK_LINES.match(text)
        text = text[lines.end() :] if lines else text
        self._in_gap = not text.strip() and len(text) <= _MAX_GAP_CHARS
        self._indent = text if self._in_gap else ""
        return "" if self._in_gap else text

    def _pass_line(self, text: str) -> None:
        line = text[text.rindex("\n") + 1 :] if "\n" in text else self._line + text
        self._line = line if len(line) <= _MAX_LINE_CHARS else "…"
        self._last = text[-1:] or self._last


def _is_in_line(tildes: str) -> bool:
    """About 5, or a path: no fence is made of these tildes, whatever follows."""
    return "~~~" not in tildes and tildes[-1] != "~"


@cache
def unfed_filter(tags: tuple[str, ...]) -> ThinkFilter:
    """To be copied: its patterns are compiled once."""
    return ThinkFilter(tags)


def split_thoughts(text: str, tags: Iterable[str] = DEFAULT_TAGS) -> Filtered:
    """A whole text, through the same filter."""
    filter_ = ThinkFilter(tags)
    first, rest = filter_.feed(text), filter_.close()
    return Filtered(first.shown + rest.shown, first.thought + rest.thought)
