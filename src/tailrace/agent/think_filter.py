"""The think filter: keeps thoughts that a model wrote into its text out of the answer.

The one place where think tags are handled, for streamed and whole answers alike. Pure: text in, text out. Holds
back only what could still become a tag, so that a tag split anywhere is found (C42). A thought that is never closed
is never shown (C43). Code that merely mentions a tag is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

DEFAULT_TAGS = ("think", "thinking", "reasoning", "mm:think")
_MAX_TAG_CHARS = 120  # a tag with attributes; anything longer is text
_BLANK = " \t\r\n"
_RUNS = ("`", "~")  # characters of which a run of any length opens and closes code


class Filtered(NamedTuple):
    """The two halves of a piece of model text."""

    shown: str
    thought: str


class ThinkFilter:
    """`feed` the text in any pieces, then `close`: the joined halves do not depend on the pieces.

    `starts_inside` is for models whose template opened the thought in the prompt: only its end comes.
    """

    def __init__(self, tags: Iterable[str] = DEFAULT_TAGS, *, starts_inside: bool = False) -> None:
        self._names = tuple(sorted((tag.lower() for tag in tags), key=len, reverse=True))
        names = "|".join(map(re.escape, self._names))
        tag = rf"<(?P<end>/?)(?P<name>{names})(?:\s[^<>]{{0,{_MAX_TAG_CHARS}}})?\s*>"
        self._tag = re.compile(tag, re.IGNORECASE)
        self._plain = re.compile(rf"(?P<ticks>`+|~{{3,}})|{tag}", re.IGNORECASE)
        self._held = ""  # could still become a tag or a longer run of backticks
        self._repeats = 0  # how often the last character of `_held` follows it: a long run costs no copies (L140)
        self._depth = 1 if starts_inside else 0
        self._name = ""  # the tag of the thought we are in; "" where any tag ends it
        self._code = ""  # the backticks or tildes that opened the code we are in, "" outside
        self._fenced = False
        self._line_start = True  # only blanks since the line began: a fence may open or close here
        self._fresh = True  # nothing shown yet: the blanks between a thought and the answer are dropped

    def feed(self, text: str) -> Filtered:
        if self._held[-1:] in _RUNS and not text.strip(self._held[-1]):
            self._repeats += len(text)
            return Filtered("", "")
        ordinary = not (self._held or self._depth or self._code or self._fresh)
        if ordinary and "<" not in text and "`" not in text and "~" not in text:
            self._pass_line(text)
            return Filtered(text, "")
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
            at = self._step(data, at, end, shown, thought)
        self._held = data[end:]
        return Filtered(self._fresh_cut("".join(shown)), "".join(thought))

    def _step(self, data: str, at: int, end: int, shown: list[str], thought: list[str]) -> int:
        """Consumes up to and including the next thing that changes the state; returns where it ends."""
        if self._depth:
            match = self._tag.search(data, at, end)
            thought.append(data[at : match.start() if match else end])
            if match and self._name in ("", match["name"].lower()):
                self._depth += -1 if match["end"] else 1
            elif match:
                thought.append(match[0])
            return match.end() if match else end
        if self._code and not self._fenced:
            return self._in_span(data, at, end, shown)
        match = self._plain.search(data, at, end)
        before = data[at : match.start() if match else end]
        shown.append(before)
        self._pass_line(before)
        if match is None:
            return end
        if ticks := match["ticks"]:
            shown.append(ticks)
            self._at_ticks(ticks)
            self._line_start = False
        elif self._code:
            shown.append(match[0])
            self._line_start = False
        elif not match["end"]:
            self._name, self._depth = match["name"].lower(), 1
        return match.end()  # a closing tag that closes nothing is dropped: it leaked from a template

    def _in_span(self, data: str, at: int, end: int, shown: list[str]) -> int:
        """Inside `code`: ends at the same run of backticks, and at the end of the line at the latest."""
        match = re.compile(r"`+|\n").search(data, at, end)
        stop = match.end() if match else end
        shown.append(data[at:stop])
        self._pass_line(data[at:stop])
        if match and match[0] in (self._code, "\n"):
            self._code = ""
        return stop

    def _at_ticks(self, ticks: str) -> None:
        fence = len(ticks) >= 3 and self._line_start
        if self._fenced:
            if fence and ticks.startswith(self._code):
                self._code, self._fenced = "", False
        elif fence:
            self._code, self._fenced = ticks, True
        elif ticks[0] == "`":
            self._code = ticks

    def _held_from(self, data: str) -> int:
        """Where the tail begins that more text could turn into something else."""
        end = len(data)
        run = data.rstrip("`")  # also in a thought: whether this is one is known only when what comes before is read
        if run == data:
            run = data.rstrip("~")
        if len(run) < end:
            return len(run)
        at = data.rfind("<", max(0, end - _MAX_TAG_CHARS))
        if at >= 0 and ">" not in data[at:] and self._may_be_tag(data[at + 1 :].lower().removeprefix("/")):
            return at
        return end

    def _may_be_tag(self, begun: str) -> bool:
        for name in self._names:
            if name.startswith(begun) or (begun.startswith(name) and begun[len(name)].isspace()):
                return True
        return False

    def _pass_line(self, text: str) -> None:
        _, newline, tail = text.rpartition("\n")
        self._line_start = not tail.strip(_BLANK) and (bool(newline) or self._line_start)

    def _fresh_cut(self, shown: str) -> str:
        if self._fresh and shown:
            shown = shown.lstrip(_BLANK)
            self._fresh = not shown
        return shown


def split_thoughts(text: str, tags: Iterable[str] = DEFAULT_TAGS) -> Filtered:
    """A whole text, through the same filter."""
    filter_ = ThinkFilter(tags)
    first, rest = filter_.feed(text), filter_.close()
    return Filtered(first.shown + rest.shown, first.thought + rest.thought)
