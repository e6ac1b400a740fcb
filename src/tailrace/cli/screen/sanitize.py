"""Removes terminal control sequences from text of models and tools (J122).

Pure. Escape sequences of every kind are removed whole, wherever the text is cut into chunks; of the other control
characters only the line end and the tab stay.
"""

from __future__ import annotations

from typing import Final, Literal

_KEPT: Final = "\n\t"
# Text without any of these passes without a look at each character.
_CONTROLS: Final = frozenset(chr(i) for i in (*range(0x20), *range(0x7F, 0xA0)) if chr(i) not in _KEPT)
_ESC: Final = "\x1b"
# ECMA-48 8.3: the strings that ESC or a C1 character opens (DCS, SOS, OSC, PM, APC), and CSI.
_STRING_AFTER_ESC: Final = frozenset("PX]^_")
_STRING_C1: Final = frozenset("\x90\x98\x9d\x9e\x9f")
_CSI_C1: Final = "\x9b"
_STRING_TERMINATOR_C1: Final = "\x9c"
_BELL: Final = "\x07"
_CANCEL: Final = frozenset("\x18\x1a")  # CAN and SUB end any sequence

_State = Literal["text", "escape", "intermediate", "csi", "string", "string-escape"]


class Sanitizer:
    """Text in, harmless text out. Any split of the same text gives the same result, joined.

    A sequence that never ends removes at most the rest of its line: no real one contains a line end."""

    def __init__(self) -> None:
        self._state: _State = "text"

    def feed(self, text: str) -> str:
        if self._state == "text" and _CONTROLS.isdisjoint(text):
            return text
        kept: list[str] = []
        for char in text:
            if self._state == "text" and char not in _CONTROLS:
                kept.append(char)
            elif char == "\n":  # no sequence reaches past the end of its line
                self._state = "text"
                kept.append(char)
            else:
                self._state = self._next(char)
        return "".join(kept)

    def _next(self, char: str) -> _State:
        """The state after a character that is not shown."""
        if char in _CANCEL:
            return "text"
        if self._state.startswith("string"):
            return self._in_string(char)
        if char == _ESC:
            return "escape"
        if char == _CSI_C1:
            return "csi"
        if char in _STRING_C1:
            return "string"
        if char in _CONTROLS:  # executed by a terminal in the midst of a sequence, which then goes on
            return self._state
        return self._in_sequence(char)

    def _in_string(self, char: str) -> _State:
        if char in (_BELL, _STRING_TERMINATOR_C1):
            return "text"
        if self._state == "string-escape" and char == "\\":
            return "text"
        return "string-escape" if char == _ESC else "string"

    def _in_sequence(self, char: str) -> _State:
        if self._state == "escape":
            if char == "[":
                return "csi"
            if char in _STRING_AFTER_ESC:
                return "string"
        if self._state == "csi":
            return "csi" if " " <= char <= "?" else "text"
        return "intermediate" if " " <= char <= "/" else "text"


def sanitized(text: str) -> str:
    """One whole text."""
    return Sanitizer().feed(text)


def sanitized_line(text: str, limit: int = 200) -> str:
    """The text as one line: runs of white space become one space, and it is cut to `limit` characters."""
    line = " ".join(sanitized(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
