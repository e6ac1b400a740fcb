"""Closes the Markdown that is open at the end of a text: of one that is still growing, and of one that is cut.

Pure and linear. Platforms reject half-open markup (G83). A cut through a code block would turn code into text and text
into code in the rest of the answer (G84).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tailrace.delivery.text.parser import FENCE, fence_after, open_inline

_UNFINISHED_LINK = re.compile(r"!?\[(?P<text>[^\[\]\n]*)\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*\(?[^()\s]*$")
_FENCE_LINE = re.compile(r"^[ \t]*(?:`{3}|~{3}).*$", re.MULTILINE)
_HALF_UNDERLINE = re.compile(r"(?<=[^\n]\n)[ \t]*(?:-+|=+)[ \t]*$")  # or a list or a rule that has only begun
_DANGLING = re.compile(r"(?:\*+|_+|~+|`+|!?\[)$")
MAX_CLOSING = 24  # characters; markup that takes more to close is left open


class OpenMarkup(NamedTuple):
    """`fence` is the line that opened a code block; `inline` are the marks of emphasis and code that are open."""

    fence: str = ""
    inline: tuple[str, ...] = ()

    @property
    def closing(self) -> str:
        """The marks that close it, after a text that does not end with a line end."""
        return f"\n{self._marker}" if self.fence else "".join(reversed(self.inline))

    @property
    def reopening(self) -> str:
        """The marks that open it again."""
        return f"{self.fence}\n" if self.fence else "".join(self.inline)

    @property
    def _marker(self) -> str:
        match = FENCE.fullmatch(self.fence)
        return match["indent"] + match["marker"] if match else "```"

    def close(self, text: str) -> str:
        """The text with what is open in it closed. A mark closes nothing after a space, so spaces at the end go."""
        if self.fence:
            return text + (self.closing[1:] if text.endswith("\n") else self.closing)
        return text.rstrip() + self.closing if self.inline else text


def open_fence(text: str) -> str:
    """The line that opened the code block which the text ends in; empty where it ends in none."""
    fence = ""
    for candidate in _FENCE_LINE.finditer(text):
        fence = fence_after(candidate[0], fence)
    return fence


def open_markup(text: str) -> OpenMarkup:
    """The markup that is open at the end of the text and can be closed. Empty where closing takes more than
    `MAX_CLOSING` characters, or where the closing marks would open something else: such marks are text to a parser."""
    opened = _open_markup(text)
    if not opened.closing:
        return opened
    closable = len(opened.closing) <= MAX_CLOSING and not _open_markup(opened.close(text)).closing
    return opened if closable else OpenMarkup()


def closed(text: str) -> str:
    """The text, to its last space, with what is open in it closed behind it: a stream can only grow."""
    opened = open_markup(text)
    return opened.close(text) if opened.fence else text + opened.closing


def _open_markup(text: str) -> OpenMarkup:
    if fence := open_fence(text):
        return OpenMarkup(fence)
    stretch = _last_stretch(text)
    code, marks = open_inline(stretch)
    if code is None:
        return OpenMarkup("", marks)
    return OpenMarkup("", (*marks, stretch[code : len(stretch) - len(stretch[code:].lstrip("`"))]))


def balance(text: str, cursor: str = "") -> str:
    """A growing text that any parser accepts: open markup is closed, a mark or a link that has only begun is left out.
    The cursor stands where the next character will."""
    if open_fence(text):
        return open_markup(text).close(text + cursor)
    text = _without_unfinished(text)
    shown = text.rstrip()
    if cursor and (text.endswith("\n") or FENCE.fullmatch(shown, shown.rfind("\n") + 1)):
        cursor = "\n" + cursor.lstrip()  # on the line of a fence it would undo the fence
    return open_markup(shown + cursor).close(shown + cursor)


def _without_unfinished(text: str) -> str:
    start = text.rfind("\n") + 1
    if FENCE.fullmatch(text, start):
        return text  # the end of a code block
    if _HALF_UNDERLINE.match(text, start):
        return text[:start]
    line = _UNFINISHED_LINK.sub(lambda match: match["text"], text[start:])
    if (dangling := _DANGLING.search(line)) and not _closes_something(text[:start] + line, dangling[0]):
        line = line[: dangling.start()]
    return text[:start] + line


def _closes_something(text: str, marks: str) -> bool:
    """Whether the marks at the end close something, rather than open it."""
    if marks.endswith("["):
        return False
    before = open_markup(text[: -len(marks)]).inline
    return bool(before) and before[-1][0] == marks[0] and len(marks) <= len(before[-1])


def _last_stretch(text: str) -> str:
    """The text after the last blank line or code block: emphasis does not reach over either."""
    start = text.rfind("\n\n") + 2 if "\n\n" in text else 0
    for marker in ("\n```", "\n~~~"):
        if (place := text.rfind(marker, start)) >= 0:
            start = text.find("\n", place + 1) + 1 or len(text)
    return text[start:]
